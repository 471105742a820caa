"""Remote tasks on real Spark: `penstock run` with a worker on its own standalone master, and a second Spark
worker beside it that plays the other node."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from clocks.eventually import eventually
from house import ROOT
from penstock.api.launch.spark_worker_launch import spark_secret
from penstock.metrics.rows import TaskRow
from penstock.store.port import Answer, Publish, Tasks
from processes.live_processes import command_line, process_tree
from processes.run_harness import (
    Run,
    assert_counted_exactly_once,
    kill_with_records_waiting,
    write_texts,
)

EXAMPLE = ROOT / "examples" / "word-count"
PLACE = "SPARK_EXECUTOR_ATTRIBUTE_PENSTOCK_PLACE"
SHARDS = 64
LINES = 2_500
"""Between two gates; of these up to 1 024, which are read at once, may wait with what follows."""
START_S = 120.0
"""Two JVMs one after the other, on a machine that may be busy."""
GATES = '''

def split_when_open(line: Row) -> list[str]:
    """What stands behind a gate waits until its file is there."""
    if not line.value.startswith("gate-"):
        return split(line)
    while not (Path(__file__).parent / line.value).exists():
        sleep(0.01)
    return []
'''

pytestmark = [pytest.mark.integration, pytest.mark.timeout(480)]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """One worker whose cores are worth two tasks, and four that are asked for: two are remote."""
    code = (EXAMPLE / "word_count.py").read_text()
    imports = "from pathlib import Path\nfrom time import sleep\nfrom typing import Any\n"
    (tmp_path / "word_count.py").write_text(code.replace("from typing import Any\n", imports) + GATES)
    manifest = yaml.safe_load((EXAMPLE / "topology.yaml").read_text())
    spec = manifest["spec"]
    spec["remoteTasks"] = "Allowed"
    spec["workers"] = {"min": 1, "cores": {"min": "1", "max": "2"}}
    for operator in spec["operators"]:
        if operator["name"] == "words":
            operator["map"] = "word_count:split_when_open"
        if operator["name"] == "count":
            operator["tasks"] = {"min": 1, "max": 8, "initial": 3}
    (tmp_path / "topology.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))
    one = Run(tmp_path / "topology.yaml", tmp_path / "state")
    yield one
    one.abandon()


def write_gated_text(folder: Path, gates: int) -> Counter[str]:
    """One text, whose parts stand behind gates 0, 1, ...; answers how often each word stands in it."""
    counts = write_texts(folder / "texts", seed=7, files=1, lines=gates * LINES)
    (path,) = (folder / "texts").iterdir()
    lines = path.read_text(encoding="utf-8").splitlines()
    for gate in reversed(range(gates)):
        lines.insert(gate * LINES, f"gate-{gate}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return counts


def open_gate(folder: Path, gate: int) -> None:
    (folder / f"gate-{gate}").touch()


def remote(run: Run) -> list[TaskRow]:
    """Tasks of `count` that have shards and whose Python process runs under the other Spark worker."""
    with run.store() as store:
        busy = set(store.call(Tasks("count-w0", "count")).mapping.values())
    return [row for row in run.tasks("count") if row.ready in busy and place_of(row.pid) == "beside"]


def place_of(pid: int) -> str | None:
    try:
        return psutil.Process(pid).environ().get(PLACE)
    except psutil.Error:
        return None


def have_two_remote(run: Run) -> bool:
    return run.worker("w0") is not None and len(remote(run)) == 2


def spark_workers(run: Run) -> list[psutil.Process]:
    """The JVM that was started as the other node's Spark worker; executors are its children."""
    assert run.process is not None
    return [
        process
        for process in psutil.Process(run.process.pid).children()
        if "org.apache.spark.deploy.worker.Worker" in command_line(process)
    ]


def waiting_at(run: Run, rows: list[TaskRow]) -> int:
    """Entries in the inboxes of the shards of these tasks."""
    with run.store() as store:
        mapping = store.call(Tasks("count-w0", "count")).mapping
    lists = {row.ready for row in rows}
    return sum(
        counters.inbox_entries
        for number, counters in enumerate(run.counters("count", SHARDS))
        if mapping.get(f"count/{number}") in lists
    )


def stop(rows: list[TaskRow]) -> None:
    for row in rows:
        os.kill(row.pid, signal.SIGSTOP)


def take_back(run: Run) -> None:
    """What is decided when home has room for both tasks that are wanted."""
    row = run.worker("w0")
    assert row is not None
    with run.store() as store:
        version = store.call(Tasks("count-w0", "count")).version
        shards = tuple((f"count/{number}", "count-w0", "local") for number in range(SHARDS))
        workers = (("w0", "local", "local", row.uid),)
        call = Publish("count", version + 1, 0, workers, (("count-w0", "w0", 2),), shards)
        assert store.call(call) is Answer.OK


def secrets_of(run: Run) -> tuple[str, str]:
    key = run.state / "spark-key"
    row = run.worker("w0")
    assert row is not None
    return key.read_text(), spark_secret(str(key), row.uid)


def what_is_told(run: Run) -> Iterator[str]:
    """What all processes of the run were started with, and what is in their logs and launch files."""
    assert run.process is not None
    for process in process_tree(run.process.pid):
        yield command_line(process)
    files = [path for path in (run.state / "workers").rglob("*") if path.is_file()]
    assert {"w0.log", "w0-beside.log", "stderr"} <= {path.name for path in files}
    yield from (path.read_text(errors="replace") for path in files)


def test_remote_tasks_work_survive_the_kill_of_their_spark_worker_and_come_home(
    run: Run, tmp_path: Path
) -> None:
    expected = write_gated_text(tmp_path, gates=4)
    run.start()
    eventually(lambda: run.worker("w0") is not None, "the worker", START_S)
    eventually(lambda: have_two_remote(run), "two remote tasks", START_S)
    assert len(run.tasks("count")) == 3
    open_gate(tmp_path, 0)
    eventually(lambda: len([row for row in remote(run) if row.batches]) == 2, "both to work")

    first = remote(run)
    (spark_worker,) = spark_workers(run)
    stop(first)
    open_gate(tmp_path, 1)
    kill_with_records_waiting(
        run, [*(row.pid for row in first), spark_worker.pid], lambda: waiting_at(run, first)
    )
    eventually(lambda: run.waiting("count", SHARDS) == 0, "what waited to be counted")
    eventually(lambda: have_two_remote(run), "two remote tasks in another Spark worker", START_S)
    assert spark_workers(run) not in ([], [spark_worker])
    open_gate(tmp_path, 2)
    eventually(lambda: len([row for row in remote(run) if row.batches]) == 2, "both to work")

    second = remote(run)
    assert not {row.pid for row in first} & {row.pid for row in second}
    told = list(what_is_told(run))
    assert any("CoarseGrainedExecutorBackend" in text for text in told)
    secrets = secrets_of(run)
    stop(second)
    open_gate(tmp_path, 3)
    eventually(lambda: waiting_at(run, second) > 0, "records for the remote tasks")
    take_back(run)
    eventually(lambda: run.waiting("count", SHARDS) == 0, "the tasks at home to count on")

    assert run.finish(240) == 0, run.output
    assert_counted_exactly_once(tmp_path, expected)
    assert run.summary["restarts"] == {}
    told += [run.output, *what_is_told(run)]
    assert not [text for text in told for secret in secrets if secret in text]
