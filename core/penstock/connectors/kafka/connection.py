"""Which Kafka cluster, and how one logs in there: fields that the source and the sink of this kind share.

Credentials are named here, never held: `client` reads them where they are used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from penstock.manifest.document import EXPECTED, Document, ObjectName, cel
from penstock.manifest.faults import Fault, nearest

Protocol = Literal["Plaintext", "Ssl", "SaslPlaintext", "SaslSsl"]
Mechanism = Literal["Plain", "ScramSha256", "ScramSha512", "OAuthBearer"]

_SERVER = r"[^\s,:/]+:[0-9]{1,5}|\[[0-9a-fA-F:.]+\]:[0-9]{1,5}"
_SERVERS = rf"^\s*({_SERVER})\s*(,\s*({_SERVER})\s*)*$"
_EACH_SERVER = re.compile(_SERVER)

BootstrapServers = Annotated[
    str,
    StringConstraints(pattern=_SERVERS, max_length=4096),
    Field(json_schema_extra={EXPECTED: "brokers as host:port, separated by commas, such as kafka:9092"}),
]


TopicName = Annotated[
    str,
    StringConstraints(pattern=r"^[a-zA-Z0-9._-]+$", min_length=1, max_length=249),
    Field(json_schema_extra={EXPECTED: "a topic's name, of letters, digits, '.', '_' and '-'"}),
]


@dataclass(frozen=True, slots=True)
class KafkaConnection:
    """What a plan holds of a cluster. `secret` names the Secret with what `mechanism` and TLS need."""

    bootstrap_servers: tuple[str, ...]
    protocol: str = "Plaintext"
    mechanism: str | None = None
    secret: str | None = None

    @property
    def has_tls(self) -> bool:
        return self.protocol in ("Ssl", "SaslSsl")

    def __str__(self) -> str:
        """As messages name it."""
        return ", ".join(self.bootstrap_servers)


class CredentialsSpec(Document):
    """Where credentials are."""

    secret: ObjectName
    """A Secret in Penstock's namespace, which is mounted into the workers; for `penstock run` the folder
    secrets/NAME beside the manifest, or below the folder that PENSTOCK_SECRETS names, with one file for each
    key. Its keys: `username` and `password` for Plain and Scram; `token`, or `client-id`, `client-secret` and
    `token-endpoint` (with `scope`, where one is wanted), for OAuthBearer; for TLS `ca.crt`, and where the
    brokers ask for a certificate `tls.crt` and `tls.key`."""


_HAS_SASL = "self.protocol in ['SaslPlaintext', 'SaslSsl']"


class SecuritySpec(Document):
    """How one logs in."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                f"({_HAS_SASL}) == has(self.mechanism)",
                "protocols SaslPlaintext and SaslSsl need a mechanism, and the others have none",
            ),
            (f"!({_HAS_SASL}) || has(self.credentials)", "a mechanism needs credentials"),
            (
                "self.protocol != 'Plaintext' || !has(self.credentials)",
                "protocol Plaintext sends no credentials: leave them out, or give another protocol",
            ),
        )
    )

    protocol: Protocol
    """Plaintext: no encryption, no login. Ssl: TLS, with a certificate of one's own where the Secret has one.
    SaslPlaintext, SaslSsl: a login by `mechanism`, without and with TLS."""
    mechanism: Mechanism | None = None
    """Of the login."""
    credentials: CredentialsSpec | None = None
    """What the login needs, and certificates for TLS. Without any, TLS trusts the system's authorities."""


class KafkaClusterFields(Document):
    """Which cluster."""

    bootstrap_servers: BootstrapServers
    """Some of the brokers, as host:port, separated by commas; the others are learned from them."""
    security: SecuritySpec | None = None
    """How one logs in; without it neither encryption nor a login."""

    @property
    def secret_names(self) -> tuple[str, ...]:
        secret = self.connection().secret
        return () if secret is None else (secret,)

    def connection(self) -> KafkaConnection:
        servers = tuple(_EACH_SERVER.findall(self.bootstrap_servers))
        security = self.security
        if security is None:
            return KafkaConnection(servers)
        secret = None if security.credentials is None else security.credentials.secret
        return KafkaConnection(servers, security.protocol, security.mechanism, secret)


def security_faults(path: str, body: Mapping[str, Any]) -> list[Fault]:
    """What is wrong between the fields of `security`, of the plain document of a source or a sink."""
    security = body.get("security")
    if not isinstance(security, Mapping):
        return []
    path = f"{path}.security"
    protocol, mechanism, credentials = (
        security.get(name) for name in ("protocol", "mechanism", "credentials")
    )
    if protocol in ("SaslPlaintext", "SaslSsl"):
        faults = []
        if mechanism is None and not nearest("mechanism", list(security)):
            message = f"is missing; protocol {protocol} logs in: give Plain, ScramSha256 or another one"
            faults.append(Fault(f"{path}.mechanism", message))
        if credentials is None and not nearest("credentials", list(security)):
            message = "is missing; give the Secret that the login is in, such as {secret: kafka-login}"
            faults.append(Fault(f"{path}.credentials", message))
        return faults
    if protocol not in ("Plaintext", "Ssl"):
        return []
    if mechanism is not None:
        other = "SaslSsl" if protocol == "Ssl" else "SaslPlaintext"
        message = f"protocol {protocol} has no login; leave it out, or give protocol: {other}"
        return [Fault(f"{path}.mechanism", message)]
    if protocol == "Plaintext" and credentials is not None:
        message = "protocol Plaintext sends none; leave them out, or give another protocol"
        return [Fault(f"{path}.credentials", message)]
    return []
