"""A policy put to a topology under a load: what would have happened.

The policy is shown what it would be shown live, at the same interval, and what it decides is carried out with
the delays and pauses that the topology has. Most looks lead to nothing: by slots, queues are worked out far
ahead as if nobody acted, the policy is shown that as if it came one by one, and from the first action on it
is forgotten. Neighbours: `model` has arguments and result, `slot_network` and `exact` work, `station` carries
out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from penstock.control.decision import Action, MoveShards, PolicyDecision, Treatment
from penstock.control.policy import Policy
from penstock.control.target import LatencyTarget
from penstock.simulation.queueing.ahead.looking_ahead import looking_ahead
from penstock.simulation.queueing.exact import ExactNetwork
from penstock.simulation.queueing.model import Arrivals, FloatArray, OperatorRun, Run, SimulatedTopology
from penstock.simulation.queueing.network import Network
from penstock.simulation.queueing.record import Record
from penstock.simulation.queueing.slot_network import SlotNetwork
from penstock.simulation.queueing.snapshots import Snapshots
from penstock.simulation.queueing.station import Station
from penstock.simulation.queueing.success import met, path_met

_LOOK_MIN = 32


def run(
    topology: SimulatedTopology,
    arrivals: Arrivals,
    policy: Policy | None,
    target: LatencyTarget | Mapping[str, LatencyTarget] | None,
    rng: np.random.Generator,
    *,
    exact: bool = False,
    path_latency_us: float | None = None,
    interval_us: int | None = None,
    keeps_shards: bool | None = None,
    counts_from_us: int = 0,
) -> Run:
    """Run `arrivals` through `topology` under `policy`; None never acts.

    `target` (one for all, or by operator) is what is judged, and its interval is how often the policy looks:
    whole slots; without one, `interval_us` says so, and nothing is judged. `exact` works row by row, else by
    slots. With `path_latency_us` the operators are judged as one path too. `keeps_shards` keeps series of
    single shards in the result; None does where they are judged and there are fewer than ten million. By
    slots, the result's counts of latencies begin at `counts_from_us`, after a warm-up. The
    same arguments and seed give the same run. ValueError for a policy whose actions do not fit, or an
    interval that is no whole number of slots.
    """
    replay = _Replay(
        topology, arrivals, policy, target, rng, exact, interval_us, keeps_shards, counts_from_us
    )
    replay.go()
    return replay.result(path_latency_us)


class _Replay:
    def __init__(
        self,
        topology: SimulatedTopology,
        arrivals: Arrivals,
        policy: Policy | None,
        target: LatencyTarget | Mapping[str, LatencyTarget] | None,
        rng: np.random.Generator,
        exact: bool,
        interval_us: int | None,
        keeps_shards: bool | None,
        counts_from_us: int,
    ) -> None:
        names = [operator.name for operator in topology.operators]
        unknown = set(arrivals.rows) - set(names)
        if unknown:
            raise ValueError(f"rows arrive at {', '.join(sorted(unknown))}, which is not there")
        if target is None or isinstance(target, LatencyTarget):
            self._targets = {} if target is None else dict.fromkeys(names, target)
        else:
            self._targets = dict(target)
        intervals = {target.interval_us for target in self._targets.values()}
        if interval_us is not None:
            intervals = {interval_us}
        elif not intervals:
            intervals = {arrivals.slot_us}
        self._interval_us = min(intervals)
        if len(intervals) > 1 or self._interval_us % arrivals.slot_us:
            raise ValueError(f"intervals {sorted(intervals)} us are no whole slots of {arrivals.slot_us} us")
        self._topology, self._arrivals, self._policy = topology, arrivals, policy
        self._ahead = None if policy is None else looking_ahead(policy)
        self._slots = arrivals.slots
        self._end_us = float(arrivals.slots * arrivals.slot_us)
        self._records: dict[str, Record] = {}
        self._stations: dict[str, Station] = {}
        for operator in topology.operators:
            keeps = operator.name in self._targets
            self._records[operator.name] = Record(
                arrivals.slots,
                operator.shards,
                arrivals.slot_us,
                keeps or bool(keeps_shards),
                counts_from_us // arrivals.slot_us,
            )
            self._stations[operator.name] = Station(
                operator,
                self._counter(operator.name),
                topology.nodes,
                topology.bandwidth_bytes_per_s,
                arrivals.slot_us,
                rng,
            )
            self._stations[operator.name].free_cores = self._free_cores
            if topology.bandwidth_bytes_per_s is not None:
                self._stations[operator.name].node_demand = self._demand
                self._stations[operator.name].recored = self._recored
        self._keeps_shards = keeps_shards
        kind = ExactNetwork if exact else SlotNetwork
        self._network: Network = kind(topology, arrivals, self._stations, self._records, rng)
        self._snapshots = Snapshots(topology)
        self._decisions: list[PolicyDecision] = []
        self._last_rule: dict[str, tuple[Treatment, str]] = {}

    def go(self) -> None:
        slot_us = self._arrivals.slot_us
        ahead = _LOOK_MIN
        while self._network.now_us < self._end_us:
            now_us = self._network.now_us
            next_us = self._happen(now_us)
            slot = int(now_us // slot_us)
            last = min(slot + min(ahead, self._network.pieces_max), self._slots)
            ends_us = np.arange(slot + 1, last + 1, dtype=np.float64) * slot_us
            if next_us < ends_us[-1]:
                ends_us = np.concatenate((ends_us[ends_us < next_us], np.array([next_us])))
            self._network.look(ends_us)
            done, actions = self._show(ends_us)
            for name, station in self._stations.items():
                self._records[name].cost(
                    now_us,
                    float(ends_us[done - 1]),
                    station.tasks,
                    len(station.executors),
                    station.mixed_tasks,
                )
            self._network.settle(done)
            for name, todo in actions.items():
                self._stations[name].treat(todo, self._network.now_us)
            if actions:
                ahead = _LOOK_MIN
                self._happen(self._network.now_us)
                self._check_nodes()
            elif done == ahead:
                ahead *= 2

    def _happen(self, now_us: float) -> float:
        """Everything that is due; answers when the next is."""
        for name, station in self._stations.items():
            if station.next_us <= now_us:
                station.happen(now_us, self._network.served_us(name))
        return min(station.next_us for station in self._stations.values())

    def _show(self, ends_us: FloatArray) -> tuple[int, dict[str, list[Action]]]:
        """Show the policy what lies ahead; (pieces up to the first action, or all; actions by operator)."""
        moments = np.flatnonzero(ends_us % self._interval_us == 0).tolist()
        policy = self._policy
        if policy is None or not moments:
            return len(ends_us), {}
        series = self._snapshots.series(self._network, self._stations, ends_us.tolist(), moments)
        shown = 0
        while shown < len(series):
            if self._ahead is not None:
                shown += self._ahead.observe_many(series if shown == 0 else series.since(shown))
                if shown >= len(series):
                    break
            decisions = policy.decide(series.snapshot(shown))
            self._keep(decisions)
            actions = self._actions(decisions)
            if actions:
                return moments[shown] + 1, actions
            shown += 1
        return len(ends_us), {}

    def _actions(self, decisions: tuple[PolicyDecision, ...]) -> dict[str, list[Action]]:
        """By operator, in their order."""
        by_operator: dict[str, list[Action]] = {}
        for decision in decisions:
            added: dict[str, str] = {
                action.destination: _operator_of(action.shards[0])
                for action in decision.actions
                if isinstance(action, MoveShards) and action.shards
            }
            for action in decision.actions:
                if decision.operator:
                    name = decision.operator
                elif isinstance(action, MoveShards):
                    name = _operator_of(action.shards[0])
                else:
                    name = self._owner(action.name) or added.get(action.name, "")
                if name not in self._stations:
                    raise ValueError(f"{action} is of no operator")
                by_operator.setdefault(name, []).append(action)
        return by_operator

    def _owner(self, executor: str) -> str | None:
        for name, station in self._stations.items():
            if any(seen.name == executor for seen in station.seen()):
                return name
        return None

    def _keep(self, decisions: tuple[PolicyDecision, ...]) -> None:
        for decision in decisions:
            rule = (decision.treatment, decision.rule)
            is_news = decision.treatment is Treatment.HOLD and self._last_rule.get(decision.operator) != rule
            if decision.actions or is_news:
                self._decisions.append(decision)
            self._last_rule[decision.operator] = rule

    def _counter(self, operator: str) -> _Upstream:
        upstream = tuple(edge.upstream for edge in self._topology.edges if edge.downstream == operator)
        return _Upstream(self._stations, upstream)

    def _used(self) -> dict[str, int]:
        used = dict.fromkeys(self._topology.nodes, 0)
        for station in self._stations.values():
            for executor in station.executors.values():
                for node, cores in executor.cores.items():
                    used[node] = used.get(node, 0) + cores
        return used

    def _free_cores(self, node: str) -> int:
        return self._topology.nodes.get(node, 0) - self._used().get(node, 0)

    def _demand(self, node: str) -> float:
        return sum(station.remote_demand(node) for station in self._stations.values())

    def _recored(self) -> None:
        """Who works how fast has changed for everybody: nodes send something else."""
        for station in self._stations.values():
            station.version += 1

    def _check_nodes(self) -> None:
        """A policy that gives more cores than there are is wrong. Checked between treatments: within one,
        cores may be counted on both sides."""
        if not self._topology.nodes or any(station.treatment for station in self._stations.values()):
            return
        for node, used in self._used().items():
            if used > self._topology.nodes.get(node, 0):
                raise ValueError(
                    f"node {node} has {self._topology.nodes.get(node, 0)} cores, {used} are given"
                )

    # --- result -------------------------------------------------------------------------------------

    def result(self, path_latency_us: float | None) -> Run:
        operators = {operator.name: self._operator(operator.name) for operator in self._topology.operators}
        path: float | None = None
        if path_latency_us is not None:
            window_us = max(target.window_us for target in self._targets.values())
            latencies = [(record.completed, record.latency_sum_us) for record in self._records.values()]
            held = path_met(latencies, self._arrivals.slot_us, window_us, path_latency_us)
            path = float(held.mean())
        return Run(self._arrivals.slot_us, operators, tuple(self._decisions), path)

    def _operator(self, name: str) -> OperatorRun:
        record, station = self._records[name], self._stations[name]
        record.finish()
        target = self._targets.get(name)
        if target is None:
            success = np.full(station.operator.shards, np.nan)
        else:
            success = met(
                record.shard_arrived,
                record.shard_completed,
                record.shard_latency_sum_us,
                self._arrivals.slot_us,
                target,
            ).mean(axis=0)
        keeps = record.keeps_shards and (
            record.shard_completed.size < 10_000_000 if self._keeps_shards is None else self._keeps_shards
        )
        some = record.completed > 0
        mean_us = np.divide(
            record.latency_sum_us, record.completed, out=np.full(self._slots, math.nan), where=some
        )
        row_bytes = station.operator.bytes_in + station.operator.bytes_out
        result = OperatorRun(
            operator=name,
            success=success,
            arrived=record.arrived,
            completed=record.completed,
            tasks=record.task_us / self._arrivals.slot_us,
            executors=record.executor_us / self._arrivals.slot_us,
            mixed_tasks=record.mixed_us / self._arrivals.slot_us,
            latency_mean_us=mean_us,
            latency_max_us=record.latency_max_us,
            switches=tuple(station.switches),
            remote_bytes=record.remote_rows * row_bytes,
            latency_counts=record.latency_counts,
        )
        if not keeps:
            return result
        return replace(
            result,
            shard_completed=record.shard_completed,
            shard_latency_sum_us=record.shard_latency_sum_us,
        )


class _Upstream:
    """How many executors send to an operator."""

    def __init__(self, stations: Mapping[str, Station], upstream: tuple[str, ...]) -> None:
        self._stations = stations
        self._upstream = upstream

    def __call__(self) -> int:
        return sum(len(self._stations[name].executors) for name in self._upstream)


def _operator_of(shard: str) -> str:
    return shard.rpartition("/")[0]
