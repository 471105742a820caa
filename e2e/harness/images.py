"""The images under test, by name: what `make images` tags them with."""

from __future__ import annotations

import tomllib

from e2e.harness.cluster import ROOT


def version() -> str:
    """The version of this checkout."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def word_count_image() -> str:
    """The worker with the example's code."""
    return f"penstock-word-count:{version()}"
