"""Users and certificates of a secured Kafka in tests. Neighbour: `kafka_broker` starts it with them."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
from collections.abc import Mapping
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

USER, PASSWORD = "reader", "correct horse"
_ADMIN = "broker"


def jaas_settings() -> dict[str, str]:
    """Of both listeners that ask for a password: PLAIN, SCRAM, and tokens that nobody signed."""
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
    bearer = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    settings = {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"}
    for listener in ("sasl_plaintext", "sasl_ssl"):
        of = f"listener.name.{listener}"
        settings[f"{of}.plain.sasl.jaas.config"] = f'{plain} required user_{USER}="{PASSWORD}";'
        for bits in ("256", "512"):
            settings[f"{of}.scram-sha-{bits}.sasl.jaas.config"] = f"{scram} required;"
        settings[f"{of}.oauthbearer.sasl.jaas.config"] = (
            f'{bearer} required unsecuredLoginStringClaim_sub="{_ADMIN}";'
        )
    return settings


def scram_arguments() -> tuple[str, ...]:
    """Of the tool that makes a broker's folder."""
    kinds = ("SCRAM-SHA-256", "SCRAM-SHA-512")
    return tuple(
        part for kind in kinds for part in ("--add-scram", f"{kind}=[name={USER},password={PASSWORD}]")
    )


class Certificates:
    """An authority in `folder`, a broker's certificate of it for 127.0.0.1, and a client's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        key, authority = _signed("penstock tests", None)
        self._write("ca.crt", _pem(authority))
        for name in ("broker", "client"):
            own_key, certificate = _signed(name, (key, authority))
            self._write(f"{name}.crt", _pem(certificate))
            self._write(f"{name}.key", _key_pem(own_key))
        self._write("broker.pem", (folder / "broker.key").read_bytes() + (folder / "broker.crt").read_bytes())

    def broker_settings(self) -> dict[str, str]:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.folder / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.folder / "ca.crt"),
            "listener.name.ssl.ssl.client.auth": "required",
            "listener.name.sasl_ssl.ssl.client.auth": "none",
        }

    def secret(self, folder: Path, **words: str) -> Path:
        """A Secret as it is mounted: the authority, the client's certificate and key, and `words`."""
        files = {"ca.crt": "ca.crt", "tls.crt": "client.crt", "tls.key": "client.key"}
        return write_secret(folder, {name: self.read(of) for name, of in files.items()} | words)

    def read(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="ascii")

    def _write(self, name: str, content: bytes) -> None:
        (self.folder / name).write_bytes(content)


def write_secret(folder: Path, words: Mapping[str, str]) -> Path:
    """A Secret as it is mounted: one file a key."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, word in words.items():
        (folder / name).write_text(word, encoding="utf-8")
    return folder


_Authority = tuple[ec.EllipticCurvePrivateKey, x509.Certificate]


def _signed(name: str, by: _Authority | None) -> _Authority:
    """A key with a certificate for a day; without `by`, of an authority that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName(
        [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if by is None else by[1].subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
        .add_extension(names, critical=False)
    )
    return key, builder.sign(key if by is None else by[0], hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def unsigned_token() -> str:
    """A bearer's token for an hour, as a broker takes it that trusts everybody."""
    now = datetime.datetime.now(datetime.UTC).timestamp()
    parts = ({"alg": "none"}, {"sub": USER, "iat": int(now), "exp": int(now) + 3600})
    return (
        ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
        + "."
    )
