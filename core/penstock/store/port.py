"""The node store's port: the calls of the protocol as values, and what they answer.

Two adapters keep this contract: `redis.store` (Redis Functions) and `memory.store` (the twin
that the simulation runs on). `tests/contract` runs one suite on both. Neighbours: `keys`
names what is stored where, `codec` packs rows into entries, `ownership` turns a task's work into
these calls, `sender` delivers outboxes between stores.

What is made for every entry, output or state change is a named tuple, all else a frozen dataclass.

Words: a shard's *record* holds epoch, owner, commit number, offset and counters. An *entry* is
one packed batch of rows. A *pair* is (producer shard, target); its entries are numbered 1, 2, ...
without a hole. The *inbox* numbers its entries by the shard's own counter (never by a clock).
A *ready list* is the one list that a task waits for; it names the shards that have work.

Every call is atomic in its store. None is retried by the adapter: a call whose reply is lost
raises `StoreUnreachable`, and only the caller knows whether repeating it is safe (it is for all calls
that carry a number, an epoch or a version, and those are all of them but `Fetch`, the waits
and `Wake`; what a lost `Fetch` took off the ready list comes back by `Claim`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from penstock.errors import PermanentError, RetryError

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)

CONTROL_TOKEN = "!"  # noqa: S105 - not a secret
"""What a ready list carries beside shard names: the assignment changed, read it again."""
LOAD_BYTES = 1 << 20
"""So much state one answer holds, or little more: reading it keeps the store a millisecond."""


class StoreUnreachable(RetryError):
    """The store did not answer; whether the call took effect is unknown."""


class StoreDiskFull(StoreUnreachable):
    """The store takes no writes until its disk has room again; the message says so. It need only be waited
    for, as one that is away."""


class StoreFull(PermanentError):
    """The store refused a write for memory; the message says what to do."""


class ProtocolMismatch(PermanentError):
    """The store holds a function library of another version than this code speaks."""


class Answer(StrEnum):
    """One-word answers of the protocol (`docs/decisions/0001-store-protocol.md`)."""

    OK = "OK"
    EXISTS = "EXISTS"
    UNKNOWN = "UNKNOWN"
    STALE = "STALE"
    DONE = "DONE"
    FENCED = "FENCED"
    CONFLICT = "CONFLICT"
    DUP = "DUP"
    GAP = "GAP"
    MOVED = "MOVED"
    MOVING = "MOVING"
    BUSY = "BUSY"
    FULL = "FULL"
    MORE = "MORE"


class ShardStatus(StrEnum):
    """Where a shard stands in one store. All but ACTIVE belong to moves between stores (`moves`).

    An owner works at ACTIVE and COPYING."""

    ACTIVE = "active"
    COPYING = "copying"
    """Being copied to another store, while its owner works."""
    FROZEN = "frozen"
    """On its way to another store; it may still come back."""
    DEPARTED = "departed"
    """Another store's; its copy is still here, and the other one has perhaps not been told to go on."""
    MOVED = "moved"
    """Another store's; only the tombstone is here."""
    INSTALLING = "installing"
    """On its way here."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of one shard's queues and of one call; the same on every store of a topology."""

    inbox_bytes_max: int = 1 << 20
    inbox_entries_max: int = 4096
    outbox_bytes_max: int = 1 << 20
    outbox_entries_max: int = 4096
    drain_entries_max: int = 64
    """Waiting entries that one commit moves into inboxes, at most."""
    drain_bytes_max: int = 256 << 10
    entry_bytes_max: int = 256 << 10
    outputs_per_commit_max: int = 512
    """At about 9 microseconds an output this keeps a call under 5 ms."""
    commit_bytes_max: int = 2 << 20
    """At 2 to 3 nanoseconds a byte, likewise."""
    row_bytes_max: int = 17 << 20
    """A packed row: 16 MiB of its own, and what is around it. It travels in as many entries as it needs."""
    large_bytes_max: int = 512 << 20
    """What one row may put out and change, in as many commits as it needs."""
    chunk_bytes_max: int = 128 << 10
    """About what one call of a move between stores reads, writes or drops: bytes,"""
    chunk_entries_max: int = 400
    """and fields or entries."""
    noted_entries_max: int = 500_000
    """Changes that one round of a pre-copy notes at most; then nobody drives it, and it is given up."""

    def pressed(self) -> Bounds:
        """What holds in a store at its memory limit: an inbox takes an entry only while it is empty, and a
        shard with anything in its outbox is not handed out."""
        return replace(self, inbox_bytes_max=0, inbox_entries_max=0, outbox_bytes_max=0, outbox_entries_max=0)


@dataclass(frozen=True, slots=True)
class Owner:
    """Who runs a shard: one task of one start of one executor.

    `incarnation` is "uid/start/attempt" of the worker process; `ready` names the task's ready
    list and is unique to (incarnation, executor, task attempt).
    """

    executor: str
    incarnation: str
    ready: str


class Request(Generic[A_co]):
    """A call of the port; the type parameter is what it answers."""

    __slots__ = ()


# --- administration -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenStore(Request[int]):
    """Raise the store's generation by one; every start and promotion begins with it.

    Answers the generation (int). It is not raised when `run_id`, the server's own name for its run, is not
    empty and is the one of the last OpenStore: then only the caller was started anew. Until the first
    OpenStore every other call answers as on an empty store. `store_id` is written on the first call and
    must match afterwards.
    """

    store_id: str
    run_id: str = ""


@dataclass(frozen=True, slots=True)
class MintStart(Request["int | Answer"]):
    """A number for one start of a worker's process, above all that were given out here, or enrolled, for it.

    So starts have an order that no clock decides. A process asks once, before it enrols, and again when the
    reply is lost: a number that nobody uses does no harm. UNKNOWN when the topology is retracted.
    """

    worker: str


@dataclass(frozen=True, slots=True)
class Enroll(Request[Answer]):
    """A worker process announces its incarnation (pod uid, start, attempt).

    OK; STALE when the store's map names another uid for this worker, or a later (attempt, start) of the same
    uid has enrolled. Between two uids that no map names the last one counts.
    """

    worker: str
    uid: str
    start: int
    """As `MintStart` answered."""
    attempt: int
    """As whoever starts the process counts, where somebody does; 0 in a pod."""


@dataclass(frozen=True, slots=True)
class Publish(Request[Answer]):
    """Write one operator's schedule into the store's maps, in the order of versions.

    OK; DONE when exactly this version is there; STALE when a newer version or a higher term is. A large one
    reaches a store in parts and counts whole with the last of them; StoreUnreachable when another publication
    came between them. Wakes the control stream of every worker named in the old or the new schedule.
    Whoever has a shard here whose home is another store now, or was to have it, keeps it until it departs: it
    stays in `Assignment` and may claim, also when its executor or its worker is named no more. The tasks
    (`SetTasks`) of one that is named no more and keeps nothing are forgotten, and woken.
    `workers` is worker -> (node, host, uid) of all workers named by `executors`, and of any others
    that may be given some later;
    `executors` is executor -> (worker, tasks); `shards` is shard name -> (executor, home store).
    `remote` is executor -> (node, tasks): those of its tasks that run on other nodes than its worker's.
    """

    operator: str
    version: int
    term: int
    workers: tuple[tuple[str, str, str, str], ...]
    executors: tuple[tuple[str, str, int], ...]
    shards: tuple[tuple[str, str, str], ...]
    remote: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Retract(Request[int]):
    """The topology is gone from this store: every later call about it answers UNKNOWN.

    Drops all of its keys in steps; answers the number of keys still to drop (call until 0).
    The tombstone stays.
    """


@dataclass(frozen=True, slots=True)
class Topologies(Request[list[str]]):
    """Answers the uids of all topologies that have something in this store, in order: since their first
    Publish or Create, until their Retract has come to its end."""


@dataclass(frozen=True, slots=True)
class Create(Request[Answer]):
    """Make a shard's record and inbox. OK, or EXISTS. UNKNOWN when the topology is retracted.

    Called by the agent from the schedule, once; without a record everything answers UNKNOWN.
    `position` is the start position of a source partition (opaque bytes, empty for none).
    `source` marks a shard without inbox; it is ready whenever its outbox has room.
    """

    shard: str
    table_version: int = 0
    position: bytes = b""
    source: bool = False


@dataclass(frozen=True, slots=True)
class Reopen(Request["Answer | Moved"]):
    """A source's partition that was read to its end has more by now: hand it out again, from its position.

    OK; DONE (it is not at its end); UNKNOWN; MOVING; a `Moved`. May be repeated.
    """

    shard: str


# --- a task and its shards --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claim(Request["Claimed | Answer | Moved"]):
    """Take a shard for `owner` under schedule version `version`.

    A `Claimed`, or STALE (the map names another executor, another incarnation or a newer
    version), UNKNOWN (no record), MOVING (frozen) or a `Moved`. A granted claim mints epoch + 1 and
    puts the shard on the owner's ready list when it has work; every claim is granted a fresh epoch,
    the same owner's too.
    """

    shard: str
    owner: Owner
    version: int


@dataclass(frozen=True, slots=True)
class ExternalCursor:
    """A pair (this shard, outside sink): numbers issued and acknowledged, and the sink's position
    after the acknowledged one."""

    issued: int
    acknowledged: int
    position: bytes


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a new owner starts from. `within` and `counts` are as last noted with a commit ("" before)."""

    epoch: int
    generation: int
    commit: int
    offset: int
    position: bytes
    table_version: int
    external: dict[str, ExternalCursor]
    finished: bool
    within: bytes = b""
    counts: bytes = b""


@dataclass(frozen=True, slots=True)
class WaitReady(Request[bool]):
    """Block until the ready list has something, or `timeout_ms` (at most 2000) passed.

    Answers True when something may be waiting. Takes nothing off the list.
    """

    ready: str
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Wake(Request[Answer]):
    """Put a control token on a ready list (at most one is kept). OK."""

    ready: str


@dataclass(frozen=True, slots=True)
class Fetch(Request["Fetched"]):
    """Take up to `shards_max` shards off the ready list and read their inboxes.

    Reads at most about `bytes_max` bytes in all (one entry at the least per shard taken; shards
    beyond the budget stay on the list). A shard whose outbox is over its bound is
    not handed out: it is held, and comes back by itself when the outbox was trimmed.
    With `shards_max` 0 it takes a control token at most. Answers a `Fetched`.

    A store at its memory limit takes nothing off the list and answers `full`. `pressed`: asked all the same,
    under `Bounds.pressed`, by a task that was answered so (`docs/decisions/0021-memory-under-pressure.md`).
    """

    ready: str
    bytes_max: int
    shards_max: int
    pressed: bool = False


class Entry(NamedTuple):
    """One inbox entry: its number in the inbox, when it was placed (microseconds of the
    producer's clock), its payload."""

    number: int
    placed_us: int
    payload: bytes


class FetchedShard(NamedTuple):
    """What a task may work on now: under `epoch`, the entries after `offset`.

    `entries` is empty for a source shard, and for a keyed shard that was woken for nothing.
    """

    shard: str
    epoch: int
    offset: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Fetched:
    """`control` is set when a control token was on the list; `full`: the store is at its memory limit."""

    shards: tuple[FetchedShard, ...]
    control: bool
    full: bool = False


@dataclass(frozen=True, slots=True)
class Load(Request[list[bytes | None] | Answer]):
    """Read state of an owned shard: `fields` of `collection` ("" is the shard's value hash).

    Answers a list of bytes | None in the order of `fields`, or FENCED / UNKNOWN. The list is shorter than
    `fields` where their values are large: it ends with the one that makes it `LOAD_BYTES` or more, or a few
    behind that one. Ask again for the rest.
    """

    shard: str
    generation: int
    epoch: int
    collection: bytes
    fields: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Scan(Request[tuple[str, list[tuple[bytes, bytes]]] | Answer]):
    """Read a collection in chunks. Answers (next cursor, [(field, value), ...]); cursor "0" ends.

    A chunk has about `count` fields, or fewer where their values are large: it ends soon behind `LOAD_BYTES`.
    Start with cursor "0". A field may come twice (keep the last); while one owner holds the
    epoch and does not commit in between, the union of the chunks is the whole collection.
    FENCED / UNKNOWN otherwise.
    """

    shard: str
    generation: int
    epoch: int
    collection: bytes
    cursor: str
    count: int


class StateWrite(NamedTuple):
    """One state change: value None deletes the field; `field` None deletes the collection.

    `collection` b"" is the shard's value hash, which cannot be deleted whole.
    """

    collection: bytes
    field: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class TimerWrite:
    """Set (`due_ms`) or delete (None) the timer called `name`."""

    name: bytes
    due_ms: int | None


class Output(NamedTuple):
    """One entry for a target. `external` targets are sinks outside: their entries always wait in
    the outbox until `Acknowledge`."""

    target: str
    payload: bytes
    rows: int
    external: bool = False


@dataclass(frozen=True, slots=True)
class Commit(Request[Answer]):
    """Compare-and-swap on (generation, epoch, number, table version), then apply everything.

    Applies state and timers, advances `offset` (inbox number worked up to; trims the inbox),
    sets `position` when not None, numbers the outputs per pair and places them: into a local inbox when the
    pair's last is there and there is room, else into the outbox. First drains older ones of its
    own outbox into local inboxes that have room, and entries that wait for room in this shard's
    inbox into it, both within `Bounds.drain_*`. Then, when the inbox still has entries, the
    shard goes to the end of its owner's ready list. A source shard (`again` True) goes there too.

    OK; DONE (this number was applied, under this epoch); FENCED (epoch or generation is
    another's, the shard frozen, or moved); CONFLICT (number is neither last nor last + 1, or the
    table version differs); UNKNOWN. Never BUSY.

    `in_hand`: a Fetch handed the shard out under this epoch with entries (or as a source), and this is
    the first commit since; so it is on no ready list, and is not looked for there.

    `consumed_bytes`, `consumed_rows`: sums over the entries up to `offset`. `finished`: a source partition is
    read to its end and will not be handed out again. `within`, when not None, is kept with the shard for its
    next owner: how far the work is that no offset and no position tell (opaque bytes, few). So is `counts`:
    totals since the shard's creation of rows that came out of what is fused in it (`codec.encode_counts`).
    `pressed`: queues are filled under `Bounds.pressed`, as the store was at its memory limit lately; it takes
    it all the same.
    """

    shard: str
    generation: int
    epoch: int
    number: int
    table_version: int
    now_us: int
    offset: int = 0
    consumed_bytes: int = 0
    consumed_rows: int = 0
    position: bytes | None = None
    within: bytes | None = None
    counts: bytes | None = None
    finished: bool = False
    again: bool = False
    in_hand: bool = False
    state: tuple[StateWrite, ...] = ()
    timers: tuple[TimerWrite, ...] = ()
    outputs: tuple[Output, ...] = ()
    pressed: bool = False


@dataclass(frozen=True, slots=True)
class ReportFailure(Request[Answer]):
    """User code raised. Counts only while (generation, epoch) still own the shard: OK or FENCED.

    The first report for an operator is kept, later ones answer DONE.
    """

    shard: str
    generation: int
    epoch: int
    operator: str
    message: str


@dataclass(frozen=True, slots=True)
class ClearFailure(Request[Answer]):
    """Forget an operator's failure (a new run starts). OK."""

    operator: str


@dataclass(frozen=True, slots=True)
class Failures(Request[dict[str, str]]):
    """Answers operator -> message of all reported failures."""


# --- between stores, and outside ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Append(Request["Answer | Moved"]):
    """Deliver entry `number` of the pair (producer, target) into the target's inbox.

    Takes exactly last + 1. OK; DUP (had it); GAP; BUSY (no room; ask again later);
    MOVING (frozen); `Moved`; UNKNOWN. FULL: the store is at its memory limit. `pressed`: it is asked all the
    same, and takes an entry into an empty inbox only, so that the stores behind this one can drain.
    """

    producer: str
    target: str
    number: int
    payload: bytes
    rows: int
    placed_us: int
    pressed: bool = False


@dataclass(frozen=True, slots=True)
class Moved:
    """The shard's home is another store now."""

    store_id: str


@dataclass(frozen=True, slots=True)
class Outgoing(Request[list[tuple[str, str]]]):
    """Pairs with entries for targets that are not in this store: [(producer, target), ...].

    At most `count` of them, without external ones; those that wait longest for a target come first. With
    `targets` only what waits for these, in their order; behind the first `skip` that wait for the first of
    them. So all can be looked through in calls that stay short (`sender.waiting_pairs`), and what waits for
    one store hides nothing that waits for another.
    """

    count: int
    targets: tuple[str, ...] = ()
    skip: int = 0


@dataclass(frozen=True, slots=True)
class OutgoingTargets(Request[list[str]]):
    """The targets of the pairs that `Outgoing` tells, in order of their names."""


@dataclass(frozen=True, slots=True)
class WaitOutgoing(Request[bool]):
    """Block until the bell of the outboxes rings, or `timeout_ms` (at most 2000) passed.

    It rings when an entry begins to wait for a target that is not in this store and that nothing waited for.
    True when something may be waiting. A client's first call also looks (and so does the first after a
    broken connection), so nothing is missed by who looks with `Outgoing` after each True, and
    again after whatever it delivered.
    """

    timeout_ms: int


@dataclass(frozen=True, slots=True)
class ReadOutbox(Request[list[tuple[int, int, int, bytes]]]):
    """The oldest waiting entries of a pair, at most about `bytes_max` bytes (one at the least).

    Only those numbered above `after`. Answers [(number, placed_us, rows, payload), ...].
    """

    producer: str
    target: str
    bytes_max: int
    after: int = 0


@dataclass(frozen=True, slots=True)
class Acknowledge(Request[Answer]):
    """All entries of the pair up to `number` are at the target: trim them. OK, or UNKNOWN.

    `position` is an outside sink's position after `number`; kept when `number` is news.
    May come late, twice or from an old owner: it only ever moves forward. Wakes the
    producer if it was held and is under its bound again.
    """

    producer: str
    target: str
    number: int
    position: bytes = b""


# --- looking ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assignment(Request["WorkerAssignment"]):
    """What this store's maps say of a worker. Answers a `WorkerAssignment`.

    Its executors list only shards whose home is this store: a worker's tasks work on nothing else.
    """

    worker: str


@dataclass(frozen=True, slots=True)
class AssignedExecutor:
    """`remote` is (node, tasks) of those among `tasks` that run on another node than the worker's."""

    operator: str
    executor: str
    version: int
    tasks: int
    shards: tuple[str, ...]
    remote: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerAssignment:
    """`retracted`: the topology is gone. `uid` is the incarnation's uid that the map expects
    ("" when the map does not name the worker)."""

    uid: str
    retracted: bool
    generation: int
    executors: tuple[AssignedExecutor, ...]


@dataclass(frozen=True, slots=True)
class WaitControl(Request[int]):
    """Block until the worker's control stream has something newer than `after`, or timeout.

    Answers the last number of the stream (int).
    """

    worker: str
    after: int
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class SetTasks(Request[Answer]):
    """The worker's own affair: which task runs which shard of an executor.

    `mapping` is shard -> ready list name, `idle` the ready lists of tasks that stand without a shard: they
    stay, for shards to come. Refused (STALE) unless `incarnation` is the enrolled one. Puts a control token
    on every ready list named before or now.
    """

    worker: str
    incarnation: str
    executor: str
    mapping: tuple[tuple[str, str], ...]
    idle: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tasks(Request["TaskMap"]):
    """How the shards of an executor are spread over its tasks. Answers a `TaskMap`."""

    executor: str
    operator: str


@dataclass(frozen=True, slots=True)
class TaskMap:
    """As the main process of `incarnation` last wrote it; `version` is the one of the operator's schedule
    ("" and {} before the first write)."""

    incarnation: str
    mapping: dict[str, str]
    version: int
    idle: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PutMetrics(Request[Answer]):
    """Keep the newest metric rows: [(name, packed row), ...]. OK. Lost with no harm."""

    rows: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ReadMetrics(Request[dict[str, bytes]]):
    """Answers {name: packed row} of all rows."""


@dataclass(frozen=True, slots=True)
class Measure(Request["list[ShardCounters | None]"]):
    """Counters of the named shards' records, whatever their status. Answers [ShardCounters | None, ...] in
    their order; who wants figures asks `told_here` of them.

    A store is asked for some hundred at a time: each counter is as of one moment, all of many are not.
    """

    shards: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShardCounters:
    """Totals since creation; they survive every owner. A difference across `generation` is
    missing, not zero (promise 7), and so is every figure of a shard that is not here: see `is_here`. `counts`
    and `position` are those of the last commit that had some."""

    epoch: int
    generation: int
    commit: int
    arrived_rows: int
    completed_rows: int
    inbox_entries: int
    inbox_bytes: int
    outbox_entries: int
    outbox_bytes: int
    executor: str
    finished: bool
    status: ShardStatus = ShardStatus.ACTIVE
    counts: bytes = b""
    position: bytes = b""

    @property
    def is_here(self) -> bool:
        """Whether the figures are the shard's own. Those of one that is on its way, or gone, are another
        store's to tell: what stands here is a part of them, or zeros."""
        return self.status in _OWNED_AT


_OWNED_AT = frozenset({ShardStatus.ACTIVE, ShardStatus.COPYING})


def told_here(counters: Iterable[ShardCounters | None]) -> list[ShardCounters | None]:
    """What a store's counters say of their shards: None for one that is unknown, or not here (promise 7)."""
    return [one if one is not None and one.is_here else None for one in counters]


@dataclass(frozen=True, slots=True)
class Weigh(Request["list[int | None]"]):
    """What the named shards take of the store's memory, in bytes: record, state, timers, inbox, outbox.

    Answers [bytes | None, ...] in their order. An estimate from `samples` elements of each part (1 at the
    least): its cost does not grow with the state. To be asked of a few shards at a time, now and then.
    """

    shards: tuple[str, ...]
    samples: int = 8


@dataclass(frozen=True, slots=True)
class ReadMemory(Request["StoreMemory"]):
    """How full the store is. Answers a `StoreMemory`. Not for workers: their users may not ask."""


@dataclass(frozen=True, slots=True)
class StoreMemory:
    """Bytes of memory that a store uses, of all topologies, and its limit: 0 for none."""

    used_bytes: int
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class StateSnapshot(Request[dict[tuple[bytes, bytes], bytes]]):
    """For tests and tools: the value hash and all collections of a shard, whole. Not for the hot path.

    Answers {(collection, field): value}.
    """

    shard: str


Call = Request[Any]


class NodeStore(Protocol):
    """One topology's view of one node's store. Not thread safe; one instance per thread."""

    def call(self, call: Request[A]) -> A:
        """Carry out one call. Raises StoreUnreachable, StoreFull, ProtocolMismatch."""

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        """Carry out calls in order in one round trip; each is atomic, the whole is not.

        Must not hold WaitReady, WaitControl or WaitOutgoing.
        """

    def post(self, calls: Sequence[Request[Any]]) -> Callable[[], list[Any]]:
        """Send calls as `pipeline` does, and go on; the callable waits for their answers.

        So work goes on here while the store works there. Other calls may come in between; errors come from
        either of the two.
        """

    def close(self) -> None: ...
