"""The loop of a run, whole, on the twins of store and fleet."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from backends.fleet_harness import launch_of
from penstock.locality.loop import LocalityLoop
from penstock.schedule.record import WorkerPlace
from penstock.store.memory.node import MemoryNode
from penstock.store.memory.store import MemoryStore
from penstock.store.port import Bounds, OpenStore, Request, StoreUnreachable
from penstock_operator.fleet.port import WorkerNotStartedError
from penstock_operator.local.kept.grown_files import GrownFiles
from penstock_operator.local.local_run import LocalRun
from penstock_operator.local.run_placement import first_schedules
from penstock_operator.local.run_state import Result, RunState, StartWorker, WorkerCare, worker_uid
from penstock_simulation.twins.memory_fleet import MemoryFleet
from processes.orders_code import Count
from processes.orders_plan import KEYED_SHARDS, PARTITIONS, expected_names, orders_plan
from scenes.scripted_run import Keeper, Recorder, ScriptedTicks, orders_shards
from worlds.fleet_workers import FleetWorkers

RECORDS = 40
SHARDS = KEYED_SHARDS


class FaultyStore(MemoryStore):
    """Away when told to be."""

    away = False

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        if self.away:
            raise StoreUnreachable("away")
        return super().pipeline(calls)


class Scene:
    """A run of two workers over a store that outlives it."""

    def __init__(
        self,
        node: MemoryNode | None = None,
        run: int = 1,
        time_limit_s: float | None = None,
        grown: GrownFiles | None = None,
        locality: LocalityLoop | None = None,
    ) -> None:
        self.plan = orders_plan(RECORDS)
        self.node = node or MemoryNode()
        self.store = FaultyStore(self.node, "t", Bounds())
        self.store.call(OpenStore("local"))
        self.shards = orders_shards(self.store)
        self.ticks = ScriptedTicks()
        self.fleet = MemoryFleet(self.ticks.now_s)
        self.workers = FleetWorkers(self.fleet, self.node, self.plan, RECORDS, self.ticks.now_us)
        self.output = Recorder(tick_s=1.0)
        self.keeper = Keeper()
        names = ("w0", "w1")
        cares = {name: WorkerCare(name, worker_uid(f"run{run}", name, 0)) for name in names}
        schedules = first_schedules(
            self.plan,
            self.shards,
            [WorkerPlace(care.name, "local", "local", care.uid) for care in cares.values()],
        )
        self.run = LocalRun(
            RunState(
                self.plan, f"run{run}", "local", cares, schedules, time_limit_s, version_before=run * 100
            ),
            self.shards,
            self.store,
            self.keeper,
            self.fleet,
            self._launch,
            self.output,
            self.ticks,
            grown=grown,
            locality=locality,
        )
        self.steps: dict[int, Callable[[], None]] = {}
        self.ticks.at_wait = self._at_wait

    def _launch(self, start: StartWorker) -> None:
        launch = launch_of(start.worker, start.attempt)
        self.workers.launch(launch.model_copy(update={"uid": start.uid}))

    def _at_wait(self, number: int) -> None:
        if number in self.steps:
            self.steps[number]()
        self.workers.turn()

    def printed(self) -> list[str]:
        return [json.loads(line)["name"] for line in self.output.lines]


EXPECTED = expected_names(RECORDS)


def test_a_run_ends_with_its_input_and_every_row_was_printed_once() -> None:
    scene = Scene()
    summary = scene.run.run()
    assert summary.result is Result.FINISHED
    assert sorted(scene.printed()) == EXPECTED
    assert all(worker.state == "ended" for worker in scene.fleet.workers())


def test_the_summary_counts_what_every_operator_did() -> None:
    summary = Scene().run.run()
    totals = {total.name: total for total in summary.operators}
    assert {name: total.records for name, total in totals.items()} == dict.fromkeys(
        ("orders", "count", "shown"), RECORDS * PARTITIONS
    )
    assert totals["shown"].p50_ms is not None
    assert totals["shown"].max_ms is not None
    assert summary.worked_s > 0


def test_killed_workers_lose_and_repeat_nothing() -> None:
    scene = Scene()
    for number in (5, 20, 35, 60):
        scene.steps[number] = lambda number=number: scene.fleet.die(f"w{number % 2}")
    summary = scene.run.run()
    assert summary.result is Result.FINISHED
    assert sorted(scene.printed()) == EXPECTED
    assert sum(summary.restarts.values()) >= 2
    assert any("w1 killed by SIGKILL; its" in text for text in scene.output.events)


def test_all_workers_killed_at_once_come_back_and_finish() -> None:
    scene = Scene()

    def kill_all() -> None:
        scene.fleet.die("w0")
        scene.fleet.die("w1")

    scene.steps[10] = kill_all
    assert scene.run.run().result is Result.FINISHED
    assert sorted(scene.printed()) == EXPECTED


def test_an_interrupted_run_is_gone_on_with_by_the_next_one() -> None:
    first = Scene()

    def interrupt() -> None:
        first.ticks.interrupts = 1

    first.steps[10] = interrupt
    assert first.run.run().result is Result.STOPPED
    assert 0 < len(first.printed()) < len(EXPECTED)
    second = Scene(first.node, run=2)
    assert second.run.run().result is Result.FINISHED
    assert sorted(first.printed() + second.printed()) == EXPECTED


def test_a_run_that_was_ended_at_once_loses_nothing_either() -> None:
    first = Scene()

    def interrupt_twice() -> None:
        first.ticks.interrupts = 2

    first.steps[10] = interrupt_twice
    assert first.run.run().result is Result.STOPPED
    second = Scene(first.node, run=2)
    second.run.run()
    assert sorted(first.printed() + second.printed()) == EXPECTED


def test_a_run_over_used_up_input_starts_no_worker() -> None:
    first = Scene()
    first.run.run()
    second = Scene(first.node, run=2)
    assert second.run.run().result is Result.FINISHED
    assert second.fleet.workers() == ()
    assert "an earlier run" in second.output.events[-1]


def test_the_time_limit_drains_what_was_read() -> None:
    scene = Scene(time_limit_s=2.0)
    assert scene.run.run().result is Result.TIME_OVER
    counters = scene.node.topology("t").shards
    read = sum(counters[name].completed_rows for name in scene.shards["orders"])
    assert len(scene.printed()) == read < len(EXPECTED)


def test_a_failure_of_user_code_ends_the_run_with_its_message(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    monkeypatch.setattr(Count, "failing", True)
    summary = scene.run.run()
    assert summary.result is Result.FAILED
    assert summary.message.startswith("Operator count failed.")
    assert summary.message.endswith("\nValueError: no")


def test_a_store_that_is_away_for_a_while_is_waited_for() -> None:
    scene = Scene()

    def set_away(away: bool) -> Callable[[], None]:
        return lambda: setattr(scene.store, "away", away)

    scene.steps[10] = set_away(True)
    scene.steps[12] = lambda: scene.fleet.die("w1")
    scene.steps[20] = set_away(False)
    assert scene.run.run().result is Result.FINISHED
    assert sorted(scene.printed()) == EXPECTED
    assert [text for text in scene.output.events if "store" in text] == [
        "the store is away",
        "the store is back",
    ]


def test_an_interrupt_stops_the_workers_also_while_the_store_is_away() -> None:
    scene = Scene()

    def lose_store_and_interrupt() -> None:
        scene.store.away = True
        scene.ticks.interrupts = 2

    scene.steps[10] = lose_store_and_interrupt
    assert scene.run.run().result is Result.STOPPED
    assert all(worker.state == "ended" for worker in scene.fleet.workers())


def test_a_hopeless_store_ends_the_run() -> None:
    scene = Scene()
    scene.steps[10] = lambda: setattr(scene.keeper, "fault", "The disk is full.")
    summary = scene.run.run()
    assert (summary.result, summary.message) == (Result.FAILED, "The disk is full.")


def test_a_reader_that_goes_away_ends_the_run_and_loses_no_row() -> None:
    first = Scene()
    first.steps[10] = lambda: setattr(first.output, "broken", True)
    assert first.run.run().result is Result.STOPPED
    second = Scene(first.node, run=2)
    second.run.run()
    assert sorted(first.printed() + second.printed()) == EXPECTED


def test_the_last_lines_of_a_worker_that_never_got_ready_are_in_the_message() -> None:
    scene = Scene()

    def die_early(number: int) -> None:
        for worker in scene.fleet.workers():
            if worker.state == "running":
                scene.fleet.write(worker.worker, "no memory")
                scene.fleet.leave(worker.worker, 1)

    scene.ticks.at_wait = die_early
    summary = scene.run.run()
    assert summary.result is Result.FAILED
    assert summary.message.endswith("\nno memory")


@pytest.mark.parametrize("phase", ["starting", "running", "stopping"])
def test_the_status_tells_the_phase(phase: str) -> None:
    scene = Scene()
    scene.output.tick_s = 0.0
    scene.run.run()
    assert phase in {status.phase for status in scene.output.statuses}


def test_the_status_shows_rates_latencies_and_places() -> None:
    scene = Scene()
    scene.output.tick_s = 0.0
    scene.run.run()
    working = [s for s in scene.output.statuses if s.phase == "running"][-5]
    lines = {line.name: line for line in working.operators}
    count = lines["count"]
    assert count.rate_per_s is not None
    assert count.rate_per_s > 0
    assert count.p99_ms is not None
    assert (count.workers, count.executors, count.tasks_ready, count.shards) == (2, 2, 2, SHARDS)
    assert lines["shown"].shards is None
    assert [(w.name, w.state) for w in working.workers] == [("w0", "ready"), ("w1", "ready")]


def test_a_store_that_does_not_answer_is_not_asked_and_its_figures_are_missing() -> None:
    scene = Scene()
    scene.output.tick_s = 0.0
    asked: list[int] = []
    pipeline = scene.store.pipeline

    def count_calls(calls: Sequence[Request[Any]]) -> list[Any]:
        asked.append(scene.ticks.waits)
        return pipeline(calls)

    scene.store.pipeline = count_calls  # type: ignore[method-assign]
    scene.steps[20] = lambda: setattr(scene.keeper, "answers", False)
    scene.steps[30] = lambda: setattr(scene.keeper, "answers", True)
    assert scene.run.run().result is Result.FINISHED
    assert not set(range(20, 30)) & set(asked)
    away = [line for status in scene.output.statuses if status.store_away for line in status.operators]
    assert away
    assert {(line.rate_per_s, line.p50_ms, line.p99_ms, line.records, line.tasks_ready) for line in away} == {
        (None, None, None, None, None)
    }
    assert sorted(scene.printed()) == EXPECTED


def test_what_the_keeper_of_the_store_has_to_say_is_told() -> None:
    scene = Scene()
    scene.steps[10] = lambda: scene.keeper.to_tell.append("the disk of /x is full")
    scene.run.run()
    assert scene.output.events.count("the disk of /x is full") == 1


def test_a_worker_that_finds_no_room_to_start_again_is_tried_until_it_does() -> None:
    scene = Scene()
    launch, refused = scene._launch, []

    def launch_with_room(start: StartWorker) -> None:
        if start.attempt and len(refused) < 5:
            refused.append(start.worker)
            raise WorkerNotStartedError("Worker w1 cannot be started: free what it lacks.")
        launch(start)

    scene.run._launch = launch_with_room
    scene.steps[20] = lambda: scene.fleet.die("w1")
    assert scene.run.run().result is Result.FINISHED
    assert len(refused) == 5
    told = [text for text in scene.output.events if "It is tried again." in text]
    assert told == ["Worker w1 cannot be started: free what it lacks. It is tried again."]
    assert sorted(scene.printed()) == EXPECTED


class Grew(GrownFiles):
    """The first partition grew by a row once all were read to their ends."""

    def __init__(self) -> None:
        self.told = 0

    def among(self, shards: Any, counters: Any) -> list[str]:
        finished = all(known.finished for known in counters["orders"])
        self.told += finished
        return ["orders/0"] if finished and self.told == 1 else []


def test_a_run_does_not_end_while_a_file_has_more_than_was_read() -> None:
    grew = Grew()
    scene = Scene(grown=grew)
    assert scene.run.run().result is Result.FINISHED
    assert grew.told >= 2
    names = sorted(json.loads(line)["name"] for line in scene.output.lines)
    assert names == sorted([*expected_names(RECORDS), f"orders/0:{RECORDS}"])
    assert any("0 changed after it was read to its end" in text for text in scene.output.events)


def test_a_run_that_was_at_its_end_reads_what_was_appended_since() -> None:
    first = Scene()
    assert first.run.run().result is Result.FINISHED
    again = Scene(first.node, run=2, grown=Grew())
    assert again.run.run().result is Result.FINISHED
    assert [json.loads(line)["name"] for line in again.output.lines] == [f"orders/0:{RECORDS}"]
