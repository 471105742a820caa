"""The broker of the tests: what they trust it to do, and that Penstock's settings get in by each door."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from backends.kafka_broker import KafkaBroker
from backends.kafka_security import PASSWORD, USER, unsigned_token, write_secret
from penstock.connectors.kafka.client import client_settings
from penstock.connectors.kafka.connection import KafkaConnection

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    broker = KafkaBroker(tmp_path_factory.mktemp("secured"), secured=True)
    broker.start()
    yield broker
    broker.close()


def test_a_broker_that_was_killed_comes_back_with_its_records(tmp_path: Path) -> None:
    broker = KafkaBroker(tmp_path)
    try:
        broker.start()
        topic = broker.fresh_topic()
        broker.produce(topic, ["a", "b"])
        broker.restart()
        broker.produce(topic, ["c"])
        assert [message.value() for message in broker.committed(topic)] == [b"a", b"b", b"c"]
    finally:
        broker.close()


@pytest.mark.parametrize(
    ("listener", "protocol", "mechanism"),
    [
        ("SASL_PLAINTEXT", "SaslPlaintext", "Plain"),
        ("SASL_PLAINTEXT", "SaslPlaintext", "ScramSha256"),
        ("SASL_PLAINTEXT", "SaslPlaintext", "OAuthBearer"),
        ("SASL_SSL", "SaslSsl", "ScramSha512"),
        ("SSL", "Ssl", None),
    ],
)
def test_each_login_gets_in(
    secured: KafkaBroker, tmp_path: Path, listener: str, protocol: str, mechanism: str | None
) -> None:
    assert secured.certificates is not None
    words = {"token": unsigned_token()} if mechanism == "OAuthBearer" else {}
    secured.certificates.secret(tmp_path / "login", username=USER, password=f"{PASSWORD}\n", **words)
    connection = KafkaConnection(tuple(secured.address(listener).split(",")), protocol, mechanism, "login")
    admin = AdminClient(client_settings(connection, tmp_path))
    admin.poll(0)  # has the token read
    assert admin.list_topics(timeout=30).brokers


def test_a_wrong_password_does_not(secured: KafkaBroker, tmp_path: Path) -> None:
    write_secret(tmp_path / "login", {"username": USER, "password": "wrong"})
    connection = KafkaConnection((secured.address("SASL_PLAINTEXT"),), "SaslPlaintext", "Plain", "login")
    with pytest.raises(KafkaException):
        AdminClient(client_settings(connection, tmp_path)).list_topics(timeout=3)
