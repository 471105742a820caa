"""The client library's settings for a connection, with credentials as they are in their files now.

A Secret is read when a client is made, so a new one knows what was changed. Neighbours: `connection` is what
a plan holds, `penstock.connectors.secrets` reads the files.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from penstock.connectors.kafka.connection import KafkaConnection
from penstock.connectors.secrets import Secret

CLIENT_ID = "penstock"
_PROTOCOLS = {
    "Plaintext": "PLAINTEXT",
    "Ssl": "SSL",
    "SaslPlaintext": "SASL_PLAINTEXT",
    "SaslSsl": "SASL_SSL",
}
_MECHANISMS = {
    "Plain": "PLAIN",
    "ScramSha256": "SCRAM-SHA-256",
    "ScramSha512": "SCRAM-SHA-512",
    "OAuthBearer": "OAUTHBEARER",
}
_OIDC = ("client-id", "client-secret", "token-endpoint")
_TOKEN_LASTS_S = 300
"""Of a token that does not say how long: then it is read again."""

Settings = dict[str, Any]


def client_settings(connection: KafkaConnection, secrets: Path) -> Settings:
    """What any client of this cluster is made with. Raises PermanentError, in a sentence, when the Secret
    lacks something."""
    settings: Settings = {
        "bootstrap.servers": ",".join(connection.bootstrap_servers),
        "client.id": CLIENT_ID,
        "security.protocol": _PROTOCOLS[connection.protocol],
        # What an idle connection costs is one socket; a broker that closes it would be logged each time.
        "log.connection.close": False,
        # A broker that comes back is found soon: the library waits up to 10 s by default.
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1000,
    }
    if connection.secret is None:
        return settings
    secret = Secret(connection.secret, secrets)
    if connection.has_tls:
        settings |= _tls(secret)
    if connection.mechanism is not None:
        settings["sasl.mechanism"] = _MECHANISMS[connection.mechanism]
        settings |= _login(connection.mechanism, secret)
    return settings


def _tls(secret: Secret) -> Settings:
    settings: Settings = {}
    if secret.has("ca.crt"):
        settings["ssl.ca.location"] = secret.file("ca.crt")
    if secret.has("tls.crt") or secret.has("tls.key"):
        why = "a certificate needs its key, and a key its certificate"
        settings["ssl.certificate.location"] = secret.file("tls.crt", why)
        settings["ssl.key.location"] = secret.file("tls.key", why)
    return settings


def _login(mechanism: str, secret: Secret) -> Settings:
    if mechanism != "OAuthBearer":
        why = f"mechanism {mechanism} needs username and password"
        return {
            "sasl.username": secret.text("username", why),
            "sasl.password": secret.text("password", why),
        }
    if secret.has("token"):
        return {"oauth_cb": _token_of(secret)}
    why = f"mechanism OAuthBearer needs token, or {', '.join(_OIDC)}"
    client, password, endpoint = (secret.text(key, why) for key in _OIDC)
    settings: Settings = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": client,
        "sasl.oauthbearer.client.secret": password,
        "sasl.oauthbearer.token.endpoint.url": endpoint,
    }
    if secret.has("scope"):
        settings["sasl.oauthbearer.scope"] = secret.text("scope")
    return settings


def _token_of(secret: Secret) -> Callable[[str], tuple[str, float]]:
    """The token as it is in its file whenever the library asks for one, and when it ends (s since 1970)."""
    secret.text("token")

    def token(_: str) -> tuple[str, float]:
        text = secret.text("token")
        return text, _ends_s(text)

    return token


def _ends_s(token: str) -> float:
    """As the token itself says; one that says nothing is read again after a while."""
    try:
        part = token.split(".")[1]
        claims = msgspec.json.decode(
            base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)), type=dict[str, Any]
        )
        return float(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error, msgspec.DecodeError):
        return time.time() + _TOKEN_LASTS_S
