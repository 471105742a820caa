"""What is wrong with user code is found before anything starts, all at once, and named by its place."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock_worker.user_code.inspect_code import inspect_manifest

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

class Annotated(Count):
    def handleInputRows(self, key, rows: "Iterator[pd.DataFrame]", timerValues):
        for frame in rows:
            yield frame

class Named(Count):
    def handleInputRows(self, key, rows, timerValues):
        import pandas as pd
        table = pd.DataFrame({"word": [key[0]], "total": [sum(len(frame) for frame in rows)]})
        return iter([table])

class Unshown(Count):
    def handleInputRows(self, key, rows, timerValues):
        import pandas as pd
        return self.made_of(pd.Series([1]), rows)

class DeletesFirst(Count):
    def init(self, handle):
        handle.deleteIfExists("total")
        super().init(handle)

class BothWays(Count):
    def handleInputRows(self, key, rows, timerValues):
        import pandas as pd
        rows = list(rows)
        if rows and isinstance(rows[0], pd.DataFrame):
            yield pd.DataFrame({"word": [key[0]], "total": [len(rows[0])]})
            return
        table = pd.DataFrame([row.asDict() for row in rows])
        yield Row(word=key[0], total=len(table))

class Replacing(Count):
    "Has the names of what is not there, and uses none of it."
    def init(self, handle):
        super().init(handle)
        self.handle = handle
        self.clock = Clock()
    def registerTimer(self, at):
        return at
    def handleInputRows(self, key, rows, timerValues):
        yield Row(word=key[0], total=self.registerTimer(5) + self.clock.listTimers())
    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        return []
    def handleInitialState(self, key, initialState, timerValues):
        pass

class Clock:
    def listTimers(self):
        return 0

class Scaled(Count):
    def __init__(self, factor):
        self.factor = factor

def made():
    return Scaled(3)

def fives():
    return NUMBER

def fails():
    return Scaled(1 / 0)

def cut(row, length, upper=False):
    return [row.value[:length]]

def cutter(length):
    return lambda row: [row.value[:length]]

TRIPLED = Scaled(3)
LOCKED = Scaled(__import__("threading").Lock())

class WithOld(Count):
    def init(self, handle):
        handle.deleteIfExists("old")

class Without(WithOld):
    def init(self, handle):
        self.total = handle.getValueState("total", "total long")

class AlsoOld(WithOld):
    def init(self, handle):
        super().init(handle)

class Alias(Count):
    def init(self, handle):
        self.kept = {"handle": 5}
        self.own = handle
    def handleInputRows(self, key, rows, timerValues):
        own = self.own
        timers = own
        return [timers.listTimers()]

class Watermark(Count):
    def handleInputRows(self, key, rows, timerValues):
        yield Row(word=key[0], total=timerValues.getCurrentWatermarkInMs())

class Made(Count):
    def __init__(self):
        raise KeyboardInterrupt()

class Closes(Count):
    def close(self):
        raise ValueError("no close")

class SavesAtClose(Count):
    def close(self):
        self.total.update((1,))

class ReadsAtInit(Count):
    def init(self, handle):
        super().init(handle)
        self.total.get()

class NoColumn(Count):
    def init(self, handle):
        self.total = handle.getValueState("total", "long")

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
    for fault in inspect_manifest(write(folder, module, **code)).faults:
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
                "registerTimer, which needs a time mode; give the operator timeMode: ProcessingTime",
                "ttlDurationMs=1000 of state 'kept', which needs a time mode",
                "ttlDurationMs=1000 of state 'names', which needs a time mode",
            ],
        ),
        ("BothWays", ["may take Rows or pandas DataFrames: it shows signs of both", "`form: Pandas`"]),
        ("Unshown", ["may take Rows or pandas DataFrames: it uses pandas, and does not show for what"]),
        ("DeletesFirst", ["state 'total' is declared after it was deleted"]),
        ("Alias", ["listTimers, which needs a time mode"]),
        ("Made", ["raised in __init__:", "line ", "KeyboardInterrupt"]),
        (
            "Scaled",
            [
                "'inspected_scaled:Scaled' takes (factor) and is called as Scaled(): it lacks 'factor'; "
                "give args: {factor: ...}, or make it def __init__(self)"
            ],
        ),
        ("split", ["takes (row) and is called as split(): it lacks 'row'"]),
        ("fives", ["returned int 5; a function that is named as a processor makes a pyspark.sql.streaming"]),
        ("fails", ["raised:", "ZeroDivisionError"]),
        ("LOCKED", ["raised in __init__:", "cannot pickle"]),
        ("Closes", ["raised in close:", "ValueError: no close"]),
        ("SavesAtClose", [", close: state 'total' belongs to a key and is used in close"]),
        ("ReadsAtInit", [", init: state 'total' belongs to a key and is used in init"]),
        ("NoColumn", ["init: state 'total': column 'long' has no type", 'write "value long"']),
        ("BadSchema", ["state 'total': column 'total': type lng is unknown"]),
        ("Twice", ["state 'total' is declared twice"]),
        ("Raises", ["raised in init:", "ValueError: no such file", 'raise ValueError("no such file")']),
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


def test_an_object_of_a_processor_has_no_faults(tmp_path: Path) -> None:
    assert faults(tmp_path, "inspected_object", processor="TRIPLED") == {}


def test_a_function_that_makes_a_processor_has_no_faults(tmp_path: Path) -> None:
    assert faults(tmp_path, "inspected_factory", processor="made") == {}


def test_arguments_reach_the_class_and_the_step(tmp_path: Path) -> None:
    path = write(tmp_path, "inspected_args", map_="cut", processor="Scaled")
    text = path.read_text().replace(
        'outputSchema: "word string"', 'outputSchema: "word string"\n    args: ARGS'
    )
    text = text.replace("keyBy: [word]", "keyBy: [word]\n    args: {factor: 3}")
    path.write_text(text.replace("ARGS", "{length: 3}"))
    assert inspect_manifest(path).faults == []
    path.write_text(text.replace("ARGS", "{lenght: 3}"))
    (fault,) = inspect_manifest(path).faults
    assert str(fault) == (
        "spec.operators[1] (words).map: 'inspected_args:cut' takes (row, length, upper=False) and is called "
        "as cut(row, lenght=3): it has no 'lenght' (did you mean length?) and lacks 'length'; "
        "give args: {length: 3}, or make it def cut(row, lenght)"
    )
    path.write_text(text.replace("ARGS", "{length: 3}").replace(":cut\n", ":cutter\n"))
    assert inspect_manifest(path).faults == []


@pytest.mark.parametrize("field", ["mapInPandas", "mapInArrow"])
def test_steps_on_columns_are_looked_at_as_others_are(tmp_path: Path, field: str) -> None:
    path = write(tmp_path, f"inspected_{field.lower()}", map_="cut")
    path.write_text(path.read_text().replace("map: ", f"{field}: "))
    (fault,) = inspect_manifest(path).faults
    assert fault.path == f"spec.operators[1] (words).{field}"
    right = "give args: {length: ...}, or make it def cut(iterator)"
    assert f"is called as cut(iterator): it lacks 'length'; {right}" in fault.message
    path.write_text(
        path.read_text().replace("\n    outputSchema", "\n    args: {length: 1}\n    outputSchema", 1)
    )
    assert inspect_manifest(path).faults == []


@pytest.mark.parametrize("processor", ["Replacing", "Without", "AlsoOld"])
def test_what_is_named_and_not_used_is_no_fault(tmp_path: Path, processor: str) -> None:
    assert faults(tmp_path, f"inspected_{processor.lower()}", processor=processor) == {}


@pytest.mark.parametrize("processor", ["Pandas", "Annotated", "Named"])
def test_processors_of_the_pandas_form_have_no_faults(tmp_path: Path, processor: str) -> None:
    assert faults(tmp_path, f"inspected_{processor.lower()}", processor=processor) == {}


@pytest.mark.parametrize("form", ["Rows", "Pandas"])
def test_a_form_that_the_manifest_says_is_not_asked_of_the_class(tmp_path: Path, form: str) -> None:
    path = write(tmp_path, f"inspected_said_{form.lower()}", processor="BothWays")
    path.write_text(path.read_text().replace("keyBy: [word]", f"keyBy: [word]\n    form: {form}"))
    assert inspect_manifest(path).faults == []


def test_a_variable_that_is_deleted_is_told(tmp_path: Path) -> None:
    inspected = inspect_manifest(write(tmp_path, "inspected_deletes", processor="WithOld"))
    assert inspected.state == {"count": {"old": ""}}


def test_what_spark_calls_and_penstock_does_not_is_noted(tmp_path: Path) -> None:
    initial, expired = inspect_manifest(write(tmp_path, "inspected_notes", processor="Replacing")).notes
    assert expired.startswith("spec.operators[2] (count).processor: handleExpiredTimer of 'inspected_notes:")
    assert expired.endswith("is never called: the operator has no timeMode")
    assert "is never called: the operator has no initialState" in initial


def test_a_watermark_that_never_moves_is_noted(tmp_path: Path) -> None:
    (note,) = inspect_manifest(write(tmp_path, "inspected_watermark", processor="Watermark")).notes
    assert "getCurrentWatermarkInMs()" in note
    assert "is -1 always" in note


def test_the_state_that_is_declared_is_told_by_operator(tmp_path: Path) -> None:
    inspected = inspect_manifest(write(tmp_path, "inspected_state"))
    assert inspected.state == {"count": {"total": "a value of (`total` bigint)"}}


@pytest.mark.parametrize(
    ("map_", "message"),
    [("NUMBER", "is int, no function"), ("Count", "is a StatefulProcessor; a map is a function")],
)
def test_a_map_that_is_no_function_is_refused(tmp_path: Path, map_: str, message: str) -> None:
    assert message in "".join(faults(tmp_path, f"inspected_map_{map_.lower()}", map_=map_).values())


def test_a_module_that_cannot_be_imported_is_told_once_with_its_line_and_who_names_it(tmp_path: Path) -> None:
    path = write(tmp_path, "inspected_broken")
    (tmp_path / "inspected_broken.py").write_text("import not_there_at_all\n\nsplit = Count = None\n")
    (fault,) = inspect_manifest(path).faults
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
    other, main = inspect_manifest(path).faults
    assert other.path == "spec.operators[1] (words).map"
    assert other.message.startswith("named by words: module 'inspected_other' cannot be imported:")
    assert "no subclass of" in main.message


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("Fine", ""),
        ("Half", "lacks merge and finish; an aggregator has zero, reduce, merge and finish"),
        ("NUMBER", "is int, no class; an aggregator is one with zero"),
        ("Asks", "raised in __init__"),
    ],
)
def test_aggregators_of_windows_have_the_methods_of_one(tmp_path: Path, function: str, says: str) -> None:
    (tmp_path / "inspected_aggregators.py").write_text(AGGREGATORS)
    path = tmp_path / "topology.yaml"
    path.write_text(WINDOWS.format(function=function))
    found = {fault.path: fault.message for fault in inspect_manifest(path).faults}
    at = "spec.operators[1] (counted).aggregate[1].function"
    assert list(found) == ([at] if says else [])
    assert says in found.get(at, "")


AGGREGATORS = """
NUMBER = 5

class Half:
    def zero(self):
        return 0
    def reduce(self, buffer, row):
        return buffer + 1

class Fine(Half):
    def merge(self, one, other):
        return one + other
    def finish(self, buffer):
        return buffer

class Asks(Fine):
    def __init__(self, what):
        pass
"""
WINDOWS = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {{name: windows}}
spec:
  code: {{module: inspected_aggregators}}
  operators:
  - name: rows
    source: {{files: {{glob: "*.jsonl", format: jsonl, schema: "k string, at timestamp"}}}}
    eventTime: {{column: at}}
  - name: counted
    inputs: [rows]
    keyBy: [k]
    window: {{tumbling: 1m}}
    aggregate:
    - {{as: n, function: count}}
    - {{as: own, function: "inspected_aggregators:{function}", type: bigint}}
  - name: out
    inputs: [counted]
    sink: {{console: {{}}}}
"""


def test_the_command_prints_faults_only_whatever_the_code_prints(tmp_path: Path) -> None:
    path = write(tmp_path, "inspected_aloud", processor="NoInit")
    ran = subprocess.run(
        [sys.executable, "-m", "penstock_worker.user_code.inspect_code", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0
    (fault,) = json.loads(ran.stdout)["faults"]
    assert fault["path"] == "spec.operators[2] (count).processor"
    assert "a line that a module prints" in ran.stderr


def test_the_command_takes_overrides_and_starts_no_jvm(tmp_path: Path) -> None:
    path = write(tmp_path, "inspected_anew", processor="NoInit")
    code = (
        "import sys, penstock_worker.user_code.inspect_code as inspection;"
        f"code = inspection.main([{str(path)!r}, '--set', 'count.processor=inspected_anew:Count']);"
        "heavy = [name for name in ('pandas', 'pyarrow', 'redis') if name in sys.modules];"
        "from pyspark import SparkContext;"
        "wrong = code or heavy or SparkContext._gateway;"
        "sys.exit(repr((code, heavy, SparkContext._gateway)) if wrong else 0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {
        "faults": [],
        "notes": [],
        "state": {"count": {"total": "a value of (`total` bigint)"}},
    }


def test_the_command_says_in_a_sentence_that_a_manifest_cannot_be_read(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "penstock_worker.user_code.inspect_code", str(tmp_path / "none.yaml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert "no such file" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_method_with_a_wrong_signature_is_told_with_the_right_one_and_not_called(tmp_path: Path) -> None:
    code = (
        CODE
        + """
class Wrong(Count):
    def init(self):
        raise AssertionError("it is not called")
    def handleInputRows(self, key, rows):
        return []
"""
    )
    (tmp_path / "wrong_methods.py").write_text(code)
    (tmp_path / "topology.yaml").write_text(
        MANIFEST.format(module="wrong_methods", map="split", processor="Wrong")
    )
    faults = inspect_manifest(tmp_path / "topology.yaml").faults
    assert [fault.path for fault in faults] == ["spec.operators[2] (count).processor"] * 2
    assert [fault.message.rpartition("make it ")[2] for fault in faults] == [
        "def init(self, handle)",
        "def handleInputRows(self, key, rows, timerValues)",
    ]
