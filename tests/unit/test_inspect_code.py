"""What is wrong with user code is found before anything starts, all at once, and named by its place."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock_worker.inspect_code import inspect_manifest

MANIFEST = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {{name: inspected}}
spec:
  code: {{module: {module}}}
  operators:
  - name: lines
    source: {{files: {{glob: "*.txt"}}}}
  - name: words
    inputs: [lines]
    map: {module}:{map}
    outputSchema: "word string"
  - name: count
    inputs: [words]
    keyBy: [word]
    processor: {module}:{processor}
    outputSchema: "word string, total long"
  - name: totals
    inputs: [count]
    sink: {{console: {{}}}}
"""
CODE = """
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

print("a line that a module prints")

def split(row):
    return row.value.split()

NUMBER = 5

class Count(StatefulProcessor):
    def init(self, handle):
        self.total = handle.getValueState("total", "total long")
    def handleInputRows(self, key, rows, timerValues):
        yield Row(word=key[0], total=1)

class Plain:
    pass

class NoInit(StatefulProcessor):
    def handleInputRows(self, key, rows, timerValues):
        yield Row(word=key[0], total=1)

class EverythingNotThere(Count):
    def init(self, handle):
        super().init(handle)
        self.handle = handle
        self.kept = handle.getValueState("kept", "v long", ttlDurationMs=1000)
        self.names = handle.getListState("names", "v string", 1000)
        handle.deleteIfExists("old")
    def handleInputRows(self, key, rows, timerValues):
        def later():
            self.handle.registerTimer(5)
        later()
        return []
    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        return []
    def handleInitialState(self, key, initialState, timerValues):
        pass

class Pandas(Count):
    def handleInputRows(self, key, rows, timerValues):
        import pandas as pd
        for frame in rows:
            yield pd.DataFrame({"word": [key[0]], "total": [len(frame)]})

class BadSchema(Count):
    def init(self, handle):
        handle.getValueState("total", "total lng")

class Twice(Count):
    def init(self, handle):
        handle.getValueState("total", "total long")
        handle.getValueState("total", "total long")

class Raises(Count):
    def init(self, handle):
        raise ValueError("no such file")

class Exits(Count):
    def init(self, handle):
        raise SystemExit(3)
"""


def write(folder: Path, module: str, *, map_: str = "split", processor: str = "Count") -> Path:
    """A manifest beside its code; each test has a module of its own, since imports are remembered."""
    (folder / f"{module}.py").write_text(CODE)
    path = folder / "topology.yaml"
    path.write_text(MANIFEST.format(module=module, map=map_, processor=processor))
    return path


def faults(folder: Path, module: str, **code: str) -> dict[str, str]:
    """Path -> messages."""
    found: dict[str, str] = {}
    for fault in inspect_manifest(write(folder, module, **code)):
        found[fault.path] = found.get(fault.path, "") + fault.message + "\n"
    return found


def test_code_that_can_run_has_no_faults(tmp_path: Path) -> None:
    assert faults(tmp_path, "inspected_fine") == {}


def test_faults_of_all_operators_come_at_once_with_their_paths(tmp_path: Path) -> None:
    found = faults(tmp_path, "inspected_both", map_="splitt", processor="Plain")
    assert list(found) == ["spec.operators[1] (words).map", "spec.operators[2] (count).processor"]
    assert "module 'inspected_both' has no 'splitt'" in found["spec.operators[1] (words).map"]
    assert "no subclass of pyspark.sql.streaming.StatefulProcessor" in "".join(found.values())


@pytest.mark.parametrize(
    ("processor", "messages"),
    [
        ("NUMBER", ["is no subclass of"]),
        ("NoInit", ["lacks init"]),
        (
            "EverythingNotThere",
            [
                "handleExpiredTimer (timers): not in Penstock yet",
                "handleInitialState (initial state): not in Penstock yet",
                "registerTimer (timers): not in Penstock yet",
                "deleteIfExists (deleting a state variable): not in Penstock yet",
                "ttlDurationMs=1000 of state 'kept' (time to live): not in Penstock yet",
                "ttlDurationMs=1000 of state 'names' (time to live): not in Penstock yet",
            ],
        ),
        ("Pandas", ["transformWithStateInPandas is not in Penstock yet"]),
        ("BadSchema", ["lng"]),
        ("Twice", ["state 'total' is declared twice"]),
        ("Raises", ["ValueError: no such file", 'raise ValueError("no such file")']),
        ("Exits", ["SystemExit: 3"]),
    ],
)
def test_a_processor_that_cannot_run_is_refused_by_name(
    tmp_path: Path, processor: str, messages: list[str]
) -> None:
    found = faults(tmp_path, f"inspected_{processor.lower()}", processor=processor)
    (text,) = found.values()
    for message in messages:
        assert message in text
    assert text.count("not in Penstock yet") == sum("not in Penstock yet" in message for message in messages)


@pytest.mark.parametrize(
    ("map_", "message"),
    [("NUMBER", "is int, no function"), ("Count", "is a StatefulProcessor; a map is a function")],
)
def test_a_map_that_is_no_function_is_refused(tmp_path: Path, map_: str, message: str) -> None:
    assert message in "".join(faults(tmp_path, f"inspected_map_{map_.lower()}", map_=map_).values())


def test_a_module_that_cannot_be_imported_is_told_once_with_its_line_and_who_names_it(tmp_path: Path) -> None:
    path = write(tmp_path, "inspected_broken")
    (tmp_path / "inspected_broken.py").write_text("import not_there_at_all\n\nsplit = Count = None\n")
    (fault,) = inspect_manifest(path)
    assert fault.path == "spec.code.module"
    assert fault.message.startswith("named by words, count: module 'inspected_broken' cannot be imported:")
    assert "ModuleNotFoundError: No module named 'not_there_at_all'" in fault.message
    assert "import not_there_at_all" in fault.message


def test_a_module_that_is_not_the_codes_is_told_where_it_is_named_first_and_hides_no_other_fault(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, "inspected_main", processor="Plain")
    path.write_text(path.read_text().replace("inspected_main:split", "inspected_other:split"))
    (tmp_path / "inspected_other.py").write_text("raise SystemExit('not today')\n")
    other, main = inspect_manifest(path)
    assert other.path == "spec.operators[1] (words).map"
    assert other.message.startswith("named by words: module 'inspected_other' cannot be imported:")
    assert "no subclass of" in main.message


def test_the_command_prints_faults_only_whatever_the_code_prints(tmp_path: Path) -> None:
    path = write(tmp_path, "inspected_aloud", processor="NoInit")
    ran = subprocess.run(
        [sys.executable, "-m", "penstock_worker.inspect_code", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0
    (fault,) = json.loads(ran.stdout)
    assert fault["path"] == "spec.operators[2] (count).processor"
    assert "a line that a module prints" in ran.stderr


def test_the_command_takes_overrides_and_starts_no_jvm(tmp_path: Path) -> None:
    path = write(tmp_path, "inspected_anew", processor="NoInit")
    code = (
        "import sys, penstock_worker.inspect_code as inspection;"
        f"code = inspection.main([{str(path)!r}, '--set', 'count.processor=inspected_anew:Count']);"
        "heavy = [name for name in ('pandas', 'pyarrow', 'redis') if name in sys.modules];"
        "from pyspark import SparkContext;"
        "wrong = code or heavy or SparkContext._gateway;"
        "sys.exit(repr((code, heavy, SparkContext._gateway)) if wrong else 0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "[]"), ran.stderr


def test_the_command_says_in_a_sentence_that_a_manifest_cannot_be_read(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "penstock_worker.inspect_code", str(tmp_path / "none.yaml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert "no such file" in ran.stderr
    assert "Traceback" not in ran.stderr
