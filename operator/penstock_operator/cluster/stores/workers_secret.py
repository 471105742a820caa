"""What is in the Secret that workers' pods mount: for each topology its password, and its key of remote
tasks.

Pure. Neighbours: `manifests.worker_login` names the Secret and its keys, `worker_passwords` what they hold,
`turns.passwords_turn` reads and writes it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping

from penstock.api.operator_config import OperatorConfig
from penstock.store.redis.users import SHARED
from penstock_operator.cluster.kubernetes_api.names import (
    COMPONENT_WORKER,
    component_labels,
    workers_secret_name,
)
from penstock_operator.cluster.kubernetes_api.port import SECRETS, Object
from penstock_operator.cluster.manifests.worker_login import worker_login
from penstock_operator.cluster.stores.password_secret import texts_of
from penstock_operator.cluster.stores.store_passwords import StorePasswords
from penstock_operator.cluster.stores.worker_passwords import spark_key_of, worker_password


def workers_texts(
    passwords: StorePasswords, topology_uids: Iterable[str], config: OperatorConfig
) -> dict[str, str]:
    """Key -> value, of these topologies."""
    texts = {}
    for uid in topology_uids:
        login = worker_login(config, uid, own_user=True)
        texts[login.password] = worker_password(passwords.workers_key, passwords.current[SHARED], uid)
        texts[login.spark] = spark_key_of(passwords.spark_key, uid)
    return texts


def workers_secret(config: OperatorConfig, namespace: str) -> Object:
    """The Secret with nothing in it, beside the pods of a namespace."""
    metadata = {
        "name": workers_secret_name(config.fullname),
        "namespace": namespace,
        "labels": component_labels(COMPONENT_WORKER),
    }
    kind = {"apiVersion": SECRETS.api_version, "kind": SECRETS.kind}
    return {**kind, "metadata": metadata, "type": "Opaque"}


def with_texts(thing: Object, texts: Mapping[str, str], *, alone: bool) -> Object:
    """The Secret with these in it; `alone`: and nothing else. What is no text is nobody's and goes."""
    held = {} if alone else texts_of(thing)
    data = {key: base64.b64encode(text.encode()).decode() for key, text in sorted({**held, **texts}.items())}
    return {**thing, "data": data}


def replaces_any(thing: Object, texts: Mapping[str, str]) -> bool:
    """Whether some of these are there already, and are others."""
    held = texts_of(thing)
    return any(key in held and held[key] != text for key, text in texts.items())
