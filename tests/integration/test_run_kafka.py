"""`penstock run` from Kafka into files: what was produced is written once, whatever is killed meanwhile."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.kafka_broker import KafkaBroker
from clocks.eventually import eventually
from processes.live_processes import kill_tree, process_tree
from processes.run_harness import Run, read_rows

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

WITHIN_S = 200
"""A worker starts in 15 s on a quiet machine; there are four starts here."""

TOPOLOGY = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {{name: orders}}
spec:
  operators:
  - name: orders
    source:
      kafka:
        bootstrapServers: {servers}
        topics: [{topic}]
        value: {{format: json, schema: 'number bigint, user string'}}
        key: {{format: string}}
        metadata: {{partition: partition, offset: offset}}
  - name: kept
    inputs: [orders]
    sink: {{files: {{path: out/}}}}
"""


def records(first: int, last: int) -> list[str]:
    return [json.dumps({"number": number, "user": f"Größe {number % 7}"}) for number in range(first, last)]


def numbers(folder: Path) -> list[int]:
    return sorted(int(str(row["number"])) for row in read_rows(folder / "out"))


def started(folder: Path, runs: list[Run], broker: KafkaBroker, topic: str, *sets: str) -> Run:
    text = TOPOLOGY.format(servers=broker.bootstrap, topic=topic)
    (folder / "topology.yaml").write_text(text, encoding="utf-8")
    options = (option for override in sets for option in ("--set", override))
    run = Run(folder / "topology.yaml", folder / "state", ("--workers", "1", *options))
    runs.append(run)
    run.start()
    return run


def kill_worker(run: Run) -> None:
    kill_tree(run.ready_worker("w0").pid)


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    broker = KafkaBroker(tmp_path_factory.mktemp("mortal"))
    broker.start()
    yield broker
    broker.close()


@pytest.mark.slow(held_by="test_every_payment_is_decided_once_while_a_task_is_killed")
def test_what_was_produced_is_written_once_whatever_is_killed(
    tmp_path: Path, runs: list[Run], mortal: KafkaBroker
) -> None:
    """Worker, store and broker, and the run itself; and a partition is added."""
    topic = mortal.fresh_topic(2)
    run = started(tmp_path, runs, mortal, topic)

    def produce(first: int, last: int, partitions: int = 2) -> None:
        for partition in range(partitions):
            mortal.produce(topic, records(first, last)[partition::partitions], partition, key=b"k")

    produce(0, 2000)
    eventually(lambda: len(numbers(tmp_path)) >= 500, "some rows", WITHIN_S)
    kill_worker(run)
    produce(2000, 4000)
    eventually(lambda: len(numbers(tmp_path)) >= 2500, "more rows", WITHIN_S)
    process = next(iter(process_tree(run.store_pid())))
    process.kill()
    produce(4000, 6000)
    eventually(lambda: len(numbers(tmp_path)) >= 4500, "more rows", WITHIN_S)
    mortal.kill()
    mortal.start()
    produce(6000, 8000)
    mortal.add_partitions(topic, 3)
    produce(8000, 9000, partitions=3)
    eventually(lambda: len(numbers(tmp_path)) >= 9000, "all rows", WITHIN_S)
    assert run.process is not None
    run.process.kill()
    run.process.wait()
    second = started(tmp_path, runs, mortal, topic)
    produce(9000, 9500, partitions=3)
    eventually(lambda: len(numbers(tmp_path)) >= 9500, "what came later", WITHIN_S)
    assert numbers(tmp_path) == list(range(9500))
    seen = Counter((row["partition"], row["offset"]) for row in read_rows(tmp_path / "out"))
    assert set(seen.values()) == {1}
    assert {partition for partition, _ in seen} == {0, 1, 2}
    assert second.process is not None
    second.process.terminate()
    assert second.finish() == 0, second.output
    assert "resumes run 1" in second.output


def ended(run: Run) -> str:
    """What it printed, its lines in one."""
    assert run.process is not None
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 0, run.output
    return " ".join(run.output.split())


@pytest.mark.slow(held_by="test_a_rewind_is_carried_out_once_for_each_partition_whoever_takes_it_up")
def test_a_topic_is_read_again_by_a_rewind_once_while_a_task_is_killed(
    tmp_path: Path, runs: list[Run], kafka: KafkaBroker
) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, records(0, 5000), key=b"k")
    run = started(tmp_path, runs, kafka, topic)
    eventually(lambda: len(numbers(tmp_path)) == 5000, "all rows", WITHIN_S)
    ended(run)
    rewind = "orders.source.kafka.rewind={number: 2, offsets: Earliest}"
    run = started(tmp_path, runs, kafka, topic, rewind)
    eventually(lambda: len(numbers(tmp_path)) > 5000, "rows that come again", WITHIN_S)
    eventually(lambda: bool(run.tasks("orders")), "the task's row")
    os.kill(run.tasks("orders")[0].pid, signal.SIGKILL)
    kafka.produce(topic, records(5000, 5001), key=b"k")
    eventually(lambda: numbers(tmp_path)[-1:] == [5000], "what came last", WITHIN_S)
    assert "source orders: rewind 2 is carried out for 1 partitions" in ended(run)
    assert Counter(numbers(tmp_path)) == {**dict.fromkeys(range(5000), 2), 5000: 1}
    run = started(tmp_path, runs, kafka, topic, rewind.replace("2", "1"))
    assert run.finish() != 0
    assert "rewind.number is 1, and rewind 2 was carried out before: give 3" in " ".join(run.output.split())


def test_a_record_that_means_nothing_stops_the_run_with_its_place(
    tmp_path: Path, runs: list[Run], kafka: KafkaBroker
) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, ['{"number": 1}', '{"number": "x"}'])
    run = started(tmp_path, runs, kafka, topic)
    assert run.finish() == 1
    assert f"topic {topic}, partition 0, offset 1: the value" in " ".join(run.output.split())


def test_a_topic_that_is_missing_is_told_before_anything_starts(
    tmp_path: Path, runs: list[Run], kafka: KafkaBroker
) -> None:
    run = started(tmp_path, runs, kafka, "nowhere")
    assert run.finish() != 0
    assert "topic nowhere is not there" in " ".join(run.output.split())
    assert "Traceback" not in run.output
