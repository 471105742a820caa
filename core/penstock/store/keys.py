"""What is stored where: every key of a node store, named in one place.

`penstock:store` belongs to the store itself, `penstock-users` to its users, everything else to one topology,
below `penstock:<topology uid>:`. The function library is given that prefix as its one key and adds the same
words to it; a test holds the two together. Neighbours: the library's parts in `redis/functions` read and
write the keys, `redis.store` uses the few that need no function.

Names of shards, workers and collections may hold any character, so a name that is followed by
another is preceded by its length.
"""

from __future__ import annotations

import re

STORE = b"penstock:store"
"""Hash: id, generation, run (the server's run id at the last opening); and prefix -> how far a topology that
is gone has been dropped: a cursor, or "end"."""

TOPOLOGIES = b"penstock:topologies"
"""Set: uids of the topologies that have something in this store."""

SCHEDULES = b"penstock:schedules"
"""Hash: Schedule object (`kept_schedule`) -> its JSON, as the node agent last saw it. For an agent that
starts while the API server is away, and for the operator where the object is gone."""


def kept_schedule(namespace: str, name: str, own: str) -> str:
    """The field of `SCHEDULES` for a Schedule object: its name, and before it its namespace where that is
    another one than `own`, the store's."""
    return name if namespace in ("", own) else f"{namespace}/{name}"


WORKER_USERS = b"penstock-users"
"""Hash: users (packed: topology uid -> hashes of its workers' passwords), digest of that, term of the
operator that wrote it. The agent makes users of it. Not below `penstock:`, where every worker of an earlier
version may write."""

_UID = re.compile(r"[A-Za-z0-9._-]{1,64}")


def is_uid(text: str) -> bool:
    """Whether a topology may go by it."""
    return _UID.fullmatch(text) is not None


class Keys:
    """The keys of one topology. `topology_uid` is made of letters, digits, ".", "_" and "-"."""

    __slots__ = ("prefix",)

    def __init__(self, topology_uid: str) -> None:
        if not is_uid(topology_uid):
            raise ValueError(
                f"topology uid {topology_uid!r}: letters, digits, '.', '_' and '-' only, at most 64"
            )
        self.prefix = b"penstock:" + topology_uid.encode() + b":"

    # --- a shard

    def shard(self, shard: str) -> bytes:
        """Hash, the record: "h" counters (packed), "x" executor, "n" incarnation, "l" ready list,
        "p" position, "w" how far the work is that offset and position do not tell, "c" totals by name of
        what is fused in it, "m" store it moved to, "k" room kept for callers;
        "<TARGET" last number issued, ">PRODUCER" last number taken, "#TARGET" sum of bytes that ever
        waited, "!SINK" last number acknowledged, "@SINK" the sink's position after it."""
        return self.prefix + b"shard:" + shard.encode()

    def inbox(self, shard: str) -> bytes:
        """Stream: id NUMBER-0, field is when it was placed (microseconds), value the payload."""
        return self.prefix + b"inbox:" + shard.encode()

    def value(self, shard: str) -> bytes:
        """Hash: the shard's value hash, collection b""."""
        return self.prefix + b"value:" + shard.encode()

    def collection(self, shard: str, collection: bytes) -> bytes:
        """Hash: one collection."""
        name = shard.encode()
        return b"%scollection:%d:%s:%s" % (self.prefix, len(name), name, collection)

    def collections(self, shard: str) -> bytes:
        """Set: names of the shard's collections that are not empty."""
        return self.prefix + b"collections:" + shard.encode()

    def timers(self, shard: str) -> bytes:
        """Sorted set: timers by when they are due (milliseconds of the node's steady clock, or of
        event time)."""
        return self.prefix + b"timers:" + shard.encode()

    def marks(self, shard: str) -> bytes:
        """Hash: what has to leave the outbox before a watermark is told: target -> last number, and
        "" -> what is told then."""
        return self.prefix + b"marks:" + shard.encode()

    def facts(self, operator: str) -> bytes:
        """Hash: what is known of watermarks: shard of the operator -> version and value (packed)."""
        return self.prefix + b"facts:" + operator.encode()

    def waited(self, operator: str) -> bytes:
        """Sorted set: shards of the operator that are not idle, by watermark (milliseconds)."""
        return self.prefix + b"waited:" + operator.encode()

    def idle(self, operator: str) -> bytes:
        """Sorted set: idle shards of the operator, by watermark (milliseconds)."""
        return self.prefix + b"idle:" + operator.encode()

    def strange(self, operator: str) -> bytes:
        """Set: shards of the operator of which a watermark is known, and which no schedule here names yet."""
        return self.prefix + b"strange:" + operator.encode()

    @property
    def telling(self) -> bytes:
        """Set: operators of which a watermark is known."""
        return self.prefix + b"telling"

    def move(self, shard: str) -> bytes:
        """Hash, the move that the shard is in, left with or gave up: source, target, epoch, generation; at
        the source round; of a copy that is installed number, resume, rounds, complete, clearing,
        discarded."""
        return self.prefix + b"move:" + shard.encode()

    def changes(self, shard: str) -> bytes:
        """Set: what commits changed since the present round of a pre-copy began."""
        return self.prefix + b"changes:" + shard.encode()

    def round(self, shard: str) -> bytes:
        """Set: what the present round copies."""
        return self.prefix + b"round:" + shard.encode()

    def leaving(self, operator: str) -> bytes:
        """Hash: shard -> executor that keeps it until it departs, of shards whose home is another store."""
        return self.prefix + b"leaving:" + operator.encode()

    # --- pairs

    def outbox(self, producer: str, target: str) -> bytes:
        """Stream: id NUMBER-0, field is PLACED_US:ROWS:BYTES, value the payload; BYTES is the sum
        over the pair up to this entry. There while entries wait."""
        name = producer.encode()
        return b"%soutbox:%d:%s:%s" % (self.prefix, len(name), name, target.encode())

    def pending(self, producer: str) -> bytes:
        """Set: shards that entries of this producer wait for."""
        return self.prefix + b"pending:" + producer.encode()

    def waiters(self, target: str) -> bytes:
        """Sorted set: producers with entries for this shard, those that wait longest first."""
        return self.prefix + b"waiters:" + target.encode()

    def callers(self, target: str) -> bytes:
        """Sorted set: producers of other stores that met a full inbox, by the target's commit number then."""
        return self.prefix + b"callers:" + target.encode()

    @property
    def outgoing(self) -> bytes:
        """Set: targets with waiters that are not in this store, or frozen. A channel of the same name is the
        bell that is rung when a target comes into the set."""
        return self.prefix + b"outgoing"

    # --- tasks and workers

    def ready(self, ready: str) -> bytes:
        """List: shards that have work, before them at most one control token."""
        return self.prefix + b"ready:" + ready.encode()

    def due(self, ready: str) -> bytes:
        """Sorted set: shards of a ready list that have timers, by when to look at them (milliseconds)."""
        return self.prefix + b"due:" + ready.encode()

    def control(self, worker: str) -> bytes:
        """Stream of one entry, id NUMBER-0: raised whenever the worker's assignment may have changed."""
        return self.prefix + b"control:" + worker.encode()

    def tasks(self, executor: str) -> bytes:
        """Hash: incarnation, mapping (packed shard -> ready list), lists (packed)."""
        return self.prefix + b"tasks:" + executor.encode()

    @property
    def enrolled(self) -> bytes:
        """Hash: worker -> incarnation."""
        return self.prefix + b"enrolled"

    @property
    def starts(self) -> bytes:
        """Hash: worker -> number that was last given to a start of its process."""
        return self.prefix + b"starts"

    # --- schedule maps

    def schedule(self, operator: str) -> bytes:
        """Hash: version, term, workers (packed names)."""
        return self.prefix + b"schedule:" + operator.encode()

    def shard_map(self, operator: str) -> bytes:
        """Hash: shard -> packed (executor, home store)."""
        return self.prefix + b"shards:" + operator.encode()

    def executor_map(self, operator: str) -> bytes:
        """Hash: executor -> packed (worker, tasks)."""
        return self.prefix + b"executors:" + operator.encode()

    def keepers(self, operator: str) -> bytes:
        """Hash: executor that the schedule names no more -> packed (worker, tasks), of those that keep
        shards until they depart."""
        return self.prefix + b"keepers:" + operator.encode()

    def stagings(self, operator: str) -> bytes:
        """Set: ids of schedules that are being staged."""
        return self.prefix + b"stagings:" + operator.encode()

    def staged(self, operator: str, staging: str, part: str = "") -> bytes:
        """A schedule that is being staged. Hash: base (version that it is to follow), executors (packed
        names). With a part: the coming hashes shards and leaving, and keepers, a set of executors."""
        name = b"staged-" + part.encode() if part else b"staged"
        return self.prefix + name + b":" + staging.encode() + b":" + operator.encode()

    @property
    def workers(self) -> bytes:
        """Hash: worker -> packed (node, host, uid)."""
        return self.prefix + b"workers"

    def assigned(self, worker: str) -> bytes:
        """Hash: operator -> packed (version, executors with tasks and shards by home); one field for
        each schedule that names the worker."""
        return self.prefix + b"assigned:" + worker.encode()

    # --- routing

    def tables(self, operator: str) -> bytes:
        """Hash: version of the operator's routing -> content of the table."""
        return self.prefix + b"tables:" + operator.encode()

    @property
    def pairs(self) -> bytes:
        """Hash: edge and task -> packed row of the pairs of keys that it counted (`PairsRow`)."""
        return self.prefix + b"pairs"

    # --- reports

    @property
    def failures(self) -> bytes:
        """Hash: operator -> message."""
        return self.prefix + b"failures"

    @property
    def metrics(self) -> bytes:
        """Hash: name -> packed row. Not written to the append-only file."""
        return self.prefix + b"metrics"
