"""Into Kafka end to end: readers of committed messages see each row once and in its key's order, whatever is
killed; at least once, they miss none."""

from __future__ import annotations

import json
import os
import signal
import textwrap
from collections import defaultdict
from pathlib import Path

import pytest

from backends.kafka_broker import KafkaBroker
from clocks.eventually import eventually
from processes.run_harness import Run, write_texts

SHARDS = 8
MANIFEST = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {{name: counted}}
spec:
  code: {{module: counting}}
  operators:
  - name: lines
    source: {{files: {{glob: "texts/*", ratePerSecond: 300}}}}
  - name: words
    inputs: [lines]
    map: counting:split
    outputSchema: "word string"
  - name: count
    inputs: [words]
    keyBy: [word]
    processor: counting:Count
    outputSchema: "word string, total bigint"
    shards: {shards}
  - name: out
    inputs: [count]
    sink:
      kafka:
        bootstrapServers: {bootstrap}
        topic: {topic}
        keyColumn: word
        {more}
"""
CODE = """
    from pyspark.sql import Row
    from pyspark.sql.streaming import StatefulProcessor


    def split(line):
        return [(word,) for word in line.value.split()]


    class Count(StatefulProcessor):
        def init(self, handle):
            self.total = handle.getValueState("total", "total bigint")

        def handleInputRows(self, key, rows, timerValues):
            total = self.total.get()[0] if self.total.exists() else 0
            for _ in rows:
                total += 1
                yield Row(word=key[0], total=total)
            self.total.update((total,))

        def close(self):
            pass
"""

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]


def started(folder: Path, kafka: KafkaBroker, topic: str, more: str, *options: str) -> Run:
    text = MANIFEST.format(shards=SHARDS, bootstrap=kafka.bootstrap, topic=topic, more=more)
    (folder / "topology.yaml").write_text(text)
    (folder / "counting.py").write_text(textwrap.dedent(CODE))
    run = Run(folder / "topology.yaml", folder / "state", options)
    run.start()
    return run


def totals(kafka: KafkaBroker, topic: str) -> dict[str, list[int]]:
    """Word -> its totals, in the order of the topic."""
    found: dict[str, list[int]] = defaultdict(list)
    for message in kafka.committed(topic):
        row = json.loads(message.value() or b"")
        assert (message.key() or b"").decode() == row["word"]
        found[row["word"]].append(row["total"])
    return found


@pytest.mark.slow(held_by="test_every_payment_is_decided_once_while_a_task_is_killed")
def test_each_row_is_in_the_topic_once_whatever_is_killed(
    tmp_path: Path, kafka: KafkaBroker, runs: list[Run]
) -> None:
    topic = kafka.fresh_topic(3)
    expected = write_texts(tmp_path / "texts", seed=11, files=2, lines=1_500)
    run = started(tmp_path, kafka, topic, "transactionInterval: 50ms", "--workers", "2")
    runs.append(run)
    for victim in ("task", "store", "task", "task"):
        before = run.completed("count", SHARDS)
        eventually(lambda seen=before: run.completed("count", SHARDS) > seen + 1_000, "rows of a second")
        eventually(lambda: bool(run.tasks("count")), "a task")
        pid = run.store_pid() if victim == "store" else run.tasks("count")[0].pid
        os.kill(pid, signal.SIGKILL)
    assert run.finish() == 0, run.output
    found = totals(kafka, topic)
    assert {word: len(seen) for word, seen in found.items()} == dict(expected)
    assert all(seen == list(range(1, expected[word] + 1)) for word, seen in found.items())


@pytest.mark.slow(held_by="test_every_payment_is_decided_once_while_a_task_is_killed")
def test_no_row_is_missing_at_least_once(tmp_path: Path, kafka: KafkaBroker, runs: list[Run]) -> None:
    topic = kafka.fresh_topic(3)
    expected = write_texts(tmp_path / "texts", seed=12, files=1, lines=600)
    run = started(tmp_path, kafka, topic, "deliver: AtLeastOnce", "--workers", "1")
    runs.append(run)
    eventually(lambda: run.completed("count", SHARDS) > 500, "rows flow")
    os.kill(run.tasks("count")[0].pid, signal.SIGKILL)
    assert run.finish() == 0, run.output
    found = totals(kafka, topic)
    assert {word: set(seen) for word, seen in found.items()} == {
        word: set(range(1, count + 1)) for word, count in expected.items()
    }
