"""`penstock explain`: what was decided to keep a LatencySLA, and on routing tables. Neighbours: `local.kept`,
`local.showing`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from penstock.errors import PenstockError
from penstock_operator.cli.faults import EXIT_FAILED, EXIT_INVALID, file_faults


@click.command()
@click.argument("topology", metavar="TOPOLOGY")
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the run keeps its state.  [default: .penstock/NAME]",
)
@click.option("--last", type=click.IntRange(min=1), default=10, show_default=True, help="How many decisions.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, one object a decision.")
def explain(topology: str, state_dir: Path | None, last: int, as_json: bool) -> None:
    """Show the last decisions about TOPOLOGY (its name, or its manifest) that kept a LatencySLA, or were on
    routing tables (locality: Auto).

    Each with what was seen, what was predicted with and without it, what was chosen, and what it brought.
    Works while `penstock run` goes on, and afterwards.
    """
    from penstock_operator.local.kept.decision_log import read_kept
    from penstock_operator.local.showing.explain import explanation, explanation_json, topology_name

    try:
        name = topology_name(topology)
    except PenstockError as error:
        click.echo(f"penstock: {error}", err=True)
        sys.exit(EXIT_INVALID)
    folder = state_dir if state_dir is not None else Path(".penstock") / name
    with file_faults(folder, "read"):
        records = read_kept(folder)[-last:]
    if as_json:
        click.echo(explanation_json(records), nl=False)
    elif records:
        click.echo(explanation(records))
    else:
        click.echo(
            f"No decision about {name} is kept in {folder}: run it with --sla, or with locality: Auto.",
            err=True,
        )
    if not records:
        sys.exit(EXIT_FAILED)
