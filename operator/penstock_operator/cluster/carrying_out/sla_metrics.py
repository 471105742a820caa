"""How each LatencySLA stands, as Prometheus reads it from the operator that keeps it.

What is not known is left out, never shown as zero. Neighbours: `sla.keeper` tells after each look,
`operator_metrics` serves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from penstock.sla.standing import SlaLine
from penstock_operator.cluster.observing.observed import TopologyKey

_LABELS = ("topology_namespace", "topology", "sla")
_GAP_S_MAX = 10.0
"""Of a longer time without a look nobody knows how it was."""


@dataclass(frozen=True, slots=True)
class _Shown:
    """The last look at one, and what all looks came to."""

    line: SlaLine
    cores: float
    at_s: float
    broken_s: float


class SlaMetrics(Collector):
    """By topology and name, of those that are kept now."""

    def __init__(self) -> None:
        self._shown: dict[tuple[TopologyKey, str], _Shown] = {}

    def show(self, topology: TopologyKey, sla: str, line: SlaLine | None, cores: float, at_s: float) -> None:
        """One look, at `at_s` of a monotonic clock; `line` None: it is not kept, or gone."""
        of = (topology, sla)
        if line is None:
            self._shown.pop(of, None)
            return
        before, broken_s = self._shown.get(of), 0.0
        if before is not None:
            broken_s = before.broken_s
            if before.line.met is False and at_s - before.at_s <= _GAP_S_MAX:
                broken_s += at_s - before.at_s
        self._shown[of] = _Shown(line, cores, at_s, broken_s)

    def forget_topology(self, topology: TopologyKey) -> None:
        self._shown = {of: shown for of, shown in self._shown.items() if of[0] != topology}

    def collect(self) -> Iterator[Metric]:
        yield self._gauge(
            "penstock_sla_target_seconds",
            "The mean latency that it allows over a window",
            lambda shown: shown.line.bound_ms / 1000,
        )
        yield self._gauge(
            "penstock_sla_latency_seconds",
            "The mean latency over the last window",
            lambda shown: _seconds(shown.line.mean_ms),
        )
        yield self._gauge(
            "penstock_sla_worst_shard_latency_seconds",
            "The mean latency over the last window, of the shard where it is highest",
            lambda shown: _seconds(shown.line.worst_ms),
        )
        yield self._gauge(
            "penstock_sla_met",
            "1 while its last windows kept it, 0 while one did not",
            lambda shown: None if shown.line.met is None else float(shown.line.met),
        )
        yield self._gauge(
            "penstock_sla_success_ratio",
            "The share of windows that kept it, of the last five minutes",
            lambda shown: shown.line.success_recent,
        )
        yield self._gauge(
            "penstock_sla_tasks", "Tasks of the operators in its scope", lambda shown: shown.line.tasks
        )
        yield self._gauge("penstock_sla_cores", "Cores that these tasks ask for", lambda shown: shown.cores)
        broken = CounterMetricFamily(
            "penstock_sla_broken_seconds", "How long it was not kept", labels=_LABELS
        )
        for (topology, sla), shown in self._shown.items():
            broken.add_metric([*topology, sla], shown.broken_s)
        yield broken

    def _gauge(self, name: str, text: str, value_of: Callable[[_Shown], float | None]) -> Metric:
        family = GaugeMetricFamily(name, text, labels=_LABELS)
        for (topology, sla), shown in self._shown.items():
            value = value_of(shown)
            if value is not None:
                family.add_metric([*topology, sla], value)
        return family


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
