"""`python -m penstock_worker.inspect_code MANIFEST [--set PATH=VALUE ...]`: what is wrong with the user code.

Imports the code that a manifest names and calls each processor's `init` with a handle that only notes
what is asked of it, without a JVM. Prints a JSON list of {path, message}; whatever the code itself prints
goes to stderr. Exit code 0, also with faults; 1 when the manifest cannot be read. Neighbours:
`penstock.api.load` checks the manifest itself, `user_code` and `state.handle` refuse the same at run time.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import msgspec
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from penstock.api.faults import Fault, listed, path_text
from penstock.api.load import load_manifest
from penstock.api.topology import Topology
from penstock.errors import PenstockError
from penstock_worker.state.handle import TaskHandle, not_yet
from penstock_worker.user_code import UserCodeMissing, load_attribute, load_module, users_traceback

_NOT_YET = {
    "handleExpiredTimer": "timers",
    "handleInitialState": "initial state",
    "registerTimer": "timers",
    "deleteTimer": "timers",
    "listTimers": "timers",
    "deleteIfExists": "deleting a state variable",
}
"""Methods of a processor and calls on its handle."""


class _NotingHandle(TaskHandle):
    """Notes what is not carried yet and goes on, so that all of it is found at once."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[str] = []

    def refuse(self, call: str, what: str) -> None:
        if call.split("(")[0] not in _NOT_YET:  # a call by such a name was seen in the code already
            self.noted.append(not_yet(call, what))


def inspect_manifest(path: Path, overrides: Sequence[str] = ()) -> list[Fault]:
    """All faults of the code that the manifest at `path` names. Raises InvalidManifest."""
    topologies = load_manifest(path, overrides).topologies
    faults = []
    for topology in topologies:
        prefix = f"Topology {topology.metadata.name}: " if len(topologies) > 1 else ""
        faults += [
            Fault(prefix + fault.path, fault.message) for fault in _topology_faults(topology, path.parent)
        ]
    return faults


@dataclass(frozen=True, slots=True)
class _Target:
    """What an operator names: `target` is "module:attribute", `role` map or processor, `path` its place."""

    operator: str
    role: str
    path: str
    target: str

    @property
    def module(self) -> str:
        return self.target.partition(":")[0]


def _topology_faults(topology: Topology, base_dir: Path) -> Iterator[Fault]:
    """Faults in the order of the operators; one of a module itself once, whoever names it."""
    targets = list(_targets(topology))
    problems: dict[str, str | None] = {}
    for target in targets:
        module = target.module
        if module not in problems:
            problem = problems[module] = _import_problem(module, base_dir)
            if problem is not None:
                is_the_codes = topology.spec.code is not None and topology.spec.code.module == module
                operators = listed(dict.fromkeys(t.operator for t in targets if t.module == module))
                yield Fault(
                    "spec.code.module" if is_the_codes else target.path, f"named by {operators}: {problem}"
                )
        if problems[module] is None:
            for message in _faults(target.role, target.target, base_dir):
                yield Fault(target.path, message)


def _targets(topology: Topology) -> Iterator[_Target]:
    document = {"spec": {"operators": [{"name": operator.name} for operator in topology.spec.operators]}}
    for index, operator in enumerate(topology.spec.operators):
        for role, target in (("map", operator.map), ("processor", operator.processor)):
            if target is not None:
                path = path_text(("spec", "operators", index, role), document)
                yield _Target(operator.name, role, path, str(target))


def _import_problem(module: str, base_dir: Path) -> str | None:
    try:
        load_module(module, base_dir)
    except UserCodeMissing as missing:
        return str(missing)
    return None


def _faults(role: str, target: str, base_dir: Path) -> Iterator[str]:
    try:
        found = load_attribute(target, base_dir)
    except UserCodeMissing as missing:
        yield str(missing)
        return
    is_processor = isinstance(found, type) and issubclass(found, StatefulProcessor)
    if role == "processor":
        if is_processor:
            yield from _processor_faults(target, found)
        else:
            yield f"{target!r} is no subclass of pyspark.sql.streaming.StatefulProcessor"
    elif is_processor:
        yield f"{target!r} is a StatefulProcessor; a map is a function, and a processor needs keyBy"
    elif not callable(found):
        yield f"{target!r} is {type(found).__name__}, no function; a map takes a row and returns rows"


def _processor_faults(target: str, processor: type[Any]) -> Iterator[str]:
    missing = sorted(processor.__abstractmethods__)
    if missing:
        yield f"{target!r} lacks {' and '.join(missing)}"
        return
    names = {name for code in _codes(processor) for name in code.co_names}
    for name, what in _NOT_YET.items():
        overridden = hasattr(StatefulProcessor, name) and getattr(processor, name) is not getattr(
            StatefulProcessor, name
        )
        if overridden or name in names:
            yield f"{target!r} uses {not_yet(name, what)}"
    if _works_on_pandas(processor):
        yield (
            f"{target!r} works on pandas DataFrames: transformWithStateInPandas is not in Penstock yet; "
            "write handleInputRows for rows"
        )
    else:
        yield from _init_faults(target, processor)


def _init_faults(target: str, processor: type[Any]) -> Iterator[str]:
    handle = _NotingHandle()
    try:
        made = processor()
        made.init(handle)
        handle.seal()
        made.close()
    except PenstockError as error:
        yield f"{target!r}, init: {error}"
    except (Exception, SystemExit) as error:  # noqa: BLE001 - user code may raise anything: that is the finding
        yield f"{target!r} raised in init or close:\n{users_traceback(error)}"
    for noted in handle.noted:
        yield f"{target!r} uses {noted}"


def _works_on_pandas(processor: type[Any]) -> bool:
    """Whether handleInputRows mentions DataFrame, in its code or its signature."""
    method = processor.handleInputRows
    hints = " ".join(map(str, getattr(method, "__annotations__", {}).values()))
    names = {name for code in _nested(getattr(method, "__code__", None)) for name in code.co_names}
    return "DataFrame" in names or "DataFrame" in hints


def _codes(processor: type[Any]) -> Iterator[CodeType]:
    """The code of all methods that are the user's."""
    for owner in processor.__mro__:
        if owner.__module__.split(".")[0] in ("pyspark", "abc", "builtins"):
            continue
        for member in vars(owner).values():
            function = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
            yield from _nested(getattr(function, "__code__", None))


def _nested(code: CodeType | None) -> Iterator[CodeType]:
    """A code object and those of the functions within it."""
    if code is not None:
        yield code
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from _nested(constant)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m penstock_worker.inspect_code")
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="PATH=VALUE")
    options = parser.parse_args(arguments)
    answer = os.dup(1)
    os.dup2(2, 1)
    try:
        faults = inspect_manifest(options.manifest, options.overrides)
    except PenstockError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.flush()
    with os.fdopen(answer, "wb") as file:
        file.write(msgspec.json.encode(faults))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
