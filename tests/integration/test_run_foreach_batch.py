"""`foreachBatch` end to end: Spark's writers of Parquet and JDBC as sinks of `penstock run`, with a real
PostgreSQL, killed in parts while batches are written."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from backends.postgres_server import PostgresServer, jdbc_driver, postgres_with
from clocks.eventually import eventually
from processes.live_processes import kill_tree
from processes.run_harness import Run

ROWS, SLOW_ROWS, WORDS = 800, 6000, 7
PATIENCE_S = 300.0
"""A worker with five executors starts, twice; that takes its time where others work."""
MANIFEST = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {{name: batches}}
spec:
  code: {{module: users_code}}
  operators:
  - name: squares
    source:
      dataSource:
        class: users_sources:Table
        schema: "number bigint, square double"
        options: {{rows: "{rows}", partitions: "60", rowsPerSecond: "{rate}", batchRows: "7"}}
  - name: named
    inputs: [squares]
    map: users_code:named
    outputSchema: "word string, n bigint"
{count}
  - name: to-parquet
    inputs: [{feeder}]
    sink: {{foreachBatch: {{call: "users_batches:to_parquet"}}}}
  - name: to-postgres
    inputs: [{feeder}]
    sink: {{foreachBatch: {{call: "users_batches:to_postgres", rowsMax: 256}}}}
"""
COUNT = """
  - name: count
    inputs: [named]
    keyBy: [word]
    processor: users_code:Count
    outputSchema: "word string, n bigint"
    shards: 4
"""
pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    with postgres_with(
        "create table totals (batch bigint, word text, n bigint, primary key (word, n))"
    ) as server:
        yield server


def started(folder: Path, runs: list[Run], text: str, env: dict[str, str] | None = None) -> Run:
    for name in ("users_code.py", "users_sources.py", "users_batches.py"):
        shutil.copy(Path(__file__).parents[1] / "scenes" / name, folder)
    (folder / "topology.yaml").write_text(text)
    run = Run(folder / "topology.yaml", folder / "state", ("--workers", "1"), env or {})
    runs.append(run)
    run.start()
    return run


def settings(folder: Path, postgres: PostgresServer) -> dict[str, str]:
    """Of Spark: where the driver is. Of the functions: where they write."""
    (folder / "conf").mkdir()
    (folder / "conf/spark-defaults.conf").write_text(f"spark.jars {jdbc_driver()}\n")
    return {
        "SPARK_CONF_DIR": str(folder / "conf"),
        "BATCHES": str(folder),
        "BATCHES_URL": postgres.url,
        "BATCHES_JDBC": postgres.jdbc_url,
    }


def calls(folder: Path, sink: str) -> list[tuple[int, str, list[object]]]:
    """Batch, step and rows of each, in order."""
    file = folder / "calls.log"
    lines = file.read_text().splitlines() if file.exists() else []
    noted = [json.loads(line) for line in lines if line.endswith("]")]
    return [(batch, step, rows) for name, batch, step, rows in noted if name == sink]


def assert_each_row_is_written_once(
    folder: Path, postgres: PostgresServer, expected: list[tuple[str, int]]
) -> None:
    in_parquet = {
        int(batch.name.removeprefix("batch=")): parquet.read_table(batch, partitioning=None).to_pylist()
        for batch in (folder / "parquet").glob("batch=*")
    }
    in_postgres: dict[int, list[tuple[str, int]]] = {}
    for batch, word, n in postgres.query("select batch, word, n from totals"):
        in_postgres.setdefault(int(batch), []).append((word, int(n)))
    from_parquet = {batch: [(row["word"], row["n"]) for row in found] for batch, found in in_parquet.items()}
    for sink, found in (("parquet", from_parquet), ("postgres", in_postgres)):
        assert sorted(found) == list(range(len(found))), f"{sink}: ids have a hole"
        assert sorted(row for batch in found.values() for row in batch) == expected, sink
        given: dict[int, list[object]] = {}
        for batch, step, some in calls(folder, sink):
            if step == "begins":
                assert given.setdefault(batch, some) == some, f"{sink}: batch {batch} came with other rows"
                assert batch == 0 or batch - 1 in given, f"{sink}: batch {batch} came too early"
        assert {batch: sorted(map(tuple, some)) for batch, some in given.items()} == {  # type: ignore[call-overload]
            batch: sorted(some) for batch, some in found.items()
        }


def test_a_batch_whose_task_is_killed_is_written_again_with_the_same_rows(
    tmp_path: Path, runs: list[Run], postgres: PostgresServer
) -> None:
    (tmp_path / "hold").touch()
    text = MANIFEST.format(rows=ROWS, rate=400, count="", feeder="named")
    run = started(tmp_path, runs, text, settings(tmp_path, postgres))
    eventually((tmp_path / "held").exists, "the function is called", PATIENCE_S)
    (first,) = run.tasks("to-postgres")
    os.kill(first.pid, signal.SIGKILL)
    eventually(
        lambda: any(task.pid != first.pid for task in run.tasks("to-postgres")), "another task", PATIENCE_S
    )
    (tmp_path / "hold").unlink()
    assert run.finish(PATIENCE_S) == 0, run.output

    assert [(batch, step) for batch, step, _ in calls(tmp_path, "postgres")][:4] == [
        (0, "begins"), (0, "ends"), (0, "begins"), (0, "ends"),
    ], "a batch that comes again waits for its first call"  # fmt: skip
    assert_each_row_is_written_once(tmp_path, postgres, sorted((f"w{n % WORDS}", n) for n in range(ROWS)))
    assert run.summary["operators"]["to-postgres"]["records"] == ROWS


@pytest.mark.slow(held_by="test_a_batch_whose_task_is_killed_is_written_again_with_the_same_rows")
def test_each_row_is_written_once_whatever_is_killed(
    tmp_path: Path, runs: list[Run], postgres: PostgresServer
) -> None:
    text = MANIFEST.format(rows=SLOW_ROWS, rate=100, count=COUNT, feeder="count")
    run = started(tmp_path, runs, text, settings(tmp_path, postgres))

    def ended() -> int:
        """Batches of both whose function returned."""
        return sum(step == "ends" for sink in ("parquet", "postgres") for _, step, _ in calls(tmp_path, sink))

    def is_writing() -> bool:
        """Some batch has begun and not ended."""
        noted = [step for sink in ("parquet", "postgres") for _, step, _ in calls(tmp_path, sink)]
        return noted.count("begins") > noted.count("ends")

    for victim in ("to-postgres", "store", "to-parquet", "worker"):
        before = ended()
        eventually(lambda: ended() > before + 2, f"some batches before {victim} is killed", PATIENCE_S)  # noqa: B023
        eventually(is_writing, "a batch is written", PATIENCE_S)
        if victim == "store":
            os.kill(run.store_pid(), signal.SIGKILL)
        elif victim == "worker":
            kill_tree(run.ready_worker("w0").pid)
        else:
            eventually(lambda name=victim: bool(run.tasks(name)), "its task")
            with suppress(ProcessLookupError):
                os.kill(run.tasks(victim)[0].pid, signal.SIGKILL)
        assert run.process is not None
        assert run.process.poll() is None, "all was written before all were killed"
    assert run.finish(2 * PATIENCE_S) == 0, run.output
    counted = [
        (f"w{word}", n) for word in range(WORDS) for n in range(1, len(range(word, SLOW_ROWS, WORDS)) + 1)
    ]
    assert_each_row_is_written_once(tmp_path, postgres, counted)


@pytest.mark.slow(held_by="test_what_the_function_raises_is_told_with_the_batch")
def test_a_function_that_raises_stops_the_run_with_its_batch(tmp_path: Path, runs: list[Run]) -> None:
    text = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: failing}
spec:
  operators:
  - name: squares
    source:
      dataSource:
        class: users_sources:Table
        schema: "number bigint, square double"
        options: {rows: "900", rowsPerSecond: "300", batchRows: "7", partitions: "60"}
  - name: out
    inputs: [squares]
    sink: {foreachBatch: {call: "users_batches:fails"}}
"""
    run = started(tmp_path, runs, text)
    assert run.finish(PATIENCE_S) == 1
    told = " ".join(run.output.split())
    assert "operator out: users_batches:fails raised on batch 1, of" in told
    assert f'File "{tmp_path}/users_batches.py"' in told
    assert "ValueError: no room for" in told
