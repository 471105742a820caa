"""A `penstock run` whose output goes to a file, over all its restarts; nobody has to read along."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from processes.run_harness import Run

_TAIL_LINES = 6
_TAIL_COLUMNS = 160


class LoggedRun(Run):
    """In a session of its own, as a terminal gives one."""

    def start(self) -> None:
        with self.log.open("ab") as log:
            log.write(f"--- {' '.join(self.arguments)}\n".encode())
            log.flush()
            self.process = subprocess.Popen(
                self.command,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
                env={**os.environ, **self.env},
            )

    @property
    def log(self) -> Path:
        return self.state.parent / "run.log"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def ended(self) -> int | None:
        """The exit code; None while it goes on."""
        assert self.process is not None
        return self.process.poll()

    def has_finished(self) -> bool:
        """Whether it has said, since its last start, that all input is worked off."""
        said = self.log.read_text(errors="replace").rpartition("--- ")[2]
        return "used up and worked through" in said

    def tail(self) -> str:
        """What it said last, for people."""
        lines = self.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        return "\n".join(f"      | {line[:_TAIL_COLUMNS]}" for line in lines)
