"""Which partitioner the operator has: METIS, or where no wheel of it is published (64-bit ARM under Linux),
the one of plain Python."""

from __future__ import annotations

from importlib.util import find_spec

from penstock.control.locality.greedy_partitioner import greedy_partition
from penstock.control.locality.partitioner import Partitioner


def installed_partitioner() -> Partitioner:
    if find_spec("pymetis") is None:
        return greedy_partition
    # Here and not above: there may be none.
    from penstock_operator.partitioning.metis import metis_partition

    return metis_partition
