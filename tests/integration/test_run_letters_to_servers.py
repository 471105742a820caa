"""Dead letters into systems outside, end to end: a topic of a real Kafka, a table of a real PostgreSQL; the
run is killed in parts while code fails, and a reader outside finds each letter once."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.kafka_broker import KafkaBroker
from backends.postgres_server import PostgresServer, jdbc_driver, postgres_with
from clocks.eventually import eventually
from processes.run_harness import Run
from scenes.letters_run import (
    assert_all_others_are_counted,
    assert_each_letter_is_there_once,
    kill_in_parts,
    start,
    write,
)

PATIENCE_S = 300.0
"""A worker with a Spark session for batches starts, and tasks after it; that takes its time where others
work."""
SLOW_PER_S = 40
"""Lines are left when the function is called for the first time, some seconds behind the first letter."""
TABLE = """
create table letters (
  id text primary key, operator text not null, kind text not null, key text, record text, error text not null,
  traceback text not null, shard text not null, position text not null, attempts int not null,
  timer timestamptz, time timestamptz not null
)
"""

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(900),
    pytest.mark.slow(held_by="test_letters_are_in_their_sink_once_whatever_is_killed"),
]


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    with postgres_with(TABLE) as server:
        yield server


def test_each_letter_is_in_a_topic_once_whatever_is_killed(
    tmp_path: Path, runs: list[Run], kafka: KafkaBroker
) -> None:
    topic = kafka.fresh_topic(3)
    fields = {"bootstrapServers": kafka.bootstrap, "topic": topic, "keyColumn": "key"}
    write(tmp_path, json.dumps({"kafka": {**fields, "transactionInterval": "50ms"}}))
    run = start(runs, tmp_path)
    kill_in_parts(run, lambda: None)
    assert run.finish(PATIENCE_S) == 0, run.output

    messages = kafka.committed(topic)
    rows = [json.loads(message.value() or b"") for message in messages]
    assert_each_letter_is_there_once(rows)
    for message, row in zip(messages, rows, strict=True):
        assert message.key() == (row["key"].encode() if "key" in row else None)
    assert len({message.partition() for message in messages if message.key()}) == 1, "of a key, together"
    assert_all_others_are_counted(tmp_path)
    assert run.summary["operators"]["dead-letters"]["records"] == len(rows)


def test_each_letter_is_in_a_table_once_whatever_is_killed(
    tmp_path: Path, runs: list[Run], postgres: PostgresServer
) -> None:
    write(tmp_path, '{foreachBatch: {call: "users_batches:letters_to_postgres", rowsMax: 256}}')
    shutil.copy(Path(__file__).parents[1] / "scenes/users_batches.py", tmp_path)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/spark-defaults.conf").write_text(f"spark.jars {jdbc_driver()}\n")
    (tmp_path / "hold").touch()
    run = start(
        runs,
        tmp_path,
        {
            "SPARK_CONF_DIR": str(tmp_path / "conf"),
            "BATCHES": str(tmp_path),
            "BATCHES_URL": postgres.url,
            "BATCHES_JDBC": postgres.jdbc_url,
        },
        lines_per_s=SLOW_PER_S,
    )
    eventually((tmp_path / "held").exists, "the function is called with letters", PATIENCE_S)
    (first,) = run.tasks("dead-letters")
    os.kill(first.pid, signal.SIGKILL)
    eventually(
        lambda: any(task.pid != first.pid for task in run.tasks("dead-letters")), "another task", PATIENCE_S
    )
    (tmp_path / "hold").unlink()
    kill_in_parts(run, lambda: None)
    assert run.finish(PATIENCE_S) == 0, run.output

    rows = [json.loads("|".join(line)) for line in postgres.query("select row_to_json(letters) from letters")]
    assert_each_letter_is_there_once(rows)
    assert all("Traceback" in row["traceback"] for row in rows if row["operator"] != "lines")
    assert_all_others_are_counted(tmp_path)
    given: dict[int, object] = {}
    for line in (tmp_path / "calls.log").read_text().splitlines():
        _, batch, step, some = json.loads(line)
        if step == "begins":
            assert given.setdefault(batch, some) == some, f"batch {batch} came with other letters"
    assert sorted(given) == list(range(len(given))), "the ids of batches have no hole"
    assert run.summary["operators"]["dead-letters"]["records"] == len(rows)
