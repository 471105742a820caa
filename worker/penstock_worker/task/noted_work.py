"""Work that is written down as it goes on, so that a crash of user code can be told with its place.

Around a stage: which shard is worked on. Around a processor, once one of its executor's tasks has crashed:
which key. Neighbours: `task.note` is where it stands, `task` puts these around.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from penstock.store.ownership import OwnedShard
from penstock.store.port import FetchedShard, Load
from penstock_worker.stages.work import Rest, StageWork, Work
from penstock_worker.state.cache import Key, ShardState
from penstock_worker.task.note import TaskNote
from penstock_worker.user_code.running import ProcessorRunner
from penstock_worker.values.held import ONE_ROW, Held
from penstock_worker.values.wire_values import shown


class NotedStage:
    """Keeps the port `StageWork`, for another one."""

    def __init__(self, stage: StageWork, note: TaskNote) -> None:
        self._stage = stage
        self._note = note
        self.adopt = stage.adopt
        self.release = stage.release
        self.grew = stage.grew
        self.due = stage.due
        self.settled = stage.settled
        self.close = stage.close

    def wanted(self, owned: OwnedShard, fetched: FetchedShard) -> Load | None:
        return self._stage.wanted(owned, fetched)

    def loaded(self, owned: OwnedShard, load: Load, answer: object) -> None:
        self._stage.loaded(owned, load, answer)

    def work(self, owned: OwnedShard, fetched: FetchedShard) -> Work | Rest:
        self._note.works_on(owned.shard, owned.number)
        worked = self._stage.work(owned, fetched)
        self._note.rests()
        return worked


class NotedRunner(ProcessorRunner):
    """A processor whose keys are written down, so they are worked on one by one."""

    careful = True
    note: TaskNote

    def begin(self, state: ShardState, key: Key, rows: Sequence[Any], now_ms: int) -> None:
        self.note.comes_to(shown(key))
        super().begin(state, key, rows, now_ms)

    def run(
        self,
        state: ShardState,
        key: Key,
        rows: Sequence[Any],
        now_ms: int,
        held: Held = ONE_ROW,
        given: Iterable[Any] | None = None,
    ) -> list[tuple[Any, ...]]:
        self.note.comes_to(shown(key))
        return super().run(state, key, rows, now_ms, held, given)

    def expire(
        self, state: ShardState, key: Key, expiry_ms: int, now_ms: int, held: Held = ONE_ROW
    ) -> list[tuple[Any, ...]]:
        self.note.comes_to(shown(key))
        return super().expire(state, key, expiry_ms, now_ms, held)
