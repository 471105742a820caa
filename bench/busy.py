"""Other work beside what is measured: processes that spin at normal priority.

All of them are one group (`core_groups`), which is to have as large a share of the cores as a side.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bench.core_groups import core_group

from penstock_operator.local.processes.parent_death import ends_with_starter


def spinners(default: int) -> int:
    """How many: BUSY, or `default`."""
    return int(os.environ.get("BUSY", default))


@contextmanager
def spinning(count: int) -> Iterator[None]:
    """So many of them run in the context."""
    started = [
        subprocess.Popen(
            [sys.executable, "-S", "-c", "while True: pass"],
            stdin=subprocess.DEVNULL,
            preexec_fn=ends_with_starter(),  # noqa: PLW1509  # it only makes one system call
        )
        for _ in range(count)
    ]
    with core_group() as group:
        try:
            for one in started:
                group.take(one.pid)
            yield
        finally:
            for one in started:
                one.kill()
            for one in started:
                one.wait()
