"""The client library's settings for a connection, with credentials as they are in their files now.

A Secret is a folder with one file for each key, as Kubernetes mounts it. It is read when a client is made, so
a new one knows what was changed. Nothing of it is ever in a message, a log or a plan.
"""

from __future__ import annotations

import base64
import binascii
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from penstock.connectors.kafka.connection import KafkaConnection
from penstock.errors import PermanentError

ENV_SECRETS = "PENSTOCK_SECRETS"
"""Names the folder that has a folder for each Secret."""
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


def secrets_folder(base_dir: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Where Secrets are: the folder that the environment names, else `secrets` beside the manifest."""
    named = environment.get(ENV_SECRETS)
    return Path(named) if named else base_dir / "secrets"


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
    secret = _Secret(connection.secret, secrets / connection.secret)
    if connection.has_tls:
        settings |= _tls(secret)
    if connection.mechanism is not None:
        settings["sasl.mechanism"] = _MECHANISMS[connection.mechanism]
        settings |= _login(connection.mechanism, secret)
    return settings


def secret_digest(connection: KafkaConnection, secrets: Path) -> int:
    """Changes whenever what the Secret holds does; tells nothing of it."""
    if connection.secret is None:
        return 0
    folder = secrets / connection.secret
    try:
        files = sorted(path for path in folder.iterdir() if path.is_file())
        return hash(tuple((path.name, path.read_bytes()) for path in files))
    except OSError:
        return 0


class _Secret:
    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        if not folder.is_dir():
            raise PermanentError(
                f"Secret {name} is not there: {folder} is no folder; make it with one file for each key, or "
                f"let {ENV_SECRETS} name the folder that it is in"
            )

    def has(self, key: str) -> bool:
        return (self.folder / key).is_file()

    def file(self, key: str) -> str:
        """For the library to read."""
        self.text(key)
        return str(self.folder / key)

    def text(self, key: str, needed_for: str = "") -> str:
        """A newline at the end is an editor's. Raises PermanentError."""
        why = f"; {needed_for}" if needed_for else ""
        try:
            text = (self.folder / key).read_text(encoding="utf-8").strip("\r\n")
        except FileNotFoundError:
            raise PermanentError(
                f"Secret {self.name} has no key {key} (looked for in {self.folder}){why}"
            ) from None
        except OSError as error:
            raise PermanentError(
                f"key {key} of Secret {self.name} cannot be read: {error.strerror}"
            ) from None
        except UnicodeDecodeError:
            raise PermanentError(f"key {key} of Secret {self.name} is not UTF-8") from None
        if not text:
            raise PermanentError(f"key {key} of Secret {self.name} is empty{why}")
        return text


def _tls(secret: _Secret) -> Settings:
    settings: Settings = {}
    if secret.has("ca.crt"):
        settings["ssl.ca.location"] = secret.file("ca.crt")
    if secret.has("tls.crt") or secret.has("tls.key"):
        for key in ("tls.crt", "tls.key"):
            secret.text(key, "a certificate needs its key, and a key its certificate")
        settings["ssl.certificate.location"] = secret.file("tls.crt")
        settings["ssl.key.location"] = secret.file("tls.key")
    return settings


def _login(mechanism: str, secret: _Secret) -> Settings:
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


def _token_of(secret: _Secret) -> Callable[[str], tuple[str, float]]:
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
