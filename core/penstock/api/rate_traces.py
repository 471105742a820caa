"""What is wrong with the rate traces that a Topology's sources name, found out before anything starts.

A trace lies beside the manifest, so this looks only where that is at hand; in a cluster the worker reads it
from its image or a volume, and says the same. Neighbours: `load` calls it, `dataflow.rate_trace` reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.connectors.registry import SOURCES
from penstock.dataflow.rate_trace import ENDS_BEFORE_FILES, InvalidRateTrace, read_rate_trace
from penstock.manifest.faults import Fault, path_text


def rate_trace_faults(spec: Mapping[str, Any], base_dir: Path) -> list[Fault]:
    """Faults of the files that `rateTrace` names in a Topology's plain `spec`, relative to `base_dir`."""
    faults: list[Fault] = []
    for path, kind, file in _traces(spec):
        try:
            trace = read_rate_trace(base_dir / file)
        except InvalidRateTrace as error:
            faults += [Fault(path, f"{file}: {problem}") for problem in error.problems]
            continue
        if not SOURCES[kind].planned.trace_may_end and trace.rates_per_s[-1] == 0:
            faults.append(Fault(path, f"{file}: {ENDS_BEFORE_FILES}"))
    return faults


def _traces(spec: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(path in the document, the source's kind, the trace's file)."""
    operators = spec.get("operators")
    for index, operator in enumerate(operators if isinstance(operators, list) else ()):
        source = operator.get("source") if isinstance(operator, dict) else None
        for kind, body in source.items() if isinstance(source, dict) else ():
            trace = body.get("rateTrace") if isinstance(body, dict) else None
            file = trace.get("file") if isinstance(trace, dict) else None
            if isinstance(file, str) and file and kind in SOURCES:
                place = ("spec", "operators", index, "source", kind, "rateTrace", "file")
                yield path_text(place, {"spec": spec}), kind, file
