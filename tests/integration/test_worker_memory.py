"""The processes of a worker are held to its memory, by their true sum."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock_operator.local.processes.worker_memory import keep_within

pytestmark = pytest.mark.integration

MIB = 1 << 20
HOLD = (
    "import sys; held = bytearray(b'x') * (int(sys.argv[1]) << 20); print('.', flush=True); sys.stdin.read()"
)
FORK = (
    "import os, sys; held = bytearray(b'x') * (80 << 20); pid = os.fork();"
    " print(pid, flush=True) if pid else None; sys.stdin.read()"
)


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def begin(ends: ExitStack, program: str, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    """A process that has said its first word."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    ends.enter_context(process)
    ends.callback(process.kill)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_the_largest_process_of_a_worker_that_holds_too_much_is_killed_and_it_is_said_why(
    ends: ExitStack, tmp_path: Path
) -> None:
    small, _ = begin(ends, HOLD, "20")
    large, _ = begin(ends, HOLD, "90")
    pids, kills = (small.pid, large.pid), tmp_path / "w0.kills"
    assert keep_within(pids, 400 * MIB, kills) == ""
    assert not kills.exists()
    told = keep_within(pids, 64 * MIB, kills)
    assert "workers.memory is 64 MiB: its largest process (python" in told
    assert large.wait(10) == -signal.SIGKILL
    assert small.poll() is None
    assert kills.read_text().startswith(f"{large.pid} out of memory: the worker held ")


def test_what_forks_share_counts_once(ends: ExitStack, tmp_path: Path) -> None:
    parent, child = begin(ends, FORK)
    assert keep_within((parent.pid, int(child)), 140 * MIB, tmp_path / "w0.kills") == ""
    assert parent.poll() is None
