"""The Schedules as this node's store remembers them: for an agent that starts while the API server is away,
and for the operator where one is gone.

They lie beside the state that they are about, so whoever loses the one loses the other. One that the API
server has no more stays as long as its state does, and a newer one is not written over by an older. What is
kept may be old, which does no harm: versions only grow, nothing is born or retracted by it. Neighbours:
`store_turns` reads it once, and writes what has changed; the operator's `kept_schedules` reads it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from penstock.store.keys import SCHEDULES
from penstock.store.port import StoreUnreachable
from penstock.store.redis.connection import Command, ServerError, translate
from penstock_operator.agent.schedule_feed import Object

_READ_AT_ONCE = b"32"
"""A Schedule has up to 1.5 MB, and a server keeps no more than 64 MiB for a connection."""


class Wire(Protocol):
    """What is asked of the connection to the store's server: `redis.connection.Wire` is one."""

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """A reply for each. Raises StoreUnreachable."""

    def close(self) -> None: ...


class ScheduleMemory:
    """Not thread safe."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._kept: dict[bytes, bytes] | None = None
        self._texts: dict[str, tuple[Object, bytes]] = {}
        """Of the objects that were last to be kept: most are the same ones the next time."""

        self._uids: dict[bytes, tuple[bytes, str]] = {}
        """Schedule -> (text, uid of its state)."""

    def recall(self) -> list[Object]:
        """All objects that are kept."""
        return [json.loads(text) for text in self._known().values()]

    def uids(self) -> frozenset[str]:
        """Whose states are kept Schedules of. No worker can write here, so each of them is, or was, one."""
        return frozenset(uid for _, uid in self._states().values())

    def uids_but_of(self, namespaces: Collection[str]) -> frozenset[str]:
        """Whose states are kept Schedules of further namespaces than these."""
        return frozenset(
            uid
            for name, (_, uid) in self._states().items()
            if b"/" in name and name.split(b"/")[0].decode() not in namespaces
        )

    def _states(self) -> Mapping[bytes, tuple[bytes, str]]:
        self._uids = {
            name: known if (known := self._uids.get(name)) is not None and known[0] == text else _uid(text)
            for name, text in self._known().items()
        }
        return self._uids

    def keep(self, objects: Mapping[str, Object], alive: Collection[str] | None = None) -> None:
        """Keep these, and what is kept of other names while its state's uid is in `alive` (None: all)."""
        known = self._known()
        self._texts = {name: self._with_text(name, item) for name, item in objects.items()}
        wanted = {name.encode(): text for name, (_, text) in self._texts.items()}
        for name, text in known.items():
            if wanted.get(name) != text and self._stays(text, wanted.get(name), alive):
                wanted[name] = text
        changed = [part for name, text in wanted.items() if known.get(name) != text for part in (name, text)]
        gone = [name for name in known if name not in wanted]
        if changed:
            self._ask(b"HSET", SCHEDULES, *changed)
        if gone:
            self._ask(b"HDEL", SCHEDULES, *gone)
        self._kept = wanted

    def _with_text(self, name: str, item: Object) -> tuple[Object, bytes]:
        before = self._texts.get(name)
        return before if before is not None and before[0] is item else (item, _text(name, item))

    def _stays(self, kept: bytes, wanted: bytes | None, alive: Collection[str] | None) -> bool:
        """Whether what is kept under a name stays there: it is newer than what is to be kept there."""
        spec = json.loads(kept).get("spec") or {}
        uid = spec.get("topologyUid")
        if wanted is None:
            return alive is None or uid in alive
        new = json.loads(wanted).get("spec") or {}
        return bool(uid == new.get("topologyUid") and _version(spec) > _version(new))

    def forget(self) -> None:
        """What the store keeps has to be read again."""
        self._kept = None

    def close(self) -> None:
        self._wire.close()

    def _known(self) -> dict[bytes, bytes]:
        if self._kept is None:
            found, cursor = dict[bytes, bytes](), b""
            while cursor != b"0":
                cursor, flat = self._ask(b"HSCAN", SCHEDULES, cursor or b"0", b"COUNT", _READ_AT_ONCE)
                found.update(zip(flat[::2], flat[1::2], strict=True))
            self._kept = found
        return self._kept

    def _ask(self, *command: bytes) -> Any:
        (reply,) = self._wire.exchange([command])
        if isinstance(reply, ServerError):
            error = translate(str(reply))
            raise StoreUnreachable(str(error)) if isinstance(error, ServerError) else error
        return reply


def _uid(kept: bytes) -> tuple[bytes, str]:
    return kept, str((json.loads(kept).get("spec") or {}).get("topologyUid", ""))


def _version(spec: Mapping[str, Any]) -> int:
    version = spec.get("version")
    return version if isinstance(version, int) else 0


def _text(name: str, item: Object) -> bytes:
    """What matters of an object. Reports are left out: they change often, and the store knows better. Its
    namespace is said where it is another one than the agent's."""
    wanted = ("name", "uid", "labels", *(("namespace",) if "/" in name else ()))
    metadata = {key: item["metadata"][key] for key in wanted if key in item["metadata"]}
    return json.dumps({"metadata": metadata, "spec": item.get("spec")}, sort_keys=True).encode()
