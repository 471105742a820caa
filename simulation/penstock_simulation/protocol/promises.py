"""What must hold in every run (the architecture's promises, by number), while it goes and at the end.

1 one owner, 2 exactly once, 3 order, 5 liveness, 6 bounded memory, 11 who is not owner causes no
visible error. The checks look at what actors were told and at what the stores hold, never at how
either comes about.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.store.codec import decode_counts
from penstock.store.memory.node import ShardRecord
from penstock.store.port import Commit, ShardStatus
from penstock_simulation.protocol.node import BOUNDS
from penstock_simulation.protocol.table_workload import is_key_state, is_same_operator
from penstock_simulation.protocol.workload import OutOfOrder, Sink, Workload, is_half_done


class PromiseBroken(Exception):
    """A run did what must never happen."""

    def __init__(self, number: int, what: str) -> None:
        super().__init__(f"promise {number}: {what}")


class Promises:
    """Remembers what actors were told during one run."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._owners: dict[tuple[str, int], str] = {}
        self._claims: dict[str, list[tuple[int, int]]] = {}
        """Order and epoch of the claims that somebody was told of, by shard."""
        self._commits: dict[str, dict[int, tuple[int, int]]] = {}
        """Epoch -> order of the first and of the last commit that somebody was told of, by shard."""
        self.sinks: dict[str, Sink] = {shard: Sink() for shard in workload.sink_shards}

    # --- while it runs

    def claimed(self, owner: str, shard: str, epoch: int, order: int) -> None:
        """An owner was told that it has the shard: under an epoch above those of all claims before.

        `order` is when the claim took effect: owners are told late, and not in this order.
        """
        told = self._claims.setdefault(shard, [])
        for at, other in told:
            if epoch == other or (at < order) != (other < epoch):
                raise PromiseBroken(1, f"{owner} owns {shard} under epoch {epoch}, and there was {other}")
        told.append((order, epoch))
        self._owners[shard, epoch] = owner

    def committed(self, owner: str, commit: Commit, order: int) -> None:
        """An owner was told that its commit is applied: it owns that epoch, and no later one has committed.

        `order` is when it took effect.
        """
        shard, epoch = commit.shard, commit.epoch
        if self._owners.get((shard, epoch)) != owner:
            raise PromiseBroken(1, f"{owner} commits to {shard} under the epoch of another owner")
        epochs = self._commits.setdefault(shard, {})
        for other, (first, last) in epochs.items():
            if (other > epoch and first < order) or (other < epoch and last > order):
                raise PromiseBroken(
                    1, f"{owner} commits to {shard} under epoch {epoch} beside one of {other}"
                )
        first, last = epochs.get(epoch, (order, order))
        epochs[epoch] = (min(first, order), max(last, order))

    def failure_counted(self, owner: str, message: str) -> None:
        """User code only raises when its input is wrong; that of an owner never is."""
        lines = message.splitlines()
        raise PromiseBroken(11, f"{owner} fails visibly: {lines[0]}: {lines[-1]}")

    def write_sink(self, shard: str, position: int, payload: bytes) -> None:
        wrong = self.sinks[shard].write(position, payload)
        if wrong:
            raise PromiseBroken(2, f"sink of {shard}: {wrong}")

    def check_bounds(self, records: Iterable[tuple[str, ShardRecord]]) -> None:
        """Inboxes are within their bounds; outboxes exceed theirs by one commit at most. A copy that is being
        installed has beside that what was delivered since it was copied. State of keys that change their
        shard is exempt."""
        for shard, record in records:
            waiting = [entry.payload for entry in record.inbox if not is_key_state(shard, entry.payload)]
            entries, size_bytes = len(waiting), sum(map(len, waiting))
            if entries > BOUNDS.inbox_entries_max or (entries > 1 and size_bytes > BOUNDS.inbox_bytes_max):
                raise PromiseBroken(6, f"inbox of {shard}: {entries} entries, {size_bytes} bytes")
            outbox_max = BOUNDS.outbox_entries_max + BOUNDS.outputs_per_commit_max
            if record.status is ShardStatus.INSTALLING or record.outbox_entries <= outbox_max:
                continue
            state = sum(
                len(lane.waiting) for target, lane in record.lanes.items() if is_same_operator(shard, target)
            )
            if record.outbox_entries - state > outbox_max:
                raise PromiseBroken(6, f"outbox of {shard}: {record.outbox_entries} entries")

    def check_homes(self, records: dict[str, Iterable[tuple[str, ShardRecord]]]) -> None:
        """No shard is active, or can become active, in two stores. `records` is store -> its records."""
        lives: dict[str, str] = {}
        for store, in_store in records.items():
            for shard, record in in_store:
                if record.status is ShardStatus.FROZEN or not record.is_away:
                    if shard in lives:
                        raise PromiseBroken(1, f"{shard} lives in {lives[shard]} and in {store}")
                    lives[shard] = store

    def check_kept(
        self, before: dict[str, list[str]], after: dict[str, list[str]], records: dict[str, ShardRecord]
    ) -> None:
        """A new schedule leaves each shard that a store has, or is about to, to one executor there; `before`
        and `after` are shard -> executors."""
        for shard, executors in after.items():
            if len(executors) > 1:
                raise PromiseBroken(1, f"{shard} is given to {executors}")
        for shard in before.keys() - after.keys():
            if shard in records and records[shard].status not in {ShardStatus.DEPARTED, ShardStatus.MOVED}:
                raise PromiseBroken(5, f"{shard} is taken from {before[shard]} and given to nobody")

    # --- at the end

    def waiting(self, records: dict[str, ShardRecord]) -> str:
        """What is not worked off behind the sources; "" for nothing."""
        for shard, record in records.items():
            waiting = (len(record.inbox), record.outbox_entries)
            if waiting != (0, 0):
                return f"{shard} is left with {waiting}, {record.readiness}, {record.owner}"
        return ""

    def left_over(self, records: dict[str, ShardRecord], owners: dict[str, list[int]]) -> str:
        """What is not worked off, or has not one owner, after a calm; "" when liveness is kept.

        `owners` holds, for each shard, the epochs of those who think they own it.
        """
        for shard, record in records.items():
            waiting = (len(record.inbox), record.outbox_entries)
            if any(map(self._workload.is_to_fire, record.timers.values())):
                return f"{shard} is left with timers {record.timers}, {record.readiness}, {record.owner}"
            if waiting != (0, 0) or (record.source and not record.finished):
                return f"{shard} is left with {waiting}, {record.readiness}, {record.owner}"
            if owners.get(shard, []).count(record.epoch) != 1:
                return f"{shard}: epoch {record.epoch}, owners under {owners.get(shard)}"
        return ""

    def check_marks(self, records: dict[str, ShardRecord]) -> None:
        """Timers, and what came and went in the state, go with what is left in it."""
        for shard, record in records.items():
            if record.source or is_half_done(record.state):
                continue
            if wrong := self._workload.wrong_marks(shard, record.state, record.timers):
                raise PromiseBroken(2, f"{shard}: {wrong}")

    def check_counts(self, records: dict[str, ShardRecord]) -> None:
        """What was counted with commits is what was committed."""
        together: dict[str, list[int]] = {}
        for shard, record in records.items():
            rows = int(record.position or b"0")
            if not record.source:
                outside = bytes(self.sinks[shard].content) if shard in self.sinks else b""
                rows = self._workload.put_out(shard, record.completed_rows, record.state, outside)
            counted = decode_counts(record.counts).get(shard.split("/", 1)[0], 0)
            found = together.setdefault(self._workload.counted_with(shard), [0, 0])
            found[0] += rows
            found[1] += counted
        for name, (rows, counted) in together.items():
            if counted != rows:
                raise PromiseBroken(7, f"{name} has put out {rows} rows, and {counted} are counted")

    def check_results(self, records: dict[str, ShardRecord]) -> None:
        """State and sink hold each input row once. `records` are those at the shards' homes."""
        truth = self._workload.truth()
        for shard, record in records.items():
            if record.source:
                continue
            if is_half_done(record.state):
                raise PromiseBroken(2, f"{shard} has a commit in parts that nobody ended")
            counts = self._workload.counts_of(shard, record.state)
            if counts is not None and counts != truth[shard]:
                raise PromiseBroken(2, f"{shard} counted {dict(counts)}, not {dict(truth[shard])}")
        try:
            wrong = self._workload.wrong_outside({s: bytes(sink.content) for s, sink in self.sinks.items()})
        except OutOfOrder as error:
            raise PromiseBroken(3, str(error)) from error
        if wrong:
            raise PromiseBroken(2, wrong)
