"""Another version of Penstock, as it is in this repository's history, at work in a process of its own.

The process takes pieces of Python, which see that version's packages and the scenes of its own tests, and
keeps what they name; so a connection that was opened before an upgrade is there behind it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

from processes.history import unpack

_FOLDERS = ("core", "tests")
_LOOP = """
import json, sys
known = {}
for line in sys.stdin:
    known["answer"] = None
    try:
        exec(json.loads(line), known)
        told = {"answer": known["answer"]}
    except Exception as error:
        told = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(told), flush=True)
"""


class OtherVersionError(Exception):
    """What that version raised, by name and in its words."""


class OtherVersion:
    """The code of `commit`, below `folder`."""

    def __init__(self, commit: str, folder: Path) -> None:
        """Skips the test where the history lacks it."""
        unpack(commit, folder, *_FOLDERS)
        paths = os.pathsep.join(str(folder / name) for name in _FOLDERS)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LOOP],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.run("import penstock; answer = penstock.__file__").startswith(str(folder))

    def run(self, code: str) -> Any:
        """Carry out `code`, and answer what it has assigned to `answer`. Raises OtherVersionError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(dedent(code)) + "\n")
        self._process.stdin.flush()
        told = json.loads(self._process.stdout.readline())
        if "error" in told:
            raise OtherVersionError(told["error"])
        return told["answer"]

    def close(self) -> None:
        self._process.communicate()
