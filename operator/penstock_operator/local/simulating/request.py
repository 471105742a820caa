"""From the command line of `penstock simulate` to what is to be simulated. Neighbour: `simulate`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.dataflow.rate_trace import InvalidRateTrace, read_rate_trace
from penstock.manifest.document import duration_us
from penstock_operator.checking.checked_manifest import check_manifest
from penstock_operator.local.simulating.simulate import (
    CannotSimulateError,
    SimulationRequest,
    zipf_services_us,
)


def read_request(
    manifest: Path,
    sla_file: Path,
    trace_file: Path,
    services: Sequence[str],
    factors: Sequence[str],
    skew: float | None,
    length_s: float | None,
    seed: int,
) -> SimulationRequest:
    """`services` and `factors` are OPERATOR=VALUE. Raises InvalidManifest, CannotSimulateError, and what
    `check_manifest` raises."""
    checked = check_manifest(manifest, (), sla_file)
    plan = checked.plan
    if len(checked.promises) != 1:
        raise CannotSimulateError(
            f"{sla_file} holds {len(checked.promises)} LatencySLAs; give a file with one"
        )
    try:
        trace = read_rate_trace(trace_file)
    except InvalidRateTrace as error:
        raise CannotSimulateError(f"{trace_file}: {error}") from error
    return SimulationRequest(
        plan=plan,
        promise=checked.promises[0],
        trace=trace,
        service_us=zipf_services_us(plan)
        | _values("--service", services, lambda text: float(duration_us(text))),
        rows_per_row=_values("--rows", factors, _number),
        skew=skew,
        length_us=None if length_s is None else round(length_s * 1e6),
        seed=seed,
    )


def _values(option: str, texts: Sequence[str], read: Callable[[str], float]) -> dict[str, float]:
    values: dict[str, float] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise CannotSimulateError(f"{option} {text}: give an operator and a value, as OPERATOR=VALUE")
        try:
            number = read(value)
        except ValueError as error:
            raise CannotSimulateError(f"{option} {text}: {error}") from error
        if not math.isfinite(number) or number <= 0:
            raise CannotSimulateError(f"{option} {text}: give a value above 0")
        values[name] = number
    return values


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number such as 2 or 0.5") from None
