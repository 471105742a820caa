"""The stores' passwords are rotated while words are counted: nobody stops, and the former ones are over."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable

import pytest

from e2e.harness.cluster import Cluster, restarts
from e2e.harness.installation import RELEASE, Installation
from e2e.harness.topologies import WordCount
from e2e.harness.watching import Object, wait_until

AUTH = f"{RELEASE}-store-auth"
USERS = ("worker", "operator", "agent")
STEP_S = 240
"""A kubelet brings a changed Secret to its pods within two minutes; former ones are good for another two."""
# In a store's agent, which has the client.
_LETS_IN = """
import os, sys, redis
user, password = sys.argv[1], bytes.fromhex(sys.argv[2]).decode()
try:
    redis.Redis(username=user, password=password, socket_timeout=10).execute_command("PING")
    print("yes")
except redis.exceptions.AuthenticationError:
    print("no")
"""


def passwords(secret: Object) -> dict[str, str]:
    return {user: base64.b64decode(secret["data"][f"{user}-password"]).decode() for user in USERS}


def lets_in(cluster: Cluster, store: str, user: str, password: str) -> bool:
    told = cluster.execute(store, "agent", "python", "-c", _LETS_IN, user, password.encode().hex())
    return told.strip() == "yes"


@pytest.mark.alone
@pytest.mark.slow(held_by="test_a_rotated_password_keeps_nobody_out_and_the_former_one_lets_nobody_in")
def test_passwords_are_rotated_under_a_running_topology(
    cluster: Cluster, installation: Installation, word_count: Callable[..., WordCount]
) -> None:
    counting = word_count("rotated", lines=200)
    with counting.held_open():
        counting.wait_rows()
        before = passwords(cluster.get("secret", AUTH))
        workers = {pod["metadata"]["uid"] for pod in counting.workers()}
        rotation = f"penstock.dev/rotate-passwords={time.time_ns()}"
        cluster.kubectl("annotate", "secret", AUTH, "--overwrite", rotation)
        cluster.wait(
            "secret",
            AUTH,
            "pods are given new passwords",
            lambda secret: not {*passwords(secret).values()} & {*before.values()},
            STEP_S,
        )
        after = passwords(cluster.get("secret", AUTH))
        counting.wait_rows(len(counting.rows()))
        for store in installation.stores():
            wait_until(
                f"{store} takes the former passwords no more",
                lambda pod=store: not any(lets_in(cluster, pod, user, before[user]) for user in USERS),
                2 * STEP_S,
                every_s=5,
            )
            assert all(lets_in(cluster, store, user, after[user]) for user in USERS)
        counting.wait_rows(len(counting.rows()))
        pods = counting.workers()
        assert {pod["metadata"]["uid"] for pod in pods} == workers
        assert [restarts(pod) for pod in pods] == [0] * len(pods)
        said = cluster.kubectl("events", "--for", f"secret/{AUTH}")
        assert "PasswordsRotating" in said
        assert "PasswordsRotated" in said
    counting.assert_exact(240)
