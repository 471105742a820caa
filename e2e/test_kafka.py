"""Kafka to Kafka in the cluster, with a login from a Secret, while workers are killed and shards move; and a
topic that grows, and is read again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from backends.kafka_broker import KafkaBroker
from e2e.harness.cluster import Cluster
from e2e.harness.faults import kill_container, kill_pod
from e2e.harness.installation import Installation
from e2e.harness.kafka import (
    PARTITIONS,
    Payments,
    broker_beside,
    drawn_payments,
    faults_in_decisions,
    pods_reached,
    put_login_and_code,
    take_login_and_code,
)
from e2e.harness.moves import MOVED_S, send_to_the_other_node, wait_moved
from e2e.harness.topologies import START_S, Running
from e2e.harness.watching import Object, wait_until

ACCOUNTS = 200
AT_ONCE = 2_000
DECIDED_S = 120.0
FOUND_S = 10.0
"""A partition that is added is read within this time."""
TOLD_S = 30.0


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


@pytest.mark.alone
@pytest.mark.slow(held_by="test_a_topic_is_read_again_by_a_rewind_once_while_a_task_is_killed")
@pytest.mark.usefixtures("login_and_code")
def test_a_partition_that_is_added_is_read_and_a_rewind_in_a_pause_has_all_read_again(
    cluster: Cluster,
    installation: Installation,
    broker: KafkaBroker,
    run: Callable[[Running], None],
    tmp_path: Path,
) -> None:
    running = Payments.made(cluster, broker, "rewound", tmp_path)
    payments = drawn_payments(2, AT_ONCE, ACCOUNTS)
    run(running)

    def wait_decisions(count: int, seconds: float) -> None:
        wait_until(f"{count} decisions", lambda: len(running.decisions()) >= count, seconds, every_s=0.5)

    def lag() -> int | None:
        operators = running.object()["status"]["operators"]
        (of_source,) = [one for one in operators if one["name"] == "payments"]
        return cast("int | None", of_source.get("lagRecords"))

    def source(change: Object) -> Object:
        kafka = running.object()["spec"]["operators"][0]["source"]["kafka"]
        return {"source": {"kafka": {**kafka, **change}}}

    running.pay(payments)
    wait_decisions(AT_ONCE, START_S)
    broker.add_partitions("payments", PARTITIONS + 1)
    late = [json.dumps({"account": "late", "number": n, "cents": 1}).encode() for n in range(1, 101)]
    broker.produce("payments", late, PARTITIONS, key=b"late")
    wait_decisions(AT_ONCE + len(late), FOUND_S)
    wait_until("all is read", lambda: lag() == 0, TOLD_S)

    running.edit({"paused": True})
    running.wait_phase("Paused", TOLD_S)
    more = drawn_payments(3, AT_ONCE // 2, ACCOUNTS)
    running.pay(more)
    wait_until("nothing is told of what nobody reads", lambda: lag() is None, TOLD_S)
    paid = AT_ONCE + len(late)
    assert len(running.decisions()) == paid, "a topology that is paused decided payments"

    before = {pod["metadata"]["uid"] for pod in running.workers()}
    running.edit_operator("payments", source({"rewind": {"number": 1, "offsets": "Earliest"}}))
    wait_until(
        "workers that know of the rewind have taken the others' place",
        lambda: before.isdisjoint(pod["metadata"]["uid"] for pod in running.workers()),
        START_S,
    )
    running.edit({"paused": False})
    wait_decisions(2 * paid + len(more), DECIDED_S)
    wait_until("all is read again", lambda: lag() == 0, TOLD_S)
    assert len(running.decisions()) == 2 * paid + len(more)
