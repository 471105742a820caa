"""Where the schemas of avro and protobuf are: fields that the source and the sink of this kind share.

Neighbours: `formats` needs one, the worker's `sources.kafka.registered` asks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from penstock.connectors.kafka.connection import CredentialsSpec
from penstock.connectors.kafka.formats import REGISTERED
from penstock.connectors.secrets import Secret
from penstock.manifest.document import EXPECTED, Document
from penstock.manifest.faults import Fault, nearest

RegistryUrl = Annotated[
    str,
    StringConstraints(pattern=r"^https?://[^\s@]+$", max_length=1024),
    Field(json_schema_extra={EXPECTED: "a URL such as http://registry:8081, without a password in it"}),
]


@dataclass(frozen=True, slots=True)
class KafkaRegistry:
    """What a plan holds of it."""

    url: str
    secret: str | None = None


class SchemaRegistrySpec(Document):
    """A schema registry, as Confluent's and Apicurio's keep its contract."""

    url: RegistryUrl
    """Where it is; several are separated by commas."""
    credentials: CredentialsSpec | None = None
    """`username` and `password` of its Secret, where it asks for a login; `ca.crt`, `tls.crt` and `tls.key`
    as for Kafka itself."""

    def plan(self) -> KafkaRegistry:
        return KafkaRegistry(self.url, None if self.credentials is None else self.credentials.secret)


def registry_settings(registry: KafkaRegistry, secrets: Path) -> dict[str, Any]:
    """What its client is made with. Raises PermanentError when the Secret lacks something."""
    settings: dict[str, Any] = {"url": registry.url, "timeout": 5, "max.retries": 1}
    if registry.secret is None:
        return settings
    secret = Secret(registry.secret, secrets)
    if secret.has("username") or secret.has("password"):
        why = "a login at the schema registry needs username and password"
        settings["basic.auth.user.info"] = f"{secret.text('username', why)}:{secret.text('password', why)}"
    if secret.has("ca.crt"):
        settings["ssl.ca.location"] = secret.file("ca.crt")
    if secret.has("tls.crt"):
        settings["ssl.certificate.location"] = secret.file("tls.crt")
        settings["ssl.key.location"] = secret.file("tls.key", "a certificate needs its key")
    return settings


def registry_faults(path: str, body: Mapping[str, Any]) -> list[Fault]:
    """Formats that need one have one."""
    wanted = [
        str(given["format"])
        for what in ("value", "key")
        if isinstance(given := body.get(what), Mapping) and given.get("format") in REGISTERED
    ]
    if wanted and body.get("schemaRegistry") is None and not nearest("schemaRegistry", list(body)):
        message = (
            f"is missing; format {wanted[0]} reads its schemas there, such as {{url: http://registry:8081}}"
        )
        return [Fault(f"{path}.schemaRegistry", message)]
    return []
