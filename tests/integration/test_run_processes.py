"""A whole run over a real store, with real processes that are killed; only Spark is stood in for."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from clocks.eventually import eventually
from processes.live_processes import left_running
from processes.orders_plan import PROCESS_RECORDS, expected_names
from processes.run_processes import Commands, running_in

pytestmark = pytest.mark.integration
EXPECTED = expected_names(PROCESS_RECORDS)


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    with Commands(tmp_path).all() as started:
        yield started


def test_a_run_prints_every_row_once_and_leaves_nothing_running(commands: Commands) -> None:
    run = commands.start()
    assert run.end() == 0, run.told()
    assert sorted(run.names()) == EXPECTED
    assert not running_in(commands.folder)
    assert "orders: finished" in run.told()


def test_killed_workers_lose_and_repeat_no_row(commands: Commands) -> None:
    run = commands.start()
    for rows in (20, 60):
        run.wait_for_rows(rows)
        run.children("w1.json")[0].kill()
        eventually(lambda: bool(run.children("w1.json")))
    assert run.end() == 0, run.told()
    assert sorted(run.names()) == EXPECTED
    assert "w1 killed by SIGKILL" in run.told()


def test_a_killed_store_loses_and_repeats_no_row(commands: Commands) -> None:
    run = commands.start()
    run.wait_for_rows(20)
    server = run.children("redis-server")[0]
    server.kill()
    run.wait_for_rows(100)
    assert run.end() == 0, run.told()
    assert sorted(run.names()) == EXPECTED
    assert "the store was started again (1 time)" in run.told()


def test_after_an_interrupt_a_second_run_goes_on(commands: Commands) -> None:
    first = commands.start()
    first.wait_for_rows(20)
    first.process.send_signal(signal.SIGINT)
    assert first.end() == 0, first.told()
    assert not running_in(commands.folder)
    second = commands.start()
    assert second.end() == 0, second.told()
    assert "resumes" in second.told()
    assert sorted(first.names() + second.names()) == EXPECTED


def test_a_second_interrupt_ends_at_once_and_loses_nothing(commands: Commands) -> None:
    first = commands.start()
    first.wait_for_rows(20)
    for worker in ("w0.json", "w1.json"):
        first.children(worker)[0].suspend()
    first.process.send_signal(signal.SIGINT)
    eventually(lambda: "told to stop" in first.told())
    began_s = time.monotonic()
    first.process.send_signal(signal.SIGINT)
    assert first.end() == 0, first.told()
    assert time.monotonic() - began_s < 4
    assert not running_in(commands.folder)
    second = commands.start()
    assert second.end() == 0
    assert sorted(first.names() + second.names()) == EXPECTED


def test_nothing_outlives_a_killed_run_and_the_next_one_goes_on(commands: Commands) -> None:
    first = commands.start()
    first.wait_for_rows(20)
    first.process.kill()
    second = commands.start()
    assert second.end() == 0, second.told()
    assert "resumes" in second.told()
    # What was printed and not yet acknowledged when the first run died is printed again.
    assert set(first.names()) | set(second.names()) == set(EXPECTED)
    assert not running_in(commands.folder)


def test_nothing_outlives_a_killed_run_when_there_is_no_next_one(commands: Commands) -> None:
    run = commands.start()
    run.wait_for_rows(20)
    run.process.kill()
    run.process.wait()
    eventually(lambda: not running_in(commands.folder))


def test_a_store_that_is_killed_again_as_it_starts_is_started_until_it_stays(commands: Commands) -> None:
    run = commands.start()
    run.wait_for_rows(20)
    killed: set[int] = set()
    while len(killed) < 4:
        servers = run.children("redis-server")
        for server in servers:
            with suppress(psutil.NoSuchProcess):
                server.kill()
                killed.add(server.pid)
    assert run.end() == 0, run.told()
    assert sorted(run.names()) == EXPECTED


def test_a_store_that_stands_still_is_replaced_within_seconds(commands: Commands) -> None:
    run = commands.start()
    run.wait_for_rows(20)
    run.children("redis-server")[0].suspend()
    began_s = time.monotonic()
    eventually(lambda: "it is started again" in run.told())
    run.wait_for_rows(100)
    assert time.monotonic() - began_s < 20
    assert run.end() == 0, run.told()
    assert sorted(run.names()) == EXPECTED


def test_two_interrupts_end_a_run_at_once_while_its_store_stands_still(commands: Commands) -> None:
    run = commands.start()
    run.wait_for_rows(20)
    server = run.children("redis-server")[0]
    server.suspend()
    began_s = time.monotonic()
    run.process.send_signal(signal.SIGINT)
    eventually(lambda: "told to stop" in run.told())
    # As soon as the next server is there it stands still as well.
    for other in run.children("redis-server"):
        with suppress(psutil.NoSuchProcess):
            other.suspend()
    run.process.send_signal(signal.SIGINT)
    assert run.end() == 0, run.told()
    assert time.monotonic() - began_s < 8
    assert not running_in(commands.folder)
    second = commands.start()
    assert second.end() == 0, second.told()
    assert set(run.names()) | set(second.names()) == set(EXPECTED)


def test_nothing_outlives_a_run_that_is_killed_together_with_its_sentinel(commands: Commands) -> None:
    run = commands.start()
    run.wait_for_rows(20)
    everything = run.tree()
    for process in (run.sentinel(), psutil.Process(run.process.pid)):
        process.kill()
    run.process.wait()
    eventually(lambda: not running_in(commands.folder) and left_running(everything) == [])


def test_a_killed_sentinel_is_replaced_and_the_next_one_does_its_work(commands: Commands) -> None:
    run = commands.start()
    run.wait_for_rows(20)
    # The run must not end meanwhile.
    for worker in ("w0.json", "w1.json"):
        run.children(worker)[0].suspend()
    first = run.sentinel()
    first.kill()
    eventually(lambda: first not in run.tree() and run.sentinel() != first)
    run.process.kill()
    run.process.wait()
    eventually(lambda: not running_in(commands.folder))


def test_two_runs_do_not_share_a_state_directory(commands: Commands) -> None:
    first = commands.start()
    first.wait_for_rows(1)
    # It stands still, so that it does not end before the other one looks; the fixture kills it.
    first.process.send_signal(signal.SIGSTOP)
    second = commands.start()
    assert second.end() == 3
    assert f"Process {first.process.pid} runs this topology already" in second.told()


def test_fresh_begins_with_nothing(commands: Commands) -> None:
    first = commands.start()
    assert first.end() == 0
    second = commands.start()
    assert second.end() == 0
    assert second.names() == []
    assert "--fresh starts anew" in second.told()
    third = commands.start("--fresh")
    assert third.end() == 0
    assert "starts anew" in third.told()
    assert sorted(third.names()) == EXPECTED
