"""The topology `orders -> count -> shown`, for runs whose workers have no Spark.

A source (`numbered_rows`), a keyed stage (`orders_code`), the console.
"""

from __future__ import annotations

from penstock.connectors.console import ConsoleSink
from penstock.connectors.zipf import ZipfSource
from penstock.dataflow.plan import Fanout, KeyedEdge, Plan, Processor, Stage, Tasks
from penstock.dataflow.schema import Column, Schema

PARTITIONS = 2
KEYED_SHARDS = 8
PROCESS_RECORDS = 120
"""Of each partition, where workers are processes."""
ROW = Schema((Column("name", "string"), Column("number", "bigint")))


def orders_plan(records: int) -> Plan:
    """`records` of each partition."""
    source = ZipfSource(10, 1.0, 8, 0, None, records * PARTITIONS, 0.0, PARTITIONS, 1)
    edge = KeyedEdge("count", (0,), KEYED_SHARDS)
    orders = Stage("orders", source, Tasks(1, 4, 2), Fanout(ROW, (), (), (edge,)))
    count = Stage(
        "count",
        Processor("processes.orders_code:Count", ROW, (0,), KEYED_SHARDS),
        Tasks(1, 4, 2),
        Fanout(ROW, (), (ConsoleSink("shown"),), ()),
    )
    return Plan("orders", "m", "Process", 2, 1 << 31, (orders, count))


def expected_names(records: int) -> list[str]:
    """What the console shows in all, sorted."""
    return sorted(f"orders/{part}:{number}" for part in range(PARTITIONS) for number in range(records))
