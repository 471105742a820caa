"""What a user writes of a Kafka cluster: faults before anything starts, credentials read from their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from penstock.connectors.kafka.client import client_settings
from penstock.connectors.kafka.connection import KafkaClusterFields, KafkaConnection, security_faults
from penstock.connectors.secrets import Secret, secrets_folder
from penstock.errors import PermanentError

SCRAM = KafkaConnection(("kafka:9092",), "SaslSsl", "ScramSha512", "login")


def secret(folder: Path, **words: str) -> Path:
    for name, word in words.items():
        (folder / "login").mkdir(exist_ok=True)
        (folder / "login" / name.replace("_", "-").replace("dot", ".")).write_text(word, encoding="utf-8")
    return folder


def test_brokers_are_written_as_kafka_writes_them() -> None:
    fields = KafkaClusterFields.model_validate({"bootstrapServers": "a:9092, b.example.org:9093,[::1]:9092"})
    assert fields.connection().bootstrap_servers == ("a:9092", "b.example.org:9093", "[::1]:9092")


@pytest.mark.parametrize("text", ["kafka", "kafka:", "kafka:9092;b:9092", "http://kafka:9092", ""])
def test_what_names_no_port_is_no_broker(text: str) -> None:
    with pytest.raises(ValidationError):
        KafkaClusterFields.model_validate({"bootstrapServers": text})


@pytest.mark.parametrize(
    ("security", "path", "says"),
    [
        ({"protocol": "SaslSsl", "credentials": {"secret": "x"}}, "mechanism", "give Plain, ScramSha256"),
        ({"protocol": "SaslPlaintext", "mechanism": "Plain"}, "credentials", "give the Secret"),
        ({"protocol": "Ssl", "mechanism": "Plain"}, "mechanism", "give protocol: SaslSsl"),
        ({"protocol": "Plaintext", "mechanism": "Plain"}, "mechanism", "give protocol: SaslPlaintext"),
        ({"protocol": "Plaintext", "credentials": {"secret": "x"}}, "credentials", "sends none"),
    ],
)
def test_a_protocol_and_its_login_belong_together(security: dict[str, Any], path: str, says: str) -> None:
    (fault,) = security_faults("source", {"security": security})
    assert fault.path == f"source.security.{path}"
    assert says in fault.message


@pytest.mark.parametrize(
    "security",
    [
        None,
        {"protocol": "Ssl"},
        {"protocol": "Ssl", "credentials": {"secret": "x"}},
        {"protocol": "SaslSsl", "mechanism": "Plain", "credentials": {"secret": "x"}},
        {"protocol": "nonsense"},
    ],
)
def test_what_fits_has_no_fault_and_a_wrong_word_is_named_elsewhere(security: dict[str, Any] | None) -> None:
    assert security_faults("source", {"security": security}) == []


def test_a_login_is_read_from_the_files_of_its_secret(tmp_path: Path) -> None:
    folder = secret(tmp_path, username="me", password="word\n", cadotcrt="CA")
    settings = client_settings(SCRAM, folder)
    assert settings["security.protocol"] == "SASL_SSL"
    assert settings["sasl.mechanism"] == "SCRAM-SHA-512"
    assert (settings["sasl.username"], settings["sasl.password"]) == ("me", "word")
    assert settings["ssl.ca.location"] == str(folder / "login" / "ca.crt")
    assert "ssl.certificate.location" not in settings


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({}, "Secret login is not there"),
        ({"username": "me"}, "has no key password"),
        ({"username": "me", "password": ""}, "key password of Secret login is empty"),
        ({"username": "me", "password": "p", "tlsdotcrt": "C"}, "has no key tls.key"),
    ],
)
def test_a_secret_that_lacks_something_says_what(tmp_path: Path, words: dict[str, str], says: str) -> None:
    with pytest.raises(PermanentError, match=says) as raised:
        client_settings(SCRAM, secret(tmp_path, **words))
    assert not any(word and f"{word!r}" in str(raised.value) for word in words.values())


def test_a_bearer_has_a_token_or_says_where_one_is_given(tmp_path: Path) -> None:
    bearer = KafkaConnection(("kafka:9092",), "SaslPlaintext", "OAuthBearer", "login")
    with pytest.raises(PermanentError, match="needs token, or client-id, client-secret, token-endpoint"):
        client_settings(bearer, secret(tmp_path, username="me"))
    folder = secret(tmp_path, client_id="c", client_secret="s", token_endpoint="http://idp/token")
    assert client_settings(bearer, folder)["sasl.oauthbearer.method"] == "oidc"
    token = client_settings(bearer, secret(tmp_path, token="e30.eyJleHAiOiAxMjN9."))["oauth_cb"]
    assert token("") == ("e30.eyJleHAiOiAxMjN9.", 123.0)


def test_secrets_are_beside_the_manifest_unless_the_environment_says_where(tmp_path: Path) -> None:
    assert secrets_folder(tmp_path, {}) == tmp_path / "secrets"
    assert secrets_folder(tmp_path, {"PENSTOCK_SECRETS": "/etc/x"}) == Path("/etc/x")


def test_a_secret_that_changes_is_noticed(tmp_path: Path) -> None:
    first = Secret("login", secret(tmp_path, username="me", password="a")).digest
    assert Secret("login", tmp_path).digest == first
    assert Secret("login", secret(tmp_path, password="b")).digest != first
