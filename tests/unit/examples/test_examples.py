"""Every manifest that comes with Penstock can be run, with its code, where it is meant to."""

from __future__ import annotations

from pathlib import Path

import pytest

from house import ROOT, text_of, tracked_files
from penstock.api.compile import compile_topology
from penstock.api.load import load_manifest

EXAMPLES = ROOT / "examples"
MANIFESTS = [
    path
    for path in tracked_files()
    if path.is_relative_to(EXAMPLES) and path.suffix == ".yaml" and "kind: Topology" in (text_of(path) or "")
]
MADE_LATER = {"stock-exchange/topology.yaml"}
"""Those whose rate trace has to be generated first."""


def name_of(path: Path) -> str:
    return str(path.relative_to(EXAMPLES))


@pytest.mark.parametrize("manifest", MANIFESTS, ids=name_of)
def test_an_example_has_no_fault(manifest: Path) -> None:
    runtime = "cluster" if manifest.stem == "on-kubernetes" else "local"
    with_code = name_of(manifest) not in MADE_LATER
    for topology in load_manifest(manifest, runtime=runtime, with_code=with_code).topologies:
        assert compile_topology(topology, runtime).stages


def test_there_is_one_for_either_runtime() -> None:
    assert {"word-count/topology.yaml", "word-count/on-kubernetes.yaml"} <= set(map(name_of, MANIFESTS))
