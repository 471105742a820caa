"""`penstock crds`: the CustomResourceDefinitions, from the models. Neighbour: `penstock.api.crds`."""

from __future__ import annotations

from pathlib import Path

import click

from penstock_operator.cli.faults import file_faults


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False), required=False)
def crds(directory: Path | None) -> None:
    """Print the CustomResourceDefinitions, or write one file each into DIRECTORY."""
    from penstock.api.crds import crd_texts, write_crds

    if directory is None:
        click.echo("---\n".join(crd_texts().values()), nl=False)
        return
    with file_faults(directory, "written"):
        write_crds(directory)
    for name in crd_texts():
        click.echo(str(directory / name))
