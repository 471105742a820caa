"""Keeps the processes beside a run alive: the private store's server, and the sentinel.

It works in a thread of its own, so that a server that loads for long, or hangs, holds up nobody: the run asks
`keep` what is known. A server that is gone is started again, again and again with pauses where it is killed
as it starts; one that answers no PING is told from one that is busy by what its process does (a stopped one
goes at once, one that waits for its disk never). A full disk is waited for. Neighbours: `private_store` is
what is kept, `local_run` asks, `sentinel` is kept along.
"""

from __future__ import annotations

import os
import select
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from penstock.process_look import STOPPED, WAITS_FOR_DISK, look_at
from penstock.store.port import StoreUnreachable
from penstock.store.redis.connection import Wire
from penstock_operator.local.store.private_store import PrivateStore, PrivateStoreError

PING_S = 0.5
"""Between two looks at a server that answers."""
ANSWER_S = 1.0
"""A PING that takes longer counts as not answered."""
STOPPED_S = 2.0
"""A server whose process has been stopped for so long is killed; it goes on in the next one."""
HUNG_S = 30.0
"""One that neither answers, nor works, nor waits for its disk."""
KILLED_STARTS_MAX = 20
"""Starts in a row that somebody killed."""
FAILED_STARTS_MAX = 3
PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0)
ROOM_BYTES_MIN = 64 << 10


class HungRule:
    """Whether a server that does not answer is to be killed. Pure: told what is seen, as it is seen."""

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._stopped_s: float | None = None
        self._ticks = -1

    def answered(self) -> None:
        self._since_s = self._stopped_s = None

    def is_hung(self, now_s: float, state: str, worked_ticks: int) -> bool:
        """It did not answer; `state` and `worked_ticks` are its process' (`ProcessLook`)."""
        if worked_ticks != self._ticks or state == WAITS_FOR_DISK or self._since_s is None:
            self._ticks, self._since_s = worked_ticks, now_s
        if state != STOPPED:
            self._stopped_s = None
        elif self._stopped_s is None:
            # It has not answered for as long as a PING is waited for already.
            self._stopped_s = now_s - ANSWER_S
        is_stopped = self._stopped_s is not None and now_s - self._stopped_s >= STOPPED_S
        return is_stopped or now_s - self._since_s >= HUNG_S


class KeptStore:
    """Keeps the protocol `StoreKeeper` of `run_ports`. A context: the thread runs within it.

    `keep_along` is called every now and then; `disks` are folders whose disks are written to.
    """

    def __init__(
        self,
        server: PrivateStore,
        keep_along: Callable[[], None] = lambda: None,
        disks: Sequence[Path] = (),
    ) -> None:
        self._server = server
        self._keep_along = keep_along
        self._disks = tuple(disks)
        self._full: set[Path] = set()
        self._ping = Wire(server.url, ANSWER_S)
        self._rule = HungRule()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._news: list[str] = []
        self._fault = ""
        self._failed = 0
        self._thread = threading.Thread(target=self._run, name="store-keeper", daemon=True)
        self.answers = True
        self.restarts = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._server.end_start()
        self._thread.join()
        self._ping.close()

    def keep(self) -> str:
        return self._fault

    def news(self) -> list[str]:
        with self._lock:
            told, self._news = self._news, []
        return told

    # --- the thread

    def _run(self) -> None:
        while not self._ended.is_set():
            self._keep_along()
            self._watch_disks()
            pid = self._server.pid
            if pid is None:
                self.answers = False
                self._start_again()
            elif self._is_answered():
                self._rule.answered()
                self.answers = True
                self._await_end(pid, PING_S)
            elif not self._ended.is_set():
                self.answers = False
                self._look_at_silent(pid)

    def _is_answered(self) -> bool:
        """An error is an answer too."""
        try:
            self._ping.exchange([(b"PING",)])
        except StoreUnreachable:
            return False
        return True

    def _look_at_silent(self, pid: int) -> None:
        seen = look_at(pid)
        if seen is not None and self._rule.is_hung(time.monotonic(), seen.state, seen.worked_ticks):
            self._tell(
                "the store's server was stopped and did not go on: it is started again"
                if seen.state == STOPPED
                else "the store's server hangs: it is started again"
            )
            self._server.kill()
        else:
            # A connection that was refused comes back at once.
            self._await_end(pid, 0.1)

    def _await_end(self, pid: int, seconds: float) -> None:
        """Until that process ends, at most `seconds`."""
        try:
            process = os.pidfd_open(pid)
        except OSError:
            return
        ended = select.poll()
        ended.register(process, select.POLLIN)
        try:
            ended.poll(int(seconds * 1000))
        finally:
            os.close(process)

    def _start_again(self) -> None:
        try:
            self.restarts += self._server.restart_if_dead()
        except PrivateStoreError as error:
            if self._ended.is_set():
                return
            if error.disk_full:
                self._failed = 0
            else:
                self._failed += 1
                most = KILLED_STARTS_MAX if error.killed else FAILED_STARTS_MAX
                if self._failed >= most:
                    self._fault = str(error)
                    self._ended.set()
                    return
            self._ended.wait(PAUSES_S[min(self._failed, len(PAUSES_S) - 1)])
        else:
            self._failed = 0
            self._rule.answered()

    def _watch_disks(self) -> None:
        for folder in self._disks:
            with suppress(OSError):
                is_full = shutil.disk_usage(folder).free < ROOM_BYTES_MIN
                if is_full and folder not in self._full:
                    self._full.add(folder)
                    self._tell(
                        f"the disk of {folder} is full: the run waits until there is room; free some space"
                    )
                elif not is_full and folder in self._full:
                    self._full.remove(folder)
                    self._tell(f"there is room on the disk of {folder} again")

    def _tell(self, text: str) -> None:
        with self._lock:
            self._news.append(text)
