"""A running total for each key in bytewax, between two topics of Kafka: run by the peer's own Python.

`python bytewax_count.py RUN.json`, one worker. Its recovery store (SQLite) is in the run's folder, and is
gone on with where it is there already.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource, KafkaSourceMessage
from bytewax.dataflow import Dataflow
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import cluster_main


def keyed(message: KafkaSourceMessage[bytes, bytes]) -> tuple[str, None]:
    return str(json.loads(message.value)["key"]), None


def count(total: int | None, _: None) -> tuple[int, int]:
    counted = (total or 0) + 1
    return counted, counted


def written(row: tuple[str, int]) -> KafkaSinkMessage[None, bytes]:
    return KafkaSinkMessage(None, b'{"key":%b,"total":%d}' % (row[0].encode(), row[1]))


def main(path: str) -> None:
    run = json.loads(Path(path).read_text())
    store = Path(run["folder"], "recovery")
    if not store.exists():
        store.mkdir()
        init_db_dir(store, 1)
    flow = Dataflow("count")
    source = KafkaSource(
        [run["bootstrap"]], [run["source"]], batch_size=run["batch_size"], add_config=run["consumer"]
    )
    keys = op.map("keyed", op.input("records", flow, source), keyed)
    totals = op.stateful_map("count", keys, count)
    sink = KafkaSink([run["bootstrap"]], run["sink"], add_config=run["producer"])
    op.output("totals", op.map("written", totals, written), sink)
    cluster_main(
        flow,
        [],
        0,
        epoch_interval=timedelta(seconds=run["epoch_s"]),
        recovery_config=RecoveryConfig(str(store)),
    )


if __name__ == "__main__":
    main(sys.argv[1])
