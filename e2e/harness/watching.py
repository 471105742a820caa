"""Waiting for a state of Kubernetes objects: one `kubectl get --watch` that is read until the state is there.

An empty list makes no event and a watch may end: when nothing was heard for a while, the objects are listed
anew.
"""

from __future__ import annotations

import json
import selectors
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from e2e.harness.commands import Environment

Object = dict[str, Any]
SILENCE_S = 2.0


class NotReached(AssertionError):
    """The state did not come in time."""


def wait_until(what: str, found: Callable[[], bool], seconds: float, *, every_s: float = 0.5) -> None:
    """Look again and again, for what no watch can show. Raises NotReached with its name."""
    deadline = time.monotonic() + seconds
    while not found():
        if time.monotonic() > deadline:
            raise NotReached(f"waited {seconds:g} s for: {what}")
        time.sleep(every_s)


def watch_until(
    environment: Environment,
    arguments: tuple[str, ...],
    what: str,
    found: Callable[[list[Object]], bool],
    seconds: float,
) -> list[Object]:
    """Wait until `found` holds of the objects that `kubectl get ARGUMENTS` names; answers them.

    Raises NotReached, with the last state in short.
    """
    deadline = time.monotonic() + seconds
    objects = _listed(environment, arguments)
    while not found(objects):
        with _events(environment, arguments) as events:
            known: dict[str, Object] = {}
            for event in events:
                if time.monotonic() > deadline:
                    break
                if event is None:
                    objects = _listed(environment, arguments)
                    known = {uid_of(each): each for each in objects}
                else:
                    changed = event["object"]
                    known[uid_of(changed)] = changed
                    if event["type"] == "DELETED":
                        del known[uid_of(changed)]
                    objects = list(known.values())
                if found(objects):
                    return objects
        if time.monotonic() > deadline:
            raise NotReached(f"waited {seconds:g} s for: {what}; last seen: {_shortened(objects)}")
    return objects


@contextmanager
def recording(environment: Environment, arguments: tuple[str, ...]) -> Iterator[list[Object]]:
    """Every state that a watch shows of the objects that `kubectl get ARGUMENTS` names, in order, until the
    block's end; an object that was deleted is left out."""
    states: list[Object] = []

    def read(stream: IO[bytes]) -> None:
        states.extend(
            event["object"]
            for event in _documents(stream)
            if event is not None and event["type"] != "DELETED"
        )

    process = _watch(environment, arguments)
    assert process.stdout is not None
    reader = threading.Thread(target=read, args=(process.stdout,), daemon=True)
    reader.start()
    try:
        yield states
        time.sleep(SILENCE_S)  # what has happened by now is on its way
    finally:
        process.kill()
        process.wait()
        reader.join()
        process.stdout.close()


def uid_of(found: Object) -> str:
    return str(found["metadata"].get("uid", found["metadata"]["name"]))


def _listed(environment: Environment, arguments: tuple[str, ...]) -> list[Object]:
    text = environment.run("kubectl", "get", *arguments, "--ignore-not-found", "--output=json")
    if not text.strip():
        return []
    parsed = json.loads(text)
    return list(parsed["items"]) if parsed["kind"].endswith("List") else [parsed]


@contextmanager
def _events(environment: Environment, arguments: tuple[str, ...]) -> Iterator[Iterator[Object | None]]:
    """The events of a watch as they come, and None where there was silence."""
    process = _watch(environment, arguments)
    assert process.stdout is not None
    try:
        yield _documents(process.stdout)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _watch(environment: Environment, arguments: tuple[str, ...]) -> subprocess.Popen[bytes]:
    return environment.start(
        "kubectl", "get", *arguments, "--watch", "--output=json", "--output-watch-events"
    )


def _documents(stream: IO[bytes]) -> Iterator[Object | None]:
    decoder = json.JSONDecoder()
    pending = ""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            if not selector.select(SILENCE_S):
                yield None
                continue
            data = stream.read1(1 << 20)  # type: ignore[attr-defined]
            if not data:
                yield None
                return
            pending = (pending + data.decode(errors="replace")).lstrip()
            while pending:
                try:
                    document, end = decoder.raw_decode(pending)
                except json.JSONDecodeError:
                    break
                pending = pending[end:].lstrip()
                yield document


def _shortened(objects: list[Object]) -> str:
    if not objects:
        return "nothing"
    return "; ".join(
        f"{each['metadata']['name']} {json.dumps(each.get('status', {}), separators=(',', ':'))[:1200]}"
        for each in objects[:6]
    )
