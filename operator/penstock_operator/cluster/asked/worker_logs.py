"""What the workers of a Topology wrote last, by the Kubernetes API. Neighbour: `reached`."""

from __future__ import annotations

from penstock.errors import PermanentError
from penstock_operator.cluster.asked.asked_cluster import SeenTopology, seen_topology
from penstock_operator.cluster.asked.reached import Reached, reached, workers_of
from penstock_operator.cluster.kubernetes_api.pod_access import PodGone
from penstock_operator.cluster.kubernetes_api.port import name_of
from penstock_operator.cluster.observing.observe import WORKER_CONTAINER

_LINES_SEARCHED = 20_000
"""Of each worker's log, where only lines about an operator are wanted."""


def worker_logs(
    topology: str,
    operator: str | None,
    last: int,
    namespace: str,
    kubeconfig: str | None,
    context: str | None,
) -> list[tuple[str, str]]:
    """(pod, the last lines of its worker). With an operator of the workers that have tasks of it, and so many
    lines that those which name it can be picked. Raises the cluster's errors; PermanentError."""
    with reached(namespace, kubeconfig, context) as there:
        return there.loop.wait(_read(there, topology, operator, last))


async def _read(there: Reached, topology: str, operator: str | None, last: int) -> list[tuple[str, str]]:
    wanted = None
    if operator is not None:
        wanted, last = workers_with(await seen_topology(there.cluster, topology), operator), _LINES_SEARCHED
    found = []
    for pod in await workers_of(there.cluster, topology):
        name = name_of(pod)
        if wanted is not None and name not in wanted:
            continue
        try:
            found.append((name, await there.pods.log(name, WORKER_CONTAINER, last)))
        except PodGone:
            continue  # it has not started, or was just removed
    return found


def workers_with(seen: SeenTopology, operator: str) -> set[str]:
    """The workers that have tasks of the stage that an operator is in. PermanentError: there is no such
    operator."""
    stages = {stage.operator for stage in seen.plan.stages if operator in {stage.operator, *stage.out.fused}}
    if not stages:
        known = dict.fromkeys(
            name for stage in seen.plan.stages for name in (stage.operator, *sorted(stage.out.fused))
        )
        raise PermanentError(f"there is no operator {operator!r}; there are {', '.join(known)}")
    schedules = [one for one in seen.schedules if one.operator in stages]
    return {executor.worker for one in schedules for executor in one.executors if executor.tasks}
