"""Kubernetes' quantities as numbers. Neighbour: `observe` reads objects with them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal

_QUANTITY = re.compile(r"([+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)([numkMGTPE]|[KMGTPE]i)?")
_FACTORS = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", start=1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", start=1)},
}


def quantity(text: str) -> Decimal:
    """The value of a quantity such as 100m, 1.5, 2e3 or 128Mi. ValueError for anything else."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no quantity such as 100m, 1.5 or 128Mi")
    return Decimal(match[1]) * _FACTORS[match[2] or ""]


def millis(text: str) -> int:
    """Thousandths, rounded up as Kubernetes does."""
    return math.ceil(quantity(text) * 1000)


def whole(text: str) -> int:
    """Rounded up: bytes of memory, numbers of pods."""
    return math.ceil(quantity(text))


def cpu_and_memory(resources: Mapping[str, str]) -> tuple[int, int]:
    """(thousandths of a core, bytes) of a list of resources; 0 for what it does not name."""
    return millis(str(resources.get("cpu", "0"))), whole(str(resources.get("memory", "0")))
