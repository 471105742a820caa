"""The two sides between two topics of Kafka: how each is started, and how it is seen that it lives.

Neighbours: `kafka_runs` measures them, `spark_kafka_peer` is the peer's process, `sources_settings.json` has
what they are tuned with.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from bench import penstock_side
from bench.penstock_side import RunFailedError
from bench.spark_kafka_peer import KafkaRun
from bench.spark_peer import Settings, write_run

from backends.kafka_broker import KafkaBroker
from penstock.metrics.rows import TaskRow, unpack
from penstock.store.port import ReadMetrics
from penstock.store.redis.store import RedisStore
from penstock_operator.local.processes.parent_death import ends_with_starter

ROOT = Path(__file__).parent.parent
SETTINGS = Path(__file__).with_name("sources_settings.json")
START_WITHIN_S = 120.0
END_WITHIN_S = 30.0
LOOK_S = 0.1


class Side:
    """One that is up: its root process, how to see that it lives, and what its tasks are."""

    def __init__(self, pid: int, check: Callable[[], None], tasks: Callable[[], list[int]]) -> None:
        self.pid = pid
        self.check = check
        """Raises when it has ended."""
        self.tasks = tasks
        """Processes of the counting tasks."""


Start = Callable[[str, str, Path], AbstractContextManager[Side]]
"""(topic to read, topic to write, folder) -> a context that gives a `Side`."""


def settings() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(SETTINGS.read_text())
    return found


def jars(connector: str) -> list[str]:
    """Of the connector for Kafka of `spark` or `flink`; brought with Maven where this machine has none."""
    asked = subprocess.run(
        [str(ROOT / "tools/kafka.sh"), connector], check=True, stdout=subprocess.PIPE, text=True
    )
    return [str(path) for path in sorted(Path(asked.stdout.strip()).glob("*.jar"))]


def penstock(
    broker: KafkaBroker, deliver: str, profile: Mapping[str, Any], durability: str = "Process"
) -> Start:
    """Penstock under a profile of the settings; `deliver` and `durability` as in its manifest. Started
    again in the same folder it goes on."""

    @contextmanager
    def started(source: str, sink: str, folder: Path) -> Iterator[Side]:
        sets = [
            *read_by_penstock(broker, source),
            *written_by_penstock(broker, sink),
            *tuned(profile, deliver),
            f"durability={durability}",
        ]
        fresh = not (folder / "state").exists()
        with penstock_side.running("kafka", sets, folder, fresh=fresh) as run:
            store = run.connect(START_WITHIN_S)
            try:
                yield Side(run.process.pid, run.check, lambda: task_pids(store, "count"))
            finally:
                store.close()

    return started


def read_by_penstock(broker: KafkaBroker, topic: str) -> list[str]:
    """Its source, as settings of the manifest."""
    source = "records.source.kafka"
    return [f"{source}.bootstrapServers={broker.bootstrap}", f"{source}.topics=[{topic}]"]


def written_by_penstock(broker: KafkaBroker, topic: str) -> list[str]:
    """Its sink."""
    sink = "totals.sink.kafka"
    return [f"{sink}.bootstrapServers={broker.bootstrap}", f"{sink}.topic={topic}"]


def tuned(profile: Mapping[str, Any], deliver: str) -> list[str]:
    """What a profile says."""
    sink = "totals.sink.kafka"
    sets = [
        f"{sink}.deliver={deliver}",
        f"count.shards={profile['shards']}",
        f"count.tasks.initial={profile['count_tasks']}",
    ]
    if deliver == "ExactlyOnce":
        sets.append(f"{sink}.transactionInterval={profile['transaction_interval']}")
    return sets


def task_pids(store: RedisStore, operator: str) -> list[int]:
    """Of an operator's tasks, as they tell of themselves; those that ended are among them for a while."""
    rows = (unpack(name, data) for name, data in store.call(ReadMetrics()).items())
    return [row.pid for row in rows if isinstance(row, TaskRow) and row.operator == operator]


def spark(broker: KafkaBroker, profile: Mapping[str, Any]) -> Start:
    """Spark under a profile of the settings. Started again in the same folder it goes on."""
    given = msgspec.convert(profile, Settings)
    with_connector = replace(given, conf={**given.conf, "spark.jars": ",".join(jars("spark"))})

    @contextmanager
    def started(source: str, sink: str, folder: Path) -> Iterator[Side]:
        run = KafkaRun(str(folder), with_connector, bootstrap=broker.bootstrap, source=source, sink=sink)
        write_run(folder / "run.json", run)
        for left in (run.started, run.stop):
            left.unlink(missing_ok=True)
        with process("bench.spark_kafka_peer", folder / "run.json", folder / "output.txt") as peer:

            def check() -> None:
                if peer.poll() is not None:
                    raise RunFailedError((folder / "output.txt").read_text(errors="replace")[-4000:])

            wait(run.started.exists, check, "the query", START_WITHIN_S)
            try:
                yield Side(peer.pid, check, list)
            finally:
                run.stop.touch()
                with suppress(subprocess.TimeoutExpired):
                    peer.wait(END_WITHIN_S)

    return started


def process(module: str, argument: Path, output: Path) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """A module of the bench that is ended with the context."""
    return launched([sys.executable, "-m", module, str(argument)], penstock_side.environment(), output)


@contextmanager
def launched(
    command: Sequence[str], environment: Mapping[str, str], output: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended with the context; what it says is added to a file, beside which it runs."""
    with output.open("ab") as file:
        started = subprocess.Popen(
            command,
            cwd=output.parent,
            env={**environment, "SPARK_LOCAL_IP": "127.0.0.1"},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=ends_with_starter(),  # noqa: PLW1509  # it only makes one system call
        )
        try:
            yield started
        finally:
            # Its own children with it: a JVM outlives the Python that started it.
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()


def wait(done: Callable[[], bool], check: Callable[[], None], what: str, within_s: float) -> None:
    """Raises RunFailedError when it does not come true."""
    end_s = time.monotonic() + within_s
    while not done():
        check()
        if time.monotonic() > end_s:
            raise RunFailedError(f"{what}: not there within {within_s:.0f} s")
        time.sleep(LOOK_S)
