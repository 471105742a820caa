"""Benches are run now and then: what they use of the product and of the tests may have gone since."""

from __future__ import annotations

from importlib import import_module

import pytest

from house import ROOT

ELSEWHERE = {"flink_peer", "peers.bytewax_count", "peers.flink_count"}
"""Run by a Python that has the peer, and not Penstock."""
MODULES = {path.stem for path in (ROOT / "bench").glob("*.py")} | {
    f"{room}.{path.stem}" for room in ("peers", "locality") for path in (ROOT / "bench" / room).glob("*.py")
}


@pytest.mark.parametrize("module", sorted(set(MODULES) - ELSEWHERE))
def test_every_bench_finds_what_it_uses(module: str) -> None:
    import_module(f"bench.{module}")
