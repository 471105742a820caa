"""Groups of processes that divide the cores by weight."""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench.core_groups import core_group


def in_a_group(pid: int) -> bool:
    return "penstock-bench" in Path(f"/proc/{pid}/cgroup").read_text()


def test_a_process_is_in_a_group_where_there_are_any_and_in_none_behind_it() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        with core_group(2) as group:
            group.take(process.pid)
            assert in_a_group(process.pid) is group.is_there
        assert not in_a_group(process.pid)
        process.kill()
