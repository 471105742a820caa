"""The paper's application as a plan: `source -> first -> second`, a source partition beside each share of it.

Rows are (first, second, padding); `first` counts by the one field, `second` by the other. Neighbours:
`counters` is its code, `streams` what comes in, `nodes` runs it on hosts.
"""

from __future__ import annotations

from penstock.connectors.files import JsonlSink
from penstock.connectors.zipf import ZipfSource
from penstock.dataflow.plan import NO_TIME, Fanout, KeyedEdge, Plan, Processor, Stage, Tasks
from penstock.dataflow.schema import Column, Schema

SOURCE, FIRST, SECOND = "source", "first", "second"
SINK = "totals"
SHARDS_EACH = 2
"""Of a keyed operator, by host."""
INTEGERS = ("int", "bigint")
"""Types of the two fields. Not the same: equal numbers of one type have one hash, and would always meet."""
STRINGS = ("string", "string")
TOTALS = Schema(
    (Column("key", "string"), Column("rows", "bigint"), Column("total", "bigint"), Column("at_us", "bigint"))
)


def rows_schema(types: tuple[str, str]) -> Schema:
    return Schema((Column("first", types[0]), Column("second", types[1]), Column("padding", "string")))


def locality_plan(hosts: int, types: tuple[str, str], *, sink: bool, locality: bool = True) -> Plan:
    """`sink`: what `second` puts out goes to files. `locality`: Auto for both operators."""
    rows, shards = rows_schema(types), hosts * SHARDS_EACH
    tasks = Tasks(hosts, hosts, hosts)
    # Only says that it is a source, of so many partitions: `streams` has the reader.
    source = ZipfSource(1, 0.0, 0, 0, None, None, 0.0, hosts, 0)

    def edge(operator: str, column: int) -> KeyedEdge:
        return KeyedEdge(operator, (column,), shards, locality=locality)

    def counting(operator: str, column: int, name: str, out: Fanout) -> Stage:
        code = f"bench.locality.counters:{name}"
        head = Processor(code, rows, (column,), shards, time_mode=NO_TIME, locality=locality)
        return Stage(operator, head, tasks, out)

    sinks = (JsonlSink(SINK, "out"),) if sink else ()
    return Plan(
        "locality",
        "bench.locality.counters",
        "Process",
        hosts,
        1 << 31,
        (
            Stage(SOURCE, source, tasks, Fanout(rows, (), (), (edge(FIRST, 0),))),
            counting(FIRST, 0, "First", Fanout(rows, (), (), (edge(SECOND, 1),))),
            counting(SECOND, 1, "Second", Fanout(TOTALS, (), sinks, ())),
        ),
    )
