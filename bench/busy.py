"""Other work beside what is measured: processes that spin at normal priority.

Each is a session of its own. Linux divides cores between sessions first where it groups by them
(`sched_autogroup_enabled`), and what is in one session with a spinner, as feed and broker would be, gets
no more than what that one leaves.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

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
            start_new_session=True,
            preexec_fn=ends_with_starter(),  # noqa: PLW1509  # it only makes one system call
        )
        for _ in range(count)
    ]
    try:
        yield
    finally:
        for one in started:
            one.kill()
        for one in started:
            one.wait()
