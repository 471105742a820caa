"""The fault runner's wall clock: a step reaches processes that run, and their monotonic clock stays."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis

from faults import process_tree
from faults.clock import WallClock
from faults.process_tree import SCENE, Role

pytestmark = pytest.mark.integration

TELL = """
import sys, time
for _ in sys.stdin:
    print(time.time(), time.monotonic(), flush=True)
    time.sleep(0.001)
"""


@pytest.fixture
def clock(tmp_path: Path) -> Iterator[WallClock]:
    made = WallClock(tmp_path)
    yield made
    made.close()


def test_a_step_reaches_a_running_process_at_once(clock: WallClock) -> None:
    command = [sys.executable, "-c", TELL]
    env = {**os.environ, **clock.env}
    with subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as teller:
        assert teller.stdin is not None
        assert teller.stdout is not None
        for offset_s in (0, 3600, -7200, 1):
            clock.step(offset_s - clock.offset_s)
            teller.stdin.write("\n")
            teller.stdin.flush()
            wall_s, monotonic_s = map(float, teller.stdout.readline().split())
            assert wall_s - time.time() == pytest.approx(offset_s, abs=5)
            assert monotonic_s - time.monotonic() == pytest.approx(0, abs=5)


def test_a_redis_of_the_scene_is_stepped_found_and_ended(clock: WallClock, tmp_path: Path) -> None:
    server = shutil.which("redis-server")
    assert server is not None
    socket = tmp_path / "r.sock"
    env = {**os.environ, **clock.env, SCENE: str(tmp_path)}
    command = [server, "--port", "0", "--unixsocket", str(socket), "--save", ""]
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL) as process:
        try:
            while not socket.exists():
                assert process.poll() is None
                time.sleep(0.01)
            with redis.Redis(unix_socket_path=str(socket)) as client:
                client.ping()
                clock.step(-3600)
                assert client.time()[0] - time.time() == pytest.approx(-3600, abs=5)
            (found,) = process_tree.look(tmp_path, 0, {})
            assert (found.pid, found.role) == (process.pid, Role.STORE)
            assert process_tree.end_all(tmp_path) == 1
        finally:
            process.kill()
    assert not psutil.pid_exists(process.pid)
