"""Kafka to Kafka in the cluster, with a login from a Secret, while workers are killed and shards move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from backends.kafka_broker import KafkaBroker
from e2e.harness.cluster import Cluster
from e2e.harness.faults import kill_container, kill_pod
from e2e.harness.installation import Installation
from e2e.harness.kafka import (
    Payments,
    broker_beside,
    drawn_payments,
    faults_in_decisions,
    pods_reached,
    put_login_and_code,
    take_login_and_code,
)
from e2e.harness.moves import MOVED_S, send_to_the_other_node, wait_moved
from e2e.harness.topologies import Running
from e2e.harness.watching import wait_until

ACCOUNTS = 200
AT_ONCE = 2_000
DECIDED_S = 120.0

pytestmark = pytest.mark.alone


@pytest.fixture
def broker(cluster: Cluster, tmp_path: Path) -> Iterator[KafkaBroker]:
    with pods_reached(cluster), closing(broker_beside(cluster, tmp_path / "kafka")) as made:
        made.start()
        yield made


@pytest.fixture
def login_and_code(cluster: Cluster) -> Iterator[None]:
    put_login_and_code(cluster)
    yield
    take_login_and_code(cluster)


@pytest.mark.usefixtures("login_and_code")
def test_payments_between_two_topics_are_decided_once_while_workers_are_killed_and_shards_move(
    cluster: Cluster,
    installation: Installation,
    broker: KafkaBroker,
    run: Callable[[Running], None],
    tmp_path: Path,
) -> None:
    running = Payments.made(cluster, broker, "payments", tmp_path)
    payments = drawn_payments(1, 4 * AT_ONCE, ACCOUNTS)
    run(running)
    running.wait_workers(2)

    def pay_and_wait(until: int, strike: Callable[[], None]) -> None:
        """Half of them are there before the strike, half come after it; all are decided in the end."""
        middle = until - AT_ONCE // 2
        running.pay(payments[until - AT_ONCE : middle])
        strike()
        running.pay(payments[middle:until])
        wait_until(
            f"{until} payments are decided",
            lambda: len(running.decisions()) >= until,
            DECIDED_S,
            every_s=1.0,
        )

    def kill_a_worker() -> None:
        kill_container(cluster, str(running.workers()[0]["metadata"]["name"]), "worker")

    def move_shards() -> None:
        for operator in ("accounts", "payments"):
            wait_until(
                "the Schedule is edited",
                lambda name=operator: send_to_the_other_node(running, name),
                MOVED_S,
            )

    def delete_a_worker() -> None:
        kill_pod(cluster, str(running.workers()[-1]["metadata"]["name"]))

    pay_and_wait(AT_ONCE, lambda: None)
    pay_and_wait(2 * AT_ONCE, kill_a_worker)
    pay_and_wait(3 * AT_ONCE, move_shards)
    wait_moved(running)
    pay_and_wait(4 * AT_ONCE, delete_a_worker)
    assert faults_in_decisions(payments, running.decisions()) == []
