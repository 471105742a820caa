"""The kinds of sources and sinks: each is registered on both sides, and what is kept with state stays as it
was."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from penstock.connectors.console import ConsoleSink
from penstock.connectors.files import FilesSource, JsonlSink
from penstock.connectors.nexmark import NexmarkSource
from penstock.connectors.registry import SINKS, SOURCES, SinkSpec, SourceSpec
from penstock.connectors.sink import SinkFields
from penstock.connectors.source import SourceFields
from penstock.connectors.zipf import ZipfSource
from penstock.dataflow.schema import Column, Schema
from penstock_worker.kinds.sinks import open_batch_writer, open_writer
from penstock_worker.kinds.sources import open_reader
from penstock_worker.kinds.stage_sinks import batch_bounds, batch_code
from penstock_worker.sinks.writer import SinkPlace

NEXMARK = NexmarkSource("Bids", 500, 100, 1_000, 5.0, 3, 7)
ROWS = Schema((Column("value", "string"),))
ZIPF = ZipfSource(10, 0.5, 8, 2000, 5.0, None, 1.5, 3, 7, "rates.csv")

A_SOURCE: dict[str, SourceFields] = {
    "files": SOURCES["files"].model_validate({"glob": "*.txt"}),
    "zipf": SOURCES["zipf"].model_validate({"keys": 3, "ratePerSecond": 5.0}),
    "nexmark": SOURCES["nexmark"].model_validate({"events": "Auctions", "ratePerSecond": 5.0}),
    "kafka": SOURCES["kafka"].model_validate(
        {"bootstrapServers": "localhost:9092", "topics": ["orders"], "value": {"format": "string"}}
    ),
    "dataSource": SOURCES["dataSource"].model_validate(
        {"class": "scenes.users_sources:Counter", "schema": "number bigint, partition int"}
    ),
}
A_SINK: dict[str, SinkFields] = {
    "files": SINKS["files"].model_validate({"path": "out/"}),
    "console": SINKS["console"].model_validate({}),
    "kafka": SINKS["kafka"].model_validate({"bootstrapServers": "localhost:9092", "topic": "totals"}),
    "dataSource": SINKS["dataSource"].model_validate({"class": "scenes.users_sinks:Ledger"}),
    "foreach": SINKS["foreach"].model_validate({"call": "scenes.users_sinks:Notes"}),
    "foreachBatch": SINKS["foreachBatch"].model_validate({"call": "scenes.users_sinks:write"}),
}


def test_a_manifest_has_a_field_for_each_registered_kind() -> None:
    assert _names(SourceSpec) == list(SOURCES) == list(A_SOURCE)
    assert _names(SinkSpec) == list(SINKS) == list(A_SINK)


def _names(model: type[BaseModel]) -> list[str]:
    return [str(field.alias) for field in model.model_fields.values()]


@pytest.mark.parametrize("kind", SOURCES)
def test_each_kind_of_source_has_a_plan_partitions_and_a_reader(kind: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x\n")
    given = SourceSpec.model_validate({kind: A_SOURCE[kind]}).given
    source = given.plan()
    assert isinstance(source, given.planned)
    assert source.kind == kind
    if not source.grows:
        # Those of one that grows are others' to say; nobody is there to be asked.
        assert source.parts(tmp_path)
        assert source.fixed_parts in (None, source.parts(tmp_path))
    open_reader("in", source, tmp_path).close()


@pytest.mark.parametrize("kind", SINKS)
def test_each_kind_of_sink_has_a_plan_and_a_writer(kind: str, tmp_path: Path) -> None:
    given = SinkSpec.model_validate({kind: A_SINK[kind]}).given
    sink = given.plan("out")
    assert isinstance(sink, given.planned)
    assert (sink.kind, sink.name) == (kind, "out")
    if sink.is_stage:
        assert batch_bounds(sink).rows_max > 0
        batch_code(sink, tmp_path)
        return
    place = SinkPlace(tmp_path, "u", "t", durable=False)
    (open_batch_writer(sink, ROWS, place) or open_writer(sink, ROWS, place)).close()


def test_what_is_kept_of_a_source_with_its_state_is_what_earlier_versions_kept() -> None:
    text = FilesSource("texts/*.txt", "text", 5.0, None)
    assert text.identity_text() == "texts/*.txt (text)"
    assert ZIPF.identity_text() == (
        "10 keys, exponent 0.5, 8 bytes, endless, 3 partitions, 1.5 shuffles a minute, seed 7"
    )
    assert NEXMARK.identity_text() == (
        "Bids of 500 events, 100 a second from 1000 ms on, groups of 1, hot 2 4 4, 100 auctions in flight, "
        "1000 active people, 3 partitions, seed 7"
    )


def test_what_is_kept_of_a_sink_with_its_state_is_what_earlier_versions_kept() -> None:
    assert JsonlSink("totals", "out/").identity_text() == "files below out/"
    assert ConsoleSink("shown").identity_text() == "console"


def test_a_kind_that_writes_no_files_has_no_folder_and_no_files(tmp_path: Path) -> None:
    sink = ConsoleSink("shown")
    assert sink.folder(tmp_path) is None
    assert sink.files("count", ["0"], tmp_path) == sink.earlier_files("count", tmp_path) == []
