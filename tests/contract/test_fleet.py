"""The contract of the port `Fleet`, on its twin in memory and on real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.fleet_harness import (
    LINES,
    FleetHarness,
    LocalHarness,
    MemoryHarness,
    by_name,
    launch_of,
    spark_launch_of,
)
from penstock_operator.fleet.port import WorkerState, WorkerStillThereError


@pytest.fixture(params=["memory", "local"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FleetHarness]:
    if request.param == "memory":
        yield MemoryHarness()
        return
    local = LocalHarness(tmp_path)
    yield local
    local.local.close()


def test_a_new_fleet_has_no_workers(harness: FleetHarness) -> None:
    assert harness.fleet.workers() == ()


def test_a_started_worker_is_listed_as_running(harness: FleetHarness) -> None:
    harness.start("w0", attempt=2)
    seen = harness.fleet.workers()
    assert [(w.worker, w.uid, w.attempt, w.state, w.ending, w.cores) for w in seen] == [
        ("w0", "w0-2", 2, WorkerState.RUNNING, "", None)
    ]


def test_a_spark_worker_is_a_member_like_any_other(harness: FleetHarness) -> None:
    harness.start("w0")
    harness.fleet.start(spark_launch_of("w0-beside"))
    assert [(w.worker, w.uid, w.state) for w in harness.fleet.workers()] == [
        ("w0", "w0-0", WorkerState.RUNNING),
        ("w0-beside", "w0-beside-0", WorkerState.RUNNING),
    ]
    with pytest.raises(WorkerStillThereError):
        harness.fleet.start(spark_launch_of("w0-beside"))
    harness.kill("w0-beside")
    harness.until("w0-beside", WorkerState.ENDED)
    assert by_name(harness.fleet)["w0"].state is WorkerState.RUNNING


def test_workers_are_listed_by_name(harness: FleetHarness) -> None:
    harness.start("w1")
    harness.start("w0")
    assert [w.worker for w in harness.fleet.workers()] == ["w0", "w1"]


def test_a_name_cannot_be_started_while_its_worker_runs(harness: FleetHarness) -> None:
    harness.start("w0")
    with pytest.raises(WorkerStillThereError):
        harness.fleet.start(launch_of("w0", attempt=1))
    assert by_name(harness.fleet)["w0"].attempt == 0


def test_a_worker_that_is_asked_to_leave_goes_before_its_deadline(harness: FleetHarness) -> None:
    harness.start("w0")
    harness.fleet.stop("w0", grace_s=60)
    assert harness.until("w0", WorkerState.ENDED).ending == "ended with exit code 0"


def test_a_worker_that_does_not_obey_is_stopping_until_its_deadline_and_then_killed(
    harness: FleetHarness,
) -> None:
    harness.start("deaf")
    harness.fleet.stop("deaf", grace_s=60)
    assert harness.until("deaf", WorkerState.STOPPING).ending == ""
    harness.pass_time(61)
    assert harness.until("deaf", WorkerState.ENDED).ending == "killed by SIGKILL"


def test_a_second_request_can_only_bring_the_deadline_nearer(harness: FleetHarness) -> None:
    harness.start("deaf")
    harness.fleet.stop("deaf", grace_s=60)
    harness.fleet.stop("deaf", grace_s=600)
    harness.until("deaf", WorkerState.STOPPING)
    harness.fleet.stop("deaf", grace_s=0)
    harness.until("deaf", WorkerState.ENDED)


def test_a_name_cannot_be_started_while_its_worker_is_stopping(harness: FleetHarness) -> None:
    harness.start("deaf")
    harness.fleet.stop("deaf", grace_s=60)
    with pytest.raises(WorkerStillThereError):
        harness.fleet.start(launch_of("deaf", attempt=1))


def test_a_killed_worker_is_listed_as_ended_and_can_be_started_again(harness: FleetHarness) -> None:
    harness.start("w0")
    harness.kill("w0")
    assert harness.until("w0", WorkerState.ENDED).ending == "killed by SIGKILL"
    harness.start("w0", attempt=1)
    again = by_name(harness.fleet)["w0"]
    assert (again.uid, again.state, again.ending) == ("w0-1", WorkerState.RUNNING, "")


def test_stopping_an_unknown_or_ended_worker_changes_nothing(harness: FleetHarness) -> None:
    harness.fleet.stop("nobody", grace_s=0)
    harness.start("w0")
    harness.kill("w0")
    before = harness.until("w0", WorkerState.ENDED)
    harness.fleet.stop("w0", grace_s=0)
    assert harness.fleet.workers() == (before,)


def test_a_resized_worker_is_listed_with_its_cores_and_runs_on(harness: FleetHarness) -> None:
    harness.start("w0")
    harness.fleet.resize("w0", 1.0)
    seen = by_name(harness.fleet)["w0"]
    assert (seen.cores, seen.state) == (1.0, WorkerState.RUNNING)


def test_a_worker_that_does_not_run_cannot_be_resized(harness: FleetHarness) -> None:
    with pytest.raises(KeyError):
        harness.fleet.resize("nobody", 1.0)
    harness.start("deaf")
    harness.fleet.stop("deaf", grace_s=60)
    with pytest.raises(KeyError):
        harness.fleet.resize("deaf", 1.0)


def test_the_last_lines_of_a_worker_can_be_read_after_its_end(harness: FleetHarness) -> None:
    assert harness.fleet.log_tail("w0", 5) == ""
    harness.start("w0")
    harness.kill("w0")
    harness.until("w0", WorkerState.ENDED)
    assert harness.fleet.log_tail("w0", 2) == "\n".join(LINES[-2:])


def test_the_log_of_a_new_attempt_does_not_show_the_last_one(harness: FleetHarness) -> None:
    harness.start("w0")
    harness.kill("w0")
    harness.until("w0", WorkerState.ENDED)
    harness.start("w0", attempt=1)
    assert harness.fleet.log_tail("w0", 100) == "\n".join(LINES)
