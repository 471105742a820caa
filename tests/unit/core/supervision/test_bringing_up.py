"""Executors come up before their shards do."""

from __future__ import annotations

from penstock.schedule.hosts_and_wishes import ONE_MACHINE, Host, Manner, Wish
from penstock.schedule.planner import plan
from penstock.schedule.record import OperatorSchedule, StorePlace, WorkerPlace
from penstock.supervision.bringing_up import WARM_S, Step, next_step
from penstock.supervision.since_when import SinceWhen

SHARDS = tuple(f"count/{part}" for part in range(4))
STORE = StorePlace("n", "n", "")


def host(name: str, *, takes_share: bool = False) -> Host:
    return Host(WorkerPlace(name, "n", "n", f"uid-{name}"), STORE, 9, takes_share=takes_share)


WISH = Wish("count", SHARDS, 2, manner=Manner.TAKE_OVER)
ALONE = plan({}, [WISH], [host("w0")], runtime=ONE_MACHINE)["count"]
SHARED = plan({"count": ALONE}, [WISH], [host("w0"), host("w1", takes_share=True)], runtime=ONE_MACHINE)[
    "count"
]


class Scene:
    """Somebody who carries out each step."""

    def __init__(self) -> None:
        self.schedule: OperatorSchedule = ALONE
        self.up: set[str] = set()
        self.since_s: dict[str, float] = {}

    def turn(self, now_s: float, planned: OperatorSchedule = SHARED, *, is_urgent: bool = False) -> Step:
        since = SinceWhen(self.since_s, now_s)
        step = next_step(
            self.schedule,
            planned,
            lambda executor: executor.name in self.up,
            since,
            is_urgent=is_urgent,
            runtime=ONE_MACHINE,
        )
        self.since_s = since.after
        self.schedule = step.schedule
        return step

    def on(self, worker: str) -> int:
        (executor,) = [e.name for e in self.schedule.executors if e.worker == worker]
        return len(self.schedule.shards_of(executor))


def test_shards_come_when_the_tasks_are_up() -> None:
    scene = Scene()
    assert scene.turn(0.0).is_warming
    assert (scene.on("w0"), scene.on("w1")) == (4, 0)
    announced = scene.schedule
    assert scene.turn(1.0).is_warming
    assert scene.schedule is announced, "what is announced is announced once"
    scene.up = {"count-w1"}
    assert not scene.turn(2.0).is_warming
    assert (scene.on("w0"), scene.on("w1")) == (2, 2)


def test_they_come_after_a_while_in_any_case() -> None:
    scene = Scene()
    scene.turn(0.0)
    assert scene.turn(WARM_S - 0.1).is_warming
    assert not scene.turn(WARM_S).is_warming
    assert scene.on("w1") == 2


def test_they_come_at_once_where_work_waits() -> None:
    scene = Scene()
    assert not scene.turn(0.0, is_urgent=True).is_warming
    assert scene.on("w1") == 2


def test_where_nothing_is_to_change_nothing_is_written() -> None:
    step = next_step(ALONE, ALONE, lambda _: False, SinceWhen({}, 0.0), runtime=ONE_MACHINE)
    assert step.schedule is ALONE
    assert not step.is_warming
