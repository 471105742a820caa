"""`penstock validate` with user code that is really imported, by the process that knows Spark's classes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from house import ROOT
from penstock_operator.cli.faults import EXIT_INVALID
from penstock_operator.cli.main import main

EXAMPLE = ROOT / "examples" / "word-count"

pytestmark = pytest.mark.integration


@pytest.fixture
def example(tmp_path: Path) -> Path:
    for name in ("topology.yaml", "word_count.py"):
        shutil.copy(EXAMPLE / name, tmp_path)
    return tmp_path


def test_the_example_is_valid(example: Path) -> None:
    ended = CliRunner().invoke(main, ["validate", str(example / "topology.yaml")])
    assert ended.exit_code == 0, ended.output
    assert ended.output.endswith("topology.yaml: valid\n")


def test_an_sla_in_the_manifest_is_hinted_at_unless_it_is_asked_for(example: Path) -> None:
    manifest = example / "topology.yaml"
    spec = "spec: {topology: word-count, latency: 250ms}"
    sla = f"---\napiVersion: penstock.dev/v1alpha1\nkind: LatencySLA\nmetadata: {{name: quick}}\n{spec}\n"
    manifest.write_text(manifest.read_text() + sla)
    ended = CliRunner().invoke(main, ["validate", str(manifest)])
    assert ended.exit_code == 0, ended.output
    assert f"holds LatencySLA quick: `penstock run` keeps it with --sla {manifest} only" in ended.output
    asked = CliRunner().invoke(main, ["validate", str(manifest), "--sla", str(manifest)])
    assert asked.exit_code == 0, asked.output
    assert "LatencySLA" not in asked.output


def test_code_that_is_missing_and_code_that_is_wrong_are_listed_together(example: Path) -> None:
    code = (example / "word_count.py").read_text().replace("def split(", "def splitt(")
    (example / "word_count.py").write_text(code.replace("class Count(StatefulProcessor)", "class Count"))
    ended = CliRunner().invoke(main, ["validate", "--json", str(example / "topology.yaml")])
    assert ended.exit_code == EXIT_INVALID
    faults = {fault["path"]: fault["message"] for fault in json.loads(ended.output)}
    assert "did you mean splitt?" in faults["spec.operators[1] (words).map"]
    assert "StatefulProcessor" in faults["spec.operators[2] (count).processor"]
    assert len(faults) == 2


def test_a_module_that_cannot_be_imported_is_told_once(example: Path) -> None:
    (example / "word_count.py").write_text("def split(row)\n")
    ended = CliRunner().invoke(main, ["validate", "--json", str(example / "topology.yaml")])
    assert ended.exit_code == EXIT_INVALID
    (fault,) = json.loads(ended.output)
    assert fault["path"] == "spec.code.module"
    assert "word_count.py, line 1" in fault["message"]
