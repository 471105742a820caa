"""The broker of the tests: what they trust it to do, and that Penstock's settings get in by each door."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from backends.kafka_broker import KafkaBroker
from backends.kafka_security import PASSWORD, USER, unsigned_token, write_secret
from penstock.connectors.kafka.client import client_settings
from penstock.connectors.kafka.connection import KafkaConnection
from penstock.connectors.kafka.topics import found_parts
from penstock.errors import PermanentError, RetryError
from processes.free_ports import free_port
from scenes.kafka_reading import kafka_source, reading

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


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


def test_a_wrong_password_is_told_with_the_secrets_name_and_without_its_words(
    secured: KafkaBroker, tmp_path: Path
) -> None:
    write_secret(tmp_path / "login", {"username": USER, "password": "wrong-word"})
    connection = KafkaConnection((secured.address("SASL_PLAINTEXT"),), "SaslPlaintext", "Plain", "login")
    with pytest.raises(PermanentError, match=r"refuses the login.*correct Secret login") as raised:
        found_parts(connection, ["t"], None, tmp_path)
    assert "wrong-word" not in str(raised.value)


def test_a_login_that_is_mended_in_its_secret_is_read_again(secured: KafkaBroker, tmp_path: Path) -> None:
    topic = secured.fresh_topic()
    secured.produce(topic, ["x"])
    login = write_secret(tmp_path / "secrets" / "login", {"username": USER, "password": "wrong"})
    security = {"protocol": "SaslPlaintext", "mechanism": "Plain", "credentials": {"secret": "login"}}
    source = kafka_source(
        secured, topic, bootstrapServers=secured.address("SASL_PLAINTEXT"), security=security
    )
    with reading(source, tmp_path, f"{topic}/0") as read:
        assert read.for_s(2) == []
        write_secret(login, {"password": PASSWORD})
        assert read.until_rows(1) == [("x",)]


def test_brokers_that_are_not_there_are_waited_for(tmp_path: Path) -> None:
    with pytest.raises(RetryError, match="does not answer"):
        found_parts(KafkaConnection((f"127.0.0.1:{free_port()}",)), ["t"], None, tmp_path)
