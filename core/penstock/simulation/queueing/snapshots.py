"""From simulated counters to what policies are shown. Neighbours: `replay` asks, `ahead.snapshot_series` is
the form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.control.samples.sample_table import AssignmentTable, Shards
from penstock.control.snapshot import ExecutorSeen
from penstock.simulation.queueing.ahead.snapshot_series import OperatorSeries, SnapshotSeries
from penstock.simulation.queueing.model import SimulatedTopology
from penstock.simulation.queueing.network import Counters, Network
from penstock.simulation.queueing.station import Station


class Snapshots:
    """Keeps what stays the same over snapshots."""

    def __init__(self, topology: SimulatedTopology) -> None:
        self._topology = topology
        self._shards = {operator.name: Shards(operator.shard_names) for operator in topology.operators}
        self._edges = tuple((edge.upstream, edge.downstream) for edge in topology.edges)
        self._seen: dict[str, tuple[tuple[int, int], tuple[ExecutorSeen, ...], Mapping[str, str]]] = {}

    def series(
        self,
        network: Network,
        stations: Mapping[str, Station],
        ends_us: Sequence[float],
        pieces: Sequence[int],
    ) -> SnapshotSeries:
        """One snapshot at the end of each of `pieces` (positions in the network's last look). Sums are those
        of the counters, exactly; a row that is complete in part is not complete, and its part of them is
        there."""
        chosen = list(pieces)
        return SnapshotSeries(
            np.array([round(ends_us[piece]) for piece in chosen], dtype=np.int64),
            {
                operator.name: self._operator(
                    operator.name, stations[operator.name], network.counters(operator.name), chosen
                )
                for operator in self._topology.operators
            },
            self._topology.nodes,
            self._edges,
        )

    def _operator(self, name: str, station: Station, counters: Counters, pieces: list[int]) -> OperatorSeries:
        operator = station.operator
        tells_bytes = operator.bytes_in > 0 or operator.bytes_out > 0
        served_us = counters.served_us[pieces]
        executors, assignment = self._executors(name, station)
        return OperatorSeries(
            operator=name,
            executors=executors,
            shards=self._shards[name],
            assignment=assignment,
            # Water may lack a millionth of a row that is all there.
            arrived=np.floor(counters.arrived[pieces] + 1e-3),
            completed=np.floor(counters.completed[pieces] + 1e-3),
            waited_us=counters.waited_us[pieces],
            served_us=served_us,
            busy_us=served_us,
            treatment=station.treatment,
            bytes_per_row=(operator.bytes_in, operator.bytes_out) if tells_bytes else None,
            state_bytes=operator.state_bytes if operator.state_bytes > 0 else None,
        )

    def _executors(self, name: str, station: Station) -> tuple[tuple[ExecutorSeen, ...], Mapping[str, str]]:
        """Them, and which shard is with whom; the same objects while nothing changes."""
        version, seen, assignment = self._seen.get(name, ((-1, -1), (), {}))
        if version != (station.version, station.asked):
            seen = station.seen()
            executors = tuple(executor.name for executor in seen)
            shards = self._shards[name]
            owners = station.assigned()
            # A dict is what most policies read fastest; with thousands of shards the array is.
            if len(shards.names) > 1_000:
                assignment = AssignmentTable(shards, executors, owners)
            else:
                pairs = zip(shards.names, owners.tolist(), strict=True)
                assignment = {shard: executors[owner] for shard, owner in pairs}
            self._seen[name] = ((station.version, station.asked), seen, assignment)
        return seen, assignment
