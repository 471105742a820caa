"""`python -m penstock_worker.user_code.inspect_code MANIFEST [--set PATH=VALUE ...]`: is user code right?

Imports the code that a manifest names and calls each processor's `init` with a handle that only notes
what is asked of it, without a JVM. Prints an `InspectedCode` as JSON; whatever the code itself prints
goes to stderr. Exit code 0, also with faults; 1 when the manifest cannot be read. Neighbours:
`penstock.api.load` checks the manifest itself, `handle_use` reads the source of processors,
`user_code.running` and `state.handle` refuse the same at run time.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from penstock.api.inspected_code import InspectedCode
from penstock.api.load import load_manifest
from penstock.api.specs.operator_spec import STEPS as STEP_FORMS
from penstock.api.specs.operator_spec import OperatorSpec
from penstock.api.topology import Topology
from penstock.connectors.named_code import DATA_SOURCE, FOREACH, FOREACH_BATCH, NamedCode
from penstock.connectors.registry import named_code
from penstock.dataflow.letter_columns import DEAD_LETTERS
from penstock.dataflow.plan import EVENT_TIME, NO_TIME
from penstock.dataflow.state_schema import words
from penstock.errors import PenstockError
from penstock.manifest.faults import Fault, joined, listed, path_text
from penstock_worker.state.handle import TaskHandle, needs_time
from penstock_worker.user_code.arguments import (
    STEPS,
    Arguments,
    processor_problem,
    step_function,
    sync_with_calls,
)
from penstock_worker.user_code.batch_code import not_foreach_batch
from penstock_worker.user_code.data_source_look import look_at_data_source
from penstock_worker.user_code.foreach_code import not_foreach
from penstock_worker.user_code.form_signs import FormUnclear, form_of
from penstock_worker.user_code.handle_use import handle_calls, mentions
from penstock_worker.user_code.key_calls import NO_CALLS, is_async_processor
from penstock_worker.user_code.method_signatures import method_problems
from penstock_worker.user_code.processor_code import class_of, maker_of
from penstock_worker.user_code.running import UserCodeMissing, load_attribute, load_module, users_traceback
from penstock_worker.user_code.transform_code import TRANSFORM
from penstock_worker.values.wire_values import shown

_TIMERS = ("registerTimer", "deleteTimer", "listTimers")
"""Calls on a handle that come with rows."""
_OF_AN_AGGREGATOR = ("zero", "reduce", "merge", "finish")
_ALL = joined(_OF_AN_AGGREGATOR)


class _NotingHandle(TaskHandle):
    """Notes what needs a time mode in `asked`, and goes on, so that all of it is found at once."""

    def __init__(self, asked: list[str], time_mode: str) -> None:
        super().__init__(time_mode)
        self._asked = asked

    def refuse_without_time(self, call: str) -> None:
        self._asked.append(needs_time(call))


class _Findings:
    """Of one target: what is wrong with it, what is to be said of it, and what state it declares."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.notes: list[str] = []
        self.asked: list[str] = []
        self.calls: set[str] = set()
        self.state: dict[str, dict[str, str]] = {}

    def fault(self, message: str) -> None:
        self.faults.append(message)

    def note(self, message: str) -> None:
        self.notes.append(message)


def inspect_manifest(path: Path, overrides: Sequence[str] = ()) -> InspectedCode:
    """What there is to say of the code that the manifest at `path` names. Raises InvalidManifest.

    State is told of a manifest with one Topology only, the one that can be run.
    """
    topologies = load_manifest(path, overrides).topologies
    faults: list[Fault] = []
    notes: list[str] = []
    state: dict[str, dict[str, str]] = {}
    for topology in topologies:
        prefix = f"Topology {topology.metadata.name}: " if len(topologies) > 1 else ""
        for at, found in _topology_findings(topology, path.parent):
            faults += [Fault(prefix + at, message) for message in found.faults]
            notes += [f"{prefix}{at}: {note}" for note in found.notes]
            state.update(found.state if len(topologies) == 1 else {})
    return InspectedCode(faults, notes, state)


def topology_faults(topology: Topology, base_dir: Path) -> list[Fault]:
    """What is wrong with the code of one Topology, in this process, which has it imported then."""
    return [
        Fault(at, message) for at, found in _topology_findings(topology, base_dir) for message in found.faults
    ]


@dataclass(frozen=True, slots=True)
class _Target:
    """What an operator names: `target` is "module:attribute", `role` a step's field, processor, aggregate or
    what a source or a sink wants, `path` its place, `form` what the manifest says of a processor's, `code`
    what it says of a source's or a sink's, `arguments` what it gives to the others."""

    operator: str
    role: str
    path: str
    target: str
    form: str
    time_mode: str
    has_initial: bool = False
    code: NamedCode | None = None
    arguments: Arguments = field(default_factory=dict)
    has_calls: bool = False

    @property
    def module(self) -> str:
        return self.target.partition(":")[0]


def _topology_findings(topology: Topology, base_dir: Path) -> Iterator[tuple[str, _Findings]]:
    """Findings with their paths in the order of the operators; of a module itself once, whoever names it."""
    targets = list(_targets(topology))
    problems: dict[str, str | None] = {}
    for target in targets:
        module = target.module
        if module not in problems:
            problem = problems[module] = _import_problem(module, base_dir)
            if problem is not None:
                is_the_codes = topology.spec.code is not None and topology.spec.code.module == module
                operators = listed(dict.fromkeys(t.operator for t in targets if t.module == module))
                found = _Findings()
                found.fault(f"named by {operators}: {problem}")
                yield "spec.code.module" if is_the_codes else target.path, found
        if problems[module] is None:
            yield target.path, _findings(target, base_dir)


def _targets(topology: Topology) -> Iterator[_Target]:
    document = {"spec": {"operators": [{"name": operator.name} for operator in topology.spec.operators]}}
    for index, operator in enumerate(topology.spec.operators):
        for role, target in filter(None, _code_of(operator)):
            if target is not None:
                path = path_text(("spec", "operators", index, role), document)
                form, time_mode = operator.form or "", operator.time_mode or NO_TIME
                has_initial = operator.initial_state is not None
                yield _Target(
                    operator.name, role, path, str(target), form, time_mode, has_initial,
                    arguments=operator.args or {}, has_calls=operator.calls is not None,
                )  # fmt: skip
        for place, aggregate in enumerate(operator.aggregate or ()):
            if ":" in aggregate.function:
                path = path_text(("spec", "operators", index, "aggregate", place, "function"), document)
                yield _Target(operator.name, "aggregate", path, aggregate.function, "", EVENT_TIME)
        for where, code in named_code(operator.model_dump(by_alias=True, exclude_none=True)):
            path = path_text(("spec", "operators", index, *where), document)
            yield _Target(operator.name, code.role, path, code.target, "", NO_TIME, code=code)
    letters = topology.spec.dead_letters
    if letters is not None:
        found = {"deadLetters": letters.model_dump(by_alias=True, exclude_none=True)}
        for where, code in named_code(found):
            path = path_text(("spec", *where), document)
            yield _Target(DEAD_LETTERS, code.role, path, code.target, "", NO_TIME, code=code)


def _code_of(operator: OperatorSpec) -> Iterator[tuple[str, str | None] | None]:
    yield operator.step
    yield "transform", operator.transform
    yield "processor", operator.processor


def _import_problem(module: str, base_dir: Path) -> str | None:
    try:
        load_module(module, base_dir)
    except UserCodeMissing as missing:
        return str(missing)
    return None


def _findings(named: _Target, base_dir: Path) -> _Findings:
    found = _Findings()
    target = named.target
    try:
        code = load_attribute(target, base_dir)
    except UserCodeMissing as missing:
        found.fault(str(missing))
        return found
    if named.role == "aggregate":
        _look_at_aggregator(target, code, found)
    elif named.code is not None and named.role == DATA_SOURCE:
        look_at_data_source(named.code, base_dir, found)
    elif named.role == FOREACH:
        if problem := not_foreach(target, code):
            found.fault(problem)
    elif named.role == FOREACH_BATCH:
        if problem := not_foreach_batch(target, code):
            found.fault(problem)
    elif named.role == "processor":
        if problem := processor_problem(target, code, named.arguments):
            found.fault(problem)
        else:
            _look_at_processor(named, code, found)
    else:
        try:
            kind = TRANSFORM if named.role == "transform" else STEPS[STEP_FORMS[named.role]]
            function = step_function(kind, target, named.arguments, base_dir)
            if named.has_calls and (problem := sync_with_calls(target, function)):
                found.fault(problem)
        except UserCodeMissing as missing:
            found.fault(str(missing))
    return found


def _look_at_aggregator(target: str, aggregator: object, found: _Findings) -> None:
    if not isinstance(aggregator, type):
        found.fault(f"{target!r} is {type(aggregator).__name__}, no class; an aggregator is one with {_ALL}")
        return
    missing = [name for name in _OF_AN_AGGREGATOR if not callable(getattr(aggregator, name, None))]
    if missing:
        found.fault(f"{target!r} lacks {joined(missing)}; an aggregator has {_ALL}")
        return
    try:
        aggregator()
    except BaseException as error:  # noqa: BLE001 - user code may raise anything: that is the finding
        found.fault(f"{target!r} raised in __init__:\n{users_traceback(error)}")


def _look_at_processor(named: _Target, code: Any, found: _Findings) -> None:
    target = named.target
    missing = sorted(getattr(class_of(code), "__abstractmethods__", ()))
    if missing:
        found.fault(f"{target!r} lacks {' and '.join(missing)}")
        return
    try:
        made = maker_of(partial(code, **named.arguments) if named.arguments else code)()
    except BaseException as error:  # noqa: BLE001 - user code may raise anything: that is the finding
        where = " in __init__" if class_of(code) is not None else ""
        found.fault(f"{target!r} raised{where}:\n{users_traceback(error)}")
        return
    if not isinstance(made, StatefulProcessor):
        found.fault(
            f"{target!r} returned {shown(made)}; a function that is named as a processor makes a "
            "pyspark.sql.streaming.StatefulProcessor"
        )
        return
    processor = type(made)
    try:
        form_of(processor, named.form)
    except FormUnclear as unclear:
        found.fault(str(unclear))
    if named.has_calls and not is_async_processor(made):
        found.fault(NO_CALLS.format(target))
    problems = dict(method_problems(target, made))
    for problem in problems.values():
        found.fault(problem)
    if not problems.keys() & {"init", "close"}:
        _call(named, made, found)
    handles_initial = processor.handleInitialState is not StatefulProcessor.handleInitialState
    if handles_initial and not named.has_initial:
        found.note(f"handleInitialState of {target!r} is never called: the operator has no initialState")
    if named.has_initial and not handles_initial:
        found.note(f"{target!r} has no handleInitialState: rows of initialState do nothing")
    handles_timers = processor.handleExpiredTimer is not StatefulProcessor.handleExpiredTimer
    if handles_timers and named.time_mode == NO_TIME:
        found.note(f"handleExpiredTimer of {target!r} is never called: the operator has no timeMode")
    if named.time_mode != EVENT_TIME and mentions(processor, "getCurrentWatermarkInMs"):
        found.note(
            f"getCurrentWatermarkInMs(), which {target!r} asks, is -1 always: the operator has no "
            "timeMode: EventTime"
        )


def _call(named: _Target, made: Any, found: _Findings) -> None:
    """Call an instance's `init` and `close`, as a task does."""
    target = named.target
    handle = _NotingHandle(found.asked, named.time_mode)
    step = "init"
    try:
        made.init(handle)
        handle.seal()
        found.calls |= handle_calls(made, handle, _TIMERS)
        step = handle.cursor.doing = "close"
        made.close()
    except PenstockError as error:
        found.fault(f"{target!r}, {step}: {error}")
    except BaseException as error:  # noqa: BLE001 - user code may raise anything: that is the finding
        found.fault(f"{target!r} raised in {step}:\n{users_traceback(error)}")
    for asked in found.asked:
        found.fault(f"{target!r} uses {asked}")
    for name in _TIMERS if named.time_mode == NO_TIME else ():
        if name in found.calls:
            found.fault(f"{target!r} uses {needs_time(name)}")
    declared = {v.name: words((v.kind, v.schemas)) for v in handle.variables if v.name}
    found.state[named.operator] = {**dict.fromkeys(handle.deleted, ""), **declared}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m penstock_worker.user_code.inspect_code")
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="PATH=VALUE")
    options = parser.parse_args(arguments)
    answer = os.dup(1)
    os.dup2(2, 1)
    try:
        inspected = inspect_manifest(options.manifest, options.overrides)
    except PenstockError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.flush()
    with os.fdopen(answer, "wb") as file:
        file.write(msgspec.json.encode(inspected))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
