"""`penstock state` and `penstock logs`: what keyed operators keep, and what workers wrote.

Neighbours: `asked` says whom it asks, `asking.asked_shards` has the state, `asking.log_lines` picks lines.
"""

from __future__ import annotations

import sys

import click

from penstock.errors import PenstockError
from penstock_operator.cli.asked import Where, asked, folder_of, invalid, name_of, where_options
from penstock_operator.cli.cluster_options import chosen_kubeconfig
from penstock_operator.cli.faults import EXIT_FAILED, cannot_run, file_faults


@click.group()
def state() -> None:
    """What the keyed operators of a topology keep. Nothing is changed by it.

    TOPOLOGY is a topology's name, or its manifest, that `penstock run` runs or has run on this machine; with
    --cluster one in Kubernetes.
    """


@state.command("get")
@click.argument("topology")
@click.argument("operator")
@click.argument("key", nargs=-1, required=True)
@where_options
def get_state(topology: str, operator: str, key: tuple[str, ...], where: Where) -> None:
    """Show what OPERATOR keeps of KEY (a value for each column of keyBy), as JSON: one object, by variable.

    Exit code 1: it keeps nothing of it.
    """
    import msgspec

    from penstock_operator.asking.keys import KeyUnknown, key_of, keyed_head

    with asked(topology, where) as found:
        try:
            head = keyed_head(found.plan, operator)
            wanted = key_of(head, key)
        except KeyUnknown as error:
            invalid(str(error))
        answer = found.shards.state_of(operator, head, wanted)
    if not answer.is_settled:
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
@where_options
def list_state(topology: str, operator: str, most: int, where: Where) -> None:
    """List the keys of which OPERATOR keeps something, a JSON list of values in each line."""
    import msgspec

    from penstock_operator.asking.keys import KeyUnknown, keyed_head

    with asked(topology, where) as found:
        try:
            head = keyed_head(found.plan, operator)
        except KeyUnknown as error:
            invalid(str(error))
        answer = found.shards.keys_of(operator, head, most)
    for key in answer.keys:
        click.echo(msgspec.json.encode(key).decode())
    if answer.refused:
        click.echo(f"penstock: {len(answer.refused)} shards change their owners just now", err=True)
        sys.exit(EXIT_FAILED)


@click.command()
@click.argument("topology")
@click.argument("operator", required=False)
@click.option("--last", type=click.IntRange(min=1), default=100, show_default=True, help="So many lines.")
@where_options
def logs(topology: str, operator: str | None, last: int, where: Where) -> None:
    """Show what the workers of a topology wrote last, user code's own lines among it.

    With OPERATOR the lines that name it, or one of its shards or tasks: all operators of a worker write
    into one log, and what code prints names none. --last is for each worker.
    """
    from penstock_operator.asking.log_lines import lines_of

    found: list[str] = []
    for worker, text in _logs(topology, operator, last, where):
        found += [f"{worker}  {line}" for line in lines_of(text, operator, last)]
    for line in found:
        click.echo(line)
    if not found:
        click.echo(f"penstock: nothing of {operator or topology} is in the workers' logs", err=True)
        sys.exit(EXIT_FAILED)


def _logs(topology: str, operator: str | None, last: int, where: Where) -> list[tuple[str, str]]:
    """The log of each worker, or its end."""
    name = name_of(topology, where)
    if where.cluster:
        from penstock_operator.cluster.asked.worker_logs import worker_logs

        kubeconfig = chosen_kubeconfig(where.kubeconfig)
        try:
            return worker_logs(name, operator, last, where.namespace, kubeconfig, where.context)
        except PenstockError as error:
            cannot_run(error)
    folder = folder_of(name, where) / "workers"
    with file_faults(folder, "read"):
        paths = [path for path in sorted(folder.iterdir()) if path.suffix == ".log"]
        return [(path.stem, path.read_text(encoding="utf-8", errors="replace")) for path in paths]
