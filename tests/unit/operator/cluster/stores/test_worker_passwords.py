"""Passwords of topologies' workers: each its own, and none leads to another."""

from __future__ import annotations

from penstock.store.redis.users import PROBE, hash_of
from penstock_operator.cluster.stores.worker_passwords import spark_key_of, worker_hashes, worker_password


def test_a_password_follows_from_key_root_and_topology_and_from_nothing_else() -> None:
    one = worker_password("key", "root", "u1")
    assert worker_password("key", "root", "u1") == one
    others = {
        worker_password("other", "root", "u1"),
        worker_password("key", "other", "u1"),
        worker_password("key", "root", "u2"),
        spark_key_of("key", "u1"),
    }
    assert len({one, *others}) == 5
    assert len(one) == 43, "256 bits"


def test_stores_are_told_hashes_of_what_follows_from_each_root_that_is_good() -> None:
    told = worker_hashes("key", [hash_of("new"), hash_of("old")], ["u1"])
    assert told["u1"] == tuple(hash_of(worker_password("key", root, "u1")) for root in ("new", "old"))
    assert set(told) == {"u1", PROBE}
