"""How kstatus, which Flux and others wait by, reads a custom resource: its rules in their order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def kstatus(thing: Mapping[str, Any]) -> str:
    """InProgress, Failed, Current or Terminating."""
    metadata, status = thing["metadata"], thing.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return "Terminating"
    if status.get("observedGeneration", metadata["generation"]) != metadata["generation"]:
        return "InProgress"
    conditions = status.get("conditions") or ()
    for one in conditions:
        if one["status"] == "True" and one["type"] in ("Reconciling", "Stalled"):
            return "InProgress" if one["type"] == "Reconciling" else "Failed"
    ready = next((one["status"] for one in conditions if one["type"] == "Ready"), "True")
    return "Current" if ready == "True" else "InProgress"
