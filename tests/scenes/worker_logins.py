"""How a worker's pod logs in to the stores, as its manifest says it.

Neighbour: `penstock_operator.cluster.manifests.worker_login` makes it so.
"""

from __future__ import annotations

from typing import Any

from penstock_operator.cluster.kubernetes_api.port import Object


def login_of(pod: Object) -> tuple[str, set[str]]:
    """Which Secret a worker's pod mounts, and which of its keys."""
    (secret,) = [one["secret"] for one in pod["spec"]["volumes"] if one["name"] == "penstock-store"]
    return secret["secretName"], {one["key"] for one in secret["items"]}


def user_of(pod: Object) -> str:
    env: dict[str, Any] = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
    return str(env["PENSTOCK_STORE_URL"]).removeprefix("redis://").partition("@")[0]
