"""A task's side of one shard: what it may commit next, and what an answer means for it.

No I/O: it builds `Commit`s and digests answers, so that the worker's task loop and the simulation run
the same rules. The rule after any doubt (a lost reply, FENCED, CONFLICT) is one: ownership is
lost, everything cached is dropped, and the shard is claimed again; the claim's answer says what
was applied. A task therefore never repeats a commit itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from penstock.store.codec import decode_counts, encode_counts
from penstock.store.inbox_limit import InboxLimit
from penstock.store.lives import before_first
from penstock.store.port import (
    Acknowledge,
    Answer,
    Claimed,
    Commit,
    Entry,
    ExternalCursor,
    Output,
    StateWrite,
    TimerWrite,
    Watermark,
)


class OwnershipLost(Exception):
    """The shard is another owner's now, or may be; drop what is cached and look at the assignment again."""

    def __init__(self, shard: str, answer: object) -> None:
        super().__init__(f"{shard}: {answer}")
        self.shard = shard


@dataclass(slots=True)
class _ExternalPair:
    """Numbers of one (shard, outside sink) pair as this owner knows them."""

    issued: int
    acknowledged: int
    position: bytes
    intent: bytes = b""


class OwnedShard:
    """One shard under one epoch. Made from a granted claim; useless after `lost`."""

    __slots__ = ("_counting", "_counts", "_external", "_limit", "_placed_us", "epoch", "finished",
                 "generation", "number", "offset", "position", "shard", "table_version", "watermark",
                 "within")  # fmt: skip

    def __init__(self, shard: str, claimed: Claimed) -> None:
        self.shard = shard
        self.epoch = claimed.epoch
        self.generation = claimed.generation
        self.number = claimed.commit
        self.offset = claimed.offset
        self.position = claimed.position
        self.table_version = claimed.table_version
        self.finished = claimed.finished
        self.within = claimed.within
        self.watermark = Watermark(claimed.watermark_ms)
        """What was taken last."""
        self._limit = InboxLimit()
        self._placed_us = 0
        self._counts = self._counting = decode_counts(claimed.counts)
        self._external = {
            target: _ExternalPair(c.issued, c.acknowledged, c.position, c.intent)
            for target, c in claimed.external.items()
        }

    def commit(
        self,
        now_us: int,
        *,
        entries: Sequence[Entry] = (),
        rows: int = 0,
        position: bytes | None = None,
        within: bytes | None = None,
        counted: Mapping[str, int] | None = None,
        finished: bool = False,
        again: bool = False,
        in_hand: bool = False,
        state: tuple[StateWrite, ...] = (),
        timers: tuple[TimerWrite, ...] = (),
        outputs: tuple[Output, ...] = (),
        watermark: Watermark | None = None,
        tells: bool = False,
        paced: bool = False,
    ) -> Commit:
        """The next commit: work on `entries` (the ones right after the offset) is done.

        `rows` is their number of rows, `counted` how many came out of what is fused in the shard, by name.
        `paced`: the inbox is bounded in time as well, by how fast such commits follow each other.
        Building it changes nothing of the shard; `settle` does.
        """
        self._placed_us = entries[0].placed_us if paced and entries else 0
        return Commit(
            shard=self.shard,
            generation=self.generation,
            epoch=self.epoch,
            number=self.number + 1,
            table_version=self.table_version,
            now_us=now_us,
            offset=entries[-1].number if entries else self.offset,
            consumed_bytes=sum([len(entry.payload) for entry in entries]),
            consumed_rows=rows,
            position=position,
            within=within,
            counts=self._counted(counted) if counted else None,
            finished=finished,
            again=again,
            in_hand=in_hand,
            state=state,
            timers=timers,
            outputs=outputs,
            watermark=watermark,
            tells=tells,
            inbox_limit_bytes=self._limit.told_bytes,
        )

    def spent(self, busy_us: int) -> None:
        """So long was worked on what was settled last, or on bringing its outputs out."""
        self._limit.spent(busy_us)

    def settle(self, commit: Commit, answer: object) -> list[tuple[str, int, bytes]]:
        """Digest the answer to `commit`: OK and DONE both mean that it is applied, once.

        Answers its outputs for outside sinks as (target, pair number, payload), in order.
        Raises OwnershipLost for every other answer.
        """
        if answer is not Answer.OK and answer is not Answer.DONE:
            raise OwnershipLost(self.shard, answer)
        self.number = commit.number
        self.offset = commit.offset
        if commit.position is not None:
            self.position = commit.position
        if commit.within is not None:
            self.within = commit.within
        if self._placed_us and commit.consumed_bytes:
            self._limit.worked(commit.now_us, self._placed_us, commit.consumed_bytes)
        elif commit.consumed_bytes:
            self._limit.passed(commit.consumed_bytes)
        if commit.counts is not None:
            self._counts = self._counting
        if commit.watermark is not None:
            self.took(commit.watermark)
        self.finished = self.finished or commit.finished
        placed = []
        for output in commit.outputs:
            if output.external:
                pair = self._external.get(output.target)
                if pair is None:
                    pair = self._external[output.target] = self._new_pair()
                pair.issued += 1
                placed.append((output.target, pair.issued, output.payload))
        return placed

    def took(self, watermark: Watermark) -> None:
        """The shard has this watermark, or had a later one."""
        before_ms = self.watermark.ms
        ms = watermark.ms if before_ms is None else max(before_ms, watermark.ms or before_ms)
        self.watermark = Watermark(ms, watermark.is_idle)

    def counted(self, name: str) -> int:
        """How many rows came out of what is called so, since the shard's creation."""
        return self._counts.get(name, 0)

    def _counted(self, counted: Mapping[str, int]) -> bytes:
        """The totals with the next commit; they hold once it is settled."""
        totals = self._counting = dict(self._counts)
        for name, rows in counted.items():
            totals[name] = totals.get(name, 0) + rows
        return encode_counts(totals)

    def counted_so_far(self, name: str) -> int:
        """What the shard's record counts under a name; 0 before the first."""
        return self._counts.get(name, 0)

    def counting_too(self, commit: Commit, counted: Mapping[str, int]) -> Commit:
        """The next commit, which counts this beside what it does already."""
        if commit.counts is None:
            self._counting = self._counts
        totals = self._counting = dict(self._counting)
        for name, rows in counted.items():
            totals[name] = totals.get(name, 0) + rows
        return structs.replace(commit, counts=encode_counts(totals))

    def unwritten(self) -> list[str]:
        """Outside sinks that an earlier owner left entries for: to be read from the outbox and
        written before anything newer."""
        return [t for t, pair in self._external.items() if pair.issued > pair.acknowledged]

    def sink_position(self, target: str) -> bytes:
        """The outside sink's position after everything written so far; b"" at its start."""
        pair = self._external.get(target)
        return pair.position if pair else b""

    def written(self, target: str, number: int, position: bytes) -> Acknowledge:
        """The sink holds all entries of the pair up to `number`: what to tell the store."""
        pair = self._external[target]
        pair.acknowledged = number
        pair.position = position
        return Acknowledge(producer=self.shard, target=target, number=number, position=position)

    def cursor(self, target: str) -> ExternalCursor:
        """How far the pair is, as this owner knows it, and what an earlier owner intended last."""
        pair = self._external.get(target) or self._new_pair()
        return ExternalCursor(pair.issued, pair.acknowledged, pair.position, pair.intent)

    def _new_pair(self) -> _ExternalPair:
        """Of a sink for which there was nothing in this life."""
        born = before_first(self.epoch)
        return _ExternalPair(born, born, b"")
