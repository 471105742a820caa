"""The form of the Secret with the stores' passwords: keys and annotations, what is read from it and written.

Keys that others mount: `agent-password`, `users.acl`; and, as pods of an earlier version do,
`worker-password` and `spark-key`. Those of passwords that nobody has yet begin with `coming-`. Pure.
Neighbours: `store_passwords` decides what is in it, `turns.passwords_turn` reads and writes it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from penstock.api.operator_config import OperatorConfig
from penstock.store.redis.users import USERS
from penstock_operator.cluster.kubernetes_api.names import (
    COMPONENT_STORE,
    LABEL_MANAGED_BY,
    component_labels,
)
from penstock_operator.cluster.kubernetes_api.port import SECRETS, Object
from penstock_operator.cluster.stores.store_passwords import StorePasswords

ANNOTATION_ROTATE = "penstock.dev/rotate-passwords"
"""Whatever new value it gets asks for new passwords."""
ANNOTATION_ROTATED = "penstock.dev/rotated-passwords"
"""The value that was answered last."""
ANNOTATION_FORMER_UNTIL = "penstock.dev/former-passwords-until"
ANNOTATION_WORKERS = "penstock.dev/workers-users"
"""`own` where pods are made with their topology's own user, `replacing` where what pods shared before is good
still."""
SPARK_KEY = "spark-key"
"""What keys of remote tasks follow from."""
WORKERS_KEY = "workers-key"
_ROOTS = "worker-roots"
_USERS_FILE = "users.acl"
_OWN, _REPLACING = "own", "replacing"


def empty_secret(config: OperatorConfig) -> Object:
    """The Secret with nothing in it. Helm may take it over, as an earlier chart that has it does, and leaves
    it where a chart has it no more."""
    labels, annotations = component_labels(COMPONENT_STORE), {}
    if config.release is not None:
        labels[LABEL_MANAGED_BY] = "Helm"
        annotations = {
            "helm.sh/resource-policy": "keep",
            "meta.helm.sh/release-name": config.release,
            "meta.helm.sh/release-namespace": config.namespace,
        }
    metadata = {
        "name": config.store.auth_secret,
        "namespace": config.namespace,
        "labels": labels,
        "annotations": annotations,
    }
    kind = {"apiVersion": SECRETS.api_version, "kind": SECRETS.kind}
    return {**kind, "metadata": metadata, "type": "Opaque"}


def password_key(user: str) -> str:
    return f"{user}-password"


def _coming_key(user: str) -> str:
    return f"coming-{user}-password"


def read_secret(thing: Object | None) -> StorePasswords | None:
    """What the Secret says; None for one that is not there or lacks something."""
    if thing is None:
        return None
    data = texts_of(thing)
    needed = [*map(password_key, USERS), _USERS_FILE, SPARK_KEY]
    if any(not data.get(key) for key in needed):
        return None
    coming = {user: data.get(_coming_key(user), "") for user in USERS}
    notes: Mapping[str, str] = thing["metadata"].get("annotations") or {}
    return StorePasswords(
        current={user: data[password_key(user)] for user in USERS},
        users=data[_USERS_FILE],
        spark_key=data[SPARK_KEY],
        workers_key=data.get(WORKERS_KEY, ""),
        roots=tuple(data.get(_ROOTS, "").split()),
        own_users=has_own_users(thing),
        was_shared=notes.get(ANNOTATION_WORKERS) != _OWN,
        coming=coming if all(coming.values()) else None,
        former_until_s=_number(notes.get(ANNOTATION_FORMER_UNTIL, "")),
        asked=notes.get(ANNOTATION_ROTATE, ""),
        answered=notes.get(ANNOTATION_ROTATED, ""),
    )


def has_own_users(thing: Object) -> bool:
    """Whether it says that pods are made with their topology's own user."""
    return (thing["metadata"].get("annotations") or {}).get(ANNOTATION_WORKERS) in (_OWN, _REPLACING)


def written_secret(thing: Object, passwords: StorePasswords) -> Object:
    """The Secret with this in it; what else it has stays."""
    texts = {password_key(user): passwords.current[user] for user in USERS}
    texts |= {_USERS_FILE: passwords.users, SPARK_KEY: passwords.spark_key}
    texts |= {WORKERS_KEY: passwords.workers_key, _ROOTS: " ".join(passwords.roots)}
    texts |= {_coming_key(user): password for user, password in (passwords.coming or {}).items()}
    ours = {*texts, *map(_coming_key, USERS)}
    data = {key: value for key, value in (thing.get("data") or {}).items() if key not in ours}
    data |= {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    former = passwords.former_until_s
    notes = {
        ANNOTATION_ROTATED: passwords.answered,
        ANNOTATION_FORMER_UNTIL: "" if former is None else f"{former:.0f}",
        ANNOTATION_WORKERS: _workers(passwords),
    }
    others = {
        key: value for key, value in (thing["metadata"].get("annotations") or {}).items() if key not in notes
    }
    annotations = {**others, **{key: value for key, value in notes.items() if value}}
    return {**thing, "metadata": {**thing["metadata"], "annotations": annotations}, "data": data}


def _workers(passwords: StorePasswords) -> str:
    if not passwords.own_users:
        return ""
    return _REPLACING if passwords.was_shared else _OWN


def texts_of(thing: Object) -> dict[str, str]:
    """The Secret's values; those that are no text are left out."""
    found = {}
    for key, value in (thing.get("data") or {}).items():
        try:
            found[key] = base64.b64decode(value, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            continue
    return found


def _number(text: str) -> float | None:
    return float(text) if text.isdecimal() else None
