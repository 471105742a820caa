from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from clocks.running import run
from penstock_operator.cluster.carrying_out.topology_status import StatusWriter
from penstock_operator.cluster.decisions.actions import Event
from penstock_operator.cluster.kubernetes_api.port import EVENTS, TOPOLOGIES, Object
from penstock_simulation.twins.memory_cluster import MemoryCluster
from worlds import cluster_objects as objects


class Scene:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.cluster = MemoryCluster(clock_s=lambda: self.now_s)
        self.writer = StatusWriter(self.cluster, lambda: self.now_s, lambda: 1.8e9, "operator-0")

    async def topology(self) -> Object:
        held = await self.cluster.get(TOPOLOGIES, "words")
        assert held is not None
        return held

    async def decide(self, *events: Event, **status: Any) -> None:
        await self.writer.write(await self.topology(), status, events)

    @property
    def writes(self) -> int:
        return sum(1 for verb, *_ in self.cluster.calls if verb == "apply_status")


def tell(story: Callable[[Scene], Awaitable[None]]) -> None:
    async def told() -> None:
        scene = Scene()
        await scene.cluster.create(TOPOLOGIES, objects.topology())
        await story(scene)

    run(told())


def numbers(rate: float, tasks: int = 1) -> list[Object]:
    return [{"name": "numbers", "tasksReady": tasks, "ratePerSecond": rate}]


def test_a_status_is_written_once_until_it_differs() -> None:
    async def story(scene: Scene) -> None:
        for phase in ("Pending", "Pending", "Running", "Running"):
            await scene.decide(phase=phase)
        assert scene.writes == 2
        assert (await scene.topology())["status"]["phase"] == "Running"

    tell(story)


def test_figures_alone_are_written_now_and_then_only() -> None:
    async def story(scene: Scene) -> None:
        await scene.decide(phase="Running", operators=numbers(1.0))
        scene.now_s += 1
        await scene.decide(phase="Running", operators=numbers(2.0))
        assert scene.writes == 1
        assert not scene.writer.has_told({"phase": "Running", "operators": numbers(2.0)})
        scene.now_s += 5
        await scene.decide(phase="Running", operators=numbers(3.0))
        assert scene.writes == 2
        assert scene.writer.has_told({"phase": "Running", "operators": numbers(3.0)})
        await scene.decide(phase="Running", operators=numbers(3.0, tasks=2))
        assert scene.writes == 3

    tell(story)


def test_the_first_rate_is_written_at_once() -> None:
    async def story(scene: Scene) -> None:
        await scene.decide(phase="Running")
        for rate in ("0/s", "120/s", "130/s", "0/s"):
            await scene.decide(phase="Running", rate=rate)
        assert (await scene.topology())["status"]["rate"] == "120/s"
        assert scene.writes == 2

    tell(story)


def test_a_watermark_that_went_on_and_rows_that_came_late_are_figures() -> None:
    async def story(scene: Scene) -> None:
        for second in range(5):
            told = {"name": "count", "watermark": f"2026-01-01T00:00:0{second}.000Z", "lateRecords": second}
            await scene.decide(phase="Running", operators=[told])
            scene.now_s += 1
        assert scene.writes == 1

    tell(story)


def test_a_topology_that_came_anew_gets_its_status() -> None:
    async def story(scene: Scene) -> None:
        await scene.decide(phase="Running")
        scene.cluster.finish(TOPOLOGIES, "words")
        await scene.cluster.create(TOPOLOGIES, objects.topology())
        await scene.decide(phase="Running")
        assert (await scene.topology())["status"]["phase"] == "Running"

    tell(story)


def test_a_status_that_somebody_wrote_over_is_put_right() -> None:
    async def story(scene: Scene) -> None:
        await scene.decide(phase="Running")
        scene.cluster.set_status(TOPOLOGIES, "words", {"phase": "Failed"})
        scene.now_s += 6
        await scene.decide(phase="Running")
        assert (await scene.topology())["status"]["phase"] == "Running"

    tell(story)


def test_events_stand_on_the_topology_each_with_a_name_of_its_own() -> None:
    async def story(scene: Scene) -> None:
        warning = Event("Warning", "StateLost", "x" * 2000)
        await scene.decide(Event("Normal", "Started", "it runs"), warning, phase="Running")
        first, second = (await scene.cluster.list(EVENTS)).items
        assert {first["reason"], second["reason"]} == {"Started", "StateLost"}
        topology = await scene.topology()
        assert first["regarding"]["uid"] == topology["metadata"]["uid"]
        assert max(len(one["note"]) for one in (first, second)) == 1024

    tell(story)
