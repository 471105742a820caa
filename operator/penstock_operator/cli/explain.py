"""`penstock explain`: what was decided to keep a LatencySLA, and on routing tables.

Neighbours: `asked` says whom it asks; `local.kept` and `local.showing` have those of a run,
`cluster.asked.told_decisions` those in a cluster.
"""

from __future__ import annotations

import sys

import click

from penstock.errors import PenstockError
from penstock_operator.cli.asked import Where, folder_of, name_of, where_options
from penstock_operator.cli.cluster_options import chosen_kubeconfig
from penstock_operator.cli.faults import EXIT_FAILED, cannot_run, file_faults


@click.command()
@click.argument("topology", metavar="TOPOLOGY")
@where_options
@click.option("--last", type=click.IntRange(min=1), default=10, show_default=True, help="How many decisions.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, one object a decision.")
def explain(topology: str, where: Where, last: int, as_json: bool) -> None:
    """Show the last decisions about TOPOLOGY (its name, or its manifest) that kept a LatencySLA, or were on
    routing tables (locality: Auto).

    Each with what was seen, what was predicted with and without it, what was chosen, and what it brought.
    Works while `penstock run` goes on, and afterwards. With --cluster of a Topology in Kubernetes, as its
    status and its LatencySLAs' tell.
    """
    name = name_of(topology, where)
    if where.cluster:
        text, json, missing = _in_cluster(name, where, last)
    else:
        text, json, missing = _of_run(name, where, last)
    if as_json:
        click.echo(json, nl=False)
    elif text:
        click.echo(text)
    else:
        click.echo(missing, err=True)
    if not text:
        sys.exit(EXIT_FAILED)


def _of_run(name: str, where: Where, last: int) -> tuple[str, bytes, str]:
    """The decisions in words and as JSON, and what to say where there are none."""
    from penstock_operator.local.kept.decision_log import read_kept
    from penstock_operator.local.showing.explain import explanation, explanation_json

    folder = folder_of(name, where)
    with file_faults(folder, "read"):
        records = read_kept(folder)[-last:]
    missing = f"No decision about {name} is kept in {folder}: run it with --sla, or with locality: Auto."
    return explanation(records), explanation_json(records), missing


def _in_cluster(name: str, where: Where, last: int) -> tuple[str, bytes, str]:
    """The same of a Topology in a cluster."""
    from penstock_operator.cluster.asked.told_decisions import decisions_json, decisions_text, told_in_cluster

    kubeconfig = chosen_kubeconfig(where.kubeconfig)
    try:
        told = told_in_cluster(name, where.namespace, kubeconfig, where.context)[-last:]
    except PenstockError as error:
        cannot_run(error)
    missing = f"No decision about {name} is told: make a LatencySLA for it, or give it locality: Auto."
    return decisions_text(told), decisions_json(told), missing
