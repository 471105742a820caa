"""Processes that end with whoever started them, whatever ended that one: Linux's parent death signal.

The kernel sends it when the thread that started a process ends, so that thread has to stay as long as the
process is to live. Neighbours: `private_store` and `processes.fleet` start processes with it.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def ends_with_starter() -> Callable[[], None]:
    """For `preexec_fn` of a process that this thread is about to start: two system calls, no lock taken."""
    parent = os.getpid()

    def end_with_parent() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return end_with_parent
