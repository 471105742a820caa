"""`penstock validate`: is a manifest right, and the user code that it names? Neighbour: `checking`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.errors import PenstockError
from penstock_operator.cli.faults import EXIT_INVALID, cannot_run, write_faults

if TYPE_CHECKING:
    from penstock.manifest.faults import Fault


@click.command()
@click.argument("manifest", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help='Faults as JSON: [{"path": ..., "message": ...}].')
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="As in `penstock run`.")
@click.option(
    "--cluster",
    is_flag=True,
    help="As a cluster reads it; code is in an image or a ConfigMap, and not looked at.",
)
@click.option(
    "--sla",
    "sla_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Check the LatencySLAs in FILE too, against the Topology.",
)
def validate(
    manifest: Path, as_json: bool, overrides: tuple[str, ...], cluster: bool, sla_file: Path | None
) -> None:
    """Check a manifest and the user code that it names; list every fault at once.

    Exit code 0 when it can be run, 2 when it cannot. Files that are not there yet, and sinks that cannot be
    written now, are warned of; with --cluster they are not looked for.
    """
    from penstock.manifest.faults import InvalidManifest
    from penstock_operator.checking.checked_manifest import check_for_cluster, check_manifest, warnings_of

    faults: tuple[Fault, ...] = ()
    warnings: list[str] = []
    hints: tuple[str, ...] = ()
    try:
        if cluster:
            check_for_cluster(manifest, overrides, sla_file)
        else:
            checked = check_manifest(manifest, overrides, sla_file)
            hints = checked.hints
            warnings = warnings_of(checked.plans, manifest.parent)
    except InvalidManifest as invalid:
        faults = invalid.faults
    except PenstockError as error:
        cannot_run(error)
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    if as_json:
        click.echo(json.dumps([{"path": fault.path, "message": fault.message} for fault in faults], indent=2))
    elif faults:
        write_faults(manifest, faults)
    else:
        click.echo(f"{manifest}: valid")
    for hint in hints:
        click.echo(hint, err=True)
    if faults:
        sys.exit(EXIT_INVALID)
