"""A process that is soon given a core where others take all of them: Linux's slices.

A thread that wakes up waits until the one that has the core has had its slice, a millisecond and more, unless
its own is shorter (EEVDF, Linux 6.12 and later). A record wakes a source, a store and a task several times on
its way, so slices add up. A shorter one gives no larger share of the cores, and anybody may ask for it.
Neighbours: `penstock run` starts its store so, a worker its tasks.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct

SLICE_NS = 100_000
"""The shortest that Linux gives."""
_SYS_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
_ATTRIBUTES = struct.Struct("<IIQiIQQQ")
"""`struct sched_attr`: its size, policy, flags, nice, priority, runtime, deadline, period."""
_libc = ctypes.CDLL(None)


def take_short_slices() -> None:
    """Of the calling thread, and of all that it starts from now on. Where the system has none for it, or does
    not let it, nothing is done. Takes no lock."""
    number = _SYS_SCHED_SETATTR.get(platform.machine())
    if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, 0, nice, 0, SLICE_NS, 0, 0)
    _libc.syscall(number, 0, attributes, 0)
