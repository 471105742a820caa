"""Rows, state and outputs far beyond what a store takes at once, on a real one: soon, and in small calls."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import redis

from backends.store_fixtures import private_store
from penstock.api.compile import compile_topology
from penstock.api.load import load_topology
from penstock.store.port import (
    Bounds,
    Commit,
    Create,
    Enroll,
    Failures,
    Measure,
    Publish,
    Request,
    StateSnapshot,
    WaitReady,
)
from penstock.store.redis.store import RedisStore
from scenes.task_scene import Scene, TurnedClock

MANIFEST = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: large}
spec:
  code: {module: large_code}
  operators:
  - name: lines
    source: {files: {glob: "*.txt", format: text}}
  - name: named
    inputs: [lines]
    map: "large_code:named"
    outputSchema: "name string, body string"
  - name: first
    inputs: [named]
    keyBy: [name]
    processor: "large_code:First"
    outputSchema: "name string, body string"
    shards: 4
  - name: second
    inputs: [first]
    keyBy: [name]
    processor: "large_code:Second"
    outputSchema: "name string, body string"
    shards: 4
  - name: out
    inputs: [second]
    sink: {files: {path: out/, format: jsonl}}
"""
CODE = """
from pyspark.sql.streaming import StatefulProcessor


def named(line):
    name, _, body = line.value.partition(" ")
    return [(name, body)]


class First(StatefulProcessor):
    def init(self, handle):
        self.text = handle.getValueState("text", "t string")
        self.items = handle.getListState("items", "t string")
        self.map = handle.getMapState("map", "k string", "t string")

    def handleInputRows(self, key, rows, timers):
        for row in rows:
            word, _, count = row.body.partition(" ")
            if word == "keep":
                before = self.text.get()
                self.text.update((("" if before is None else before[0]) + "x" * int(count),))
                yield (key[0], str(len(self.text.get()[0])))
            elif word == "items":
                self.items.appendValue(("y" * int(count),))
                self.map.updateValue((str(len(list(self.items.get()))),), ("z" * int(count),))
                yield (key[0], str(sum(len(t) for t, in self.items.get())))
                yield (key[0], str(sum(len(t) for t, in self.map.values())))
            elif word == "many":
                for n in range(int(count)):
                    yield (f"k{n % 1000}", str(n))
            else:
                yield (key[0], row.body)

    def close(self):
        pass


class Second(StatefulProcessor):
    def init(self, handle):
        self.seen = handle.getValueState("seen", "n long")

    def handleInputRows(self, key, rows, timers):
        before = self.seen.get()
        seen = before[0] if before else 0
        for row in rows:
            seen += 1
            yield (key[0], row.body)
        self.seen.update((seen,))

    def close(self):
        pass
"""
CALL_BYTES_MAX = 5 << 20
"""Sent with a call, or answered: 16 fields of 256 KiB may come before a load sees that they are large."""
COMMIT_BYTES_MAX = 1 << 20
SLOW_US = 300_000
"""A machine that has other things to do makes any call wait; sizes say more."""


class Asked:
    """A second connection that never waits."""

    def call(self, call: Any) -> bool:
        assert isinstance(call, WaitReady)
        return True

    def close(self) -> None:
        """Nothing to close."""


class Sized:
    """Looks at the size of each call and of its answer."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    def call(self, call: Request[Any]) -> Any:
        return self.pipeline([call])[0]

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        return self.post(calls)()

    def post(self, calls: Sequence[Request[Any]]) -> Callable[[], list[Any]]:
        for call in calls:
            if isinstance(call, Commit):
                sent = sum(len(write.value or b"") for write in call.state)
                sent += sum(len(output.payload) for output in call.outputs)
                assert sent <= COMMIT_BYTES_MAX
                assert len(call.state) <= 4096
        answered = self._store.post(calls)

        def answers() -> list[Any]:
            found = answered()
            for answer in found:
                values = answer if isinstance(answer, list) else []
                assert sum(len(value) for value in values if isinstance(value, bytes)) <= CALL_BYTES_MAX
            return found

        return answers

    def close(self) -> None:
        self._store.close()


class LargeOnRedis(Scene):
    """One worker with a task for each stage, on a real store."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.bounds = Bounds()
        (folder / "topology.yaml").write_text(MANIFEST)
        (folder / "large_code.py").write_text(CODE)
        self.plan = compile_topology(load_topology(folder / "topology.yaml"))
        self.clock = TurnedClock()
        self.store = RedisStore(url, "t", self.bounds)  # type: ignore[assignment]
        self.shards = {
            "lines": ("lines/a.txt",),
            "first": tuple(f"first/{n}" for n in range(4)),
            "second": tuple(f"second/{n}" for n in range(4)),
        }
        for operator, shards in self.shards.items():
            executor = f"{operator}-w1"
            workers = (("w1", "n1", "localhost", "u1"),)
            owners = tuple((shard, executor, "local") for shard in shards)
            self.store.call(Publish(operator, 1, 0, workers, ((executor, "w1", 1),), owners))
            for shard in shards:
                self.store.call(Create(shard, source=operator == "lines"))
        self.store.call(Enroll("w1", "u1", 5, 1))

    def run_all(self, seconds: float) -> None:
        """Turns of all tasks until nothing waits."""
        store = Sized(cast("RedisStore", self.store))
        tasks = [
            self.task(operator, shards, store=store, waiter=Asked())
            for operator, shards in self.shards.items()
        ]
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.clock.sleep_us(20_000)
            for task in tasks:
                task.turn()
            assert self.store.call(Failures()) == {}
            found = self.store.call(Measure(tuple(s for shards in self.shards.values() for s in shards)))
            source, *others = [one for one in found if one is not None]
            if source.finished and not any(one.inbox_entries or one.outbox_entries for one in others):
                return
        raise AssertionError(f"still at work after {seconds} s: {found}")

    def rows(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in self.out()]


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "large_code", raising=False)
    with private_store(tmp_path / "store") as store:
        scene = LargeOnRedis(tmp_path, store.url)
        with redis.Redis.from_url(store.url) as plain:
            plain.config_set("slowlog-log-slower-than", SLOW_US)
            plain.slowlog_reset()
            yield scene
            slow = [(one["duration"], one["command"][:40]) for one in plain.slowlog_get()]
        scene.store.close()
        assert slow == []


def lines(large: LargeOnRedis, *texts: str) -> None:
    (large.folder / "a.txt").write_text("".join(f"{text}\n" for text in texts))


def test_a_row_of_16_mib_goes_through_two_keyed_stages_into_a_file(large: LargeOnRedis) -> None:
    body = "b" * ((16 << 20) - 100)
    lines(large, "small one", f"large {body}", "small two", "large again")
    large.run_all(60)
    rows = [(row["name"], row["body"]) for row in large.rows()]
    assert sorted(rows) == sorted([("small", "one"), ("large", body), ("small", "two"), ("large", "again")])
    for shard in large.shards["first"] + large.shards["second"]:
        assert all(name == b"" for name, _ in large.store.call(StateSnapshot(shard)))


def test_state_of_64_mib_under_one_key_is_kept_and_found_by_the_next_owner(large: LargeOnRedis) -> None:
    size = 16 << 20
    lines(large, *[f"one keep {size}" for _ in range(4)])
    large.run_all(60)
    assert [row["body"] for row in large.rows()][-4:] == [str(n * size) for n in (1, 2, 3, 4)]


def test_list_elements_and_map_values_of_5_mb_are_kept(large: LargeOnRedis) -> None:
    size = 5_000_000
    lines(large, *[f"one items {size}" for _ in range(6)])
    large.run_all(60)
    assert sorted(int(row["body"]) for row in large.rows()) == sorted([n * size for n in range(1, 7)] * 2)


@pytest.mark.timeout(300)
def test_a_million_rows_come_of_one(large: LargeOnRedis) -> None:
    lines(large, "one many 1000000")
    large.run_all(250)
    by_name: dict[str, list[int]] = {}
    for row in large.rows():
        by_name.setdefault(row["name"], []).append(int(row["body"]))
    assert len(by_name) == 1000
    assert sum(map(len, by_name.values())) == 1_000_000
    assert all(
        sorted(bodies) == list(range(int(name[1:]), 1_000_000, 1000)) for name, bodies in by_name.items()
    )


def test_20_kb_of_state_for_each_of_3000_keys_fit_4_shards(large: LargeOnRedis) -> None:
    lines(large, *[f"user{n:04d} keep 20000" for n in range(3000)])
    large.run_all(60)
    assert len(large.rows()) == 3000
