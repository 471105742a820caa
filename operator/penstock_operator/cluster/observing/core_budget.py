"""`maxCores`: what the tasks of all Topologies may ask for together, as far as LatencySLAs add tasks. Those
of all namespaces that the operator serves count.

Cores of a Topology are counted by its Schedules, `taskCpu` for each task. Neighbours: `sla.keeper` asks at
each look and says what it is about to write, `mirror` has the objects of a namespace.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from penstock.api.topology import TopologySpec
from penstock.manifest.document import cpu_millis
from penstock_operator.cluster.kubernetes_api.mirror import Mirror
from penstock_operator.cluster.kubernetes_api.port import (
    SCHEDULES,
    TOPOLOGIES,
    Object,
    name_of,
    uid_of,
    version_of,
)
from penstock_operator.cluster.observing.observed import TopologyKey

_TASK_CPU = str(TopologySpec.model_fields["task_cpu"].default)


class CoreBudget:
    """`cores_max` None: there is no bound. Belongs to one event loop."""

    def __init__(self, cores_max: float | None, mirrors: Mapping[str, Mirror]) -> None:
        """`mirrors` is by namespace."""
        self._cores_max = cores_max
        self._mirrors = mirrors
        self._tasks: dict[str, tuple[str, int]] = {}
        """Schedule's uid -> (resourceVersion, tasks): most of them have not changed since the last look."""
        self._promised: dict[tuple[TopologyKey, str], float] = {}
        """(topology, operator) -> cores of a schedule that is being written."""

    def left_to(self, topology: TopologyKey, operators: Collection[str]) -> float:
        """Cores that these operators of a topology may ask for together: what all other ones do not, and no
        less than they have."""
        if self._cores_max is None:
            return math.inf
        asked = dict(self._asked())
        for key, cores in self._promised.items():
            asked[key] = max(cores, asked.get(key, 0.0))
        own = sum(
            cores for (of, operator), cores in asked.items() if of == topology and operator in operators
        )
        return max(own, self._cores_max - (sum(asked.values()) - own))

    @contextmanager
    def promised(self, topology: TopologyKey, cores: Mapping[str, float]) -> Iterator[None]:
        """While schedules are written by which operators of a topology ask for `cores`: nobody else may be
        given the same ones."""
        keys = {(topology, operator): asked for operator, asked in cores.items()}
        self._promised.update(keys)
        try:
            yield
        finally:
            for key in keys:
                self._promised.pop(key, None)

    def _asked(self) -> Iterator[tuple[tuple[TopologyKey, str], float]]:
        task_cores = {
            TopologyKey(namespace, name_of(one)): cpu_millis(str(one["spec"].get("taskCpu", _TASK_CPU)))
            / 1000
            for namespace, mirror in self._mirrors.items()
            for one in mirror.all(TOPOLOGIES)
        }
        tasks: dict[str, tuple[str, int]] = {}
        held = [
            (namespace, one) for namespace, mirror in self._mirrors.items() for one in mirror.all(SCHEDULES)
        ]
        for namespace, one in held:
            known, version = self._tasks.get(uid_of(one)), version_of(one)
            tasks[uid_of(one)] = (
                known if known is not None and known[0] == version else (version, _tasks(one))
            )
            topology = TopologyKey(namespace, str(one["spec"]["topology"]))
            if topology in task_cores:
                key = (topology, str(one["spec"]["operator"]))
                yield key, tasks[uid_of(one)][1] * task_cores[topology]
        self._tasks = tasks


def _tasks(schedule: Object) -> int:
    return sum(int(executor["tasks"]) for executor in schedule["spec"].get("executors") or ())
