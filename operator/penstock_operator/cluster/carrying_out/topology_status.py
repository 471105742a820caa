"""Writes the status of a Topology or a LatencySLA when it differs from what stands there, and its events.

Figures (rates, latencies, backlogs, watermarks) differ at every look: by themselves they are written now and
then only, but for the first of what columns show. Neighbours: `reconcile` and `sla.keeper` call after each
decision.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from penstock.errors import PenstockError
from penstock_operator.cluster.carrying_out.events import event_object
from penstock_operator.cluster.carrying_out.side_by_side import side_by_side
from penstock_operator.cluster.decisions.actions import Event
from penstock_operator.cluster.kubernetes_api.lease import LeaseLost
from penstock_operator.cluster.kubernetes_api.port import (
    EVENTS,
    TOPOLOGIES,
    ClusterApi,
    Kind,
    Object,
    Refusal,
    name_of,
)

_LOG = logging.getLogger(__name__)

_FIGURES = {
    "ratePerSecond", "latencyP50Ms", "latencyP99Ms", "backlog", "rate", "latency", "watermark", "lateRecords",
    "lagRecords", "lagSeconds",
    "met", "predictedLatency", "successRate", "meanTasks",
}  # fmt: skip
_COLUMNS = ("rate", "latency", "met", "predictedLatency")
"""Figures that columns show: one that was not known, or was nothing, is not waited for."""
_NOTHING = (None, "0/s")
_FIGURES_EVERY_S = 5.0


class StatusWriter:
    """For one object of `kind`. `clock_s` is monotonic; `wall_s` stamps events. `reporter` is this pod's
    name."""

    def __init__(
        self,
        cluster: ClusterApi,
        clock_s: Callable[[], float],
        wall_s: Callable[[], float],
        reporter: str,
        kind: Kind = TOPOLOGIES,
    ) -> None:
        self._kind = kind
        self._cluster = cluster
        self._clock_s = clock_s
        self._wall_s = wall_s
        self._reporter = reporter
        self._uid = ""
        self._wished: Mapping[str, Any] | None = None
        self._answered: Any = None
        self._written_s = 0.0

    async def write(self, thing: Object, status: Mapping[str, Any], events: Sequence[Event]) -> None:
        """`thing` is the object as last seen. Raises the cluster's errors, but none about events."""
        told = (self._tell(thing, event, number) for number, event in enumerate(events))
        await side_by_side(self._write(thing, status), *told)

    async def _write(self, thing: Object, status: Mapping[str, Any]) -> None:
        if not self._is_due(thing, status):
            return
        manifest = {
            "apiVersion": self._kind.api_version,
            "kind": self._kind.kind,
            "metadata": {"name": name_of(thing)},
            "status": status,
        }
        answer = await self._cluster.apply_status(self._kind, manifest)
        if isinstance(answer, Refusal):
            return  # it is gone
        self._uid = str(answer["metadata"]["uid"])
        self._wished, self._answered = status, answer.get("status")
        self._written_s = self._clock_s()

    async def _tell(self, thing: Object, event: Event, number: int) -> None:
        # Two of one moment would have one name.
        now = datetime.fromtimestamp(self._wall_s() + number * 1e-6, UTC)
        _LOG.info("%s: %s: %s", name_of(thing), event.reason, event.message)
        try:
            await self._cluster.create(EVENTS, event_object(event, thing, now, self._reporter))
        except LeaseLost:
            raise
        except PenstockError as error:
            _LOG.warning("the event %s of %s is lost: %s", event.reason, name_of(thing), error)

    def has_told(self, status: Mapping[str, Any]) -> bool:
        """Whether this is what was last written, figures and all."""
        return status == self._wished

    def _is_due(self, thing: Object, wished: Mapping[str, Any]) -> bool:
        is_same = thing["metadata"]["uid"] == self._uid
        if not wished or (is_same and wished == self._wished):
            # Somebody else may have written over it.
            return bool(wished) and self._is_old() and thing.get("status") != self._answered
        if not is_same or self._wished is None:
            return True
        if self._is_old() or _without_figures(wished) != _without_figures(self._wished):
            return True
        written = self._wished
        return any(wished.get(one) not in _NOTHING and written.get(one) in _NOTHING for one in _COLUMNS)

    def _is_old(self) -> bool:
        return self._clock_s() - self._written_s >= _FIGURES_EVERY_S


def _without_figures(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_figures(part) for name, part in value.items() if name not in _FIGURES}
    if isinstance(value, list | tuple):
        return [_without_figures(part) for part in value]
    return value
