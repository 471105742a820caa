"""A running total for each key in PyFlink, between two topics of Kafka: run by the peer's own Python.

`python flink_count.py RUN.json`, in a cluster of this one process and its JVM. The JVM parses and writes the
JSON, Python counts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from pyflink.common import Configuration, Row, Types
from pyflink.common.watermark_strategy import WatermarkStrategy
from pyflink.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.connectors.base import DeliveryGuarantee
from pyflink.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from pyflink.datastream.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from pyflink.datastream.state import ValueStateDescriptor

RECORD = Types.ROW_NAMED(["key"], [Types.LONG()])
TOTAL = Types.ROW_NAMED(["key", "total"], [Types.LONG(), Types.LONG()])


class Count(KeyedProcessFunction):  # type: ignore[misc]  # pyflink carries no types for mypy here
    """The state of bench/counting.py."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        total = (self._total.value() or 0) + 1
        self._total.update(total)
        yield Row(key=value[0], total=total)


def main(path: str) -> None:
    run = json.loads(Path(path).read_text())
    conf = Configuration()
    for name, value in run["conf"].items():
        conf.set_string(name, value)
    environment = StreamExecutionEnvironment.get_execution_environment(conf)
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(run["bootstrap"])
        .set_topics(run["source"])
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(JsonRowDeserializationSchema.builder().type_info(RECORD).build())
        .build()
    )
    sink = KafkaSink.builder().set_bootstrap_servers(run["bootstrap"])
    for name, value in run["producer"].items():
        sink = sink.set_property(name, value)
    totals = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(run["sink"])
        .set_value_serialization_schema(JsonRowSerializationSchema.builder().with_type_info(TOTAL).build())
        .build()
    )
    (
        environment.from_source(source, WatermarkStrategy.no_watermarks(), "records")
        .uid("records")
        .key_by(lambda record: record[0], Types.LONG())
        .process(Count(), TOTAL)
        .uid("count")
        .sink_to(
            sink.set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE).set_record_serializer(totals).build()
        )
        .uid("totals")
    )
    environment.execute("count")


if __name__ == "__main__":
    main(sys.argv[1])
