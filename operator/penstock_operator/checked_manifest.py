"""A manifest that can be run, with the user code that it names: everything wrong is found at once.

Manifest and names of code are checked here; the code itself is imported by another process
(`penstock_worker.inspect_code`), since it needs Spark's classes and may do anything. Neighbour: `cli`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from penstock.api.compile import compile_topology
from penstock.api.faults import Fault, InvalidManifest
from penstock.api.load import load_manifest, manifest_text
from penstock.dataflow.plan import Plan
from penstock.errors import PermanentError

_INSPECT_S_MAX = 120


class InspectionFailedError(PermanentError):
    """User code could not be looked at: the other process ended without an answer."""


@dataclass(frozen=True, slots=True)
class CheckedManifest:
    """`text` is the manifest with all overrides in it; `plans` has one plan for each Topology."""

    text: str
    plans: tuple[Plan, ...]

    @property
    def plan(self) -> Plan:
        """The only plan. Raises InvalidManifest."""
        if len(self.plans) != 1:
            raise InvalidManifest(
                [Fault("", f"exactly one Topology is wanted here; the file has {len(self.plans)}")]
            )
        return self.plans[0]


def check_manifest(path: Path, overrides: Sequence[str]) -> CheckedManifest:
    """Raises InvalidManifest with all faults, InspectionFailedError."""
    try:
        manifest = load_manifest(path, overrides)
    except InvalidManifest:
        # Code cannot be imported by a manifest that is not understood; its names can be looked at.
        load_manifest(path, overrides, with_code=True)
        raise
    plans = tuple(compile_topology(topology) for topology in manifest.topologies)
    if plans:
        _check_code(path, overrides)
    return CheckedManifest(manifest_text(manifest), plans)


def check_for_cluster(path: Path, overrides: Sequence[str]) -> None:
    """Check a manifest that is to be applied to a cluster. Raises InvalidManifest with all faults."""
    manifest = load_manifest(path, overrides, runtime="cluster")
    for topology in manifest.topologies:
        compile_topology(topology, "cluster")


def _check_code(path: Path, overrides: Sequence[str]) -> None:
    """Faults of names and of the code behind them; of two about one place the first says more."""
    faults: list[Fault] = []
    try:
        load_manifest(path, overrides, with_code=True)
    except InvalidManifest as invalid:
        faults = list(invalid.faults)
    seen = {fault.path for fault in faults}
    faults += [fault for fault in _code_faults(path, overrides) if fault.path not in seen]
    if faults:
        raise InvalidManifest(faults)


def _code_faults(path: Path, overrides: Sequence[str]) -> list[Fault]:
    arguments = [argument for override in overrides for argument in ("--set", override)]
    ran = subprocess.run(
        [sys.executable, "-m", "penstock_worker.inspect_code", str(path), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_INSPECT_S_MAX,
        check=False,
    )
    try:
        return msgspec.json.decode(ran.stdout, type=list[Fault])
    except msgspec.DecodeError as error:
        last = (ran.stderr.strip() or ran.stdout.strip() or "it wrote nothing").splitlines()[-1]
        raise InspectionFailedError(
            f"The user code of {path} could not be inspected (exit code {ran.returncode}): {last}"
        ) from error
