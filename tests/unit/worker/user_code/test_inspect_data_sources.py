"""Data sources and sinks of users' code are looked at before anything starts, and told by their place."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.api.inspected_code import InspectedCode
from penstock.api.load import load_manifest
from penstock.manifest.faults import InvalidManifest
from penstock_worker.user_code.inspect_code import inspect_manifest

MANIFEST = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {{name: inspected}}
spec:
  operators:
  - name: in
    source: {{dataSource: {{class: "{source}", schema: "{schema}"{more}}}}}
  - name: out
    inputs: [in]
    sink: {sink}
"""
COUNTER = ("users_sources:Counter", "number bigint, partition int")
CODE = """
from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

def function(row):
    pass

def write(df, batch_id, *, mode="append"):
    pass

async def later(df, batch_id):
    pass

NUMBER = 5

class Plain:
    pass

class Nothing(DataSource):
    pass

class Wants(DataSource):
    def __init__(self, options):
        self.token = options["token"]
    def streamReader(self, schema):
        return Lacking()

class Lacking(DataSourceStreamReader):
    def initialOffset(self):
        return {}
    def partitions(self, start, end):
        return []
    def read(self, partition):
        return iter([])

class Abstract(DataSourceStreamReader):
    pass

class OfAbstract(DataSource):
    def streamReader(self, schema):
        return Abstract()

class Away(DataSource):
    def streamReader(self, schema):
        raise ConnectionError("nobody is there")

class Other(DataSource):
    def streamReader(self, schema):
        return 5
"""


def inspected(
    folder: Path,
    source: str = COUNTER[0],
    schema: str = COUNTER[1],
    more: str = "",
    sink: str = "{console: {}}",
) -> InspectedCode:
    for name in ("users_sources.py", "users_sinks.py"):
        shutil.copy(Path(__file__).parents[3] / "scenes" / name, folder)
    (folder / "inspected_sources.py").write_text(CODE)
    manifest = folder / "topology.yaml"
    manifest.write_text(MANIFEST.format(source=source, schema=schema, more=more, sink=sink))
    return inspect_manifest(manifest)


def test_sources_and_sinks_that_are_right_have_no_faults(tmp_path: Path) -> None:
    for sink in (
        "{dataSource: {class: 'users_sinks:Ledger'}}",
        "{foreach: {call: 'users_sinks:Notes'}}",
        "{foreachBatch: {call: 'inspected_sources:write'}}",
    ):
        found = inspected(tmp_path, sink=sink)
        assert (found.faults, found.notes) == ([], [])


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (
            "inspected_sources:Plain",
            "'inspected_sources:Plain' is no subclass of pyspark.sql.datasource.DataSource",
        ),
        ("inspected_sources:nobody", "module 'inspected_sources' has no 'nobody'"),
        ("inspected_sources:Nothing", "Nothing has no streamReader, no simpleStreamReader and no reader"),
        ("inspected_sources:Wants", "raised in __init__"),
        ("inspected_sources:OfAbstract", "abstract method"),
        ("inspected_sources:Other", "streamReader of Other returned int 5, no DataSourceStreamReader"),
        ("no_such_module:A", "named by in: module 'no_such_module' cannot be imported"),
    ],
)
def test_a_class_that_is_no_source_is_told_with_its_place(tmp_path: Path, source: str, told: str) -> None:
    (fault,) = inspected(tmp_path, source).faults
    assert fault.path == "spec.operators[0] (in).source.dataSource.class"
    assert told in fault.message


def test_a_reader_without_latest_offset_is_told(tmp_path: Path) -> None:
    (fault,) = inspected(tmp_path, "inspected_sources:Wants", more=", options: {token: x}").faults
    assert fault.message == "Lacking, the DataSourceStreamReader of Wants, lacks latestOffset"


def test_a_class_whose_reader_is_not_bounded_cannot_be_read_so(tmp_path: Path) -> None:
    (fault,) = inspected(tmp_path, more=", bounded: true").faults
    assert fault.message == "Counter has no reader: there is nothing to read it by"


def test_what_is_outside_may_be_away_where_code_is_looked_at(tmp_path: Path) -> None:
    found = inspected(tmp_path, "inspected_sources:Away")
    assert found.faults == []
    assert "'inspected_sources:Away' raised in its reader here, and may do so in a task" in found.notes[0]


def test_another_schema_than_the_class_says_is_noted(tmp_path: Path) -> None:
    found = inspected(tmp_path, schema="number string")
    assert found.faults == []
    assert "says (number bigint, partition int), and the manifest (number string)" in found.notes[0]


@pytest.mark.parametrize(
    ("sink", "path", "told"),
    [
        ("{dataSource: {class: 'users_sources:Counter'}}", "dataSource.class", "has no streamWriter"),
        ("{foreach: {call: 'inspected_sources:NUMBER'}}", "foreach.call", "is int; name a function of a row"),
        ("{foreach: {call: 'inspected_sources:Plain'}}", "foreach.call", "is a class without process"),
        (
            "{foreachBatch: {call: 'inspected_sources:function'}}",
            "foreachBatch.call",
            "'inspected_sources:function' takes (row); foreachBatch calls a function with a DataFrame and a "
            "batch id: make it def function(df, batch_id)",
        ),
        ("{foreachBatch: {call: 'inspected_sources:Plain'}}", "foreachBatch.call", "is a class, no function"),
        (
            "{foreachBatch: {call: 'inspected_sources:later'}}",
            "foreachBatch.call",
            "is async, and nobody would",
        ),
        ("{foreachBatch: {call: 'no_module:write'}}", "foreachBatch.call", "module 'no_module' cannot be"),
    ],
)
def test_a_sink_that_cannot_be_called_is_told(tmp_path: Path, sink: str, path: str, told: str) -> None:
    (fault,) = inspected(tmp_path, sink=sink).faults
    assert fault.path == f"spec.operators[1] (out).sink.{path}"
    assert told in fault.message


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("inspected_sources:Countr", "inspected_sources has no 'Countr'"),
        ("inspected_sources:function", "'function' is a function; a data source is a class, a DataSource"),
        ("nowhere:A", "no module 'nowhere' beside the manifest or installed"),
    ],
)
def test_names_are_looked_for_without_running_the_code(tmp_path: Path, source: str, told: str) -> None:
    inspected(tmp_path)
    manifest = tmp_path / "topology.yaml"
    manifest.write_text(MANIFEST.format(source=source, schema="n bigint", more="", sink="{console: {}}"))
    with pytest.raises(InvalidManifest, match=told):
        load_manifest(manifest, with_code=True)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("class: 'm:C'", r"dataSource.schema: is missing; give columns in Spark's DDL"),
        ("class: 'm:C', schema: 'n nothing'", r"dataSource.schema: "),
        ("schema: 'n bigint'", r"dataSource.class: is missing; give 'module:name'"),
        ("class: 'm:C', schema: 'n bigint', options: {rows: 5}", r"dataSource.options.rows: 5 is not text"),
        (
            "class: 'm:C', schema: 'n bigint', pollInterval: 0s",
            r"dataSource.pollInterval: must be longer than 0",
        ),
    ],
)
def test_fields_that_are_wrong_are_told(tmp_path: Path, given: str, told: str) -> None:
    manifest = tmp_path / "topology.yaml"
    text = MANIFEST.format(source="x:X", schema="n bigint", more="", sink="{console: {}}")
    manifest.write_text(text.replace('class: "x:X", schema: "n bigint"', given))
    with pytest.raises(InvalidManifest, match=told):
        load_manifest(manifest)
