"""Writes what `schedule_figures` says into the status of the Schedules, where it differs from what is there.

The operator's field manager holds these two fields and no other of a Schedule's status; the entries of
`status.applied` are the agents'. While shards move the figures change with every one of them: they are
written now and then, and at once when the first begins and when the last has arrived. Neighbour: `reconcile`
calls after each decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock_operator.cluster.kubernetes_api.mirror import Mirror
from penstock_operator.cluster.kubernetes_api.port import SCHEDULES, ClusterApi, Refusal
from penstock_operator.cluster.workers.schedule_figures import ScheduleFigures

_EVERY_S = 0.5


class ScheduleStatusWriter:
    """For the Schedules of one topology. `clock_s` is monotonic."""

    def __init__(self, cluster: ClusterApi, mirror: Mirror, clock_s: Callable[[], float]) -> None:
        self._cluster = cluster
        self._mirror = mirror
        self._clock_s = clock_s
        self._written_s: dict[str, float] = {}

    async def write(self, figures: Iterable[ScheduleFigures]) -> bool:
        """Whether all of them stand there now. Raises the cluster's errors."""
        are_told = True
        for wished in figures:
            held = self._mirror.get(SCHEDULES, wished.name)
            if held is None:
                continue
            stands: Mapping[str, Any] = held.get("status") or {}
            status = _status(wished, stands)
            if all(stands.get(name) == value for name, value in status.items()):
                continue
            is_turn = bool(status.get("shardsMoving")) is not bool(stands.get("shardsMoving"))
            since_s = self._clock_s() - self._written_s.get(wished.name, float("-inf"))
            if since_s < _EVERY_S and not is_turn:
                are_told = False
                continue
            manifest = {
                "apiVersion": SCHEDULES.api_version,
                "kind": SCHEDULES.kind,
                "metadata": {"name": wished.name},
                "status": status,
            }
            answer = await self._cluster.apply_status(SCHEDULES, manifest)
            self._written_s[wished.name] = self._clock_s()
            if not isinstance(answer, Refusal):
                self._mirror.put(SCHEDULES, answer)
        return are_told


def _status(wished: ScheduleFigures, stands: Mapping[str, Any]) -> dict[str, int]:
    """What is not known stays as it is; it has to be named all the same, or it would be taken away."""
    known = {"shardsMoving": wished.shards_moving, "tasksReady": wished.tasks_ready}
    held = {name: stands.get(name) if value is None else value for name, value in known.items()}
    return {name: value for name, value in held.items() if value is not None}
