"""How an edge's locality reads."""

from __future__ import annotations

from penstock.locality.record import EdgeLine
from penstock_operator.words.figure_words import UNKNOWN
from penstock_operator.words.locality_words import locality_words


def test_what_is_known_is_said() -> None:
    line = EdgeLine("tags", "lands", 0.62, 0.17, 0.64, (2, 0), is_changing=True)
    assert line.name == "tags to lands"
    assert locality_words(line) == (
        "62% stay on their node (17% by hash, 64% expected), tables 2 and none, changing"
    )


def test_what_is_not_known_is_no_number() -> None:
    assert locality_words(EdgeLine("tags", "lands", None, None, None, (0, 0), is_changing=False)) == (
        f"{UNKNOWN} stay on their node"
    )
