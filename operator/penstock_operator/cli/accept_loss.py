"""`penstock accept-loss`: what a Topology lost for good may begin anew. Neighbour: `cluster.accept_loss`."""

from __future__ import annotations

import sys

import click

from penstock.errors import PenstockError
from penstock_operator.cli.cluster_options import chosen_kubeconfig, cluster_options
from penstock_operator.cli.faults import EXIT_FAILED, cannot_run


@click.command("accept-loss")
@click.argument("topology")
@click.option(
    "--id", "ids", multiple=True, metavar="ID", help="Accept this loss; may be given several times."
)
@cluster_options
def accept_loss(
    topology: str, namespace: str, ids: tuple[str, ...], kubeconfig: str | None, context: str | None
) -> None:
    """Show which shards' state TOPOLOGY has lost for good, and accept that.

    Without --id nothing is changed. A loss that is accepted cannot be taken back: these shards begin anew
    with nothing, a source's partition where its source begins. All others stay as they are.
    """
    import asyncio

    from penstock_operator.cluster.accept_loss import ToldLoss, accept_losses, told_losses
    from penstock_operator.cluster.kubernetes_api.client import connect

    async def work() -> tuple[ToldLoss, ...]:
        cluster = await connect(namespace, chosen_kubeconfig(kubeconfig), context)
        try:
            if ids:
                return await accept_losses(cluster, topology, ids)
            return await told_losses(cluster, topology)
        finally:
            await cluster.close()

    try:
        losses = asyncio.run(work())
    except PenstockError as error:
        cannot_run(error)
    if not losses:
        click.echo(f"Topology {topology} has lost nothing, as far as is known now.")
        sys.exit(EXIT_FAILED)
    for loss in losses:
        click.echo(f"{'accepted' if ids else 'lost'}  {loss}")
    if not ids:
        options = " ".join(f"--id {loss.id}" for loss in losses)
        click.echo("To begin these shards anew, with nothing, which cannot be taken back:")
        click.echo(f"  penstock accept-loss {topology} --namespace {namespace} {options}")
