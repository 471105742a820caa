"""Kafka, in and out, through the suite that users have: on a real broker, by its own client."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from backends.kafka_broker import KafkaBroker
from penstock.testing.connectors import SinkConformance, SourceConformance
from penstock_worker.testing.connectors.sink_suite import Owners

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


class TestKafkaSource(SourceConformance):
    within_s = 60.0

    @pytest.fixture(autouse=True)
    def _topic(self, kafka: KafkaBroker) -> None:
        self.kafka = kafka
        self.topic = kafka.fresh_topic(2)
        self.values: dict[int, list[str]] = {0: [], 1: []}
        self._produce(0, 40)
        self._produce(1, 25)

    def _produce(self, partition: int, count: int) -> None:
        there = len(self.values[partition])
        values = [json.dumps({"n": number, "of": partition}) for number in range(there, there + count)]
        self.kafka.produce(self.topic, values, partition=partition)
        self.values[partition] += values

    def topology_source(self, folder: Path) -> dict[str, Any]:
        value = {"format": "json", "schema": "n bigint, of int"}
        return {"kafka": {"bootstrapServers": self.kafka.bootstrap, "topics": [self.topic], "value": value}}

    def expected(self, folder: Path) -> dict[str, list[Any]]:
        return {
            f"{self.topic}/{partition}": [tuple(json.loads(value).values()) for value in values]
            for partition, values in self.values.items()
        }

    def feed(self, folder: Path) -> None:
        self._produce(1, 7)

    def spoil(self, folder: Path) -> str:
        self.kafka.produce(self.topic, ["no JSON"], partition=0)
        return rf"topic {self.topic}, partition 0, offset 40: the value is no JSON"


class OfKafka(SinkConformance):
    spec: Mapping[str, str]

    @pytest.fixture(autouse=True)
    def _topic(self, kafka: KafkaBroker) -> None:
        self.kafka = kafka
        self.topic = kafka.fresh_topic(3)

    def sink(self, folder: Path) -> dict[str, Any]:
        fields = {"topic": self.topic, "keyColumn": "word", **self.spec}
        return {"kafka": {"bootstrapServers": self.kafka.bootstrap, **fields}}

    def read_back(self, folder: Path) -> list[Any]:
        """A consumer of committed messages, to the end of the topic."""
        found = [json.loads(message.value() or b"") for message in self.kafka.committed(self.topic)]
        return [(row["word"], row["number"]) for row in found]


class TestKafkaSink(OfKafka):
    spec: Mapping[str, str] = {"transactionInterval": "10ms"}

    @pytest.mark.slow(held_by="test_an_owner_that_was_replaced_and_comes_late_changes_nothing")
    def test_an_owner_that_is_cut_at_any_step_leaves_the_rest_to_the_next_one(
        self, owners: Owners, tmp_path: Path
    ) -> None:
        """Each waits two seconds for the one before, of which it cannot know that it is gone."""
        super().test_an_owner_that_is_cut_at_any_step_leaves_the_rest_to_the_next_one(owners, tmp_path)


class TestKafkaSinkAtLeastOnce(OfKafka):
    spec: Mapping[str, str] = {"deliver": "AtLeastOnce"}
    delivers = "AtLeastOnce"
