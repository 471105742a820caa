"""How an edge's locality reads, for people."""

from __future__ import annotations

from penstock.locality.record import EdgeLine
from penstock_operator.words.figure_words import UNKNOWN


def locality_words(line: EdgeLine) -> str:
    """ "62% stay on their node (17% by hash, 64% expected), tables 2 and 3"."""
    text = f"{_share(line.local_share)} stay on their node"
    told = []
    if line.by_hash is not None:
        told.append(f"{_share(line.by_hash)} by hash")
    if line.expected is not None:
        told.append(f"{_share(line.expected)} expected")
    if told:
        text += f" ({', '.join(told)})"
    upstream, downstream = line.versions
    if upstream or downstream:
        text += f", tables {upstream or 'none'} and {downstream or 'none'}"
    return f"{text}, changing" if line.is_changing else text


def _share(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share:.0%}"
