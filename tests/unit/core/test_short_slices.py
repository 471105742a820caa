"""Short slices, as Linux has them (`sched(7)`)."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

from penstock.short_slices import SLICE_NS

LOOK = """
import ctypes, os, platform, struct
from penstock.short_slices import take_short_slices
os.nice(3)
if {idle}:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
take_short_slices()
if os.fork() == 0:
    number = dict(x86_64=315, aarch64=275)[platform.machine()]
    attributes = ctypes.create_string_buffer(48)
    assert ctypes.CDLL(None).syscall(number, 0, attributes, 48, 0) == 0
    _, policy, _, nice, _, slice_ns, _, _ = struct.unpack("<IIQiIQQQ", attributes.raw)
    print(policy, nice, slice_ns, flush=True)
    os._exit(0)
os.wait()
"""


def found(*, idle: bool) -> list[int]:
    """Policy, nice value and slice of what such a process starts."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", LOOK.format(idle=idle)]
    told = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True).stdout
    return [int(value) for value in told.split()]


def has_slices() -> bool:
    """Whether this Linux has slices of one's own."""
    major, minor = platform.release().split(".")[:2]
    return (int(major), int(minor)) >= (6, 12)


def test_what_a_process_with_short_slices_starts_has_them_and_its_nice_value() -> None:
    policy, nice, slice_ns = found(idle=False)
    assert (policy, nice) == (os.SCHED_OTHER, 3)
    assert (slice_ns == SLICE_NS) == has_slices()


def test_a_process_that_is_to_wait_for_all_others_still_does() -> None:
    policy, nice, _ = found(idle=True)
    assert (policy, nice) == (os.SCHED_IDLE, 3)
