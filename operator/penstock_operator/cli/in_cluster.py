"""What runs in pods: `penstock operator`, `penstock agent`, and what the chart calls before it goes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from penstock.errors import PenstockError
from penstock_operator.cli.faults import EXIT_INVALID, cannot_run, write_faults


@click.command()
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    required=True,
    help="The file that the chart makes, /etc/penstock/operator/config.yaml.",
)
def operator(config_file: Path) -> None:
    """Run Topologies on Kubernetes: one replica of the operator, until it is told to stop.

    Meets the API server by the pod's service account, or by the file that KUBECONFIG names. Exit code 4: it
    led and lost the Lease; start it again.
    """
    from penstock.api.operator_config import load_operator_config
    from penstock.manifest.faults import InvalidManifest

    try:
        config = load_operator_config(config_file)
    except InvalidManifest as invalid:
        write_faults(config_file, invalid.faults)
        sys.exit(EXIT_INVALID)
    from penstock_operator.cluster.main import operate

    operate(config, os.environ)


@click.command()
def agent() -> None:
    """Keep one node's store: create and move its shards, tell its workers, deliver to other stores.

    Runs beside redis-server in the pods that the operator makes; they give it all settings.
    """
    from penstock_operator.agent.main import run_agent

    sys.exit(run_agent())


@click.command(hidden=True)
@click.option("--fullname", required=True, help="What the release's names begin with.")
@click.option("--namespace", envvar="PENSTOCK_NAMESPACE", required=True)
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0), default=45.0, show_default=True)
@click.option("--keep-volumes", is_flag=True, help="Leave the stores' volumes and retained Schedules.")
@click.option(
    "--keep-topologies", is_flag=True, help="End all that runs; leave Topologies, Schedules and volumes."
)
@click.option("--served", multiple=True, help="A further namespace that the release serves; several times.")
@click.option("--crds-go", is_flag=True, help="Refuse while other namespaces have Topologies.")
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="Instead of the pod's service account.")
def uninstall(
    fullname: str,
    namespace: str,
    timeout_s: float,
    keep_volumes: bool,
    keep_topologies: bool,
    served: tuple[str, ...],
    crds_go: bool,
    kubeconfig: str | None,
) -> None:
    """Delete all that the operator made in its namespaces, as the hook before `helm uninstall` does."""
    import asyncio
    import time

    from penstock_operator.cluster.kubernetes_api.client import connect
    from penstock_operator.cluster.uninstall import Uninstalled, check_others, run_uninstall

    async def work() -> Uninstalled:
        cluster = await connect(namespace, kubeconfig)
        try:
            if crds_go:
                await check_others(cluster, keep_topologies=keep_topologies, served=served)
            return await run_uninstall(
                cluster,
                fullname,
                keep_volumes=keep_volumes,
                keep_topologies=keep_topologies,
                served=served,
                timeout_s=timeout_s,
                clock_s=time.monotonic,
                sleep=asyncio.sleep,
            )
        finally:
            await cluster.close()

    try:
        done = asyncio.run(work())
    except PenstockError as error:
        cannot_run(error)
    for title in done.deleted:
        click.echo(f"deleted {title}")
    for title in done.ending:
        click.echo(f"still ending, and will end by itself: {title}")
