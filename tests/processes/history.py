"""Earlier versions of Penstock, as they are in this repository's history."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from house import ROOT

BEFORE = "8162b7895f328ace8eb518d4f3d272871bb6e1a2"
"""The version before this one: the newest commit whose libraries are those of `functions/previous.lua`."""


def unpack(commit: str, folder: Path, *names: str) -> None:
    """Put the checkout of a commit, or these folders of it, into `folder`. Skips the test where this is no
    clone, or one without so much history."""
    asked = ["git", "-C", str(ROOT), "cat-file", "-e", f"{commit}^{{commit}}"]
    if subprocess.run(asked, capture_output=True, check=False).returncode:
        pytest.skip(
            f"commit {commit} is not in this clone's history: fetch all of it (git fetch --unshallow)"
        )
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", commit, *names], stdout=subprocess.PIPE, check=True
    )
    folder.mkdir(exist_ok=True)
    subprocess.run(["tar", "--extract", "--directory", str(folder)], input=archive.stdout, check=True)
