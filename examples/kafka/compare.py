"""Compares the committed messages of `decisions` with one pass over `payments`, made apart from Penstock.

It imports nothing of Penstock and nothing of `accounts`: the rule stands here a second time on purpose. Each
account's decisions have to be there once, and in the order of its payments.
"""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from collections import defaultdict
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

BROKER = "127.0.0.1:9092"
OPENING_CENTS = 10_000
WITHIN_S = 30.0
SHOWN_MAX = 20

Message = dict[str, Any]


def committed(broker: str, topic: str) -> dict[str, list[Message]]:
    """Account -> its messages, as a reader of committed ones has them. KafkaException and TimeoutError say
    what is wrong."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker,
            "group.id": f"compare-{uuid.uuid4().hex}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    found: dict[str, list[Message]] = defaultdict(list)
    try:
        described = consumer.list_topics(topic, timeout=WITHIN_S).topics[topic]
        if described.error is not None:
            raise KafkaException(described.error)
        consumer.assign([TopicPartition(topic, number, 0) for number in described.partitions])
        left = set(described.partitions)
        while left:
            record = consumer.poll(WITHIN_S)
            if record is None:
                raise TimeoutError(f"partitions {sorted(left)} of {topic} do not come to their end")
            error = record.error()
            if error is None:
                message = json.loads(record.value() or b"{}")
                found[message["account"]].append(message)
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # the library's own code
                left.discard(record.partition())
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
    return found


def decide(payments: list[Message]) -> list[Message]:
    """What has to be said of an account's payments, in their order."""
    balance = OPENING_CENTS
    decided = []
    for payment in payments:
        accepted = payment["cents"] >= -balance
        balance += payment["cents"] * accepted
        number = payment["number"]
        decided.append(
            {"account": payment["account"], "number": number, "accepted": accepted, "balance": balance}
        )
    return decided


def difference(account: str, expected: list[Message], found: list[Message]) -> str | None:
    """Where an account's decisions differ first."""
    for place in range(max(len(expected), len(found))):
        wanted = expected[place] if place < len(expected) else "nothing more"
        there = found[place] if place < len(found) else "nothing more"
        if wanted != there:
            return f"{account}: {there} is there, where a plain pass has {wanted}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the topic decisions with a plain pass.")
    parser.add_argument("--broker", default=BROKER)
    broker = parser.parse_args().broker
    try:
        payments, decisions = committed(broker, "payments"), committed(broker, "decisions")
    except (KafkaException, TimeoutError) as error:
        print(f"Kafka at {broker}: {error}; `make kafka-up` starts one at {BROKER}")
        return 1
    if not payments:
        print("There are no payments: run fill.py first.")
        return 1
    expected = {account: decide(made) for account, made in payments.items()}
    faults = [
        fault
        for account in sorted(expected.keys() | decisions.keys())
        if (fault := difference(account, expected.get(account, []), decisions.get(account, [])))
    ]
    for fault in faults[:SHOWN_MAX]:
        print(fault)
    if faults:
        print(f"{len(faults)} of {len(expected)} accounts differ from a plain pass.")
        return 1
    refused = sum(not one["accepted"] for decided in expected.values() for one in decided)
    print(
        f"All {sum(map(len, expected.values()))} payments of {len(expected)} accounts are decided once, in "
        f"order and as by a plain pass ({refused} refused)."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
