"""One shard's entries on their way into a batched sink.

What waits is kept in memory up to a bound; what comes beyond is read from the outbox again when its turn
comes. Pure but for that read, which `turns` makes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from penstock.store.fragments import Gathering
from penstock.store.ownership import OwnedShard
from penstock_worker.sinks.batches.intents import Intent, intent_of
from penstock_worker.sinks.batches.writer import Part

KEPT_BYTES_MAX = 1 << 20


class Lane:
    """`written`: all up to this number is in the sink. `doubt`: what an earlier owner began."""

    __slots__ = (
        "_gathering",
        "_kept_bytes",
        "_ready",
        "_seen",
        "doubt",
        "epoch",
        "generation",
        "issued",
        "shard",
        "written",
    )

    def __init__(self, owned: OwnedShard, target: str, *, asked: bool) -> None:
        cursor = owned.cursor(target)
        self.shard = owned.shard
        self.generation = owned.generation
        self.epoch = owned.epoch
        self.written = self._seen = cursor.acknowledged
        self.issued = cursor.issued
        self.doubt: Intent | None = intent_of(cursor.intent, cursor.acknowledged) if asked else None
        self._gathering = Gathering()
        self._ready: deque[tuple[int, bytes]] = deque()
        self._kept_bytes = 0

    def resolved(self, doubt: Intent, *, is_in: bool) -> None:
        """What became of its `doubt` is known."""
        self.written = max(self.written, doubt.number if is_in else doubt.after)
        self.doubt = None
        self._begin_behind(self.written)

    def place(self, entries: Iterable[tuple[int, bytes]]) -> None:
        """Entries that commits placed, each right behind the one before."""
        for number, payload in entries:
            self.issued = number
            if self.doubt is None and number == self._seen + 1 and self._kept_bytes < KEPT_BYTES_MAX:
                self._take(number, payload)

    @property
    def reads_behind(self) -> int | None:
        """The number behind which the outbox has to be read; None while enough is here."""
        if self.doubt is None and not self._ready and self._seen < self.issued:
            return self._seen
        return None

    def read(self, entries: Sequence[tuple[int, bytes]]) -> None:
        """What the outbox has behind `reads_behind`, all that waits or the first of it. What is not there any
        more was acknowledged since, by an earlier owner or an earlier batch of this one: so it is in."""
        reached = entries[0][0] - 1 if entries else self.issued
        if reached > self._seen:
            self.written = reached
            self._begin_behind(reached)
        for number, payload in entries:
            self._take(number, payload)

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    def take(self, bytes_max: int) -> Part:
        """The next entries, about so many bytes, one at the least. For a lane that has some."""
        taken = [self._ready.popleft()]
        used = len(taken[0][1])
        while self._ready and used + len(self._ready[0][1]) <= bytes_max:
            taken.append(self._ready.popleft())
            used += len(taken[-1][1])
        self._kept_bytes -= used
        return Part(self.shard, self.written, taken[-1][0], tuple(payload for _, payload in taken))

    def again(self, part: Part) -> None:
        """What was taken is not in: it comes from the outbox once more."""
        self._begin_behind(part.after)

    def in_doubt(self, name: bytes, part: Part) -> None:
        """Whether what was taken is in, the sink has to say."""
        self.doubt = Intent(name, part.after, part.number)

    def _begin_behind(self, number: int) -> None:
        self._seen = number
        self._gathering = Gathering()
        self._ready.clear()
        self._kept_bytes = 0

    def _take(self, number: int, payload: bytes) -> None:
        self._seen = number
        for whole in self._gathering.whole([(number, payload)]):
            self._ready.append(whole)
            self._kept_bytes += len(whole[1])
