"""How a worker's pod logs in to the node stores: as which user, by which keys of which Secret.

Each topology's workers have a user, and a pod mounts the keys of its own topology alone. The Secret is in the
namespace of the pods, one for all topologies there: a right to change a Secret can be bound to a name that is
known before, and to no other. Nobody else names it. Pure. Neighbours: `worker_pod` mounts it,
`stores.workers_secret` has what is in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.api.operator_config import OperatorConfig
from penstock.store.redis.users import SHARED, topology_user
from penstock_operator.cluster.kubernetes_api.names import workers_secret_name


@dataclass(frozen=True, slots=True)
class WorkerLogin:
    """`password` and `spark` are keys of the Secret: of the password, and of the key of remote tasks."""

    user: str
    secret: str
    password: str
    spark: str


def worker_login(config: OperatorConfig, state_uid: str, *, own_user: bool) -> WorkerLogin:
    """Of the topology whose state goes by this uid. Without `own_user` it is the one that all topologies
    shared: for as long as there may be a store that knows no other."""
    if own_user:
        secret = workers_secret_name(config.fullname)
        return WorkerLogin(topology_user(state_uid), secret, state_uid, f"{state_uid}.spark-key")
    return WorkerLogin(SHARED, config.store.auth_secret, "worker-password", "spark-key")
