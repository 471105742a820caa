"""`penstock simulate`: what a LatencySLA would cost. Neighbour: `local.simulating`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from penstock.errors import PenstockError
from penstock_operator.cli.faults import EXIT_CANNOT_RUN, EXIT_INVALID, file_faults, write_faults
from penstock_operator.cli.options import a_number, picture, seconds


@click.command()
@click.argument("manifest", type=click.Path(path_type=Path), metavar="TOPOLOGY.yaml")
@click.argument("sla_file", type=click.Path(path_type=Path, dir_okay=False), metavar="SLA.yaml")
@click.option(
    "--trace",
    "trace_file",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The rate of each source over time: lines of seconds,rate_per_s.",
)
@click.option(
    "--service",
    "services",
    multiple=True,
    metavar="OPERATOR=DURATION",
    help="How long a row takes, such as auction=2ms. May be repeated; a zipf source says it itself.",
)
@click.option(
    "--rows",
    "factors",
    multiple=True,
    metavar="OPERATOR=NUMBER",
    help="Rows that reach the operator for each one upstream.  [default: 1]",
)
@click.option(
    "--skew",
    type=click.FloatRange(min=0, max=10),
    callback=a_number,
    help="Zipf exponent of the keys.  [default: the source's, or 0]",
)
@click.option(
    "--for", "length_s", callback=seconds, metavar="DURATION", help="Instead of the trace's length."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=picture,
    metavar="FILE",
    help="Draw a picture.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def simulate(
    manifest: Path,
    sla_file: Path,
    trace_file: Path,
    services: tuple[str, ...],
    factors: tuple[str, ...],
    skew: float | None,
    length_s: float | None,
    seed: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    """What would the LatencySLA in SLA.yaml cost, and would it be kept? Nothing is started.

    The topology runs in virtual time under the SLA's policy, and beside it with as many tasks all the time.
    Rows come at random at the trace's rates, and take a random time around --service.
    """
    from penstock.manifest.faults import InvalidManifest
    from penstock_operator.local.simulating.answer import as_json as answer_json
    from penstock_operator.local.simulating.answer import draw, show
    from penstock_operator.local.simulating.request import read_request
    from penstock_operator.local.simulating.simulate import simulate as run_simulation

    try:
        request = read_request(manifest, sla_file, trace_file, services, factors, skew, length_s, seed)
        answer = run_simulation(request)
    except InvalidManifest as invalid:
        write_faults(manifest, invalid.faults)
        sys.exit(EXIT_INVALID)
    except PenstockError as error:
        click.echo(f"penstock: {error}", err=True)
        sys.exit(EXIT_INVALID)
    if as_json:
        click.echo(json.dumps(answer_json(answer), indent=2))
    else:
        from rich.console import Console

        show(answer, Console())
    if plot is not None:
        with file_faults(plot, "written"):
            is_drawn = draw(plot, answer)
        if not is_drawn:
            click.echo("penstock: no picture: matplotlib is not installed; the extra dev has it.", err=True)
            sys.exit(EXIT_CANNOT_RUN)
