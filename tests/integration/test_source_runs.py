"""Sources as users run them, through the suite: `penstock run`, killed in parts and whole, and gone on with
by another number of workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backends.kafka_broker import KafkaBroker
from penstock.testing.connectors import SourceRuns

HELD_BY_READERS = pytest.mark.slow(held_by="test_owners_that_are_killed_at_any_step_lose_and_double_nothing")
pytestmark = [pytest.mark.integration, pytest.mark.timeout(900), HELD_BY_READERS]


class TestTextFiles(SourceRuns):
    def topology_source(self, folder: Path) -> dict[str, Any]:
        self.lines = {name: [f"line {number} of {name}" for number in range(4000)] for name in "ab"}
        (folder / "in").mkdir()
        for name, lines in self.lines.items():
            (folder / f"in/{name}.txt").write_text("".join(f"{line}\n" for line in lines))
        return {"files": {"glob": "in/*.txt", "format": "text"}}

    def expected(self, folder: Path) -> dict[str, list[Any]]:
        return {f"in/{name}.txt": lines for name, lines in self.lines.items()}


class TestJsonlFiles(SourceRuns):
    def topology_source(self, folder: Path) -> dict[str, Any]:
        self.rows = {name: [(name, number) for number in range(4000)] for name in "ab"}
        (folder / "in").mkdir()
        for name, rows in self.rows.items():
            lines = [json.dumps({"name": of, "n": number}) for of, number in rows]
            (folder / f"in/{name}.jsonl").write_text("\n".join(lines))
        return {"files": {"glob": "in/*.jsonl", "format": "jsonl", "schema": "name string, n bigint"}}

    def expected(self, folder: Path) -> dict[str, list[Any]]:
        return {f"in/{name}.jsonl": rows for name, rows in self.rows.items()}


class TestKafka(SourceRuns):
    @pytest.fixture(autouse=True)
    def _topic(self, kafka: KafkaBroker) -> None:
        self.kafka = kafka
        self.topic = kafka.fresh_topic(2)
        self.values = {partition: [f"v{partition}-{n}" for n in range(4000)] for partition in (0, 1)}
        for partition, values in self.values.items():
            kafka.produce(self.topic, values, partition=partition)

    def topology_source(self, folder: Path) -> dict[str, Any]:
        fields = {"topics": [self.topic], "value": {"format": "string"}}
        return {"kafka": {"bootstrapServers": self.kafka.bootstrap, **fields}}

    def expected(self, folder: Path) -> dict[str, list[Any]]:
        return {f"{self.topic}/{partition}": values for partition, values in self.values.items()}


class TestStreamReader(SourceRuns):
    """A data source of a user's."""

    def topology_source(self, folder: Path) -> dict[str, Any]:
        options = {"upTo": "3000", "perRange": "70", "partitions": "1", "rowsPerSecond": "300"}
        source = {"class": "scenes.users_sources:Counter", "schema": "number bigint, partition int"}
        return {"dataSource": {**source, "options": options}}

    def expected(self, folder: Path) -> dict[str, list[Any]]:
        return {"0": [(number, 0) for number in range(3000)]}


class TestBoundedReader(SourceRuns):
    """The same that ends."""

    def topology_source(self, folder: Path) -> dict[str, Any]:
        options = {"rows": "3000", "partitions": "60", "rowsPerSecond": "300", "batchRows": "7"}
        source = {"class": "scenes.users_sources:Table", "schema": "number bigint, square double"}
        return {"dataSource": {**source, "options": options}}

    def expected(self, folder: Path) -> dict[str, list[Any]]:
        return {"0": [(n, float(n * n)) for part in range(60) for n in range(part, 3000, 60)]}
