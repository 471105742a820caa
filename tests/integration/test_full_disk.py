"""`penstock run` where the disk of its state has no room left: a sentence, and nothing left running."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.api.inspected_code import InspectedCode
from penstock_operator import checked_manifest
from penstock_operator.cli import EXIT_CANNOT_RUN, main

pytestmark = pytest.mark.integration

MANIFEST = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: lines}
spec:
  operators:
  - {name: lines, source: {files: {glob: "*.txt"}}}
  - {name: out, inputs: [lines], sink: {console: {}}}
"""


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("run.json.new", "The disk of {state} is full: free some space, or choose another directory"),
        ("topology.yaml", "The disk of {state} is full: free some space, or choose another directory"),
        ("workers/w0.json", "Worker w0 cannot be started in {state}/workers (No space left on device): free"),
    ],
)
def test_a_file_of_the_state_that_finds_no_room_is_told(
    file: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checked_manifest, "_inspected", lambda path, overrides: InspectedCode())
    (tmp_path / "topology.yaml").write_text(MANIFEST)
    (tmp_path / "a.txt").write_text("a\n")
    state = tmp_path / "state"
    (state / file).parent.mkdir(parents=True)
    (state / file).symlink_to("/dev/full")
    arguments = ["run", str(tmp_path / "topology.yaml"), "--state-dir", str(state), "--no-live"]
    ended = CliRunner().invoke(main, arguments)
    assert ended.exit_code == EXIT_CANNOT_RUN
    assert ended.output.splitlines()[-1].startswith(f"penstock: {told.format(state=state)}")
    assert "Traceback" not in ended.output
