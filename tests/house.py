"""The repository as the tests of the house see it: its root, its tracked files, its make targets."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_TARGETS = re.compile(r"^([a-z][a-z0-9 -]*):(?!=)(.*)$", re.MULTILINE)


def tracked_files() -> list[Path]:
    """Every file that git keeps and that is there, as absolute paths."""
    git = ("git", "-c", "safe.directory=*", "-C", str(ROOT), "ls-files", "-z")
    listed = subprocess.run(git, capture_output=True, check=True, text=True).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def text_of(path: Path) -> str | None:
    """None for a file that is no text."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def make_targets() -> dict[str, str]:
    """Target -> the rest of its rule's line, over the Makefile and what it includes."""
    makefiles = [ROOT / "Makefile", *sorted(ROOT.glob("*/*.mk"))]
    return {
        target: rest
        for makefile in makefiles
        for names, rest in _TARGETS.findall(makefile.read_text(encoding="utf-8"))
        for target in names.split()
    }
