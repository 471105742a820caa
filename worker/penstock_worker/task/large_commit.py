"""A commit that is larger than the store takes at once: written down in parts, decided, then carried out.

Ordinary fenced commits that change nothing else write its state changes and outputs, chunk by chunk, into a
collection of the shard that no state can have. The one that writes the last chunk notes that the commit is
decided. From then on whoever owns the shard carries it out, a chunk with each commit, before anything else;
the last brings offset and position along. So it counts whole or not at all, though no call of the store is
large. An owner that goes before the decision leaves chunks, which the next one drops; the rows are worked on
anew.

Between two of these commits the shard may change its owner, or move: collection and note go with it. What is
put out does not wait for room: it has its place in memory already. Neighbours: `task.loop` calls this, for
work that is `large` and for every shard that it claims; `within` says how the notes look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from penstock.store.ownership import OwnedShard, OwnershipLost
from penstock.store.port import Bounds, Commit, Load, NodeStore, Output, StateWrite, TimerWrite, Watermark
from penstock_worker.process.clock import Clock
from penstock_worker.stages import within
from penstock_worker.stages.within import Decided, Written
from penstock_worker.state.encoding import LARGE_COMMIT, chunk_field

CHUNK_BYTES = 256 << 10
CHUNK_WRITES = 1024
CHUNK_OUTPUTS = 128
AT_ONCE = 4
"""So many commits travel together."""
_AROUND_BYTES = 32
"""What a write or an output has around its names and bytes in a chunk, at most."""

Placed = list[tuple[str, int, bytes]]
"""What commits put out for outside sinks, as `OwnedShard.settle` answers it."""


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """A part of a commit that one commit can carry."""

    state: list[StateWrite]
    outputs: list[Output]
    timers: list[TimerWrite] = []


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Chunk)


class LargeCommits:
    """Carries out the large commits of one task's shards."""

    def __init__(self, store: NodeStore, bounds: Bounds, clock: Clock) -> None:
        self._store = store
        self._bounds = bounds
        self._clock = clock

    def carry_out(self, owned: OwnedShard, commit: Commit) -> Iterator[Placed]:
        """Do all that `commit` says. Yields outputs for outside sinks, to be written in this order.

        Raises OwnershipLost, after which the next owner drops it or carries it on; and StoreUnreachable.
        """
        chunks = list(self._chunks(commit))
        yield from self._apply(owned, self._decide(owned, commit, chunks), chunks)

    def finish(self, owned: OwnedShard) -> Iterator[Placed]:
        """What an earlier owner left: carry on what is decided, drop what is not. As `carry_out`."""
        match within.decode(owned.within):
            case Written(before=before):
                drop = StateWrite(LARGE_COMMIT, None, None)
                # `again`: whoever claimed a source's partition along with a fetch has to be handed it anew.
                undone = owned.commit(self._clock.now_us(), within=before, state=(drop,), again=True)
                yield self._send(owned, [undone])
            case Decided() as decided:
                yield from self._apply(owned, decided, ())

    def _chunks(self, commit: Commit) -> Iterator[Chunk]:
        """The commit in parts; state first."""
        bytes_max = min(CHUNK_BYTES, self._bounds.commit_bytes_max // 2)
        outputs_max = min(CHUNK_OUTPUTS, self._bounds.outputs_per_commit_max)
        for state in _parts(commit.state, _write_bytes, CHUNK_WRITES, bytes_max):
            yield Chunk(state, [])
        for timers in _parts(commit.timers, _timer_bytes, CHUNK_WRITES, bytes_max):
            yield Chunk([], [], timers)
        for outputs in _parts(commit.outputs, _output_bytes, outputs_max, bytes_max):
            yield Chunk([], outputs)

    def _decide(self, owned: OwnedShard, commit: Commit, chunks: Sequence[Chunk]) -> Decided:
        """Write all chunks down, and with the last one that they count."""
        after = owned.within if commit.within is None else commit.within
        decided = Decided(
            len(chunks), 0, commit.offset, commit.consumed_bytes, commit.consumed_rows, commit.position,
            commit.finished, commit.again, after, commit.watermark.ms if commit.watermark else None,
            commit.tells,
        )  # fmt: skip
        writing = within.encode(Written(owned.within))
        for first in range(0, len(chunks), AT_ONCE):
            commits = []
            for number, chunk in enumerate(chunks[first : first + AT_ONCE], first):
                note = (
                    within.encode(decided) if number + 1 == len(chunks) else writing if not number else None
                )
                write = StateWrite(LARGE_COMMIT, chunk_field(number), _ENCODER.encode(chunk))
                part = owned.commit(
                    commit.now_us, state=(write,), within=note, in_hand=commit.in_hand and not number
                )
                # What comes out is counted once it is decided.
                commits.append(replace(part, counts=commit.counts) if number + 1 == len(chunks) else part)
            self._send(owned, commits)
        return decided

    def _apply(self, owned: OwnedShard, decided: Decided, chunks: Sequence[Chunk]) -> Iterator[Placed]:
        """Carry out the chunks that are not yet; those that are not at hand are loaded."""
        first = decided.applied
        while first < decided.chunks:
            at_hand = chunks[first : first + AT_ONCE] or self._load(owned, first, decided.chunks)
            now_us = self._clock.now_us()
            commits = [
                self._applying(owned, decided, number, chunk, now_us)
                for number, chunk in enumerate(at_hand, first)
            ]
            yield self._send(owned, commits)
            first += len(commits)

    def _applying(
        self, owned: OwnedShard, decided: Decided, number: int, chunk: Chunk, now_us: int
    ) -> Commit:
        """The commit that carries out one chunk, and drops it."""
        outputs = tuple(chunk.outputs)
        if number + 1 < decided.chunks:
            note = within.encode(replace(decided, applied=number + 1))
            drop = StateWrite(LARGE_COMMIT, chunk_field(number), None)
            return owned.commit(
                now_us, state=(*chunk.state, drop), timers=tuple(chunk.timers), outputs=outputs, within=note
            )
        last = owned.commit(
            now_us,
            rows=decided.consumed_rows,
            position=decided.position,
            within=decided.after,
            finished=decided.finished,
            again=decided.again,
            state=(*chunk.state, StateWrite(LARGE_COMMIT, None, None)),
            timers=tuple(chunk.timers),
            outputs=outputs,
            watermark=Watermark(decided.watermark_ms) if decided.tells or decided.watermark_ms else None,
            tells=decided.tells,
        )
        return replace(last, offset=decided.offset, consumed_bytes=decided.consumed_bytes)

    def _load(self, owned: OwnedShard, first: int, chunks: int) -> list[Chunk]:
        fields = tuple(chunk_field(number) for number in range(first, min(chunks, first + AT_ONCE)))
        answer = self._store.call(Load(owned.shard, owned.generation, owned.epoch, LARGE_COMMIT, fields))
        if not isinstance(answer, list):
            raise OwnershipLost(owned.shard, answer)
        return [_DECODER.decode(cast("bytes", packed)) for packed in answer]

    def _send(self, owned: OwnedShard, commits: Sequence[Commit]) -> Placed:
        """Send commits that follow each other; what they put out for outside sinks."""
        numbered = [replace(commit, number=owned.number + place) for place, commit in enumerate(commits, 1)]
        placed: Placed = []
        for commit, answer in zip(numbered, self._store.pipeline(numbered), strict=True):
            placed += owned.settle(commit, answer)
        return placed


def _parts(items: Iterable[Any], bytes_of: Any, count_max: int, bytes_max: int) -> Iterator[list[Any]]:
    """Items in order, so many and so many bytes at a time, one at the least."""
    part: list[Any] = []
    size_bytes = 0
    for item in items:
        item_bytes = bytes_of(item) + _AROUND_BYTES
        if part and (len(part) == count_max or size_bytes + item_bytes > bytes_max):
            yield part
            part, size_bytes = [], 0
        part.append(item)
        size_bytes += item_bytes
    if part:
        yield part


def _write_bytes(write: StateWrite) -> int:
    return len(write.collection) + len(write.field or b"") + len(write.value or b"")


def _timer_bytes(timer: TimerWrite) -> int:
    return len(timer.name)


def _output_bytes(output: Output) -> int:
    return len(output.target) + len(output.payload)
