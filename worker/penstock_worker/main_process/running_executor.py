"""One executor of this worker: its resident tasks, and which of them runs which shard.

The main process calls `assign` when the schedule changed and `turn` every cycle. Shards go only to tasks
that are up (a starting one would let them wait), unless no task is up at all. A task that leaves is
first named no longer, so that it retires by itself after its batch; if it does not, it is
cancelled after the delay (N-Storm IV.A, delayed kill). A task that stands still is one that leaves, and
another one starts in its place. A task's place is on the worker's own node, or on
another one (Elasticutor's remote tasks); one on a node that is away waits for it, and its shards are the
others'.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from penstock.control.elasticutor.intra_executor_balance import Balance, rebalance
from penstock_worker.main_process.resident_task import ResidentTask
from penstock_worker.task.launch import Poison

_LOG = logging.getLogger(__name__)

DELAYED_KILL_US = 2_000_000
RESTART_DELAYS_US = (0, 200_000, 1_000_000, 5_000_000)
HEALTHY_AFTER_US = 30_000_000
PROGRESS_WORKS = 3
"""A task that crashes at so many batches of a shard after its start, or more, has brought the shard on: it is
not the same batch that all crash at."""
POISON_MAX = 64
"""So many batches are remembered; one that is past is known by its commit number, and does nothing."""
CRASHES_MAX = 5
"""In a row at one shard without such progress, none later than `HEALTHY_AFTER_US` after the one before."""


@dataclass(slots=True)
class _Slot:
    """A task's place in the executor: outlives the starts of the task in it. `node` is "" at home."""

    node: str = ""
    task: ResidentTask | None = None
    started_us: int = 0
    up: bool = False
    failures: int = 0
    error: str = ""
    restart_us: int = 0
    leaving_us: int | None = None


@dataclass(slots=True)
class _Crashes:
    """In a row at one shard, whichever task was at it."""

    last_us: int
    error: str
    count: int = 1
    within_us: int = HEALTHY_AFTER_US
    """What comes later is no longer in a row with it."""


def _never(_task: ResidentTask, _now_us: int) -> bool:
    return False


class RunningExecutor:
    """`start(index, node)` launches a resident task for a slot, `cancel(task)` kills one; `can_start(node)`
    says whether the node is there, `is_standing(task, now_us)` whether a task stands still."""

    def __init__(
        self,
        name: str,
        operator: str,
        start: Callable[[int, str], ResidentTask],
        cancel: Callable[[ResidentTask], None],
        can_start: Callable[[str], bool],
        is_standing: Callable[[ResidentTask, int], bool] = _never,
        *,
        spares: bool = False,
    ) -> None:
        """`spares`: rows on which code fails become dead letters, and so do those that tasks crash at."""
        self.name = name
        self.operator = operator
        self._start = start
        self._cancel = cancel
        self._can_start = can_start
        self._is_standing = is_standing
        self._slots: dict[int, _Slot] = {}
        self._shards: tuple[str, ...] = ()
        self._wanted: dict[str, int] = {}
        self._mapping: dict[str, int] = {}
        self._able: set[int] = set()
        self._spread_shards: tuple[str, ...] | None = None
        """What the mapping spreads, over `_able`; None when it has to be looked at."""
        self._crashes: dict[str, _Crashes] = {}
        self._spares = spares
        self.poison: tuple[Poison, ...] = ()
        """What its tasks, as they start, are told not to call code for."""
        self.trouble = ""
        """The last task's end that nobody asked for, in words; "" before the first."""
        self.last_balance: Balance[int] | None = None

    # --- what the schedule says ---------------------------------------------------------------

    def assign(self, tasks: int, shards: tuple[str, ...], remote: Sequence[tuple[str, int]] = ()) -> None:
        """`tasks` is the schedule's number, `remote` says how many of them are on which other node; more
        tasks than shards would have nothing to run, and remote ones go first.

        An executor without shards keeps its tasks: it is one that is to take shards over in a moment, and
        they should not wait for a task to start.
        """
        surplus = max(0, tasks - len(shards)) if shards else 0
        self._wanted = {}
        for node, there in (*remote, ("", tasks - sum(there for _, there in remote))):
            self._wanted[node] = max(0, there - surplus)
            surplus = max(0, surplus - there)
        self._shards = shards

    def ready_lists(self) -> list[str]:
        """Those of its tasks, whether they are up or not."""
        return [slot.task.launch.owner.ready for slot in self._slots.values() if slot.task is not None]

    def stop(self) -> None:
        """Run nothing any more; shards stay whose they are."""
        self.assign(0, ())

    # --- one cycle ------------------------------------------------------------------------------

    def turn(
        self, now_us: int, up: set[str], loads: Mapping[str, float | None], *, balance: bool = False
    ) -> None:
        """Start, retire and restart tasks; then spread the shards.

        `up` names the ready lists of tasks that have begun to run. `loads` is shard -> busy share of the last
        second. Balanced by load (Elasticutor 3.1) when it is time to (`balance`) or other tasks stand
        than before; in between, only shards without a task get one.
        """
        self._reap(now_us)
        self._leave_standing(now_us)
        self._size(now_us)
        for slot in self._slots.values():
            slot.up = slot.task is not None and slot.task.launch.owner.ready in up
        self._spread(loads, balance=balance)

    def _reap(self, now_us: int) -> None:
        for index, slot in list(self._slots.items()):
            task = slot.task
            if task is None or not task.ended.is_set():
                continue
            slot.task = None
            slot.up = False
            if slot.leaving_us is not None:
                del self._slots[index]
                continue
            ran_us = now_us - slot.started_us
            if ran_us > HEALTHY_AFTER_US or task.works >= PROGRESS_WORKS:
                slot.failures = 0
            delay_us = RESTART_DELAYS_US[min(slot.failures, len(RESTART_DELAYS_US) - 1)]
            slot.failures += 1
            slot.error = task.error
            slot.restart_us = now_us + delay_us
            if task.crashed:
                self._note_crash(task, now_us)
            if task.error:
                self.trouble = f"task {self.name}.{index} of {self.operator} ended: {task.error}"
            _LOG.warning("task %s.%d ended (%s); starts again", self.name, index, task.error or "retired")

    def _note_crash(self, task: ResidentTask, now_us: int) -> None:
        self._crashes = {
            shard: known
            for shard, known in self._crashes.items()
            if now_us - known.last_us <= known.within_us
        }
        before = self._crashes.get(task.shard)
        if before is None or task.works >= PROGRESS_WORKS:
            self._crashes[task.shard] = _Crashes(now_us, task.error)
        else:
            before.last_us, before.error, before.count = now_us, task.error, before.count + 1
        self._crashes[task.shard].within_us = HEALTHY_AFTER_US + 2 * task.hung_us
        if self._crashes[task.shard].count >= CRASHES_MAX:
            self._poisoned(task, now_us)

    def _poisoned(self, task: ResidentTask, now_us: int) -> None:
        """The batch that tasks crash at is poison: the next ones do not call code for the key. Each of them
        has to know, so those that run leave."""
        known = {(one.shard, one.commits, one.key) for one in self.poison}
        if not (self._spares and task.shard and task.key) or (task.shard, task.commits, task.key) in known:
            return
        words = f"tasks crashed {self._crashes[task.shard].count} times in a row here; last: {task.error}"
        self.poison = (*self.poison[1 - POISON_MAX :], Poison(task.shard, task.commits, task.key, words))
        self._crashes[task.shard].count = 1
        for slot in self._slots.values():
            slot.failures = 0
            slot.restart_us = now_us
            if slot.task is not None and slot.leaving_us is None:
                slot.leaving_us = now_us

    def _leave_standing(self, now_us: int) -> None:
        """Its shards go to others, and it ends: by itself if it goes on in time."""
        for index, slot in self._slots.items():
            if slot.leaving_us is None and slot.task is not None and self._is_standing(slot.task, now_us):
                slot.leaving_us = now_us
                self.trouble = (
                    f"task {self.name}.{index} of {self.operator} stands still; others take its shards"
                )
                _LOG.warning("%s", self.trouble)

    def _size(self, now_us: int) -> None:
        staying: dict[str, list[int]] = {node: [] for node in self._wanted}
        for index, slot in sorted(self._slots.items()):
            if slot.leaving_us is None:
                staying.setdefault(slot.node, []).append(index)
        free = (index for index in count() if index not in self._slots)
        for node, indices in staying.items():
            wanted = self._wanted.get(node, 0)
            for index in indices[wanted:]:
                self._slots[index].leaving_us = now_us
            for _ in range(wanted - len(indices)):
                self._slots[next(free)] = _Slot(node)
        for index, slot in list(self._slots.items()):
            is_due = slot.leaving_us is None and slot.task is None and now_us >= slot.restart_us
            if is_due and self._can_start(slot.node):
                slot.task = self._start(index, slot.node)
                slot.started_us = now_us
            elif slot.leaving_us is not None and slot.task is None:
                del self._slots[index]
            elif slot.leaving_us is not None and now_us - slot.leaving_us > DELAYED_KILL_US and slot.task:
                self._cancel(slot.task)

    def _spread(self, loads: Mapping[str, float | None], *, balance: bool) -> None:
        standing = {i: s for i, s in self._slots.items() if s.leaving_us is None and s.task is not None}
        able = [i for i, s in standing.items() if s.up] or list(standing)
        if not able:
            # None is wanted, or all are about to start again in their slots: what they had stays theirs.
            self._spread_shards = None
            kept = self._shards if any(self._wanted.values()) else ()
            self._mapping = {shard: i for shard, i in self._mapping.items() if shard in kept}
            return
        changed = set(able) != self._able
        if not (balance or changed) and self._spread_shards == self._shards:
            return
        self._able = set(able)
        self._spread_shards = self._shards
        found = rebalance(self._shards, self._mapping, able, loads if balance or changed else None)
        self._mapping = dict(found.assignment)
        if balance:
            self.last_balance = found

    # --- what others are told ---------------------------------------------------------------------

    def mapping(self) -> dict[str, str]:
        """Shard -> ready list of its task. Every standing task with a shard is named."""
        out = {}
        for shard, index in self._mapping.items():
            slot = self._slots.get(index)
            if slot is not None and slot.task is not None:
                out[shard] = slot.task.launch.owner.ready
        return out

    def without_shards(self) -> frozenset[str]:
        """Ready lists of tasks that stand and have no shard: they wait for some."""
        busy = set(self._mapping.values())
        return frozenset(
            slot.task.launch.owner.ready
            for index, slot in self._slots.items()
            if slot.task is not None and slot.leaving_us is None and index not in busy
        )

    @property
    def starting(self) -> bool:
        """Some task was launched and is not up yet."""
        return any(slot.task is not None and not slot.up for slot in self._slots.values())

    @property
    def running(self) -> int:
        """Tasks that are up."""
        return sum(slot.up for slot in self._slots.values())

    def busy_share(self, loads: Mapping[str, float | None]) -> float:
        """The part of their time that its tasks work; `loads` is shard -> busy share of one core, and shards
        without one do not count."""
        busy = sum(load for load in loads.values() if load is not None)
        return busy / max(1, self.running)

    @property
    def idle(self) -> bool:
        """No task is left, not even a leaving one."""
        return not self._slots

    @property
    def has_crashed(self) -> bool:
        """A task of it has, not long ago: the next ones had better note each key."""
        return bool(self._crashes)

    def failure(self, failures_max: int) -> str:
        """Why it cannot go on, "" while it can: tasks at home crashed at one place again and again, or ended
        `failures_max` times in a row in one slot. Without tasks elsewhere it goes on."""
        for shard, crashes in self._crashes.items():
            if shard and crashes.count >= CRASHES_MAX:
                return f"tasks crashed {crashes.count} times in a row at shard {shard}; last: {crashes.error}"
        at_home = (slot for slot in self._slots.values() if not slot.node)
        failed = max(at_home, key=lambda slot: slot.failures, default=None)
        if failed is None or failed.failures < failures_max:
            return ""
        return f"a task ended {failed.failures} times in a row; last: {failed.error or 'without a reason'}"
