"""How figures read in the reasons of decisions."""

from __future__ import annotations

import pytest

from penstock.control.wording import of_bytes


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 B"),
        (950, "950 B"),
        (999.6, "1.0 kB"),
        (3_210_000, "3.2 MB"),
        (12_400_000, "12 MB"),
        (999_700_000, "1.0 GB"),
        (5e12, "5000 GB"),
        (-64_000, "-64 kB"),
    ],
)
def test_bytes_read_by_thousands(size: float, words: str) -> None:
    assert of_bytes(size) == words
