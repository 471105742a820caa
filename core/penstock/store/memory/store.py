"""The node store's twin in memory: the protocol's rules over a `MemoryNode`, call by call.

It answers as `redis.store` does (`tests/contract` runs one suite on both) and never blocks: WaitReady and
WaitControl answer at once what is there. The simulation runs on it, and so do tests that need
a store but no redis-server. What a node holds is in `memory_node`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar, cast

from penstock.store.limits import check_limits
from penstock.store.memory.maps import MemoryMaps, entitled
from penstock.store.memory.moves import MemoryMoves, not_here
from penstock.store.memory.node import (
    Budget,
    Lane,
    MemoryNode,
    Readiness,
    ShardRecord,
    TopologyData,
    Waiting,
)
from penstock.store.moving.calls import (
    Activate,
    Depart,
    Discard,
    Drop,
    Export,
    Freeze,
    Install,
    NextRound,
    Precopy,
    ReadMove,
    Thaw,
)
from penstock.store.port import (
    CONTROL_TOKEN,
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
    Owner,
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
    ShardStatus,
    StateSnapshot,
    StateWrite,
    StoreFull,
    StoreMemory,
    Tasks,
    Topologies,
    WaitControl,
    WaitOutgoing,
    WaitReady,
    Wake,
    Weigh,
)

A = TypeVar("A")


class MemoryStore(MemoryMaps, MemoryMoves):
    """One topology's view of a `MemoryNode`. Every call is atomic, as only one runs at a time."""

    _writes: ClassVar[frozenset[type]] = frozenset(
        {
            OpenStore, MintStart, Enroll, Publish, Retract, Create, Reopen, Claim, Wake, Fetch, Commit,
            ReportFailure, ClearFailure, Append, Acknowledge, SetTasks, PutMetrics,
            Precopy, NextRound, Freeze, Install, Depart, Activate, Drop, Thaw, Discard,
        }
    )  # fmt: skip
    """Calls that an append-only file would hold."""

    def __init__(self, node: MemoryNode, topology_uid: str, bounds: Bounds) -> None:
        self._node = node
        self._uid = topology_uid
        self._bounds = self._usual_bounds = bounds
        self._pressed_bounds = bounds.pressed()
        self._handlers: dict[type, Callable[[Any], Any]] = {
            OpenStore: self._open_store,
            MintStart: self._mint_start,
            Enroll: self._enroll,
            Publish: self._publish,
            Retract: self._retract,
            Topologies: self._topologies,
            Create: self._create,
            Claim: self._claim,
            WaitReady: self._wait_ready,
            Wake: self._wake,
            Reopen: self._reopen,
            Fetch: self._fetch,
            Load: self._load,
            Scan: self._scan,
            Commit: self._commit,
            ReportFailure: self._report_failure,
            ClearFailure: self._clear_failure,
            Failures: self._failures,
            Append: self._append,
            Outgoing: self._outgoing,
            OutgoingTargets: self._outgoing_targets,
            WaitOutgoing: self._wait_outgoing,
            ReadOutbox: self._read_outbox,
            Acknowledge: self._acknowledge,
            Assignment: self._assignment,
            WaitControl: self._wait_control,
            SetTasks: self._set_tasks,
            Tasks: self._tasks,
            PutMetrics: self._put_metrics,
            ReadMetrics: self._read_metrics,
            Measure: self._measure,
            Weigh: self._weigh,
            StateSnapshot: self._state_snapshot,
            ReadMemory: self._read_memory,
            Precopy: self._precopy,
            NextRound: self._next_round,
            Freeze: self._freeze,
            Export: self._export,
            Install: self._install,
            Depart: self._depart,
            Activate: self._activate,
            Drop: self._drop,
            Thaw: self._thaw,
            Discard: self._discard,
            ReadMove: self._read_move,
        }

    def call(self, call: Request[A]) -> A:
        """Carry out one call. Raises ProtocolMismatch for another store's id, ValueError for a
        call beyond the caps of `Bounds`."""
        check_limits(call, self._usual_bounds)
        if isinstance(call, Fetch | Append | Install) and not _is_pressed(call) and self._node.is_full:
            return cast("A", _refused_when_full(call))
        answer = self._carry_out(call)
        if self._node.log is not None and type(call) in self._writes:
            self._node.log.append((self._carry_out, call))
        return cast("A", answer)

    def _carry_out(self, call: Request[Any]) -> Any:
        self._bounds = self._pressed_bounds if _is_pressed(call) else self._usual_bounds
        return self._handlers[type(call)](call)

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        """Carry out calls in order."""
        return [self.call(call) for call in calls]

    def post(self, calls: Sequence[Request[Any]]) -> Callable[[], list[Any]]:
        """Carry out calls at once; the callable only hands over their answers."""
        answers = self.pipeline(calls)
        return lambda: answers

    def close(self) -> None:
        """Nothing to close."""

    @property
    def _data(self) -> TopologyData:
        return self._node.topology(self._uid)

    # --- administration

    def _open_store(self, call: OpenStore) -> int:
        if self._node.store_id not in {"", call.store_id}:
            raise ProtocolMismatch(f"this store is {self._node.store_id!r}, not {call.store_id!r}")
        node = self._node
        if node.generation and call.run_id and call.run_id == node.run_id:
            return node.generation
        node.store_id, node.run_id = call.store_id, call.run_id
        node.generation += 1
        return node.generation

    def _retract(self, _: Retract) -> int:
        self._node.topologies[self._uid] = TopologyData(retracted=True)
        return 0

    def _topologies(self, _: Topologies) -> list[str]:
        return sorted(uid for uid, data in self._node.topologies.items() if data.listed)

    def _create(self, call: Create) -> Answer:
        data = self._data
        if data.retracted:
            return Answer.UNKNOWN
        if call.shard in data.shards:
            return Answer.EXISTS
        record = ShardRecord(call.source, call.position, call.table_version)
        data.shards[call.shard] = record
        data.listed = True
        # What waited for a shard that was not here is local from now on.
        for producer, target in [pair for pair in data.outgoing if pair[1] == call.shard]:
            del data.outgoing[producer, target]
            record.waiters[producer] = None
        self._pull_waiters(call.shard, record)
        return Answer.OK

    # --- a task and its shards

    def _claim(self, call: Claim) -> Claimed | Answer | Moved:
        data = self._data
        record = data.shards.get(call.shard)
        if record is None:
            return Answer.UNKNOWN
        if record.is_away:
            return not_here(record)
        if not entitled(data, call):
            return Answer.STALE
        self._unlist(call.shard, record)
        record.epoch += 1
        record.owner = call.owner
        record.readiness = Readiness.IDLE
        if record.has_work():
            self._enlist(call.shard, record)
        return Claimed(
            epoch=record.epoch,
            generation=self._node.generation,
            commit=record.commit,
            offset=record.offset,
            position=record.position,
            table_version=record.table_version,
            external={
                target: ExternalCursor(lane.issued, lane.acknowledged, lane.position)
                for target, lane in record.lanes.items()
                if lane.external
            },
            finished=record.finished,
            within=record.within,
            counts=record.counts,
        )

    def _unlist(self, shard: str, record: ShardRecord) -> None:
        """Take a shard off its owner's ready list, where it is unless the store crashed."""
        if record.owner is not None and record.readiness is Readiness.QUEUED:
            names = self._ready_list(record.owner)
            if shard in names:
                names.remove(shard)

    def _enlist(self, shard: str, record: ShardRecord) -> None:
        """Put a shard at the end of its owner's ready list, unless nobody owns it."""
        if record.owner is not None:
            self._ready_list(record.owner).append(shard)
            record.readiness = Readiness.QUEUED

    def _ready_list(self, owner: Owner) -> deque[str]:
        return self._data.ready.setdefault(owner.ready, deque())

    def _wait_ready(self, call: WaitReady) -> bool:
        return bool(self._data.ready.get(call.ready))

    def _wake(self, call: Wake) -> Answer:
        if self._data.retracted:
            return Answer.UNKNOWN
        self._wake_list(call.ready)
        return Answer.OK

    def _reopen(self, call: Reopen) -> Answer | Moved:
        record = self._data.shards.get(call.shard)
        if record is None:
            return Answer.UNKNOWN
        if record.is_away:
            return not_here(record)
        if not record.source or not record.finished:
            return Answer.DONE
        record.finished = False
        if record.readiness is Readiness.IDLE:
            self._enlist(call.shard, record)
        return Answer.OK

    def _fetch(self, call: Fetch) -> Fetched:
        data = self._data
        names = data.ready.get(call.ready, deque())
        control = call.shards_max == 0 and CONTROL_TOKEN in names
        if control:
            names.remove(CONTROL_TOKEN)
        used_bytes = 0
        taken: list[FetchedShard] = []
        while names and len(taken) < call.shards_max and (not taken or used_bytes < call.bytes_max):
            name = names.popleft()
            if name == CONTROL_TOKEN:
                control = True
                continue
            record = data.shards[name]
            if record.is_away:
                record.readiness = Readiness.IDLE
                continue
            if record.over_bound(self._bounds):
                record.readiness = Readiness.HELD
                continue
            entries = _read(record, call.bytes_max - used_bytes)
            used_bytes += sum(len(entry.payload) for entry in entries)
            record.readiness = Readiness.TAKEN if entries or record.source else Readiness.IDLE
            taken.append(FetchedShard(name, record.epoch, record.offset, entries))
        return Fetched(tuple(taken), control)

    def _check_owner(self, shard: str, generation: int, epoch: int) -> ShardRecord | Answer:
        """The shard's record, or why the caller does not own it."""
        record = self._data.shards.get(shard)
        if record is None:
            return Answer.UNKNOWN
        if generation != self._node.generation or epoch != record.epoch or record.is_away:
            return Answer.FENCED
        return record

    def _load(self, call: Load) -> list[bytes | None] | Answer:
        record = self._check_owner(call.shard, call.generation, call.epoch)
        if isinstance(record, Answer):
            return record
        collection = record.state.get(call.collection, {})
        found: list[bytes | None] = []
        size_bytes = 0
        for name in call.fields:
            value = collection.get(name)
            found.append(value)
            size_bytes += len(value or b"")
            if size_bytes >= LOAD_BYTES:
                break
        return found

    def _scan(self, call: Scan) -> tuple[str, list[tuple[bytes, bytes]]] | Answer:
        record = self._check_owner(call.shard, call.generation, call.epoch)
        if isinstance(record, Answer):
            return record
        items = sorted(record.state.get(call.collection, {}).items())
        start = end = int(call.cursor)
        size_bytes = 0
        while end < min(len(items), start + call.count) and size_bytes < LOAD_BYTES:
            size_bytes += len(items[end][1])
            end += 1
        return str(end) if end < len(items) else "0", items[start:end]

    def _commit(self, call: Commit) -> Answer:
        record = self._check_owner(call.shard, call.generation, call.epoch)
        if isinstance(record, Answer):
            return record
        if call.number == record.commit:
            return Answer.DONE
        if (
            call.number != record.commit + 1
            or call.table_version != record.table_version
            or call.offset > record.placed
        ):
            return Answer.CONFLICT
        record.commit = call.number
        if call.position is not None:
            record.position = call.position
        if call.within is not None:
            record.within = call.within
        if call.counts is not None:
            record.counts = call.counts
        record.finished = record.finished or call.finished
        if record.status is ShardStatus.COPYING:
            self._note_changes(record, call)
        _write_state(record, call)
        worked = max(0, call.offset - record.offset)
        record.trim_inbox(call.offset, call.consumed_bytes, call.consumed_rows)
        was_held = record.readiness is Readiness.HELD
        was_listed = record.readiness is Readiness.QUEUED and not call.in_hand
        if not call.in_hand:
            self._unlist(call.shard, record)
        # On no list while entries are moved about: what comes in does not list it before its turn.
        record.readiness = Readiness.TAKEN
        record.keep_for_callers(call.consumed_bytes, worked, self._bounds)
        self._pull_waiters(call.shard, record)
        self._drain(call.shard, record)
        for output in call.outputs:
            lane = record.lane(output.target, output.external)
            lane.issued += 1
            entry = Waiting(lane.issued, call.now_us, output.rows, output.payload)
            self._place(call.shard, record, output.target, lane, entry)
        if was_held:
            record.readiness = Readiness.HELD
            self._release(call.shard, record)
            return Answer.OK
        record.readiness = Readiness.IDLE
        comes_again = not record.source or call.again or was_listed
        if comes_again and record.has_work():
            self._enlist(call.shard, record)
        return Answer.OK

    def _place(self, producer: str, record: ShardRecord, target: str, lane: Lane, entry: Waiting) -> None:
        """Put a new output into its target's inbox, or else into the outbox, and say who fetches it there."""
        if lane.external:
            record.queue(lane, entry)
            return
        there = self._data.shards.get(target)
        if there is None or there.is_away:
            record.queue(lane, entry)
            self._data.outgoing[producer, target] = None
        elif there.taken_from.get(producer, 0) == entry.number - 1 and there.may_place(
            len(entry.payload), self._bounds
        ):
            self._put(target, there, producer, entry)
        else:
            record.queue(lane, entry)
            there.waiters[producer] = None

    def _put(self, target: str, there: ShardRecord, producer: str, entry: Waiting) -> None:
        """Put an entry into an inbox and tell the owner."""
        there.put(producer, entry)
        if there.readiness is Readiness.IDLE:
            self._enlist(target, there)

    def _pull_waiters(self, shard: str, record: ShardRecord) -> None:
        """Take entries that wait in this node for room in this inbox, one producer after the other.

        A producer that still waits afterwards goes to the end of the line, so that none starves.
        """
        budget = Budget(self._bounds)
        for producer in list(record.waiters):
            source = self._data.shards[producer]
            emptied = self._move(producer, source, shard, record, budget)
            self._release(producer, source)
            if not emptied:
                break

    def _drain(self, shard: str, record: ShardRecord) -> None:
        """Move older entries of this outbox to the targets of this node that have room."""
        budget = Budget(self._bounds)
        for target, lane in record.lanes.items():
            if lane.waiting and not lane.external:
                there = self._data.shards.get(target)
                if there is not None and not there.is_away and there.may_place(0, self._bounds):
                    self._move(shard, record, target, there, budget)

    def _move(
        self, producer: str, source: ShardRecord, target: str, there: ShardRecord, budget: Budget
    ) -> bool:
        """Move a pair's waiting entries into the inbox while room and budget last.

        Answers whether none of them waits any more.
        """
        lane = source.lanes[target]
        while lane.waiting and budget.lasts():
            head = lane.waiting[0]
            if head.number > there.taken_from.get(producer, 0):
                if not there.may_place(len(head.payload), self._bounds):
                    break
                self._put(target, there, producer, head)
                budget.spend(head)
            source.unqueue(lane)
        there.waiters.pop(producer, None)
        if lane.waiting:
            there.waiters[producer] = None
        else:
            self._data.outgoing.pop((producer, target), None)
        return not lane.waiting

    def _release(self, shard: str, record: ShardRecord) -> None:
        """Hand out again a shard that was held, once its outbox is within the bound."""
        if record.readiness is Readiness.HELD and not record.over_bound(self._bounds):
            record.readiness = Readiness.IDLE
            if record.has_work():
                self._enlist(shard, record)

    def _report_failure(self, call: ReportFailure) -> Answer:
        record = self._check_owner(call.shard, call.generation, call.epoch)
        if isinstance(record, Answer):
            return record
        if call.operator in self._data.failures:
            return Answer.DONE
        self._data.failures[call.operator] = call.message
        return Answer.OK

    def _clear_failure(self, call: ClearFailure) -> Answer:
        if self._data.retracted:
            return Answer.UNKNOWN
        self._data.failures.pop(call.operator, None)
        return Answer.OK

    def _failures(self, _: Failures) -> dict[str, str]:
        return dict(self._data.failures)

    # --- between stores, and outside

    def _append(self, call: Append) -> Answer | Moved:
        record = self._data.shards.get(call.target)
        if record is None:
            return Answer.UNKNOWN
        if record.is_away:
            return not_here(record)
        last = record.taken_from.get(call.producer, 0)
        if call.number <= last:
            return Answer.DUP
        if call.number > last + 1:
            return Answer.GAP
        if not record.has_room(len(call.payload), self._bounds):
            record.note_caller(call.producer, len(call.payload))
            return Answer.BUSY
        entry = Waiting(call.number, call.placed_us, call.rows, call.payload)
        self._put(call.target, record, call.producer, entry)
        record.note_called(call.producer, len(call.payload), self._bounds)
        return Answer.OK

    def _outgoing(self, call: Outgoing) -> list[tuple[str, str]]:
        if not call.targets:
            return list(self._data.outgoing)[: call.count]
        pairs: list[tuple[str, str]] = []
        for number, target in enumerate(call.targets):
            waiting = [pair for pair in self._data.outgoing if pair[1] == target]
            pairs += waiting[0 if number else call.skip :]
        return pairs[: call.count]

    def _outgoing_targets(self, _: OutgoingTargets) -> list[str]:
        return sorted({target for _, target in self._data.outgoing})

    def _wait_outgoing(self, _: WaitOutgoing) -> bool:
        return bool(self._data.outgoing)

    def _read_outbox(self, call: ReadOutbox) -> list[tuple[int, int, int, bytes]]:
        record = self._data.shards.get(call.producer)
        lane = record.lanes.get(call.target) if record else None
        answer: list[tuple[int, int, int, bytes]] = []
        used_bytes = 0
        for entry in lane.waiting if lane else ():
            if entry.number <= call.after:
                continue
            used_bytes += len(entry.payload)
            if answer and used_bytes > call.bytes_max:
                break
            answer.append((entry.number, entry.placed_us, entry.rows, entry.payload))
        return answer

    def _acknowledge(self, call: Acknowledge) -> Answer:
        record = self._data.shards.get(call.producer)
        lane = record.lanes.get(call.target) if record else None
        if record is None:
            return Answer.UNKNOWN
        if lane is None or call.number > lane.issued:
            return Answer.OK
        if lane.external and record.is_away:
            # The next owner writes the same bytes once more.
            return Answer.OK
        if lane.external and call.number > lane.acknowledged:
            lane.acknowledged = call.number
            lane.position = call.position
        is_news = bool(lane.waiting) and lane.waiting[0].number <= call.number
        while lane.waiting and lane.waiting[0].number <= call.number:
            record.unqueue(lane)
        if not lane.waiting:
            self._data.outgoing.pop((call.producer, call.target), None)
            if there := self._data.shards.get(call.target):
                there.waiters.pop(call.producer, None)
        if is_news:
            self._release(call.producer, record)
        return Answer.OK

    # --- looking

    def _put_metrics(self, call: PutMetrics) -> Answer:
        if self._data.retracted:
            return Answer.UNKNOWN
        self._data.metrics.update(call.rows)
        return Answer.OK

    def _read_metrics(self, _: ReadMetrics) -> dict[str, bytes]:
        return dict(self._data.metrics)

    def _measure(self, call: Measure) -> list[ShardCounters | None]:
        return [self._counters(self._data.shards.get(shard)) for shard in call.shards]

    def _counters(self, record: ShardRecord | None) -> ShardCounters | None:
        if record is None:
            return None
        return ShardCounters(
            epoch=record.epoch,
            generation=self._node.generation,
            commit=record.commit,
            arrived_rows=record.arrived_rows,
            completed_rows=record.completed_rows,
            inbox_entries=len(record.inbox),
            inbox_bytes=record.inbox_bytes,
            outbox_entries=record.outbox_entries,
            outbox_bytes=record.outbox_bytes,
            executor=record.owner.executor if record.owner else "",
            finished=record.finished,
            status=record.status,
            counts=record.counts,
            position=record.position,
        )

    def _weigh(self, call: Weigh) -> list[int | None]:
        records = (self._data.shards.get(shard) for shard in call.shards)
        return [record.weight_bytes() if record is not None else None for record in records]

    def _read_memory(self, _: ReadMemory) -> StoreMemory:
        return StoreMemory(self._node.memory_used_bytes(), self._node.memory_bytes_max or 0)

    def _state_snapshot(self, call: StateSnapshot) -> dict[tuple[bytes, bytes], bytes]:
        record = self._data.shards.get(call.shard)
        if record is None:
            return {}
        return {
            (name, field): value
            for name, collection in record.state.items()
            for field, value in collection.items()
        }


def _is_pressed(call: Request[Any]) -> bool:
    return isinstance(call, Commit | Fetch | Append) and call.pressed


def _refused_when_full(call: Fetch | Append | Install) -> Fetched | Answer:
    """What a node at its memory limit answers. Raises StoreFull where that is no answer."""
    if isinstance(call, Fetch):
        return Fetched((), control=False, full=True)
    if isinstance(call, Append):
        return Answer.FULL
    raise StoreFull("the node store is at its memory limit")


def _read(record: ShardRecord, bytes_max: int) -> tuple[Entry, ...]:
    """The inbox from its start, about `bytes_max` bytes of it, one entry at the least."""
    entries: list[Entry] = []
    used_bytes = 0
    for entry in record.inbox:
        used_bytes += len(entry.payload)
        if entries and used_bytes > bytes_max:
            break
        entries.append(entry)
    return tuple(entries)


def _write_state(record: ShardRecord, call: Commit) -> None:
    for write in call.state:
        _write_field(record, write)
    for timer in call.timers:
        if timer.due_ms is None:
            record.timers.pop(timer.name, None)
        else:
            record.timers[timer.name] = timer.due_ms


def _write_field(record: ShardRecord, write: StateWrite) -> None:
    """One state change; a collection without fields is no collection."""
    if write.field is None:
        record.state.pop(write.collection, None)
        return
    collection = record.state.setdefault(write.collection, {})
    if write.value is None:
        collection.pop(write.field, None)
        if not collection:
            del record.state[write.collection]
    else:
        collection[write.field] = write.value
