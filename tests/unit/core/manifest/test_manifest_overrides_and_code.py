"""What a manifest is checked with besides its text: overrides, and the names of user code."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml

from penstock.api.load import parse_manifest
from scenes.manifest_texts import WORD_COUNT, changed, faults_of

CODE = """
from pyspark.sql.streaming import StatefulProcessor

def split(row):
    return []

class Count(StatefulProcessor):
    pass
"""


def test_overrides_reach_operators_and_the_spec() -> None:
    overrides = ["lines.source.files.glob=more/*.txt", "workers.min=2", "count.keyBy=[word]", "taskCpu=200m"]
    spec = parse_manifest(WORD_COUNT, overrides).topology.spec
    assert spec.workers.min == 2
    assert spec.task_cpu == "200m"
    assert spec.operators[0].source is not None
    assert spec.operators[0].source.files is not None
    assert spec.operators[0].source.files.glob == "more/*.txt"


def test_an_override_makes_objects_that_are_not_there() -> None:
    spec = parse_manifest(WORD_COUNT, ["lines.tasks.initial=3"]).topology.spec
    assert spec.operators[0].tasks is not None
    assert spec.operators[0].tasks.initial == 3


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        ("workers.min", "--set workers.min: give PATH=VALUE, such as workers.min=2"),
        ("=3", "--set =3: give PATH=VALUE, such as workers.min=2"),
        ("a..b=3", "--set a..b=3: give PATH=VALUE, such as workers.min=2"),
        (
            "cuont.shards=3",
            "--set cuont.shards: no operator or field 'cuont' (did you mean count?); there are",
        ),
        ("count=3", "--set count: 'count' is an operator; name a field of it, such as count.tasks.max"),
        ("count.shards.x=3", "--set count.shards.x: 'shards' is 64 and has no fields"),
        ("count.shards=[3", "--set count.shards: the value '[3' is not YAML:"),
        ("count.shards=0", "spec.operators[2] (count).shards: 0 is not a whole number from 1 to 4096"),
        ("count.shrads=1", "spec.operators[2] (count).shrads: unknown field (did you mean shards?)"),
    ],
)
def test_a_bad_override_is_a_fault(override: str, fault: str) -> None:
    (found,) = faults_of(WORD_COUNT, override)
    assert found.startswith(fault)


def test_overrides_leave_the_document_as_it_was() -> None:
    from penstock.api.overrides import apply_overrides

    document = yaml.safe_load(WORD_COUNT)
    before = copy.deepcopy(document)
    after, faults = apply_overrides(document, ["count.shards=8"])
    assert (document, faults) == (before, [])
    assert after["spec"]["operators"][2]["shards"] == 8


def faults_with_code(tmp_path: Path, code: str, *replacements: tuple[str, str]) -> list[str]:
    (tmp_path / "word_count.py").write_text(code, encoding="utf-8")
    return faults_of(changed(*replacements), code_dir=tmp_path)


def test_code_that_is_there_is_no_fault(tmp_path: Path) -> None:
    assert faults_with_code(tmp_path, CODE) == []


def test_a_misspelt_class_is_found_without_running_the_code(tmp_path: Path) -> None:
    code = CODE + "\nraise SystemExit('ran')\n"
    assert faults_with_code(tmp_path, code, ("word_count:Count", "word_count:Cuont")) == [
        "spec.operators[2] (count).processor: word_count has no 'Cuont' (did you mean Count?); "
        "its classes and functions are split, Count"
    ]


def test_a_function_may_make_a_processor(tmp_path: Path) -> None:
    assert faults_with_code(tmp_path, CODE, ("word_count:Count", "word_count:split")) == []


def test_a_missing_module_is_named_once(tmp_path: Path) -> None:
    assert faults_of(WORD_COUNT, code_dir=tmp_path) == [
        "spec.code.module: no module 'word_count' beside the manifest or installed; put word_count.py there"
    ]


def test_a_syntax_error_in_the_code_names_its_line(tmp_path: Path) -> None:
    (fault,) = faults_with_code(tmp_path, "def split(row:\n    pass\n")
    assert fault.startswith("spec.code.module: word_count.py, line 1: ")


def test_names_that_cannot_be_seen_are_left_to_the_worker(tmp_path: Path) -> None:
    assert faults_with_code(tmp_path, "from elsewhere import *\n") == []
    code = "try:\n    from fast import Count\nexcept ImportError:\n    Count = None\nsplit = str.split\n"
    assert faults_with_code(tmp_path, code) == []
