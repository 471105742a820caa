"""What came out of the second operator, read from its sink's files when a run is over: throughput over time,
how long no row came of a key, and whether totals are those of rows that came once each.

A row tells when it was put out, on the one clock of this machine; it is in the file once its commit is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from bench.locality.topology import SECOND, SINK
from bench.two_nodes import NodesFailedError
from numpy.typing import NDArray

from penstock.dataflow.sink_files import SUFFIX, sink_file_prefix

Floats = NDArray[np.float64]


class Output(msgspec.Struct):
    key: str
    rows: int
    total: int
    at_us: int


_decode = msgspec.json.Decoder(Output).decode


@dataclass(frozen=True, slots=True, eq=False)
class Outputs:
    """Key -> when rows of it came out (seconds since 1970, in order), and how many each time."""

    by_key: dict[str, tuple[Floats, Floats]]

    def rows(self) -> int:
        return int(sum(rows.sum() for _, rows in self.by_key.values()))

    def per_s(self, start_s: float, end_s: float, bucket_s: float) -> Floats:
        """Records a second in each bucket from start to end."""
        edges = np.arange(start_s, end_s + bucket_s / 2, bucket_s)
        at_s, rows = (np.concatenate(each) for each in zip(*self.by_key.values(), strict=True))
        return np.histogram(at_s, edges, weights=rows)[0] / bucket_s

    def longest_gaps_ms(self, start_s: float, end_s: float) -> dict[str, float]:
        """Key -> the longest time without a row of it that overlaps this time, in milliseconds; keys that
        came before and behind it alone."""
        found = {}
        for key, (at_s, _) in self.by_key.items():
            first, last = np.searchsorted(at_s, start_s) - 1, np.searchsorted(at_s, end_s)
            if first >= 0 and last < len(at_s):
                found[key] = float(np.diff(at_s[first : last + 1]).max() * 1000)
        return found


def read_outputs(folder: Path) -> Outputs:
    """Raises NodesFailedError where a key's total is not what came before and its rows: one was lost, or
    came twice, or out of order."""
    found: dict[str, list[Output]] = {}
    for file in sorted((folder / "out").glob(f"{sink_file_prefix(SINK, SECOND)}*{SUFFIX}")):
        for line in file.read_bytes().splitlines():
            output = _decode(line)
            found.setdefault(output.key, []).append(output)
    for key, outputs in found.items():
        # A key's rows are in several files, one for each shard that it was on.
        outputs.sort(key=lambda one: one.total)
        total = 0
        for output in outputs:
            total += output.rows
            if output.total != total:
                raise NodesFailedError(f"the total of {key} is {output.total}, its rows come to {total}")
    return Outputs(
        {
            key: (np.array([one.at_us / 1e6 for one in rows]), np.array([float(one.rows) for one in rows]))
            for key, rows in found.items()
        }
    )
