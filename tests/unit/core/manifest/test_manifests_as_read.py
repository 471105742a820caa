"""Manifests as they are read: good ones, files and YAML, all faults at once, and whatever a user writes."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from house import ROOT
from penstock.api.compile import compile_topology
from penstock.api.load import load_manifest, manifest_text, parse_manifest
from penstock.errors import PermanentError
from penstock.manifest.faults import InvalidManifest
from scenes.manifest_texts import WORD_COUNT, changed, faults_of

SLA = """
apiVersion: penstock.dev/v1alpha1
kind: LatencySLA
metadata: {name: fast}
spec: {topology: word-count, operator: count, latency: 250ms}
"""


def test_the_example_of_the_readme_has_no_fault() -> None:
    assert faults_of(WORD_COUNT) == []


def test_the_word_count_example_has_no_fault() -> None:
    path = ROOT / "examples/word-count/topology.yaml"
    plan = compile_topology(load_manifest(path).topology)
    assert [stage.operator for stage in plan.stages] == ["lines", "count"]


def test_a_file_may_hold_a_topology_and_its_slas() -> None:
    manifest = parse_manifest(f"{WORD_COUNT}\n---\n{SLA}")
    assert manifest.topology.metadata.name == "word-count"
    assert [sla.spec.latency for sla in manifest.latency_slas] == ["250ms"]


def test_a_manifest_written_out_reads_back_the_same() -> None:
    manifest = parse_manifest(f"{WORD_COUNT}\n---\n{SLA}", ["workers.min=2", "count.shards=8"])
    assert parse_manifest(manifest_text(manifest)) == manifest
    assert manifest.topology.spec.operators[2].shards == 8


def test_what_the_api_server_adds_is_no_fault() -> None:
    added = (
        "{name: word-count, namespace: default, uid: 1b, generation: 3, resourceVersion: '7', "
        "creationTimestamp: 2026-01-01T00:00:00Z, managedFields: [{manager: kubectl}]}"
    )
    assert faults_of(changed(("{name: word-count}", added))) == []


def test_faults_of_fields_and_of_the_graph_are_listed_together() -> None:
    text = changed(
        ("shards: 64", "shards: 0"),
        ("inputs: [lines]", "inputs: [lnies]"),
        ("keyBy: [word]", "keyBy: [wrod]"),
        ("memory: 2Gi", "memory: 2GB"),
        ("format: jsonl", "format: csv"),
        ("durability: Process", "durability: Replicated"),
    )
    paths = {fault.split(": ")[0] for fault in faults_of(text)}
    assert paths == {
        "spec.workers.memory",
        "spec.operators[2] (count).shards",
        "spec.operators[3] (totals).sink.files.format",
        "spec.durability",
        "spec.operators[1] (words).inputs[0]",
        "spec.operators[2] (count).keyBy[0]",
    }


def test_a_duplicate_key_is_listed_with_the_other_faults() -> None:
    text = changed(("    shards: 64\n", "    shards: 64\n    shards: 0\n"))
    line = text.splitlines().index("    shards: 64") + 1
    assert faults_of(text) == [
        f"spec.operators[2].shards: given twice, in lines {line} and {line + 1}; keep one",
        "spec.operators[2] (count).shards: 0 is not a whole number from 1 to 4096",
    ]


def test_faults_of_several_documents_name_the_document() -> None:
    text = f"{changed(('shards: 64', 'shards: 0'))}\n---\n{SLA.replace('250ms', 'soon')}"
    assert faults_of(text) == [
        "document 1: spec.operators[2] (count).shards: 0 is not a whole number from 1 to 4096",
        "document 2: spec.latency: 'soon' is not a duration above 0 such as 250ms or 1.5s",
    ]


def test_the_text_of_the_error_is_the_list() -> None:
    with pytest.raises(PermanentError) as caught:
        parse_manifest(changed(("shards: 64", "shards: 0"), ("keyBy: [word]", "keyBy: [x]")))
    assert str(caught.value).splitlines() == faults_of(
        changed(("shards: 64", "shards: 0"), ("keyBy: [word]", "keyBy: [x]"))
    )


def test_a_missing_file_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(InvalidManifest, match=r"none.yaml: no such file; give the path of a manifest"):
        load_manifest(tmp_path / "none.yaml")


def test_a_folder_and_a_binary_file_are_faults(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidManifest, match="is not UTF-8 text"):
        load_manifest(tmp_path / "x.yaml")
    with pytest.raises(InvalidManifest, match="cannot be read"):
        load_manifest(tmp_path)


def test_a_syntax_error_names_line_and_column() -> None:
    (fault,) = faults_of("kind: Topology\nspec: {a: [1, 2}\n")
    assert fault.startswith("line 2, column 16: not YAML: ")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "- 1\n",
        "5",
        "kind: Pod",
        "a: &x [*x]",
        "? [a]\n: 1",
        "a: \x00",
        "a: !!python/x y",
        "*x",
    ],
)
def test_what_is_no_manifest_is_a_fault(text: str) -> None:
    assert len(faults_of(text)) >= 1


def test_a_schedule_is_not_written_by_hand() -> None:
    assert faults_of("kind: Schedule") == ["kind: a Schedule is written by Penstock itself, not by hand"]


def test_the_kind_is_corrected() -> None:
    assert faults_of("kind: topolgy") == [
        "kind: 'topolgy' is unknown (did you mean Topology?); give one of Topology, LatencySLA"
    ]


def test_numbers_are_read_as_kubectl_reads_them() -> None:
    manifest = parse_manifest(changed(("format: text", "ratePerSecond: 1e4")))
    source = manifest.topology.spec.operators[0].source
    assert source is not None
    assert source.files is not None
    assert source.files.rate_per_second == 10_000


def test_an_sla_of_an_operator_that_is_not_there_is_a_fault() -> None:
    assert faults_of(f"{WORD_COUNT}\n---\n{SLA.replace('operator: count', 'operator: cuont')}") == [
        "LatencySLA fast: spec.operator: Topology word-count has no operator 'cuont' (did you mean count?); "
        "there are lines, words, count, totals"
    ]


def test_an_sla_has_a_window_that_holds_an_interval() -> None:
    assert faults_of(SLA.replace("250ms", "250ms, window: 50ms")) == [
        "spec: window 50ms is shorter than interval 100ms"
    ]
    assert faults_of(SLA.replace("250ms", "0ms")) == ["spec.latency: must be longer than 0"]


JUNK: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, "", "x", "word_count:split", [], ["x"], [None], {}, {"name": "x"}, {"x": 1},
    "EventTime", {"column": "word"}, {"console": {}},
    "a" * 5000, ["lines"] * 40, [["x"]], {"files": None}, {"files": {}, "zipf": {"keys": "x"}},
)  # fmt: skip


FIELDS = ("name", "inputs", "sink", "zz", "keyBy", "shards", "timeMode", "eventTime", "lateTo")


def places_of(node: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything inside `node`."""
    items = list(node.items()) if isinstance(node, dict) else list(enumerate(node))
    found = [(node, key) for key, _ in items]
    for _, child in items:
        if isinstance(child, dict | list):
            found += places_of(child)
    return found


def mutated(rng: random.Random) -> Any:
    document = yaml.safe_load(WORD_COUNT)
    for _ in range(rng.randint(1, 4)):
        container, key = rng.choice(places_of(document))
        match rng.randrange(4):
            case 0:
                del container[key]
            case 1:
                container[key] = copy.deepcopy(rng.choice(JUNK))
            case 2 if isinstance(container, dict):
                container[rng.choice(FIELDS)] = rng.choice(JUNK)
            case _:
                other, place = rng.choice(places_of(document))
                container[key] = copy.deepcopy(other[place])
        if not document:
            break
    return document


@pytest.mark.parametrize("seed", range(8))
def test_no_manifest_makes_the_check_itself_fail(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        text = yaml.safe_dump(mutated(rng))
        try:
            topologies = parse_manifest(text).topologies
        except InvalidManifest:
            continue
        for topology in topologies:
            compile_topology(topology)
