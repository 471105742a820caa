"""`penstock state` and `penstock logs`: what a run on this machine keeps, and what its code wrote.

Neighbours: `local.stored_state` reads state, `local.processes.worker_logs` has the logs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from penstock.errors import PenstockError
from penstock_operator.cli.faults import EXIT_FAILED, EXIT_INVALID, cannot_run, file_faults

if TYPE_CHECKING:
    from penstock.dataflow.plan import Plan
    from penstock_operator.local.opened_store import OpenedStore

_STATE_DIR = click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the run keeps its state.  [default: .penstock/NAME]",
)


@click.group()
def state() -> None:
    """What the keyed operators of a run keep. Nothing is changed by it.

    TOPOLOGY is a topology's name, or its manifest, that `penstock run` runs or has run on this machine.
    """


@state.command("get")
@click.argument("topology")
@click.argument("operator")
@click.argument("key", nargs=-1, required=True)
@_STATE_DIR
def get_state(topology: str, operator: str, key: tuple[str, ...], state_dir: Path | None) -> None:
    """Show what OPERATOR keeps of KEY (a value for each column of keyBy), as JSON: one object, by variable.

    Exit code 1: it keeps nothing of it.
    """
    import msgspec

    from penstock_operator.local.stored_state import KeyUnknown, key_of, keyed_head, state_of

    with _opened(topology, state_dir) as (opened, plan):
        try:
            head = keyed_head(plan, operator)
            wanted = key_of(head, key)
        except KeyUnknown as error:
            _invalid(error)
        answer = state_of(opened, operator, head, wanted)
    if answer.refused:
        click.echo("penstock: the shard's owner changes just now; ask again", err=True)
        sys.exit(EXIT_FAILED)
    if not answer.variables:
        click.echo(f"penstock: {operator} keeps nothing of {' '.join(key)}", err=True)
        sys.exit(EXIT_FAILED)
    click.echo(msgspec.json.format(msgspec.json.encode(answer.variables)).decode())


@state.command("list")
@click.argument("topology")
@click.argument("operator")
@click.option("--most", type=click.IntRange(min=1), default=1000, show_default=True, help="So many keys.")
@_STATE_DIR
def list_state(topology: str, operator: str, most: int, state_dir: Path | None) -> None:
    """List the keys of which OPERATOR keeps something, a JSON list of values in each line."""
    import msgspec

    from penstock_operator.local.stored_state import KeyUnknown, keyed_head, keys_of

    with _opened(topology, state_dir) as (opened, plan):
        try:
            head = keyed_head(plan, operator)
        except KeyUnknown as error:
            _invalid(error)
        answer = keys_of(opened, operator, head, most)
    for key in answer.keys:
        click.echo(msgspec.json.encode(key).decode())
    if answer.refused:
        click.echo(f"penstock: {len(answer.refused)} shards change their owners just now", err=True)
        sys.exit(EXIT_FAILED)


@click.command()
@click.argument("topology")
@click.argument("operator", required=False)
@click.option("--last", type=click.IntRange(min=1), default=100, show_default=True, help="So many lines.")
@_STATE_DIR
def logs(topology: str, operator: str | None, last: int, state_dir: Path | None) -> None:
    """Show what the workers of a run wrote last, user code's own lines among it.

    With OPERATOR the lines that name it, or one of its shards or tasks: all operators of a worker write
    into one log, and what code prints names none.
    """
    folder = _folder(topology, state_dir) / "workers"
    found: list[str] = []
    with file_faults(folder, "read"):
        for path in sorted(folder.iterdir()):
            if path.suffix == ".log":
                lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
                wanted = [line for line in lines if operator is None or operator in line][-last:]
                found += [f"{path.stem}  {line}" for line in wanted]
    for line in found:
        click.echo(line)
    if not found:
        click.echo(f"penstock: nothing is in the logs in {folder}", err=True)
        sys.exit(EXIT_FAILED)


def _folder(topology: str, state_dir: Path | None) -> Path:
    from penstock_operator.local.showing.explain import topology_name

    try:
        name = topology_name(topology)
    except PenstockError as error:
        _invalid(error)
    return state_dir if state_dir is not None else Path(".penstock") / name


@contextmanager
def _opened(topology: str, state_dir: Path | None) -> Iterator[tuple[OpenedStore, Plan]]:
    from penstock.api.compile import compile_topology
    from penstock.api.load import load_topology
    from penstock_operator.local.opened_store import opened_store

    folder = _folder(topology, state_dir)
    try:
        with opened_store(folder) as opened:
            yield opened, compile_topology(load_topology(folder / "topology.yaml"))
    except PenstockError as error:
        cannot_run(error)


def _invalid(error: PenstockError) -> NoReturn:
    click.echo(f"penstock: {error}", err=True)
    sys.exit(EXIT_INVALID)
