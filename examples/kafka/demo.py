"""`make kafka-demo`: the topology runs while payments come; when all are decided it is told to end.

A topic has no end, so somebody has to say when it is enough: a reader of committed messages that counts.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from fill import BROKER, DECISIONS, PARTITIONS, draw, fill, make_topics

HERE = Path(__file__).parent
PAYMENTS, ACCOUNTS, SEED = 20_000, 500, 1
PER_SECOND = 1_000.0
WITHIN_S = 120.0
"""Until the run is up, and again behind the last payment."""


def wait_for_decisions(broker: str, expected: int, run: subprocess.Popen[bytes], within_s: float) -> int:
    """Until so many are committed, or the run has ended, or the time is over: how many there are."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker,
            "group.id": f"demo-{uuid.uuid4().hex}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(DECISIONS, number, 0) for number in range(PARTITIONS)])
    end_s = time.monotonic() + within_s
    seen = 0
    try:
        while seen < expected and run.poll() is None and time.monotonic() < end_s:
            seen += sum(message.error() is None for message in consumer.consume(1000, 0.2))
    finally:
        consumer.close()
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the example with payments that come meanwhile.")
    parser.add_argument("--broker", default=f"127.0.0.1:{os.environ.get('PENSTOCK_KAFKA_PORT', '9092')}")
    parser.add_argument("--payments", type=int, default=PAYMENTS)
    parser.add_argument("--per-second", type=float, default=PER_SECOND)
    arguments = parser.parse_args()
    if arguments.payments < 1 or arguments.per_second < 0:
        parser.error("--payments has to be 1 or more, --per-second 0 or more")
    broker, expected = arguments.broker, arguments.payments
    try:
        make_topics(broker)
    except (KafkaException, TimeoutError) as error:
        print(f"Kafka at {broker}: {error}; `make kafka-up` starts one at {BROKER}")
        return 1
    penstock = Path(sys.executable).with_name("penstock")
    sets = [f"{name}.{kind}.kafka.bootstrapServers={broker}" for name, kind in
            (("payments", "source"), ("decided", "sink"))]  # fmt: skip
    run = subprocess.Popen(
        [penstock, "run", HERE / "topology.yaml", "--fresh", *(f"--set={one}" for one in sets)]
    )
    drawn = draw(SEED, expected, ACCOUNTS)
    try:
        # The first one alone: when it is decided the run is up, and there is something to see.
        fill(broker, drawn[:1], 0)
        decided = wait_for_decisions(broker, 1, run, WITHIN_S)
        if decided:
            rest = (broker, drawn[1:], arguments.per_second)
            threading.Thread(target=fill, args=rest, daemon=True).start()
            within_s = WITHIN_S + (expected / arguments.per_second if arguments.per_second else 0)
            decided = wait_for_decisions(broker, expected, run, within_s)
    except KeyboardInterrupt:
        # The terminal's Ctrl-C is for the run too, which ends by itself.
        return run.wait()
    if run.poll() is None:
        run.send_signal(signal.SIGINT)
    ended = run.wait()
    if decided < expected:
        print(f"{decided} of {expected} payments are decided; the run has ended with exit code {ended}")
        return ended or 1
    return ended or subprocess.call([sys.executable, HERE / "compare.py", "--broker", broker])


if __name__ == "__main__":
    sys.exit(main())
