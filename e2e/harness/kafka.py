"""A Kafka beside the cluster, which its pods reach with a login, and payments that go through it.

The broker is a process of the test, at the address that the nodes' network has on this machine: nobody but
containers and this machine comes there.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.kafka_broker import KafkaBroker
from backends.kafka_security import PASSWORD, USER
from e2e.harness.cluster import ROOT, Cluster
from e2e.harness.topologies import Running, Sizes, example, sized
from e2e.harness.watching import Object

EXAMPLE = ROOT / "examples/kafka"
LOGIN = "kafka-login"
CODE = "kafka-code"
PARTITIONS = 4
OPENING_CENTS = 10_000

Payment = dict[str, Any]


def broker_beside(cluster: Cluster, folder: Path) -> KafkaBroker:
    """One that listens where pods can reach it; not started yet."""
    networks = json.loads(
        cluster.docker("inspect", "--format={{json .NetworkSettings.Networks}}", cluster.worker_nodes[0])
    )
    (network,) = networks.values()
    return KafkaBroker(folder, secured=True, secured_host=str(network["Gateway"]))


@contextmanager
def pods_reached(cluster: Cluster) -> Iterator[None]:
    """Have this machine know the way to the nodes' pods, which come to it by their own addresses."""
    ways = [
        (str(node["spec"]["podCIDR"]), str(address["address"]))
        for node in cluster.all("nodes", "!node-role.kubernetes.io/control-plane")
        for address in node["status"]["addresses"]
        if address["type"] == "InternalIP" and ":" not in address["address"]
    ]
    for pods, node in ways:
        cluster.environment.run("ip", "route", "replace", pods, "via", node)
    try:
        yield
    finally:
        for pods, node in ways:
            cluster.environment.run("ip", "route", "del", pods, "via", node)


def put_login_and_code(cluster: Cluster) -> None:
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": LOGIN},
            "stringData": {"username": USER, "password": PASSWORD},
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": CODE},
            "data": {"accounts.py": (EXAMPLE / "accounts.py").read_text(encoding="utf-8")},
        },
    )


def take_login_and_code(cluster: Cluster) -> None:
    cluster.delete("secret", LOGIN)
    cluster.delete("configmap", CODE)


@dataclass(frozen=True)
class Payments(Running):
    """The example between two topics of `broker`."""

    broker: KafkaBroker

    @classmethod
    def made(cls, cluster: Cluster, broker: KafkaBroker, name: str, folder: Path) -> Payments:
        """The manifest, and the topics; nothing is applied yet."""
        topology: Object = sized(example("kafka"), name, Sizes())
        spec = topology["spec"]
        spec["code"] = {"configMap": CODE}
        source = spec["operators"][0]["source"]["kafka"]
        sink = spec["operators"][2]["sink"]["kafka"]
        for kafka in (source, sink):
            kafka["bootstrapServers"] = broker.address("SASL_PLAINTEXT")
            kafka["security"] = {
                "protocol": "SaslPlaintext",
                "mechanism": "ScramSha512",
                "credentials": {"secret": LOGIN},
            }
        for topic in (source["topics"][0], sink["topic"]):
            broker.create_topic(topic, PARTITIONS)
        return cls(cluster, topology, folder, broker)

    def pay(self, payments: list[tuple[str, bytes]]) -> None:
        """Produce (account, message) in order; an account's messages lie in one partition."""
        with self.broker.producer(acks="all") as producer:
            for account, message in payments:
                producer.produce("payments", message, key=account)
                producer.poll(0)

    def decisions(self) -> list[Payment]:
        """What a reader of committed messages sees."""
        return [json.loads(message.value() or b"{}") for message in self.broker.committed("decisions")]


def drawn_payments(seed: int, count: int, accounts: int) -> list[tuple[str, bytes]]:
    rng = random.Random(seed)
    numbers: dict[str, int] = defaultdict(int)
    drawn = []
    for _ in range(count):
        account = f"a{rng.randrange(accounts)}"
        numbers[account] += 1
        payment = {"account": account, "number": numbers[account], "cents": rng.randrange(-9_000, 9_000)}
        drawn.append((account, json.dumps(payment).encode()))
    return drawn


def faults_in_decisions(payments: list[tuple[str, bytes]], decisions: list[Payment]) -> list[str]:
    """What is wrong with them: each account has one decision for each payment, in order and as its balance
    says. The rule stands here apart from the example's, so that a fault in either shows."""
    wanted: dict[str, list[Payment]] = defaultdict(list)
    balances: dict[str, int] = defaultdict(lambda: OPENING_CENTS)
    for account, message in payments:
        payment = json.loads(message)
        accepted = balances[account] + payment["cents"] >= 0
        balances[account] += payment["cents"] if accepted else 0
        wanted[account].append(
            {
                "account": account,
                "number": payment["number"],
                "accepted": accepted,
                "balance": balances[account],
            }
        )
    found: dict[str, list[Payment]] = defaultdict(list)
    for decision in decisions:
        found[decision["account"]].append(decision)
    return [
        f"{account}: {len(found[account])} decisions, {len(wanted[account])} payments"
        for account in sorted(wanted.keys() | found.keys())
        if found[account] != wanted[account]
    ]
