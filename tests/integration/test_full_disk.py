"""`penstock run` where the disk of its state has no room left: at its start a sentence and nothing left
running, later on it waits."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from clocks.eventually import eventually
from penstock.api.inspected_code import InspectedCode
from penstock_operator.checking import checked_manifest
from penstock_operator.cli.faults import EXIT_CANNOT_RUN
from penstock_operator.cli.main import main
from processes.orders_plan import PROCESS_RECORDS, expected_names
from processes.run_processes import Commands

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
    monkeypatch.setattr(checked_manifest, "inspected", lambda path, overrides: InspectedCode())
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


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 24 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "penstock-test", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("may not mount a small disk")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_disk_that_is_full_for_seconds_is_waited_for(small_disk: Path) -> None:
    with Commands(small_disk, small_disk.parent).all() as commands:
        run = commands.start()
        run.wait_for_rows(20)
        filler = small_disk / "filler"
        fill(filler)
        eventually(lambda: "is full: the run waits until there is room" in run.told())
        assert run.process.poll() is None
        filler.unlink()
        eventually(lambda: "there is room on the disk" in run.told())
        assert run.end() == 0, run.told()
        assert sorted(run.names()) == expected_names(PROCESS_RECORDS)


def test_a_run_that_waits_for_room_is_ended_by_an_interrupt(small_disk: Path) -> None:
    with Commands(small_disk, small_disk.parent).all() as commands:
        run = commands.start()
        run.wait_for_rows(20)
        fill(small_disk / "filler")
        eventually(lambda: "is full: the run waits until there is room" in run.told())
        run.process.terminate()
        eventually(lambda: "told to stop" in run.told())
        run.process.terminate()
        assert run.end() == 0, run.told()


def fill(file: Path) -> None:
    """Until nothing more can be written."""
    with file.open("wb", buffering=0) as out:
        for size_bytes in (1 << 20, 1 << 12, 1):
            with suppress(OSError):
                while out.write(bytes(size_bytes)):
                    pass
    assert shutil.disk_usage(file.parent).free == 0
