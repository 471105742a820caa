"""A machine that lacks things, for tests of shell scripts: some of the files, and a PATH of its own."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from house import ROOT


class BareMachine:
    """All that is on PATH are the commands that are named, and those that `has` adds."""

    def __init__(self, folder: Path, files: Iterable[str], commands: Iterable[str]) -> None:
        self.clone = folder / "clone"
        self.commands = folder / "bin"
        self.commands.mkdir()
        for name in files:
            (self.clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.clone / name)
        for name in commands:
            (self.commands / name).symlink_to(str(shutil.which(name)))

    def has(self, command: str, script: str) -> None:
        path = self.commands / command
        path.write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
        path.chmod(0o755)

    def run(self, script: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", str(self.clone / script), *arguments],
            env={"PATH": str(self.commands), **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
