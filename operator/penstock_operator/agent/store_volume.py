"""How full the volume is that this node's store writes to, as the file system says.

Neighbour: `node_agent` asks at each look of a probe or of Prometheus.
"""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Volume:
    """An emptyDir tells of the node's disk: its own limit is the kubelet's affair."""

    size_bytes: int
    free_bytes: int


def volume_of(folder: str | None) -> Volume | None:
    """None where no folder was given, or it cannot be seen now."""
    if folder is None:
        return None
    try:
        seen = os.statvfs(folder)
    except OSError:
        return None
    return Volume(seen.f_blocks * seen.f_frsize, seen.f_bavail * seen.f_frsize)
