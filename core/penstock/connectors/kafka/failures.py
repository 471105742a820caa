"""What Kafka's client library answers, as the errors of the house: in words, and with what can be done."""

from __future__ import annotations

from confluent_kafka import KafkaError

from penstock.connectors.kafka.connection import KafkaConnection
from penstock.errors import PenstockError, PermanentError, RetryError

AUTHENTICATION = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
    }
)
"""The login was refused."""
AUTHORIZATION = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
AWAY = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.REQUEST_TIMED_OUT,
    }
)
"""Nobody answers. `_SSL` is not among them: a certificate that does not fit stays so."""


def login_refused(connection: KafkaConnection, said: str) -> PermanentError:
    """`said` is the library's text; it holds no credential."""
    of = f"Secret {connection.secret}" if connection.secret else "the connection's security"
    return PermanentError(f"Kafka at {connection} refuses the login ({said}); correct {of}")


def failure(error: KafkaError, connection: KafkaConnection, did: str) -> PenstockError:
    """`did` is what was tried: "read topic orders"."""
    code, said = error.code(), error.str()
    if code in AUTHENTICATION:
        return login_refused(connection, said)
    if code in AUTHORIZATION:
        return PermanentError(
            f"Kafka at {connection} does not allow to {did} ({said}); give the user that right"
        )
    if code == KafkaError._SSL:
        return PermanentError(
            f"no TLS with Kafka at {connection} ({said}); correct ca.crt, tls.crt and tls.key of "
            f"{f'Secret {connection.secret}' if connection.secret else 'a Secret under credentials'}"
        )
    if code == KafkaError._INVALID_ARG:
        return PermanentError(f"cannot {did}: {said}")
    if code in AWAY:
        return RetryError(
            f"Kafka at {connection} does not answer ({said}): it has to run, and bootstrapServers to name it"
        )
    if error.retriable():
        return RetryError(f"cannot {did} for now: Kafka at {connection} says {said}")
    return PermanentError(f"cannot {did}: Kafka at {connection} says {said}")
