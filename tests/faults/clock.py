"""The wall clock of a run's processes, stepped without touching the machine's: a library of a few lines of C
is loaded into each (`wall_clock.c`), and all of them share one offset.

Debian's libfaketime was tried and does not do: told to leave the monotonic clock alone, it makes Python's
`time.sleep` fail with EINVAL; told nothing, waits never end.
"""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_name("wall_clock.c")


class WallClock:
    """The clock of the processes that are started with `env`; `offset_s` is what it is off by."""

    def __init__(self, folder: Path) -> None:
        """Compiles the library into `folder`. FileNotFoundError where there is no C compiler."""
        compiler = shutil.which("cc")
        if compiler is None:
            raise FileNotFoundError("a C compiler is needed to step the clock of a run: apt-get install gcc")
        self._library = folder / "wall_clock.so"
        self._file = folder / "wall-clock"
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(self._library), str(_SOURCE), "-ldl"]
        subprocess.run(command, check=True)
        self._file.write_bytes(bytes(8))
        with self._file.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), 8)
        self.offset_s = 0.0

    @property
    def env(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "PENSTOCK_WALL_CLOCK": str(self._file)}

    def step(self, seconds: float) -> None:
        """At once, for every process."""
        self.offset_s += seconds
        self._page[:] = struct.pack("=q", int(self.offset_s * 1e9))

    def close(self) -> None:
        self._page.close()
