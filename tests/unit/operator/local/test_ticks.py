"""Signals while a run waits."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time

from penstock_operator.local.ticks import SystemTicks

LONG_S = 20.0
FILES_OF_SELECT = 1024
"""`select` takes no file with a higher number."""


def test_a_signal_is_counted_and_cuts_the_wait_short() -> None:
    with SystemTicks() as ticks:
        began_s = ticks.now_s()
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
        ticks.wait(LONG_S)
        assert ticks.interrupts == 1
        os.kill(os.getpid(), signal.SIGINT)
        ticks.wait(LONG_S)
        assert ticks.interrupts == 2
        assert ticks.now_s() - began_s < LONG_S / 2


def test_the_end_of_a_child_cuts_the_wait_short_and_is_no_interrupt() -> None:
    with SystemTicks() as ticks:
        began_s = ticks.now_s()
        child = subprocess.Popen([sys.executable, "-S", "-c", ""])
        ticks.wait(LONG_S)
        assert child.wait() == 0
        assert ticks.now_s() - began_s < LONG_S / 2
        assert ticks.interrupts == 0


def test_a_wait_is_cut_short_in_a_process_with_thousands_of_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4000)), hard))
        while not opened or opened[-1] < FILES_OF_SELECT:
            opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        with SystemTicks() as ticks:
            began_s = ticks.now_s()
            os.kill(os.getpid(), signal.SIGINT)
            ticks.wait(LONG_S)
            assert ticks.interrupts == 1
            assert ticks.now_s() - began_s < LONG_S / 2
    finally:
        for file in opened:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_wait_without_a_signal_lasts_its_time() -> None:
    with SystemTicks() as ticks:
        began_s = time.monotonic()
        ticks.wait(0.05)
        assert time.monotonic() - began_s >= 0.05


def test_the_handlers_of_before_are_back_afterwards() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]
    with SystemTicks():
        assert signal.getsignal(signal.SIGINT) != before[0]
    after = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]
    assert after == before


def test_many_signals_at_once_neither_block_nor_get_lost() -> None:
    with SystemTicks() as ticks:
        for _ in range(200):
            os.kill(os.getpid(), signal.SIGHUP)
        assert ticks.interrupts == 200
