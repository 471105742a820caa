"""What becomes of rows on which a keyed stage's code fails: kept apart, or held back to be tried again.

Who calls the processor follows from that, and what the commit of a part writes besides. Neighbours:
`spared_calls` undoes the call of one key, `held_back` has the keys that wait, `letter_box` the letters;
`keyed_stage` works.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from penstock.dataflow.on_error import OnError, dead_letters_of
from penstock.store.letters import ROWS, Letter
from penstock.store.ownership import OwnedShard
from penstock.store.port import Load, Scan, StateWrite
from penstock_worker.outputs.output_batch import OutputBatch
from penstock_worker.process.clock import Clock
from penstock_worker.stages.due import Expired
from penstock_worker.stages.held_back import HoldingCalls
from penstock_worker.stages.keyed_part import Key, Part, oldest_of
from penstock_worker.stages.letter_box import LetterBox, Ordered
from penstock_worker.stages.spared_calls import (
    Calls,
    PoisonedCalls,
    Refused,
    RefusingCalls,
    SparedCalls,
)
from penstock_worker.stages.step_retries import StepRetries
from penstock_worker.state.cache import ShardState
from penstock_worker.user_code.running import ProcessorRunner
from penstock_worker.values.held import Held
from penstock_worker.values.wire_values import shown


class PoisonedBatch(Protocol):
    """A key of the batch behind a shard's commit number `commits`, as `shown`, that tasks have crashed at."""

    @property
    def shard(self) -> str: ...

    @property
    def commits(self) -> int: ...

    @property
    def key(self) -> str: ...

    @property
    def words(self) -> str: ...


class FailingCode:
    """Of a keyed stage's `operator`, for one part after the other. `load` asks the store for state."""

    def __init__(
        self,
        operator: str,
        runner: ProcessorRunner,
        on_error: OnError,
        letters: LetterBox | None,
        poison: Sequence[PoisonedBatch],
        load: Callable[[Load | Scan], object],
        clock: Clock,
    ) -> None:
        self._operator = operator
        self._runner = runner
        self._letters = letters
        self._clock = clock
        self._poison = {one.shard: one for one in poison}
        self._staying: Sequence[tuple[str, Letter]] = ()
        """Of the part at hand, the letters that its commit writes."""
        self._spared = SparedCalls(runner) if on_error.keeps_letters and letters is not None else None
        self.may_hold = on_error.attempts > 0
        """Whether keys may have to wait to be tried again."""
        self._is_holding = False
        """The part at hand is worked with keys that wait, or may have to;"""
        self._poisoned: PoisonedCalls | None = None
        """and with one that tasks have crashed at."""
        self._holding = HoldingCalls(operator, runner, on_error, self._spared, load)
        self.steps = StepRetries(letters.policies if letters is not None else {})
        """Of the steps behind the stage's own code."""
        self.waits, self.due_keys = self._holding.waits, self._holding.due_keys

    @property
    def keeps_letters(self) -> bool:
        return self._spared is not None

    @property
    def holds_any(self) -> bool:
        """Whether something of the part's shard waits to be tried again with its commit."""
        return self._is_holding and self._holding.holds_any()

    @property
    def spares_others(self) -> bool:
        """Whether all others go on where the code has failed on a key."""
        return self._spared is not None or self.may_hold

    def keys_ahead(self, owned: OwnedShard, part: Part) -> list[Key]:
        """The keys of a part whose rows come first of all that there is of them, and are handed over."""
        return [key for key in part.groups if key not in part.initial and self._is_free(owned, key)]

    def timers_ahead(self, owned: OwnedShard, part: Part) -> list[Expired]:
        """The first timer of each key of a part of which nothing else is worked before."""
        others = {*part.groups, *part.initial, *part.retries, *(key for key, _ in part.due.swept)}
        first: dict[Key, Expired] = {}
        for timer in part.due.fired:
            first.setdefault(timer.key, timer)
        return [timer for key, timer in first.items() if key not in others and self._is_free(owned, key)]

    def _is_free(self, owned: OwnedShard, key: Key) -> bool:
        """Whether code is called for what comes of a key."""
        if self._holding.holds(owned.shard, key):
            return False
        poison = self._poison.get(owned.shard)
        is_poisoned = poison is not None and poison.commits == owned.number and self._spared is not None
        return not (is_poisoned and poison is not None and shown(key) == poison.key)

    def adopt(self, owned: OwnedShard) -> None:
        self._holding.adopt(owned)

    def release(self, shard: str) -> None:
        self._holding.release(shard)
        self.steps.release(shard)
        if self._letters is not None:
            self._letters.release(shard)

    def undone(self, shard: str) -> None:
        """What was worked of a shard last is given up, and worked anew or not at all."""
        self._holding.undone(shard)
        if self._letters is not None:
            self._letters.undone(shard)

    def settled(self, shard: str) -> None:
        self._holding.settled(shard)
        self.steps.settled(shard)
        if self._letters is not None:
            self._letters.settled(shard)

    def due(self, now_us: int) -> tuple[Sequence[str], int | None]:
        """As of the port `StageWork`: shards of which a key is to be tried again."""
        next_us = self._holding.next_us()
        if next_us is None or next_us > now_us:
            return (), next_us
        return self._holding.due_shards(now_us), next_us

    def ordered(self, owned: OwnedShard, payload: bytes) -> Ordered | None:
        """What is to be done with a letter; None where there are none."""
        return None if self._letters is None else self._letters.ordered(owned, payload)

    def forgotten(self, owned: OwnedShard, order: Ordered) -> list[StateWrite]:
        """What the commit writes that takes a letter away."""
        return [] if self._letters is None else self._letters.writes(owned, (), 0, "", order)

    def moving(self, owned: OwnedShard) -> HoldingCalls:
        """What waits of a shard's keys, for a commit with which keys come or go."""
        now_us = self._clock.now_us()
        self._holding.turn_to(owned, now_us, lambda _: now_us)
        return self._holding

    def kept_again(self, owned: OwnedShard, order: Ordered, error: str) -> list[StateWrite]:
        """The code has raised on a letter again: it stays."""
        if self._letters is None:
            return []
        return self._letters.kept_again(owned, order, error, self._clock.wall_us() // 1000)

    def calls_of(self, owned: OwnedShard, part: Part, now_us: int, refused: str) -> Calls:
        """What calls the processor for a part; with `refused` nobody does."""
        self._is_holding = self.may_hold or self._holding.waits(owned.shard)
        self._poisoned = None
        usual: Calls = self._spared or self._runner
        if self._is_holding:
            self._holding.turn_to(owned, now_us, oldest_of(part, now_us))
            usual = self._holding
        if self._spared is None:
            return usual
        self._spared.clear()
        poison = self._poison.get(owned.shard)
        if refused:
            refusing = RefusingCalls(self._spared, self._runner, refused)
            self._poisoned = PoisonedCalls(usual, refusing, lambda _: True)
        elif poison is not None and poison.commits == owned.number:
            words = f"operator {self._operator}: {poison.words}"
            refusing = RefusingCalls(self._spared, self._runner, words)
            self._poisoned = PoisonedCalls(usual, refusing, lambda key: shown(key) == poison.key)
        return self._poisoned or usual

    def try_again(
        self,
        state: ShardState,
        keys: Sequence[Key],
        wall_ms: int,
        held: Held,
        rows: list[Any],
        stamps: list[int],
    ) -> None:
        """Keys that were held back, before all else; what comes out goes into `rows`."""
        for key in keys:
            if self._poisoned is not None and self._poisoned.is_poison(key):
                self._holding.refuse(state, key, self._poisoned.refusing)
                continue
            for oldest_us, produced in self._holding.again(state, key, wall_ms, held):
                rows.extend(produced)
                stamps.extend([oldest_us] * len(produced))

    def send(
        self,
        owned: OwnedShard,
        part: Part,
        outputs: OutputBatch,
        now_us: int,
        wall_ms: int,
        counts: dict[str, int],
    ) -> None:
        """Have dead letters of a part that are for a sink be outputs of its commit, and note the others."""
        self._staying = ()
        refused = self._spared.refused if self._spared is not None else ()
        if self._letters is None or not (refused or outputs.letters):
            return
        found = [*(self._letter(part, one) for one in refused), *outputs.letters]
        if refused:
            dead = dead_letters_of(self._operator)
            counts[dead] = counts.get(dead, 0) + sum(max(1, len(one.rows)) for one in refused)
        place = _place(owned)
        self._staying = self._letters.send(owned, found, now_us, wall_ms, place, outputs, counts)

    def writes(self, owned: OwnedShard, part: Part, wall_ms: int, counts: dict[str, int]) -> list[StateWrite]:
        """What the commit writes of what code has failed on: letters that no sink takes, the one that was
        replayed, and what waits to be tried again."""
        writes: list[StateWrite] = []
        if self._letters is not None and (self._staying or part.order is not None):
            writes += self._letters.writes(owned, self._staying, wall_ms, _place(owned), part.order)
        if self._is_holding:
            writes += self._holding.writes(counts)
        return writes

    def _letter(self, part: Part, refused: Refused) -> tuple[str, Letter]:
        group = part.groups.get(refused.key) if refused.kind == ROWS else None
        oldest_us = group.oldest_us if group is not None else self._clock.now_us()
        letter = Letter(
            refused.kind,
            list(refused.key),
            refused.rows,
            [oldest_us] * len(refused.rows),
            refused.error,
            0,
            "",
            refused.calls,
            refused.expiry_ms,
        )
        return self._operator, letter


def _place(owned: OwnedShard) -> str:
    return f"inbox of {owned.shard}, behind entry {owned.offset}"
