"""What somebody wants to be done with a dead letter, where a stage has no state: replayed, or dropped.

What it comes to is committed with the entry that says so. Neighbours: `source_stage` and `transform_stage`
find orders in their inboxes, `letter_box` reads and writes letters; `keyed_stage` has more to undo.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.errors import PermanentError
from penstock.store.letters import Letter
from penstock.store.ownership import OwnedShard
from penstock.store.port import Bounds, Entry, Output, StateWrite
from penstock_worker.outputs.output_batch import OutputBatch
from penstock_worker.process.clock import Clock
from penstock_worker.stages.letter_box import LetterBox, Ordered
from penstock_worker.stages.part_size import fill_of
from penstock_worker.stages.work import Work
from penstock_worker.values.held import Held, TooMuch

Replay = Callable[[Ordered, Letter, OutputBatch, dict[str, int]], None]
"""Works on a letter's rows; what comes out is gathered and counted. Raises PermanentError where it stays."""


@dataclass(frozen=True, slots=True)
class LetterOrders:
    """Carries orders out. `again`: the stage has more to do whatever its inbox has, as a source."""

    letters: LetterBox | None
    replay: Replay
    bounds: Bounds
    clock: Clock
    again: bool = False

    def work(self, owned: OwnedShard, entry: Entry) -> Work:
        """Do what `entry` says. Raises OwnershipLost, StoreUnreachable."""
        began_us, now_us = self.clock.monotonic_us(), self.clock.now_us()
        wall_ms = self.clock.wall_us() // 1000
        counts: dict[str, int] = {}
        drained: tuple[Output, ...] = ()
        writes: list[StateWrite] = []
        size_bytes = 0
        if self.letters is not None:
            order = self.letters.ordered(owned, entry.payload)
            outputs = OutputBatch(self.bounds, owned.shard, Held(self.bounds, alone=True))
            try:
                if order.replayed is not None:
                    self.replay(order, order.replayed, outputs, counts)
                staying = self.letters.send(
                    owned, outputs.letters, now_us, wall_ms, owned.shard, outputs, counts
                )
                drained = outputs.drain()
                writes = self.letters.writes(owned, staying, wall_ms, owned.shard, order)
                size_bytes = outputs.drained_bytes
            except (TooMuch, PermanentError) as error:
                counts, drained = {}, ()
                writes = self.letters.kept_again(owned, order, str(error), wall_ms)
        size_bytes += sum(len(write.value or b"") for write in writes)
        commit = owned.commit(
            now_us,
            entries=(entry,),
            counted=counts or None,
            again=self.again,
            in_hand=True,
            state=tuple(writes),
            outputs=drained,
        )
        is_large = fill_of(self.bounds, len(drained), size_bytes, len(writes)) > 1
        return Work(commit, (), counts, self.clock.monotonic_us() - began_us, 0, large=is_large)
