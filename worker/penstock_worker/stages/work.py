"""What the task loop knows of its stage: the port that `keyed_stage` and `source_stage` keep.

The loop owns shards, epochs and round trips; a stage owns what happens to rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from penstock.errors import PermanentError
from penstock.store.ownership import OwnedShard
from penstock.store.port import Commit, FetchedShard, Load


class WorkFailed(PermanentError):
    """The operator cannot go on: user code raised, or a source or sink is broken. The text is for people."""


class Work(msgspec.Struct, frozen=True, gc=False):
    """One shard's batch, worked: the commit to send, and what to count once it is applied."""

    commit: Commit
    timestamps_us: Sequence[int]
    """Source timestamps of the rows that came in (of a source: that it read)."""
    rows_out: dict[str, int]
    """Rows by operator: the stage's own and the fused steps'."""
    busy_us: int
    waited_us: int
    """Sum over rows of (start of work - placed in the inbox)."""
    large: bool = False
    """The commit is more than the store takes at once (`large_commit`)."""
    call_us: int = 0
    """How long a call of async code took, about, of those that were waited for before it."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to do for this shard before `until_us`, or what it waits for: `for_news`, that somebody tells
    its task of something new; `for_outbox`, that what it put out is acknowledged."""

    until_us: int
    for_news: bool = False
    for_outbox: bool = False


class StageWork(Protocol):
    def adopt(self, owned: OwnedShard) -> None:
        """A claim was granted: state and position begin from what it says."""

    def release(self, shard: str) -> None:
        """Ownership went: drop everything cached of the shard."""

    def wanted(self, owned: OwnedShard, fetched: FetchedShard) -> Load | None:
        """What state must be loaded before `work`; None when the cache has it all."""

    def loaded(self, owned: OwnedShard, load: Load, answer: object) -> None:
        """The answer to `wanted`. Raises OwnershipLost for FENCED and UNKNOWN."""

    def work(self, owned: OwnedShard, fetched: FetchedShard) -> Work | Rest:
        """Run the batch. Raises WorkFailed (nothing of the batch is kept) or OwnershipLost."""

    def grew(self, owned: OwnedShard) -> bool:
        """A source partition that was read to its end may have more by now."""

    def due(self, now_us: int) -> tuple[Sequence[str], int | None]:
        """Shards that are to be worked though nothing was fetched of them, by now (of the steady clock); and
        when such a shard is due next, None for never."""

    def settled(self, owned: OwnedShard, work: Work) -> None:
        """The commit was applied."""

    def close(self) -> None:
        """The task ends: give back files and call the user's `close`."""


class Unasked(Protocol):
    """Work on shards that nothing was handed out of. Kept by stages that go by routing tables."""

    def wait_us(self) -> int:
        """How long until there may be some."""

    def hurry(self) -> None:
        """Somebody has told that there is news: it is looked for at once."""

    def look(self) -> None:
        """Find out whether there is any, where that is due. Raises what the store does."""

    def unasked(self, owned: OwnedShard, *, rests: bool) -> Work | None:
        """What is to be committed though nobody asked; `rests`: the shard was handed out, and rests."""
