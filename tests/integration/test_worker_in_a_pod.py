"""A worker as a pod starts it: by environment, against a real store, with real Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from backends.store_fixtures import private_store
from clocks.eventually import eventually
from penstock.api.compile import compile_topology
from penstock.api.load import load_topology
from penstock.dataflow.partitions import shards_of
from penstock.dataflow.plan import Plan
from penstock.metrics.rows import PartitionsRow, TaskRow, WorkerRow, unpack
from penstock.store.port import Answer, Create, Publish, ReadMetrics
from penstock.store.redis.store import RedisStore
from processes.free_ports import free_port
from processes.run_harness import read_rows, write_texts

pytestmark = pytest.mark.integration

MANIFEST = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: words}
spec:
  code: {configMap: code}
  durability: Process
  operators:
  - {name: lines, source: {files: {glob: "texts/*.txt"}}}
  - {name: split, inputs: [lines], map: "words:split", outputSchema: word string}
  - name: count
    inputs: [split]
    keyBy: [word]
    processor: words:Count
    outputSchema: "word string, total long"
    shards: 8
  - {name: totals, inputs: [count], sink: {files: {path: out}}}
"""
CODE = """
from pyspark.sql.streaming import StatefulProcessor

def split(row):
    return row.value.split()

class Count(StatefulProcessor):
    def init(self, handle):
        self.total = handle.getValueState("total", "total long")

    def handleInputRows(self, key, rows, timerValues):
        total = (self.total.get() or (0,))[0] + sum(1 for _ in rows)
        self.total.update((total,))
        yield (key[0], total)

    def close(self):
        pass
"""
CRASHING_OPERATOR = """
  - name: crash
    inputs: [split]
    keyBy: [word]
    processor: words:Crash
    outputSchema: "word string, total long"
    shards: 4
  - {name: nothing, inputs: [crash], sink: {files: {path: nothing}}}
"""
CRASHING_CODE = """
import os, signal

class Crash(Count):
    def handleInputRows(self, key, rows, timerValues):
        with open(os.path.join(os.path.dirname(__file__), "crashes"), "a") as log:
            print(os.getpid(), file=log, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


class Pod:
    """A worker's process with a pod's environment."""

    def __init__(self, folder: Path, url: str) -> None:
        self.port = free_port()
        self.folder = folder
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")},
            "PENSTOCK_TOPOLOGY_UID": "t1",
            "PENSTOCK_MANIFEST": str(folder / "topology.yaml"),
            "PENSTOCK_BASE_DIR": str(folder),
            "PENSTOCK_WORKER": "words-w0",
            "PENSTOCK_POD_UID": "pod-1",
            "PENSTOCK_STORE_ID": "local",
            "PENSTOCK_STORE_URL": url,
            "PENSTOCK_METRICS_PORT": str(self.port),
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.folder / "worker.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock_worker"], env=self.env, stdout=log, stderr=subprocess.STDOUT
            )

    def stop(self) -> int:
        """What kubelet does; answers the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def get(self, path: str) -> tuple[int, str]:
        """Status and body; 0 while nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "topology.yaml").write_text(MANIFEST, encoding="utf-8")
    (tmp_path / "words.py").write_text(CODE, encoding="utf-8")
    return tmp_path


@pytest.fixture
def pod(folder: Path) -> Iterator[Pod]:
    with private_store(folder / "state") as store:
        pod = Pod(folder, store.url)
        try:
            yield pod
        finally:
            pod.kill()


def totals(folder: Path) -> dict[str, int]:
    """The highest total of each word; none yet while a line is being written."""
    found: dict[str, int] = {}
    with suppress(json.JSONDecodeError):
        for row in read_rows(folder):
            word = str(row["word"])
            found[word] = max(int(str(row["total"])), found.get(word, 0))
    return found


def publish(store: RedisStore, plan: Plan, folder: Path) -> None:
    """Each operator in one executor of the worker, with one task."""
    for stage in plan.stages:
        name = f"{stage.operator}-words-w0"
        shards = shards_of(stage, folder)
        store.pipeline([Create(shard, source=stage.is_source) for shard in shards])
        answer = store.call(
            Publish(
                operator=stage.operator,
                version=1,
                term=1,
                workers=(("words-w0", "node-a", "10.0.0.1", "pod-1"),),
                executors=((name, "words-w0", 1),),
                shards=tuple(sorted((shard, name, "local") for shard in shards)),
            )
        )
        assert answer is Answer.OK


def tasks_of(row: object) -> dict[str, int]:
    return row.tasks if isinstance(row, WorkerRow) else {}


def test_a_worker_in_a_pod_announces_its_sources_and_runs_what_is_scheduled_then(pod: Pod) -> None:
    expected = write_texts(pod.folder / "texts", seed=4, files=2, lines=200)
    store = RedisStore(pod.env["PENSTOCK_STORE_URL"], "t1")
    plan = compile_topology(load_topology(pod.folder / "topology.yaml", runtime="cluster"), "cluster")
    pod.start()
    eventually(lambda: pod.get("/healthz")[0] == 200, "the probes' server")
    assert pod.get("/ready")[0] == 503
    eventually(lambda: pod.get("/ready")[0] == 200, "readiness")

    def row_of(name: str) -> object:
        data = store.call(ReadMetrics()).get(name)
        return None if data is None else unpack(name, data)

    eventually(lambda: row_of("worker:words-w0") is not None, "the worker's row")
    partitions = row_of("partitions:lines")
    assert isinstance(partitions, PartitionsRow)
    assert partitions.shards == ("lines/texts/text 0.txt", "lines/texts/text 1.txt")
    assert partitions.uid == "pod-1"

    publish(store, plan, pod.folder)
    eventually(lambda: totals(pod.folder / "out") == dict(expected), "the totals of all words")
    eventually(lambda: len(tasks_of(row_of("worker:words-w0"))) == 2, "all executors in the worker's row")
    row = row_of("worker:words-w0")
    assert isinstance(row, WorkerRow)
    assert (row.uid, row.state, row.sources) == ("pod-1", "ready", ("lines",))
    assert (
        'penstock_shards{operator="count",topology="words",worker="words-w0"} 8.0' in pod.get("/metrics")[1]
    )
    assert pod.get("/nothing")[0] == 404
    assert pod.stop() == 0
    store.close()


def test_a_crash_loop_of_one_operators_code_holds_up_no_other_operator_of_the_worker(pod: Pod) -> None:
    """The processes of `crash` kill themselves at their first row, again and again. `count` reads the same
    rows, works on in the process that it began in, and everything is counted."""
    with (pod.folder / "topology.yaml").open("a", encoding="utf-8") as manifest:
        manifest.write(CRASHING_OPERATOR)
    with (pod.folder / "words.py").open("a", encoding="utf-8") as code:
        code.write(CRASHING_CODE)
    expected = write_texts(pod.folder / "texts", seed=4, files=2, lines=300)
    store = RedisStore(pod.env["PENSTOCK_STORE_URL"], "t1")
    plan = compile_topology(load_topology(pod.folder / "topology.yaml", runtime="cluster"), "cluster")

    def crashes() -> int:
        log = (pod.folder / "crashes").read_text() if (pod.folder / "crashes").exists() else ""
        return len(log.splitlines())

    def processes() -> set[int]:
        """Of `count`, as its task's newest row tells."""
        rows = [unpack(name, data) for name, data in store.call(ReadMetrics()).items()]
        return {row.pid for row in rows if isinstance(row, TaskRow) and row.operator == "count"}

    pod.start()
    eventually(lambda: pod.get("/ready")[0] == 200, "readiness")
    eventually(lambda: "worker:words-w0" in store.call(ReadMetrics()), "the worker's row")
    publish(store, plan, pod.folder)
    eventually(lambda: crashes() > 0, "the first crash")
    eventually(lambda: len(processes()) == 1, "a process of count")
    first = processes()
    eventually(lambda: totals(pod.folder / "out") == dict(expected), "the totals of all words")
    eventually(lambda: crashes() >= 6, "a crash loop")
    assert processes() == first
    row = unpack("worker:words-w0", store.call(ReadMetrics())["worker:words-w0"])
    assert isinstance(row, WorkerRow)
    assert pod.process is not None
    assert pod.process.poll() is None
    assert row.tasks["count-words-w0"] == 1
    assert pod.get("/ready")[0] == 200
    assert pod.stop() == 0
    store.close()


def test_a_worker_ends_at_once_when_it_is_told_to_while_spark_starts(pod: Pod) -> None:
    (pod.folder / "texts").mkdir()
    pod.start()
    eventually(lambda: pod.get("/healthz")[0] == 200, "the probes' server")
    assert pod.stop() == 0


def test_without_a_launch_file_the_environment_has_to_say_all(pod: Pod) -> None:
    del pod.env["PENSTOCK_POD_UID"]
    done = subprocess.run(
        [sys.executable, "-m", "penstock_worker"], env=pod.env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("worker: the environment lacks PENSTOCK_POD_UID: ")
