"""Steps that are tried again: a step has no key, so the shard whose rows it fails on rests, and others go on.

Nothing of the batch is committed before: after the rest it is worked anew, by whoever has the shard then.
Neighbours: `keyed_stage` and `source_stage` ask what becomes of a batch, `steps` makes letters of rows that
are still failed on when all attempts are spent.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.dataflow.on_error import FAILS, OnError
from penstock_worker.stages.work import Rest
from penstock_worker.user_code.running import UserCodeError


class StepRetries:
    """Of one task. `policies` are those of the stage's steps."""

    def __init__(self, policies: Mapping[str, OnError]) -> None:
        self._policies = policies
        self._failed: dict[str, tuple[str, int]] = {}
        """Shard -> the step that has failed on its batch last, and how often in a row."""
        self._spent: dict[str, frozenset[str]] = {}

    def rest(self, shard: str, error: UserCodeError, now_us: int) -> Rest | None:
        """How long the shard rests, until 0 where it is to be worked again at once. None: it fails."""
        step = error.operator
        policy = self._policies.get(step, FAILS)
        if not policy.attempts:
            return None
        before, count = self._failed.get(shard, (step, 0))
        count = count + 1 if before == step else 1
        self._failed[shard] = step, count
        wait_ms = policy.wait_ms(count)
        if wait_ms is not None:
            return Rest(now_us + wait_ms * 1000)
        if not policy.keeps_letters or step in self.spent(shard):
            return None
        self._spent[shard] = self.spent(shard) | {step}
        return Rest(0)

    def spent(self, shard: str) -> frozenset[str]:
        """The steps that were tried often enough on the batch at hand: what they fail on becomes letters."""
        return self._spent.get(shard, frozenset())

    def settled(self, shard: str) -> None:
        """The batch is done."""
        if self._failed:
            self._failed.pop(shard, None)
            self._spent.pop(shard, None)

    release = settled
