"""From Kafka into Kafka over fifty kills: a reader of committed records misses nothing and sees nothing
twice."""

from __future__ import annotations

import json
import os
import random
import signal
import textwrap
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from backends.kafka_broker import KafkaBroker
from clocks.eventually import eventually
from processes.live_processes import kill_tree
from processes.run_harness import Run

pytestmark = [pytest.mark.integration, pytest.mark.timeout(3600)]

SHARDS = 8
PARTITIONS = 4
USERS = 40
PER_S = 150
KILLS = {"source": 14, "count": 16, "store": 12, "worker": 8}
ROWS_BETWEEN = 50
"""So many are counted behind a kill, before the next one."""
WITHIN_S = 900.0
"""A worker may start again after four others that died, on a machine that others keep busy."""
SEED = 19

MANIFEST = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {{name: killed}}
spec:
  code: {{module: counting}}
  # One that comes back to no work leaves, down to the least number.
  workers: {{min: 2, max: 2}}
  operators:
  - name: events
    source:
      kafka:
        bootstrapServers: {bootstrap}
        topics: [{into}]
        value: {{format: json, schema: "user string, number bigint"}}
  - name: count
    inputs: [events]
    keyBy: [user]
    processor: counting:Count
    outputSchema: "user string, number bigint, total bigint"
    shards: {shards}
  - name: out
    inputs: [count]
    sink:
      kafka:
        bootstrapServers: {bootstrap}
        topic: {out}
        keyColumn: user
"""
CODE = """
    from pyspark.sql import Row
    from pyspark.sql.streaming import StatefulProcessor


    class Count(StatefulProcessor):
        def init(self, handle):
            self.total = handle.getValueState("total", "total bigint")

        def handleInputRows(self, key, rows, timerValues):
            total = self.total.get()[0] if self.total.exists() else 0
            for row in rows:
                total += 1
                yield Row(user=key[0], number=row.number, total=total)
            self.total.update((total,))

        def close(self):
            pass
"""


class Feed(threading.Thread):
    """Writes records at a pace until it is stopped; a user's are numbered from 1, in one partition."""

    def __init__(self, kafka: KafkaBroker, topic: str) -> None:
        super().__init__(name="feed", daemon=True)
        self._kafka, self._topic = kafka, topic
        self._stopped = threading.Event()
        self.fed: Counter[str] = Counter()

    def run(self) -> None:
        generator = random.Random(SEED)
        began_s = time.monotonic()
        with self._kafka.producer(acks="all") as producer:
            while not self._stopped.wait(0.02):
                due = int((time.monotonic() - began_s) * PER_S)
                for _ in range(due - self.fed.total()):
                    user = generator.randrange(USERS)
                    name = f"u{user}"
                    self.fed[name] += 1
                    value = json.dumps({"user": name, "number": self.fed[name]})
                    producer.produce(self._topic, value, key=name, partition=user % PARTITIONS)
                producer.poll(0)

    def stop(self) -> None:
        self._stopped.set()
        self.join()


@contextmanager
def feeding(kafka: KafkaBroker, topic: str) -> Iterator[Feed]:
    feed = Feed(kafka, topic)
    feed.start()
    try:
        yield feed
    finally:
        feed.stop()


def kill(run: Run, victim: str, generator: random.Random) -> None:
    if victim == "store":
        os.kill(run.store_pid(), signal.SIGKILL)
    elif victim == "worker":
        kill_tree(run.ready_worker(generator.choice(("w0", "w1"))).pid)
    else:
        operator = "events" if victim == "source" else victim
        eventually(lambda: bool(run.tasks(operator)), f"a task of {operator}", WITHIN_S)
        with suppress(ProcessLookupError):
            os.kill(generator.choice(run.tasks(operator)).pid, signal.SIGKILL)


@pytest.mark.slow(held_by="test_every_payment_is_decided_once_while_a_task_is_killed")
def test_fifty_kills_lose_and_double_nothing_for_a_reader_of_committed_records(
    tmp_path: Path, kafka: KafkaBroker, runs: list[Run], record_property: Callable[[str, object], None]
) -> None:
    into, out = kafka.fresh_topic(PARTITIONS), kafka.fresh_topic(3)
    manifest = MANIFEST.format(bootstrap=kafka.bootstrap, into=into, out=out, shards=SHARDS)
    (tmp_path / "topology.yaml").write_text(manifest)
    (tmp_path / "counting.py").write_text(textwrap.dedent(CODE))
    generator = random.Random(SEED)
    victims = [victim for victim, times in KILLS.items() for _ in range(times)]
    generator.shuffle(victims)
    assert len(victims) == 50
    run = Run(tmp_path / "topology.yaml", tmp_path / "state", ("--workers", "2"))
    runs.append(run)
    run.start()
    with feeding(kafka, into) as feed:
        eventually(lambda: run.completed("count", SHARDS) > ROWS_BETWEEN, "the first rows", WITHIN_S)
        for number, victim in enumerate(victims):
            before = run.completed("count", SHARDS)
            kill(run, victim, generator)
            eventually(
                lambda seen=before: run.completed("count", SHARDS) > seen + ROWS_BETWEEN,
                f"rows behind kill {number + 1}, of a {victim}",
                WITHIN_S,
            )
    eventually(lambda: run.completed("count", SHARDS) == feed.fed.total(), "all rows", WITHIN_S)
    assert run.process is not None
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 0, run.output
    seen: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for message in kafka.committed(out):
        row = json.loads(message.value() or b"")
        seen[row["user"]].append((row["number"], row["total"]))
    expected = {user: [(n, n) for n in range(1, count + 1)] for user, count in feed.fed.items()}
    lost = sum(len(set(rows) - set(seen[user])) for user, rows in expected.items())
    doubled = sum(len(rows) - len(set(rows)) for rows in seen.values())
    record_property("records", feed.fed.total())
    assert (lost, doubled) == (0, 0), f"of {feed.fed.total()} records"
    assert seen == expected, "each user's in their order"
