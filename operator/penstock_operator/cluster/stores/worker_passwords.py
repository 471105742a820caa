"""The passwords of topologies' workers: each follows from a key that the operator alone has.

It follows from the `worker` password too, so that it is replaced with that one, and stays good while that one
does; of a former password its hash is known, so the hash is what it follows from. Nobody needs to remember
any, and none leads to another. The same key gives each topology a key for its remote tasks. Pure. Neighbours:
`store_passwords` keeps key and passwords, `workers_secret` brings them to pods.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable, Sequence
from functools import lru_cache

from penstock.store.redis.users import PROBE, hash_of
from penstock.store.redis.worker_users import Hashes

_KNOWN_MAX = 10_000
"""They are asked for every few seconds, of all topologies."""


def worker_password(workers_key: str, root_password: str, topology_uid: str) -> str:
    """Of the workers of a topology, while `root_password` is that of `worker`."""
    return _following(workers_key, "store", hash_of(root_password), topology_uid)


def worker_hashes(workers_key: str, roots: Sequence[str], topology_uids: Iterable[str]) -> Hashes:
    """What each store is told: by which passwords the workers of these topologies may log in, and who asks
    whether it knows. `roots` are hashes of the `worker` passwords that count."""
    return {
        uid: tuple(_hash_of_following(workers_key, "store", root, uid) for root in roots)
        for uid in (*topology_uids, PROBE)
    }


def spark_key_of(spark_key: str, topology_uid: str) -> str:
    """The key of a topology's remote tasks."""
    return _following(spark_key, "spark", "", topology_uid)


@lru_cache(_KNOWN_MAX)
def _hash_of_following(key: str, what: str, root: str, topology_uid: str) -> str:
    return hash_of(_following(key, what, root, topology_uid))


@lru_cache(_KNOWN_MAX)
def _following(key: str, what: str, root: str, topology_uid: str) -> str:
    told = "\n".join((what, root, topology_uid)).encode()
    digest = hmac.new(key.encode(), told, hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
