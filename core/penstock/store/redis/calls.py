"""Each call of the port as one command to Redis, and its reply as the call's answer.

Nothing here talks to a server. The arguments are those that the heads of the functions in
`functions/*.lua` name, in their order. Neighbours: `keys` names what plain commands touch,
`redis.store` sends the commands, `limits` has been asked before.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from penstock.store.keys import STORE, TOPOLOGIES, Keys
from penstock.store.port import (
    LOAD_BYTES,
    Acknowledge,
    Answer,
    Append,
    Assignment,
    Bounds,
    Claim,
    Claimed,
    ClearFailure,
    Commit,
    Create,
    Enroll,
    Entry,
    ExternalCursor,
    Failures,
    Fetch,
    Fetched,
    FetchedShard,
    Load,
    Measure,
    MintStart,
    Moved,
    OpenStore,
    Outgoing,
    OutgoingTargets,
    ProtocolMismatch,
    Publish,
    PutMetrics,
    ReadMemory,
    ReadMetrics,
    ReadOutbox,
    Reopen,
    ReportFailure,
    Request,
    Retract,
    Scan,
    SetTasks,
    ShardCounters,
    StateSnapshot,
    StateWrite,
    StoreMemory,
    TaskMap,
    Tasks,
    Topologies,
    Wake,
    Weigh,
)
from penstock.store.redis.assignments import RedisPublish, paired, published, worker_assignment
from penstock.store.redis.connection import Command
from penstock.store.redis.library import PROTOCOL_VERSION
from penstock.store.redis.move_calls import FUNCTIONS as MOVE_FUNCTIONS
from penstock.store.redis.move_calls import STATUSES, RedisMoves

_TOGETHER_ARGUMENTS_MAX = 600
_TOGETHER_BYTES_MAX = 64 * 1024
"""What one command may carry of several commits: far below what keeps the server for 5 ms."""

_MEASURED_PER_COMMAND = 256
"""At about 4 microseconds each."""

_COMMIT_NUMBERS = struct.Struct("<17d")
_BOUNDS = struct.Struct("<7d")
_RECORD = struct.Struct("<16d")

_encode = msgspec.msgpack.encode
_decode_mapping = msgspec.msgpack.Decoder(dict[str, str]).decode
_decode_lists = msgspec.msgpack.Decoder(frozenset[str]).decode

_ANSWERS = {answer.value.encode(): answer for answer in Answer}
_FULL = Fetched((), control=False, full=True)


class _CallForm(NamedTuple):
    """How a call becomes a command, and a reply an answer."""

    encode: Callable[[Any], Command]
    decode: Callable[[Any, Any], Any]
    """(call, reply) -> answer."""


class _PartsForm(NamedTuple):
    """Likewise, of a call that may be too large for one command."""

    encode: Callable[[Any], list[Command]]
    decode: Callable[[Any, list[Any]], Any]
    """(call, replies) -> answer."""


class RedisCalls:
    """The commands of one topology under given bounds."""

    def __init__(self, keys: Keys, bounds: Bounds) -> None:
        self._keys = keys
        self._bounds = _packed_bounds(bounds)
        self._pressed_bounds = _packed_bounds(bounds.pressed())
        self._heads: dict[str, Command] = {
            name: (b"FCALL_RO" if name in _READS else b"FCALL", _function(name), b"1", keys.prefix)
            for name in _FUNCTIONS + MOVE_FUNCTIONS
        }
        self._commit_head = self._heads["commit"]
        self._forms: dict[type, _CallForm] = {
            OpenStore: _CallForm(self._open_store, _generation),
            MintStart: _CallForm(self._mint_start, _minted),
            Enroll: _CallForm(self._enroll, _answer),
            Retract: _CallForm(self._retract, _as_it_is),
            Topologies: _CallForm(self._topologies, _names),
            Create: _CallForm(self._create, _answer),
            Claim: _CallForm(self._claim, _claimed),
            Wake: _CallForm(self._wake, _answer),
            Reopen: _CallForm(self._reopen, _answer_or_moved),
            Fetch: _CallForm(self._fetch, _fetched),
            Load: _CallForm(self._load, _values),
            Scan: _CallForm(self._scan, _chunk),
            ReportFailure: _CallForm(self._report_failure, _answer),
            ClearFailure: _CallForm(self._clear_failure, _answer),
            Failures: _CallForm(self._failures, _texts),
            Append: _CallForm(self._append, _answer_or_moved),
            Outgoing: _CallForm(self._outgoing, _pairs),
            OutgoingTargets: _CallForm(self._outgoing_targets, _names),
            ReadOutbox: _CallForm(self._read_outbox, _waiting),
            Acknowledge: _CallForm(self._acknowledge, _answer),
            Assignment: _CallForm(self._assignment, worker_assignment),
            SetTasks: _CallForm(self._set_tasks, _answer),
            Tasks: _CallForm(self._tasks, _task_map),
            PutMetrics: _CallForm(self._put_metrics, _answer),
            ReadMetrics: _CallForm(self._read_metrics, _rows),
            Weigh: _CallForm(self._weigh, _weights),
            StateSnapshot: _CallForm(self._state_snapshot, _snapshot),
            ReadMemory: _CallForm(self._read_memory, _memory),
        }
        self._in_parts: dict[type, _PartsForm] = {
            Publish: _PartsForm(RedisPublish(self._heads).commands, _published),
            Measure: _PartsForm(self._measures, _counters),
        }
        moves = RedisMoves(self._heads, bounds, self._bounds)
        self._forms.update({call: _CallForm(*form) for call, form in moves.forms.items()})

    @property
    def functions(self) -> dict[str, bytes]:
        """The functions that are called by name under the topology's prefix, and the command for each."""
        return {name: cast("bytes", head[0]) for name, head in self._heads.items()}

    def encode(self, calls: Sequence[Request[Any]], sizes_bytes: Sequence[int]) -> list[tuple[Command, int]]:
        """The commands of calls, in order, each with how many of them it is. KeyError for one that blocks.

        Small commits that follow each other travel as one command: what the server does for each command, and
        looks up for each, it does once. A large publication or measurement travels as several commands, of
        which the last one counts.
        """
        commands: list[tuple[Command, int]] = []
        together = _Together()
        for call, size_bytes in zip(calls, sizes_bytes, strict=True):
            if isinstance(call, Commit):
                arguments = _commit_arguments(call)
                if together.pressed is not call.pressed or not together.has_room(arguments, size_bytes):
                    if together.commits:
                        commands.append(self._commits(together))
                    together = _Together(pressed=call.pressed)
                together.add(arguments, size_bytes)
                continue
            if together.commits:
                commands.append(self._commits(together))
                together = _Together()
            if (in_parts := self._in_parts.get(type(call))) is not None:
                *parts, last = in_parts.encode(call)
                commands += [(part, 0) for part in parts]
                commands.append((last, 1))
            else:
                commands.append((self._forms[type(call)].encode(call), 1))
        if together.commits:
            commands.append(self._commits(together))
        return commands

    def refused_when_full(self, calls: Sequence[Request[Any]]) -> Fetched | Answer | None:
        """The answer to the call of a command that the server refused at its memory limit; None for one that
        has no answer to that."""
        first = calls[0]
        if isinstance(first, Fetch):
            return _FULL
        return Answer.FULL if isinstance(first, Append) else None

    def decode(self, calls: Sequence[Request[Any]], reply: Any, parts: list[Any]) -> list[Any]:
        """The answers to the calls of one command, in a reply that is no error; `parts` are those to the
        commands of which it is the last."""
        first = calls[0]
        if isinstance(first, Commit):
            return [_ANSWERS[answer] for answer in reply]
        if (in_parts := self._in_parts.get(type(first))) is not None:
            return [in_parts.decode(first, [*parts, reply])]
        return [self._forms[type(first)].decode(first, reply)]

    # --- administration

    def _open_store(self, call: OpenStore) -> Command:
        return (b"FCALL", _function("open_store"), b"1", STORE, call.store_id, call.run_id)

    def _mint_start(self, call: MintStart) -> Command:
        return (*self._heads["mint_start"], call.worker)

    def _enroll(self, call: Enroll) -> Command:
        return (*self._heads["enroll"], call.worker, call.uid, call.start, call.attempt)

    def _retract(self, _: Retract) -> Command:
        return self._heads["retract"]

    def _topologies(self, _: Topologies) -> Command:
        return (b"SMEMBERS", TOPOLOGIES)

    def _create(self, call: Create) -> Command:
        source = b"1" if call.source else b"0"
        head = self._heads["create"]
        return (*head, call.shard, call.table_version, call.position, source, self._bounds)

    # --- a task and its shards

    def _claim(self, call: Claim) -> Command:
        owner = call.owner
        head = self._heads["claim"]
        return (*head, call.shard, owner.executor, owner.incarnation, owner.ready, call.version)

    def _wake(self, call: Wake) -> Command:
        return (*self._heads["wake"], call.ready)

    def _reopen(self, call: Reopen) -> Command:
        return (*self._heads["reopen"], call.shard)

    def _fetch(self, call: Fetch) -> Command:
        if call.pressed:
            head, bounds = self._heads["fetch_pressed"], self._pressed_bounds
        else:
            head, bounds = self._heads["fetch"], self._bounds
        return (*head, call.ready, call.bytes_max, call.shards_max, bounds)

    def _load(self, call: Load) -> Command:
        head = self._heads["load"]
        return (*head, call.shard, call.generation, call.epoch, call.collection, LOAD_BYTES, *call.fields)

    def _scan(self, call: Scan) -> Command:
        head = self._heads["scan"]
        named = (call.shard, call.generation, call.epoch, call.collection)
        return (*head, *named, call.cursor, call.count, LOAD_BYTES)

    def _commits(self, together: _Together) -> tuple[Command, int]:
        bounds = self._pressed_bounds if together.pressed else self._bounds
        return (*self._commit_head, bounds, *together.arguments), together.commits

    def _report_failure(self, call: ReportFailure) -> Command:
        head = self._heads["report_failure"]
        return (*head, call.shard, call.generation, call.epoch, call.operator, call.message)

    def _clear_failure(self, call: ClearFailure) -> Command:
        return (*self._heads["clear_failure"], call.operator)

    def _failures(self, _: Failures) -> Command:
        return (b"HGETALL", self._keys.failures)

    # --- between stores, and outside

    def _append(self, call: Append) -> Command:
        return (
            *self._heads["append_pressed" if call.pressed else "append"],
            call.producer,
            call.target,
            call.number,
            call.placed_us,
            call.rows,
            call.payload,
            self._pressed_bounds if call.pressed else self._bounds,
        )

    def _outgoing(self, call: Outgoing) -> Command:
        return (*self._heads["outgoing"], call.count, call.skip, *call.targets)

    def _outgoing_targets(self, _: OutgoingTargets) -> Command:
        return (b"SMEMBERS", self._keys.outgoing)

    def _read_outbox(self, call: ReadOutbox) -> Command:
        return (*self._heads["read_outbox"], call.producer, call.target, call.bytes_max, call.after)

    def _acknowledge(self, call: Acknowledge) -> Command:
        head = self._heads["acknowledge"]
        return (*head, call.producer, call.target, call.number, call.position, self._bounds)

    # --- looking

    def _assignment(self, call: Assignment) -> Command:
        return (*self._heads["assignment"], call.worker)

    def _set_tasks(self, call: SetTasks) -> Command:
        lists = sorted({*call.idle, *(ready for _, ready in call.mapping)})
        mapping = _encode(dict(call.mapping))
        head = self._heads["set_tasks"]
        return (*head, call.worker, call.incarnation, call.executor, mapping, _encode(lists), *lists)

    def _tasks(self, call: Tasks) -> Command:
        return (*self._heads["tasks"], call.executor, call.operator)

    def _put_metrics(self, call: PutMetrics) -> Command:
        return (*self._heads["put_metrics"], *[part for row in call.rows for part in row])

    def _read_metrics(self, _: ReadMetrics) -> Command:
        return (b"HGETALL", self._keys.metrics)

    def _measures(self, call: Measure) -> list[Command]:
        shards = call.shards
        return [
            (*self._heads["measure"], *shards[first : first + _MEASURED_PER_COMMAND])
            for first in range(0, max(1, len(shards)), _MEASURED_PER_COMMAND)
        ]

    def _weigh(self, call: Weigh) -> Command:
        return (*self._heads["weigh"], str(max(1, call.samples)), *call.shards)

    def _state_snapshot(self, call: StateSnapshot) -> Command:
        return (*self._heads["state_snapshot"], call.shard)

    def _read_memory(self, _: ReadMemory) -> Command:
        return (b"INFO", b"memory")


def _packed_bounds(bounds: Bounds) -> bytes:
    return _BOUNDS.pack(
        bounds.inbox_bytes_max,
        bounds.inbox_entries_max,
        bounds.outbox_bytes_max,
        bounds.outbox_entries_max,
        bounds.drain_entries_max,
        bounds.drain_bytes_max,
        bounds.noted_entries_max,
    )


def _function(name: str) -> bytes:
    return f"penstock_{name}_{PROTOCOL_VERSION}".encode()


_FUNCTIONS = (
    "mint_start", "enroll", "publish_part", "publish", "retract", "create", "reopen", "claim", "wake",
    "fetch", "fetch_pressed", "load", "scan", "commit", "report_failure", "clear_failure", "append",
    "append_pressed", "outgoing", "read_outbox", "acknowledge", "assignment", "set_tasks", "tasks",
    "put_metrics", "measure", "weigh", "state_snapshot",
)  # fmt: skip

_READS = frozenset(
    ["load", "scan", "outgoing", "read_outbox", "export", "read_move", "assignment", "tasks", "measure",
     "weigh", "state_snapshot"]
)  # fmt: skip
"""The functions that the library registers as reads: a user who may only read can call them."""


class _Group:
    """State changes of one collection, in the end."""

    __slots__ = ("deletes", "drop", "sets")

    def __init__(self) -> None:
        self.drop = False
        self.sets: dict[bytes, bytes] = {}
        self.deletes: dict[bytes, None] = {}


class _Together:
    """Commits that travel as one command."""

    __slots__ = ("arguments", "commits", "pressed", "size_bytes")

    def __init__(self, *, pressed: bool = False) -> None:
        self.pressed = pressed
        self.arguments: list[bytes | str | int] = []
        self.commits = 0
        self.size_bytes = 0

    def has_room(self, arguments: Sequence[bytes | str | int], size_bytes: int) -> bool:
        return not self.commits or (
            len(self.arguments) + len(arguments) <= _TOGETHER_ARGUMENTS_MAX
            and self.size_bytes + size_bytes <= _TOGETHER_BYTES_MAX
        )

    def add(self, arguments: Sequence[bytes | str | int], size_bytes: int) -> None:
        self.arguments.append(len(arguments))
        self.arguments += arguments
        self.commits += 1
        self.size_bytes += size_bytes


def _commit_arguments(call: Commit) -> Command:
    groups, arguments = _grouped(call.state)
    for timer in call.timers:
        arguments += (timer.name, b"" if timer.due_ms is None else timer.due_ms)
    to_sinks: list[bytes | str | int] = []
    sinks = 0
    for output in call.outputs:
        if output.external:
            to_sinks += (output.target, output.rows, output.payload)
            sinks += 1
        else:
            arguments += (output.target, output.rows, output.payload)
    position, within, counts = call.position, call.within, call.counts
    numbers = _COMMIT_NUMBERS.pack(
        call.generation,
        call.epoch,
        call.number,
        call.table_version,
        call.offset,
        call.consumed_bytes,
        call.consumed_rows,
        call.finished,
        call.again,
        position is not None,
        groups,
        len(call.timers),
        len(call.outputs) - sinks,
        sinks,
        call.in_hand,
        within is not None,
        counts is not None,
    )
    if within is not None:
        to_sinks.append(within)
    if counts is not None:
        to_sinks.append(counts)
    return (call.shard, numbers, call.now_us, position or b"", *arguments, *to_sinks)


def _grouped(writes: Sequence[StateWrite]) -> tuple[int, list[bytes | str | int]]:
    """State changes as the library reads them: number of groups, their arguments.

    What is left of changes in order is, for each collection, whether it is dropped first, and the
    last word on each field.
    """
    groups: dict[bytes, _Group] = {}
    for write in writes:
        collection, field, value = write.collection, write.field, write.value
        group = groups.get(collection)
        if group is None:
            group = groups[collection] = _Group()
        if field is None:
            group.drop = True
            group.sets.clear()
            group.deletes.clear()
        elif value is None:
            group.sets.pop(field, None)
            group.deletes[field] = None
        else:
            group.sets[field] = value
            group.deletes.pop(field, None)
    arguments: list[bytes | str | int] = []
    for collection, group in groups.items():
        arguments += (collection, b"1" if group.drop else b"0", len(group.sets), len(group.deletes))
        for item in group.sets.items():
            arguments += item
        arguments += group.deletes
    return len(groups), arguments


# --- replies ------------------------------------------------------------------------------------


def _as_it_is(_: Any, reply: Any) -> Any:
    return reply


def _names(_: Topologies | OutgoingTargets, reply: set[bytes]) -> list[str]:
    return sorted(name.decode() for name in reply)


def _answer(_: Any, reply: bytes) -> Answer:
    return _ANSWERS[reply]


def _minted(_: Any, reply: int | bytes) -> int | Answer:
    return _ANSWERS[reply] if isinstance(reply, bytes) else reply


def _answer_or_moved(_: Any, reply: Any) -> Answer | Moved:
    return _ANSWERS[reply] if isinstance(reply, bytes) else Moved(reply[1].decode())


def _generation(call: OpenStore, reply: list[Any]) -> int:
    store_id = reply[0].decode()
    if store_id != call.store_id:
        raise ProtocolMismatch(f"this store is {store_id!r}, not {call.store_id!r}")
    generation: int = reply[1]
    return generation


def _claimed(call: Claim, reply: Any) -> Claimed | Answer | Moved:
    if isinstance(reply, bytes) or reply[0] == b"MOVED":
        return _answer_or_moved(call, reply)
    epoch, generation, commit, offset, position, table_version, finished, within, counts = reply[:9]
    external = {
        reply[at].decode(): ExternalCursor(reply[at + 1], reply[at + 2], reply[at + 3])
        for at in range(9, len(reply), 4)
    }
    return Claimed(
        epoch, generation, commit, offset, position, table_version, external, finished == 1, within, counts
    )


def _fetched(_: Fetch, reply: list[Any]) -> Fetched:
    shards = [
        FetchedShard(
            reply[at].decode(),
            reply[at + 1],
            reply[at + 2],
            tuple([Entry(int(id_[:-2]), int(field), payload) for id_, (field, payload) in reply[at + 3]]),
        )
        for at in range(1, len(reply), 4)
    ]
    return Fetched(tuple(shards), reply[0] == 1)


def _values(_: Load, reply: Any) -> list[bytes | None] | Answer:
    if isinstance(reply, bytes):
        return _ANSWERS[reply]
    values: list[bytes | None] = reply
    return values


def _chunk(_: Scan, reply: Any) -> tuple[str, list[tuple[bytes, bytes]]] | Answer:
    if isinstance(reply, bytes):
        return _ANSWERS[reply]
    cursor, flat = reply
    return cursor.decode(), paired(flat)


def _texts(_: Failures, reply: dict[bytes, bytes]) -> dict[str, str]:
    return {name.decode(): message.decode() for name, message in reply.items()}


def _rows(_: ReadMetrics, reply: dict[bytes, bytes]) -> dict[str, bytes]:
    return {name.decode(): row for name, row in reply.items()}


def _pairs(_: Outgoing, reply: list[bytes]) -> list[tuple[str, str]]:
    return [(producer.decode(), target.decode()) for producer, target in paired(reply)]


def _waiting(_: ReadOutbox, reply: list[Any]) -> list[tuple[int, int, int, bytes]]:
    answer = []
    for id_, (field, payload) in reply:
        placed_us, rows, _ = field.split(b":")
        answer.append((int(id_[:-2]), int(placed_us), int(rows), payload))
    return answer


def _task_map(_: Tasks, reply: list[Any]) -> TaskMap:
    incarnation, packed, version, lists = reply
    mapping = _decode_mapping(packed) if packed is not None else {}
    named = _decode_lists(lists) if lists is not None else frozenset()
    return TaskMap(
        incarnation.decode() if incarnation is not None else "",
        mapping,
        int(version or 0),
        named - set(mapping.values()),
    )


def _published(call: Publish, replies: list[bytes]) -> Answer:
    return published(call, replies[-1])


def _counters(_: Measure, replies: list[Any]) -> list[ShardCounters | None]:
    return [
        _shard_counters(reply[0], *reply[at : at + 4]) for reply in replies for at in range(1, len(reply), 4)
    ]


def _shard_counters(
    generation: int,
    record: bytes | None,
    executor: bytes | None,
    counts: bytes | None,
    position: bytes | None,
) -> ShardCounters | None:
    if record is None:
        return None
    (
        epoch, commit, offset, placed, inbox_bytes, arrived_rows, completed_rows,
        outbox_entries, outbox_bytes, _table_version, _ready, _source, finished, status, *_
    ) = map(int, _RECORD.unpack(record))  # fmt: skip
    return ShardCounters(
        epoch=epoch,
        generation=generation,
        commit=commit,
        arrived_rows=arrived_rows,
        completed_rows=completed_rows,
        inbox_entries=placed - offset,
        inbox_bytes=inbox_bytes,
        outbox_entries=outbox_entries,
        outbox_bytes=outbox_bytes,
        executor=(executor or b"").decode(),
        finished=finished == 1,
        status=STATUSES[status],
        counts=counts or b"",
        position=position or b"",
    )


def _weights(_: Weigh, reply: list[int]) -> list[int | None]:
    return [None if weight < 0 else weight for weight in reply]


def _snapshot(_: StateSnapshot, reply: list[Any]) -> dict[tuple[bytes, bytes], bytes]:
    return {
        (reply[at], field): value for at in range(0, len(reply), 2) for field, value in paired(reply[at + 1])
    }


def _memory(_: ReadMemory, reply: bytes) -> StoreMemory:
    return memory_use(reply)


def memory_use(info: bytes) -> StoreMemory:
    """What a server says of its memory."""
    fields = dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)
    return StoreMemory(int(fields["used_memory"]), int(fields["maxmemory"]))
