"""Sinks as users run them, through the suite: `penstock run`, killed in parts and whole, and gone on with by
another number of workers; then what is there is read from outside."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from backends.kafka_broker import KafkaBroker
from penstock.testing.connectors import SinkRuns
from scenes.users_sinks import batches_closed, rows_in_ledger

HELD_BY_WRITERS = pytest.mark.slow(
    held_by="test_an_owner_that_is_cut_at_any_step_leaves_the_rest_to_the_next_one"
)
pytestmark = [pytest.mark.integration, pytest.mark.timeout(900), HELD_BY_WRITERS]


class TestJsonlFiles(SinkRuns):
    def sink(self, folder: Path) -> dict[str, Any]:
        return {"files": {"path": "out/", "format": "jsonl"}}

    def read_back(self, folder: Path) -> list[Any]:
        lines = [line for file in (folder / "out").glob("*.jsonl") for line in file.read_text().splitlines()]
        return [tuple(json.loads(line).values()) for line in lines]


class TestKafka(SinkRuns):
    @pytest.fixture(autouse=True)
    def _topic(self, kafka: KafkaBroker) -> None:
        self.kafka = kafka
        self.topic = kafka.fresh_topic(3)

    def sink(self, folder: Path) -> dict[str, Any]:
        fields = {"topic": self.topic, "keyColumn": "word", "transactionInterval": "50ms"}
        return {"kafka": {"bootstrapServers": self.kafka.bootstrap, **fields}}

    def read_back(self, folder: Path) -> list[Any]:
        found = [json.loads(message.value() or b"") for message in self.kafka.committed(self.topic)]
        return [(row["word"], row["number"]) for row in found]


class TestStreamWriter(SinkRuns):
    """A data source of a user's."""

    def sink(self, folder: Path) -> dict[str, Any]:
        options = {"folder": str(folder / "ledger")}
        return {"dataSource": {"class": "scenes.users_sinks:Ledger", "options": options}}

    def read_back(self, folder: Path) -> list[Any]:
        return rows_in_ledger(folder / "ledger")


class TestForeach(SinkRuns):
    @pytest.fixture(autouse=True)
    def _file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NOTES", os.fspath(tmp_path / "notes"))

    def sink(self, folder: Path) -> dict[str, Any]:
        return {"foreach": {"call": "scenes.users_sinks:Notes"}}

    def read_back(self, folder: Path) -> list[Any]:
        return batches_closed(folder / "notes")
