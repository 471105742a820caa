"""A whole run over a real store, with real processes that are killed; only Spark is stood in for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from fleet_harness import eventually
from run_harness import left_running
from stand_in_run import expected_names
from stand_in_workers import PROCESS_RECORDS

pytestmark = pytest.mark.integration
EXPECTED = expected_names(PROCESS_RECORDS)


class Command:
    """One run in `folder`; what it printed is in its files."""

    def __init__(self, folder: Path, number: int, *arguments: str) -> None:
        self.folder = folder
        self.stdout = folder / f"stdout-{number}"
        self.stderr = folder / f"stderr-{number}"
        program = Path(__file__).parents[1] / "stand_in_run.py"
        with self.stdout.open("wb") as stdout, self.stderr.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, str(program), str(folder), *arguments],
                stdout=stdout,
                stderr=stderr,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )

    def names(self) -> list[str]:
        whole = self.stdout.read_text().rpartition("\n")[0]
        return [json.loads(line)["name"] for line in whole.splitlines()]

    def told(self) -> str:
        return self.stderr.read_text()

    def wait_for_rows(self, count: int) -> None:
        eventually(lambda: len(self.names()) >= count or self.process.poll() is not None)
        assert self.process.poll() is None, self.told()

    def end(self) -> int:
        return self.process.wait(60)

    def tree(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def sentinel(self) -> psutil.Process:
        """Waits for one that is about to be replaced."""
        found: list[psutil.Process] = []

        def look() -> bool:
            found[:] = [p for p in self.tree() if is_sentinel(p)]
            return len(found) == 1

        eventually(look)
        return found[0]

    def children(self, part: str) -> list[psutil.Process]:
        """Processes of this run whose command line holds `part`."""
        found = []
        for process in running_in(self.folder):
            with suppress(psutil.Error):
                if part in " ".join(process.cmdline()):
                    found.append(process)
        return found


def is_sentinel(process: psutil.Process) -> bool:
    try:
        return "local.sentinel" in " ".join(process.cmdline())
    except psutil.Error:
        return False


def running_in(folder: Path) -> list[psutil.Process]:
    """Whatever was started for a run in `folder`: store and workers name it in their command lines."""
    found = []
    for process in psutil.process_iter():
        try:
            line = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if str(folder) in line and "stand_in_run" not in line:
            found.append(process)
    return found


class Commands:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[Command] = []

    def start(self, *arguments: str) -> Command:
        self.started.append(Command(self.folder, len(self.started), *arguments))
        return self.started[-1]


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    all_of_them = Commands(tmp_path)
    yield all_of_them
    for command in all_of_them.started:
        if command.process.poll() is None:
            command.process.kill()
            command.process.wait()
    eventually(lambda: not running_in(tmp_path))


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
    eventually(lambda: not running_in(commands.folder))
    assert left_running(everything) == []


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
