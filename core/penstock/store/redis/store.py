"""The node store in Redis: the port's calls over one connection, and a second one for those that block.

Every call is one command, most of them a function of the library in `functions/`; `redis.calls` knows which,
`connection` carries them. Nothing is retried here. The twin is `memory.store`; `tests/contract` runs
one suite on both.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

from penstock.store.keys import TOPOLOGIES, Keys
from penstock.store.limits import check_limits
from penstock.store.port import (
    Bounds,
    Measure,
    ProtocolMismatch,
    Request,
    StoreUnreachable,
    WaitControl,
    WaitOutgoing,
    WaitReady,
)
from penstock.store.redis.calls import RedisCalls
from penstock.store.redis.connection import (
    Command,
    Password,
    ServerError,
    Wire,
    is_out_of_memory,
    translate,
)
from penstock.store.redis.forms import function_name
from penstock.store.redis.library import (
    LIBRARIES,
    PREVIOUS_VERSION,
    PROTOCOL_VERSION,
    function_library,
    libraries,
    previous_library,
    refusal,
    version_of,
)
from penstock.store.redis.measures import memory_use

A = TypeVar("A")

_TIMEOUT_S = 10.0
"""For a reply. A call takes at most 5 ms; a server that loads or rewrites may keep it longer."""
_BLOCK_MS_MAX = 2000
_VERSIONS_MIN = {"redis": (7, 0), "valkey": (7, 2)}
_SHARD_BYTES = 1024
"""About what counters and metric rows of a shard take in replies, several times over."""
_LIBRARY_BYTES = 8 << 20
"""Many times what the function library takes."""


@dataclass(slots=True, eq=False)
class _Posted:
    """Calls that were sent, how many of them each command was, and their raw replies once they were read."""

    calls: Sequence[Request[Any]]
    counts: Sequence[int]
    more_bytes: int
    replies: list[Any] | None = None
    is_lost: bool = False


class RedisStore:
    """One topology's view of one node's store. Not thread safe. Connects at the first call."""

    def __init__(
        self,
        url: str,
        topology_uid: str,
        bounds: Bounds = Bounds(),  # noqa: B008 - frozen
        *,
        timeout_s: float = _TIMEOUT_S,
        password: Password | None = None,
        reply_bytes_max: int | None = None,
    ) -> None:
        """`url` is unix:///path or redis://host:port; `timeout_s` is how long a reply is waited for,
        `password` that of the URL's user where it is in no file. What answers calls that are sent together
        is read up to `reply_bytes_max`."""
        self._keys = Keys(topology_uid)
        self._bounds = bounds
        self._version = PROTOCOL_VERSION
        self._calls = RedisCalls(self._keys, bounds, self._version)
        self._wire = Wire(url, timeout_s, password, reply_bytes_max)
        self._blocking = Wire(url, timeout_s + _BLOCK_MS_MAX / 1000, password, reply_bytes_max)
        self._bell = Wire(url, timeout_s, password, reply_bytes_max)
        self._rung = b""
        self._posted: deque[_Posted] = deque()

    def call(self, call: Request[A]) -> A:
        """Carry out one call. Raises StoreUnreachable, StoreFull, ProtocolMismatch; ValueError for a
        call beyond the caps of `Bounds`."""
        if isinstance(call, WaitReady):
            return cast("A", self._wait_ready(call))
        if isinstance(call, WaitControl):
            return cast("A", self._wait_control(call))
        if isinstance(call, WaitOutgoing):
            return cast("A", self._wait_outgoing(call))
        return cast("A", self.pipeline((call,))[0])

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        """Carry out calls in order in one round trip; errors as `call`, once all were carried out."""
        return self.post(calls)()

    def post(self, calls: Sequence[Request[Any]]) -> Callable[[], list[Any]]:
        """Send calls without waiting; the callable waits for their answers.

        Other calls may come in between: replies arrive in order, each kept for its caller.
        """
        if not calls:
            return list
        sizes_bytes = [check_limits(call, self._bounds) for call in calls]
        if not self._wire.is_open:
            self._agree()
        commands = self._calls.encode(calls, sizes_bytes)
        more_bytes = sum(_SHARD_BYTES * len(call.shards) for call in calls if isinstance(call, Measure))
        posted = _Posted(calls, [count for _, count in commands], more_bytes)
        try:
            self._wire.send([command for command, _ in commands])
        except BaseException:
            self._give_up_posted()
            raise
        self._posted.append(posted)
        return partial(self._answers, posted)

    def _answers(self, posted: _Posted) -> list[Any]:
        while posted.replies is None:
            if posted.is_lost:
                raise StoreUnreachable("the connection broke before the reply")
            first = self._posted[0]
            try:
                first.replies = self._wire.receive(len(first.counts), first.more_bytes)
            except BaseException:
                self._give_up_posted()
                raise
            self._posted.popleft()
        answers: list[Any] = []
        parts: list[Any] = []
        for count, reply in zip(posted.counts, posted.replies, strict=True):
            calls = posted.calls[len(answers) : len(answers) + count]
            if not count and not isinstance(reply, ServerError):
                parts.append(reply)
            elif isinstance(reply, ServerError):
                answer = self._calls.refused_when_full(calls) if calls and is_out_of_memory(reply) else None
                if answer is None:
                    raise self._fault(reply) from reply
                answers.append(answer)
            else:
                answers += self._calls.decode(calls, reply, parts)
                parts = []
        return answers

    def _agree(self) -> None:
        """Ask on a new connection which version's functions to call: a store whose agent is not upgraded yet
        holds those of the version before alone. What runs through a connection stays in one version."""
        try:
            (held,) = self._wire.exchange([(b"FCALL_RO", function_name("version", PROTOCOL_VERSION), b"0")])
            version = PROTOCOL_VERSION
            if isinstance(held, ServerError):
                fault = translate(str(held))
                if not isinstance(fault, ProtocolMismatch):
                    raise fault from held
                version = PREVIOUS_VERSION
        except BaseException:
            self._wire.close()
            raise
        if version != self._version:
            self._version = version
            self._calls = RedisCalls(self._keys, self._bounds, version)

    def _fault(self, reply: ServerError) -> Exception:
        """A version that is no longer held is asked for anew: the next call makes another connection."""
        fault = translate(str(reply))
        if isinstance(fault, ProtocolMismatch):
            self._give_up_posted()
            self._wire.close()
        return fault

    def _give_up_posted(self) -> None:
        """The connection is gone, and with it every reply that was still to come."""
        for posted in self._posted:
            posted.is_lost = True
        self._posted.clear()

    def close(self) -> None:
        self._give_up_posted()
        self._wire.close()
        self._blocking.close()
        self._bell.close()

    def _wait_ready(self, call: WaitReady) -> bool:
        """Listen to the list's bell, which is rung when names come onto an empty list, and look at the list.

        In this order nothing is missed; and nothing is written, as a blocking move would. Who begins to
        listen looks in any case.
        """
        key = self._keys.ready(call.ready)
        begins = self._rung != key or not self._bell.is_open
        if begins:
            self._listen(key)
            self._rung = key
        elif call.look:
            self._bell.pushed(0.0)
        if begins or call.look:
            length = _reply(self._blocking, (b"LLEN", key))
            if length > 0 or call.timeout_ms <= 0:
                return bool(length > 0)
        return self._bell.pushed(min(call.timeout_ms, _BLOCK_MS_MAX) / 1000)

    def _wait_outgoing(self, call: WaitOutgoing) -> bool:
        """Listen to the outboxes' bell; a look only when that begins, since entries that cannot be delivered
        for now keep waiting."""
        key = self._keys.outgoing
        if self._rung != key or not self._bell.is_open:
            self._listen(key)
            is_some = _reply(self._blocking, (b"SCARD", key)) > 0
            # Only now: a store that is loading lets us listen, and not look.
            self._rung = key
            if is_some:
                return True
        return self._bell.pushed(min(call.timeout_ms, _BLOCK_MS_MAX) / 1000)

    def _listen(self, key: bytes) -> None:
        """Until that has worked nothing is listened to."""
        self._bell.close()
        self._rung = b""
        _reply(self._bell, (b"SUBSCRIBE", key))

    def _wait_control(self, call: WaitControl) -> int:
        """A look first: after a loss the stream's numbers may have begun anew, below `after`."""
        key = self._keys.control(call.worker)
        entries = _reply(self._blocking, (b"XREVRANGE", key, b"+", b"-", b"COUNT", b"1"))
        last = int(entries[0][0].split(b"-")[0]) if entries else 0
        timeout_ms = min(call.timeout_ms, _BLOCK_MS_MAX)
        if last != call.after or timeout_ms <= 0:
            return last
        reply = _reply(self._blocking, (b"XREAD", b"BLOCK", timeout_ms, b"STREAMS", key, f"{last}-0"))
        return int(reply[key][-1][0].split(b"-")[0]) if reply else last


def load_functions(url: str) -> bool:
    """Load the function libraries of this version and the one before into the server at `url`, unless exactly
    these are there; True when something was loaded.

    Older ones are taken away; that of the next version stays, as its workers may. A crash in between leaves
    fewer libraries than wanted, and the next start loads what is missing. A server at its memory limit does
    not load: it is given a little more until the libraries are there.
    Raises ProtocolMismatch when the server is too old, or what it holds is of a version that is too far away;
    StoreUnreachable, StoreFull.
    """
    wire = Wire(url, _TIMEOUT_S)
    try:
        _check_server(_reply(wire, (b"INFO", b"server")).decode())
        listed = _reply(wire, (b"FUNCTION", b"LIST", b"LIBRARYNAME", LIBRARIES, b"WITHCODE"))
        held = {library[b"library_name"]: library[b"library_code"] for library in listed}
        versions = {name: version for name, code in held.items() if (version := version_of(name, code))}
        has_topologies = _reply(wire, (b"EXISTS", TOPOLOGIES)) > 0
        if why := refusal(PROTOCOL_VERSION, versions.values(), has_topologies=has_topologies):
            raise ProtocolMismatch(why)
        wanted = libraries(PROTOCOL_VERSION, function_library(), previous_library())
        missing = [source for name, source in wanted.items() if held.get(name) != source]
        for source in missing:
            _load(wire, source)
        for name, version in versions.items():
            if version < PREVIOUS_VERSION and name not in wanted:
                _reply(wire, (b"FUNCTION", b"DELETE", name))
        return bool(missing)
    finally:
        wire.close()


def _load(wire: Wire, source: bytes) -> None:
    load: Command = (b"FUNCTION", b"LOAD", b"REPLACE", source)
    (reply,) = wire.exchange([load])
    if isinstance(reply, ServerError) and is_out_of_memory(reply):
        with _more_memory(wire):
            _reply(wire, load)
    elif isinstance(reply, ServerError):
        raise translate(str(reply)) from reply


@contextmanager
def _more_memory(wire: Wire) -> Iterator[None]:
    """A memory limit a little above what is used, and then the one before.

    Whoever dies in between leaves the higher one: who keeps a store sets its limit at each start.
    """
    limit = _reply(wire, (b"CONFIG", b"GET", b"maxmemory"))[b"maxmemory"]
    used_bytes = memory_use(_reply(wire, (b"INFO", b"memory"))).used_bytes
    _reply(wire, (b"CONFIG", b"SET", b"maxmemory", used_bytes + _LIBRARY_BYTES))
    try:
        yield
    finally:
        _reply(wire, (b"CONFIG", b"SET", b"maxmemory", limit))


def _check_server(info: str) -> None:
    fields = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    kind = "valkey" if "valkey_version" in fields else "redis"
    text = fields[f"{kind}_version"]
    needed = _VERSIONS_MIN[kind]
    if tuple(int(part) for part in re.findall(r"\d+", text)[:2]) < needed:
        raise ProtocolMismatch(
            f"the store is {kind} {text}; {kind} {needed[0]}.{needed[1]} or newer is needed: upgrade it"
        )


def _reply(wire: Wire, command: Command) -> Any:
    (reply,) = wire.exchange([command])
    if isinstance(reply, ServerError):
        raise translate(str(reply)) from reply
    return reply
