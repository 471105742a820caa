"""What a run stands upon in a test: time that passes by waiting, an output that keeps what it is given, a
keeper of the store. Neighbours: `sla_scene` and the tests of the run's loop use it, `fleet_workers` work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.store.port import Create, NodeStore
from penstock_operator.local.showing.run_status import RunEvent, RunStatus
from penstock_operator.local.showing.run_summary import RunSummary
from processes.orders_plan import KEYED_SHARDS, PARTITIONS


class ScriptedTicks:
    """Time passes by waiting; at each wait the workers take a turn and the test may step in."""

    def __init__(self) -> None:
        self.passed_s = 0.0
        self.interrupts = 0
        self.waits = 0
        self.at_wait: Callable[[int], None] = lambda _: None
        self.before_wait: Callable[[], None] = lambda: None

    def now_s(self) -> float:
        return self.passed_s

    def now_us(self) -> int:
        return int(1e15 + self.passed_s * 1e6)

    def wait(self, seconds: float) -> None:
        self.before_wait()
        self.passed_s += seconds
        self.waits += 1
        assert self.waits < 5_000, "the run does not end"
        self.at_wait(self.waits)


class Recorder:
    """An output that keeps what it is given."""

    def __init__(self, tick_s: float) -> None:
        self.tick_s = tick_s
        self.statuses: list[RunStatus] = []
        self.events: list[str] = []
        self.lines: list[str] = []
        self.broken = False

    def show(self, status: RunStatus) -> None:
        self.statuses.append(status)

    def tell(self, event: RunEvent) -> None:
        self.events.append(event.text)

    def rows(self, lines: list[str]) -> None:
        if self.broken:
            raise BrokenPipeError
        self.lines.extend(lines)

    def end(self, summary: RunSummary) -> None:
        """The tests look at the summary themselves."""

    def close(self) -> None:
        """Nothing is held."""


class Keeper:
    """Of a store that runs, unless a test says what is wrong with it."""

    restarts = 0
    fault = ""
    answers = True

    def __init__(self) -> None:
        self.to_tell: list[str] = []

    def keep(self) -> str:
        return self.fault

    def news(self) -> list[str]:
        told, self.to_tell = self.to_tell, []
        return told


def orders_shards(store: NodeStore) -> dict[str, Sequence[str]]:
    """The shards of `orders_plan`, created in the store."""
    shards = {
        "orders": [f"orders/{n}" for n in range(PARTITIONS)],
        "count": [f"count/{n}" for n in range(KEYED_SHARDS)],
    }
    for operator, names in shards.items():
        for name in names:
            store.call(Create(name, source=operator == "orders"))
    return dict(shards)
