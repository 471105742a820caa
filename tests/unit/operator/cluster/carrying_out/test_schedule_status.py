from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from clocks.running import run
from penstock_operator.cluster.carrying_out.schedule_status import ScheduleStatusWriter
from penstock_operator.cluster.kubernetes_api.mirror import Mirror
from penstock_operator.cluster.kubernetes_api.port import SCHEDULES, Object
from penstock_operator.cluster.workers.schedule_figures import ScheduleFigures, schedule_figures
from penstock_simulation.twins.memory_cluster import MemoryCluster
from worlds import cluster_objects as objects
from worlds.cluster_world import World

# --- what is decided


def figures(world: World, operator: str = "count") -> ScheduleFigures:
    assert world.last is not None
    (found,) = (one for one in world.last.schedules if one.name == f"words.{operator}")
    return found


def test_a_topology_at_rest_shows_its_tasks_and_no_move() -> None:
    world = World()
    world.run(20)
    assert figures(world) == ScheduleFigures("words.count", 0, 2)


def test_a_treatment_shows_all_its_moves_from_its_beginning_until_none_is_left() -> None:
    """Nobody has applied the new schedule yet, and nothing is said but what it began with."""
    world = World()
    world.run(20)
    held = world.nodes_of("count")["node-a"]
    world.nodes["node-a"].schedulable = False
    seen: list[int | None] = []
    for second in range(60):
        world.agents_work = second % 3 == 0
        world.step()
        seen.append(figures(world).shards_moving)
    first = next(place for place, moving in enumerate(seen) if moving)
    assert seen[first] == held
    assert {moving for moving in seen[first + 1 :] if moving is not None} <= {held, 0}
    assert seen[-1] == 0
    assert "node-a" not in world.nodes_of("count")


def test_moves_are_summed_over_the_nodes_once_all_have_applied_the_schedule() -> None:
    world = World()
    world.run(20)
    observed = world.observed()
    (seen,) = (one for one in observed.schedules if one.schedule.operator == "count")
    moving = tuple(replace(place, shards_moving=2 + number) for number, place in enumerate(seen.applied))
    late = (replace(moving[0], version=moving[0].version - 1), *moving[1:])
    for applied, wished in ((moving, 5), (late, None), (moving[:1], None)):
        picture = replace(observed, schedules=(replace(seen, applied=applied),))
        assert schedule_figures(picture, {})[0].shards_moving == wished


def test_tasks_beside_a_store_that_does_not_answer_are_not_counted_as_none() -> None:
    world = World()
    world.run(20)
    world.step(look=lambda seen: replace(seen, readings={**seen.readings, "node-a": None}))
    assert figures(world).tasks_ready is None


def test_tasks_beside_a_store_that_is_away_do_not_run() -> None:
    world = World()
    world.run(20)
    world.lose_node("node-a")
    world.step()
    assert figures(world).tasks_ready == 1


# --- what is written


class Scene:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.cluster = MemoryCluster(clock_s=lambda: self.now_s)
        self.mirror = Mirror(lambda *_: None)
        self.cluster.subscribe(lambda kind, _, thing: self.mirror.put(kind, thing))
        self.writer = ScheduleStatusWriter(self.cluster, self.mirror, lambda: self.now_s)
        self.name = ""

    async def write(self, moving: int | None, tasks: int | None, name: str = "") -> Any:
        await self.writer.write([ScheduleFigures(name or self.name, moving, tasks)])
        held = await self.cluster.get(SCHEDULES, self.name)
        assert held is not None
        return held.get("status")

    @property
    def writes(self) -> int:
        return sum(1 for verb, *_ in self.cluster.calls if verb == "apply_status")


def tell(story: Callable[[Scene], Awaitable[None]]) -> None:
    async def told() -> None:
        scene = Scene()
        made = await scene.cluster.create(SCHEDULES, objects.schedule())
        assert isinstance(made, dict)
        scene.name = made["metadata"]["name"]
        await story(scene)

    run(told())


def reported(node: str, moving: int) -> Object:
    return {"node": node, "version": 1, "generation": 1, "lostShards": 0, "shardsMoving": moving}


def test_figures_that_stay_cause_no_write() -> None:
    async def story(scene: Scene) -> None:
        for _ in range(20):
            scene.now_s += 1
            assert await scene.write(0, 4) == {"shardsMoving": 0, "tasksReady": 4}
        assert scene.writes == 1

    tell(story)


def test_agents_and_the_operator_leave_each_others_fields_alone() -> None:
    async def story(scene: Scene) -> None:
        await scene.write(0, 4)
        entry = reported("a", 3)
        head = {"metadata": {"name": scene.name}}
        scene.cluster.status_by("penstock-agent-a", SCHEDULES, {**head, "status": {"applied": [entry]}})
        scene.now_s += 1
        assert await scene.write(3, 3) == {"applied": [entry], "shardsMoving": 3, "tasksReady": 3}
        scene.cluster.status_by("penstock-agent-a", SCHEDULES, {**head, "status": {"applied": [entry]}})
        assert (await scene.write(3, 3))["tasksReady"] == 3

    tell(story)


def test_progress_is_written_now_and_then_and_the_end_at_once() -> None:
    async def story(scene: Scene) -> None:
        shown = []
        for moving in (0, 40, 39, 38, 37, 36, 35):
            shown.append((await scene.write(moving, 4))["shardsMoving"])
            scene.now_s += 0.2
        assert shown == [0, 40, 40, 40, 37, 37, 37]
        scene.now_s -= 0.2
        assert not await scene.writer.write([ScheduleFigures(scene.name, 34, 4)])
        assert await scene.writer.write([ScheduleFigures(scene.name, 37, 4)])
        assert (await scene.write(0, 4))["shardsMoving"] == 0

    tell(story)


def test_what_is_not_known_stays_as_it_was() -> None:
    async def story(scene: Scene) -> None:
        assert await scene.write(None, None) is None
        await scene.write(5, 4)
        scene.now_s += 1
        assert await scene.write(None, 3) == {"shardsMoving": 5, "tasksReady": 3}
        scene.now_s += 1
        assert await scene.write(4, None) == {"shardsMoving": 4, "tasksReady": 3}

    tell(story)


def test_a_schedule_that_is_gone_is_passed_over() -> None:
    async def story(scene: Scene) -> None:
        assert await scene.write(1, 1, name="nobodys") is None
        assert scene.writes == 0

    tell(story)
