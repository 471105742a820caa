"""What a task's process lets its main process see without a word: that it beats, and what it works on.

A page of memory that both have: the main process makes it (no file is left when somebody is killed), the task
opens it through the main process' descriptor. A thread of the task beats twice a second, also while user code
runs; it stops when the process stands still, or user code keeps the interpreter to itself. The same thread
ends the process when its main process is gone. Neighbours: `task` opens the note, `noted_work` writes it,
`resident_tasks` reads it, `standing_rule` says what a missing beat means.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import select
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache

BEAT_S = 0.5
_SIZE_BYTES = 4096
_HEAD = struct.Struct("<16sqq")
"""Token, process id, beats."""
_TEXT = struct.Struct("<BHIQ")
"""Before the text: whether it is what is worked on now, its length, the shard's works, and its commits."""
_LENGTH = struct.Struct("<H")
_AT_WORK = _HEAD.size
_TEXT_AT = _AT_WORK + _TEXT.size
_TEXT_BYTES_MAX = 1024
_FAULT_BYTES_MAX = 16 << 10
_MAIN_GONE = 70


@dataclass(frozen=True, slots=True)
class NotePlace:
    """Where a task finds its note: a descriptor of its main process. `token` tells that it still is."""

    main_pid: int
    descriptor: int
    token: bytes


@dataclass(frozen=True, slots=True)
class Noted:
    """`pid` is 0 before the task has begun. `shard` and `key` are what it works on; "" where that is nothing,
    or not written down. `works` is how many batches it has begun of the shard that it is, or was last, at."""

    pid: int
    beats: int
    shard: str
    key: str
    works: int = 0
    commits: int = 0
    """The number of the shard's last commit before this work."""


class NotePage:
    """The main process' end. Raises OSError when there is no memory for it."""

    def __init__(self) -> None:
        self._descriptor = os.memfd_create("penstock-task", os.MFD_CLOEXEC)
        try:
            # Given out now: a page that is missing when the task writes would end it.
            os.posix_fallocate(self._descriptor, 0, _SIZE_BYTES)
            self._page = mmap.mmap(self._descriptor, _SIZE_BYTES)
        except OSError:
            os.close(self._descriptor)
            raise
        token = os.urandom(16)
        self._page[: _HEAD.size] = _HEAD.pack(token, 0, 0)
        self.place = NotePlace(os.getpid(), self._descriptor, token)

    def read(self) -> Noted:
        """What is there now; of a task that lives the text may be half of another one."""
        _, pid, beats = _HEAD.unpack_from(self._page)
        at_work, length, begun, commits = _TEXT.unpack_from(self._page, _AT_WORK)
        text = bytes(self._page[_TEXT_AT : _TEXT_AT + min(length, _TEXT_BYTES_MAX)])
        shard, _, key = text.decode("utf-8", errors="replace").partition("\n")
        if not at_work:
            return Noted(pid, beats, "", "", begun)
        return Noted(pid, beats, shard, key, begun, commits)

    def fault(self) -> str:
        """What Python wrote as a signal ended it (`faulthandler`); "" otherwise."""
        return os.pread(self._descriptor, _FAULT_BYTES_MAX, _SIZE_BYTES).decode("utf-8", errors="replace")

    def close(self) -> None:
        self._page.close()
        os.close(self._descriptor)


class _ShardNote:
    """What is written each time that a shard is worked on: often, so it is made once."""

    __slots__ = ("form", "text", "works")

    def __init__(self, shard: str) -> None:
        self.text = shard.encode()
        self.form = _form(len(self.text))
        self.works = 0


@cache
def _form(text_bytes: int) -> struct.Struct:
    """`_TEXT` and a text of this length."""
    return struct.Struct(f"{_TEXT.format}{text_bytes}s")


class TaskNote:
    """The task's end. Without a place (a task on another node has none) nothing is written anywhere.

    `careful`: each key is written down before it is worked on, and not only each shard.
    """

    def __init__(self, place: NotePlace | None, *, careful: bool = False) -> None:
        self._page = None if place is None else _opened(place)
        self.careful = careful and self._page is not None
        self._shards: dict[str, _ShardNote] = {}
        self._at = _ShardNote("")
        self._ended = threading.Event()
        if self._page is None or place is None:
            return
        with suppress(OSError):
            faults = os.open(_path(place), os.O_RDWR | os.O_CLOEXEC)
            os.lseek(faults, _SIZE_BYTES, os.SEEK_SET)
            faulthandler.enable(faults)
        _HEAD.pack_into(self._page, 0, place.token, os.getpid(), 1)
        threading.Thread(target=self._beat, args=(self._page, place), name="beat", daemon=True).start()

    def works_on(self, shard: str, commits: int = 0) -> None:
        """From here on, until `rests`. `commits` is the number of the shard's last commit."""
        page = self._page
        if page is not None:
            at = self._at = self._shards.get(shard) or self._shards.setdefault(shard, _ShardNote(shard))
            at.works += 1
            at.form.pack_into(page, _AT_WORK, 1, len(at.text), at.works, commits, at.text)

    @contextmanager
    def at_work(self, shard: str) -> Iterator[None]:
        """User code of a sink works on what the shard put out, in this block: no batch of the shard's own."""
        page = self._page
        if page is not None:
            at = self._shards.get(shard) or _ShardNote(shard)
            at.form.pack_into(page, _AT_WORK, 1, len(at.text), at.works, 0, at.text)
        try:
            yield
        finally:
            self.rests()

    def comes_to(self, key: str) -> None:
        """The key of the shard's work that user code gets now."""
        page = self._page
        if page is not None:
            text = (self._at.text + b"\n" + key.encode("utf-8", "replace"))[:_TEXT_BYTES_MAX]
            page[_TEXT_AT : _TEXT_AT + len(text)] = text
            page[_AT_WORK + 1 : _AT_WORK + 3] = _LENGTH.pack(len(text))

    def rests(self) -> None:
        """No user code runs."""
        if self._page is not None:
            self._page[_AT_WORK] = 0

    def close(self) -> None:
        """No beat any more: the task is over."""
        self._ended.set()

    def _beat(self, page: mmap.mmap, place: NotePlace) -> None:
        main = select.poll()
        try:
            descriptor = os.pidfd_open(place.main_pid)
        except OSError:
            os._exit(_MAIN_GONE)
        main.register(descriptor, select.POLLIN)
        beats = 1
        while not self._ended.is_set():
            if main.poll(int(BEAT_S * 1000)):
                # Nobody needs this task any more, and nobody may be left to end it.
                os._exit(_MAIN_GONE)
            beats += 1
            _HEAD.pack_into(page, 0, place.token, os.getpid(), beats)
        os.close(descriptor)


def _path(place: NotePlace) -> str:
    return f"/proc/{place.main_pid}/fd/{place.descriptor}"


def _opened(place: NotePlace) -> mmap.mmap | None:
    """None where that main process is not of this machine, or gone."""
    with suppress(OSError):
        descriptor = os.open(_path(place), os.O_RDWR | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_size == _SIZE_BYTES:
                page = mmap.mmap(descriptor, _SIZE_BYTES)
                if page[: len(place.token)] == place.token:
                    return page
                page.close()
        finally:
            os.close(descriptor)
    return None
