"""The example of docs/connectors/testing.md, as it stands there: users copy it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/connectors/testing.md"


def copied(folder: Path) -> None:
    """The page's files, each under the name that stands in front of it."""
    files = re.findall(
        r"^`(\w+\.py)`.*?:\n\n```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    assert [name for name, _ in files] == ["shop.py", "test_shop.py"]
    for name, text in files:
        (folder / name).write_text(text)


def output_of(folder: Path, which: str) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", which, "test_shop.py"]
    ran = subprocess.run(command, cwd=folder, env={**os.environ}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


@pytest.mark.timeout(300)
def test_the_documented_example_of_a_source_and_a_sink_passes_the_suite(tmp_path: Path) -> None:
    copied(tmp_path)
    # Ten of the source, seven of the sink, of which one is left out: it takes every row.
    assert re.search(r"16 passed, 1 skipped", output_of(tmp_path, "not Run"))
