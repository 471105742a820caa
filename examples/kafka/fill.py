"""Makes the topics `payments` and `decisions` anew, and draws payments from a seed into the first.

    {"account": "a17", "number": 4711, "cents": -1250}

An account's payments are numbered from 1 and lie in one partition, since its name is their key.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

BROKER = "127.0.0.1:9092"
PAYMENTS, DECISIONS = "payments", "decisions"
PARTITIONS = 4
WITHIN_S = 30.0
MISSING = KafkaError.UNKNOWN_TOPIC_OR_PART


def draw(seed: int, payments: int, accounts: int) -> list[tuple[str, bytes]]:
    """(account, message) of each payment. A few accounts have most of them."""
    generator = random.Random(seed)
    names = [f"a{number}" for number in range(accounts)]
    weights = [1 / (rank + 1) for rank in range(accounts)]
    numbers: Counter[str] = Counter()
    drawn = []
    for account in generator.choices(names, weights, k=payments):
        numbers[account] += 1
        cents = generator.choice((-1, -1, 1)) * generator.randint(100, 9_000)
        payment = {"account": account, "number": numbers[account], "cents": cents}
        drawn.append((account, json.dumps(payment).encode()))
    return drawn


def make_topics(broker: str) -> None:
    """Both are there and empty when this returns. KafkaException and TimeoutError say what is wrong."""
    admin = AdminClient({"bootstrap.servers": broker, "log_level": 0})
    there = admin.list_topics(timeout=10).topics
    old = [topic for topic in (PAYMENTS, DECISIONS) if topic in there]
    if old:
        for gone in admin.delete_topics(old).values():
            gone.result(WITHIN_S)
    end_s = time.monotonic() + WITHIN_S
    wanted = [PAYMENTS, DECISIONS]
    while wanted:
        topics = [NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1) for topic in wanted]
        for topic, made in admin.create_topics(topics).items():
            try:
                made.result(WITHIN_S)
            except KafkaException as error:
                # One that was deleted goes by and by.
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                if time.monotonic() > end_s:
                    raise TimeoutError(f"the old topic {topic} does not go") from error
            else:
                wanted.remove(topic)
        time.sleep(0.1 if wanted else 0)


def fill(broker: str, drawn: list[tuple[str, bytes]], per_second: float) -> None:
    """At this pace; 0 is at once. KafkaException and TimeoutError say what is wrong."""
    producer = Producer(
        {
            "bootstrap.servers": broker,
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "log_level": 0,
        }
    )
    began_s = time.monotonic()
    for place, (account, message) in enumerate(drawn):
        if per_second and (early_s := began_s + place / per_second - time.monotonic()) > 0:
            producer.poll(0)
            time.sleep(early_s)
        while True:
            try:
                producer.produce(PAYMENTS, message, key=account)
                break
            except BufferError:
                producer.poll(0.1)
    if left := producer.flush(WITHIN_S):
        raise TimeoutError(f"{left} payments did not get into {PAYMENTS}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the topics anew and fill them from a seed.")
    parser.add_argument("--broker", default=BROKER)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--payments", type=int, default=20_000)
    parser.add_argument("--accounts", type=int, default=500)
    parser.add_argument("--per-second", type=float, default=0, help="their pace; 0: all at once")
    arguments = parser.parse_args()
    for name in ("payments", "accounts"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name} is {getattr(arguments, name)}; give 1 or more")
    if arguments.per_second < 0:
        parser.error(f"--per-second is {arguments.per_second}; give 0 or more")
    drawn = draw(arguments.seed, arguments.payments, arguments.accounts)
    try:
        make_topics(arguments.broker)
        fill(arguments.broker, drawn, arguments.per_second)
    except (KafkaException, TimeoutError) as error:
        print(f"Kafka at {arguments.broker}: {error}; `make kafka-up` starts one at {BROKER}")
        return 1
    print(f"{arguments.payments} payments of {arguments.accounts} accounts are in topic {PAYMENTS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
