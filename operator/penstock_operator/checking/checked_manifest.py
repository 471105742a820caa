"""A manifest that can be run, with the user code that it names: everything wrong is found at once.

Neighbours: `code_inspection` has the code itself looked at; the command line asks, before anything starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from penstock.api.compile import compile_topology
from penstock.api.inspected_code import InspectedCode
from penstock.api.latency_sla import LatencySLA
from penstock.api.load import Manifest, load_manifest, manifest_text
from penstock.api.sla_faults import sla_faults
from penstock.dataflow.plan import Plan
from penstock.dataflow.source import Source
from penstock.manifest.faults import Fault, InvalidManifest
from penstock.sla.promise import Promise, promise_of
from penstock_operator.checking.code_inspection import inspected


@dataclass(frozen=True, slots=True)
class CheckedManifest:
    """`text` is the manifest with all overrides in it; `plans` has one plan for each Topology, `promises` are
    the LatencySLAs that are to be kept."""

    text: str
    plans: tuple[Plan, ...]
    promises: tuple[Promise, ...] = ()
    hints: tuple[str, ...] = ()
    """Sentences about what is right, and may be meant otherwise."""
    state: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Operator -> state variable -> what the code declares it as, in words; of the only plan."""

    @property
    def plan(self) -> Plan:
        """The only plan. Raises InvalidManifest."""
        if len(self.plans) != 1:
            raise InvalidManifest(
                [Fault("", f"exactly one Topology is wanted here; the file has {len(self.plans)}")]
            )
        return self.plans[0]


def check_manifest(path: Path, overrides: Sequence[str], sla_file: Path | None = None) -> CheckedManifest:
    """`sla_file` holds LatencySLAs of the manifest's Topologies; it may be the manifest itself.

    Raises InvalidManifest with all faults of both, InspectionFailedError.
    """
    slas, faults = _read_slas(sla_file, path)
    try:
        manifest, code = _checked(path, overrides)
    except InvalidManifest as invalid:
        raise InvalidManifest([*invalid.faults, *faults]) from invalid
    if sla_file is not None:
        faults += _in_file(sla_file, sla_faults(manifest.topologies, slas, is_whole=True))
    if faults:
        raise InvalidManifest(faults)
    plans = {topology.metadata.name: compile_topology(topology) for topology in manifest.topologies}
    by_name = {topology.metadata.name: topology for topology in manifest.topologies}
    promises = (promise_of(sla, by_name[sla.spec.topology], plans[sla.spec.topology]) for sla in slas)
    slas_there = () if sla_file is not None else _hints(path, manifest.latency_slas)
    return CheckedManifest(
        manifest_text(manifest),
        tuple(plans.values()),
        tuple(promises),
        (*slas_there, *code.notes),
        code.state,
    )


def warnings_of(plans: Iterable[Plan], base_dir: Path) -> list[str]:
    """Sentences about what lies outside the manifest, as it is now on this machine: sources that have nothing
    to read, sinks that cannot be written. Relative paths begin in `base_dir`."""
    told = []
    for plan in plans:
        for stage in plan.stages:
            if isinstance(stage.head, Source):
                told += [f"source {stage.operator}: {text}" for text in stage.head.warnings(base_dir)]
            for sink, _ in stage.all_sinks():
                told += [f"sink {sink.name}: {text}" for text in sink.warnings(base_dir)]
    return list(dict.fromkeys(told))


def _hints(path: Path, slas: Sequence[LatencySLA]) -> tuple[str, ...]:
    """LatencySLAs in the manifest itself are checked, and kept only where that is asked for."""
    if not slas:
        return ()
    names = ", ".join(sla.metadata.name for sla in slas)
    return (f"{path} holds LatencySLA {names}: `penstock run` keeps it with --sla {path} only",)


def _checked(path: Path, overrides: Sequence[str]) -> tuple[Manifest, InspectedCode]:
    """The manifest, and what there is to say of its code."""
    try:
        manifest = load_manifest(path, overrides)
    except InvalidManifest:
        # Code cannot be imported by a manifest that is not understood; its names can be looked at.
        load_manifest(path, overrides, with_code=True)
        raise
    return manifest, _check_code(path, overrides) if manifest.topologies else InspectedCode()


def _read_slas(sla_file: Path | None, manifest: Path) -> tuple[tuple[LatencySLA, ...], list[Fault]]:
    """The LatencySLAs of a file by itself, and what is wrong with it; what is wrong with `manifest` is told
    there."""
    if sla_file is None:
        return (), []
    try:
        slas = load_manifest(sla_file).latency_slas
    except InvalidManifest as invalid:
        return (), [] if sla_file == manifest else _in_file(sla_file, invalid.faults)
    if not slas:
        return (), _in_file(sla_file, [Fault("", "holds no LatencySLA; give a file with at least one")])
    return slas, []


def _in_file(sla_file: Path, faults: Iterable[Fault]) -> list[Fault]:
    """`faults` under the name of their file."""
    name = str(sla_file)
    return [
        Fault(name if fault.path in ("", name) else f"{name}: {fault.path}", fault.message)
        for fault in faults
    ]


def check_for_cluster(path: Path, overrides: Sequence[str], sla_file: Path | None = None) -> None:
    """Check a manifest that is to be applied to a cluster, and LatencySLAs that are. Raises InvalidManifest
    with all faults."""
    slas, faults = _read_slas(sla_file, path)
    try:
        manifest = load_manifest(path, overrides, runtime="cluster")
    except InvalidManifest as invalid:
        raise InvalidManifest([*invalid.faults, *faults]) from invalid
    if sla_file is not None:
        faults += _in_file(sla_file, sla_faults(manifest.topologies, slas))
    if faults:
        raise InvalidManifest(faults)
    for topology in manifest.topologies:
        compile_topology(topology, "cluster")


def _check_code(path: Path, overrides: Sequence[str]) -> InspectedCode:
    """Raises InvalidManifest with the faults of names and of the code behind them; of two about one place the
    first says more."""
    faults: list[Fault] = []
    try:
        load_manifest(path, overrides, with_code=True)
    except InvalidManifest as invalid:
        faults = list(invalid.faults)
    seen = {fault.path for fault in faults}
    code = inspected(path, overrides)
    faults += [fault for fault in code.faults if fault.path not in seen]
    if faults:
        raise InvalidManifest(faults)
    return code
