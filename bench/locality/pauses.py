"""For how long no row of a key comes out while keys change their shards, where links are not full.

Equal integers come evenly, each key's rows a few milliseconds apart. The table of the second operator changes
several times between those of `synthetic`; most keys, with their state, go to another host each time. The
same time before each change is the control. Where links are full a key's rows wait for what stands before
them in queues anyway: `reconfiguration` has those. Neighbour: `outputs` reads the sink's files.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.locality import synthetic
from bench.locality.hosts import Network
from bench.locality.outputs import read_outputs
from bench.locality.reconfiguration import SETTLE_S, Load, gaps_ms
from bench.locality.system import System, started
from bench.locality.topology import INTEGERS, SECOND
from bench.two_nodes import NodesFailedError

KEYS_EACH = 1
BETWEEN_S = 2.0
"""From one change to the next, beside what is looked at."""


@dataclass(frozen=True, slots=True)
class Pauses:
    """Of all keys and changes. `took_s` is from a table's Schedule to when it was carried out."""

    gaps_ms: Sequence[float]
    gaps_before_ms: Sequence[float]
    took_s: Sequence[float]
    keys_moved: int
    rows: int


def pauses(hosts: int, load: Load, changes: int, folder: Path) -> Pauses:
    """So many changes. Raises NodesFailedError, also for a row that is lost or there twice."""
    keys = synthetic.integers(hosts, KEYS_EACH)
    moved, spans = 0, []
    with Network(hosts) as network, System(folder, network.hosts, INTEGERS, sink=True) as system:
        system.set_stream(synthetic.even_stream(keys, load.padding_bytes, load.rate_per_s))
        started(system)
        network.throttle(load.bits_per_s)
        time.sleep(load.seconds)
        for number in range(changes):
            way = (synthetic.TABLE, synthetic.WORST, synthetic.HASH)[number % 3]
            begun_s = time.time()
            table = system.put_keys(SECOND, synthetic.table_of(keys, way))
            over_s = time.time()
            moved += len(table.moves) if table is not None else 0
            spans.append((begun_s, over_s))
            time.sleep(BETWEEN_S + SETTLE_S + over_s - begun_s)
        with system.paused():
            # Sources go on behind this, until all is stopped.
            rows, outputs = system.check_nothing_lost(), read_outputs(folder)
    if outputs.rows() != rows:
        raise NodesFailedError(f"{rows} rows were read, the sink has {outputs.rows()}")
    found = [gaps_ms(outputs, begun_s, over_s + SETTLE_S) for begun_s, over_s in spans]
    return Pauses(
        [gap for during, _ in found for gap in during],
        [gap for _, before in found for gap in before],
        [over_s - begun_s for begun_s, over_s in spans],
        moved,
        rows,
    )
