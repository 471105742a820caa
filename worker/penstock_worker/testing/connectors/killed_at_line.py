"""A process that writes, and is killed as it comes to a line of Python: nothing in it can note that.

It is a fork of the test's own: it shares nothing with it but what lies outside. Lines of Python's library and
of PySpark's count as one step with the line that calls them.
"""

from __future__ import annotations

import os
import signal
import sys
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pyspark

_LIBRARY = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
_INSTALLED = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
"""They may lie below the library's own."""
_PYSPARK = str(Path(pyspark.__file__).parent)


class Failed(AssertionError):
    """The process did not come to its line: it raised."""


def lines_of(work: Callable[[], object]) -> int:
    """Do the work in a process that is not killed. Answers how many lines it has."""
    said, killed = _in_child(work, None)
    assert not killed
    return int(said)


def killed_at(line: int, work: Callable[[], object]) -> bool:
    """Do the work in a process that is killed as it comes to its line of this number. False: it has fewer,
    and did all of it."""
    _, killed = _in_child(work, line)
    return killed


def _in_child(work: Callable[[], object], line: int | None) -> tuple[str, bool]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            said = str(_counted(work, line))
            code = 0
        except BaseException:  # noqa: BLE001 - it is the parent who raises
            said = traceback.format_exc()
        try:
            os.write(writing, said.encode()[-60_000:])
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return "", True
    if status != 0:
        raise Failed(f"the process that was to be killed ended by itself (status {status}):\n{said}")
    return said, False


def _counted(work: Callable[[], object], line: int | None) -> int:
    """Do the work; answers its lines. Ends this process at `line`."""
    count = 0

    def at_line(_: FrameType, event: str, __: Any) -> Any:
        nonlocal count
        if event == "line":
            count += 1
            if count == line:
                os.kill(os.getpid(), signal.SIGKILL)
        return at_line

    def at_call(frame: FrameType, _: str, __: Any) -> Any:
        return None if _is_passed(frame.f_code.co_filename) else at_line

    sys.settrace(at_call)
    try:
        work()
    finally:
        sys.settrace(None)
    return count


def _is_passed(file: str) -> bool:
    if file.startswith(("<", _PYSPARK)):
        return True
    return file.startswith(_LIBRARY) and not file.startswith(_INSTALLED)
