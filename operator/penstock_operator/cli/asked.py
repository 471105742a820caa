"""Whom `dead-letters`, `state` and `logs` ask: a run on this machine, or with --cluster one in Kubernetes.

Neighbours: `local.asked_run` and `cluster.asked` open what is asked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import click

from penstock.errors import PenstockError
from penstock_operator.cli.cluster_options import chosen_kubeconfig, cluster_options
from penstock_operator.cli.faults import EXIT_INVALID, cannot_run

if TYPE_CHECKING:
    from penstock_operator.asking.asked_shards import AskedTopology

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Where:
    """What the options say about where a topology runs."""

    state_dir: Path | None
    cluster: bool
    namespace: str
    kubeconfig: str | None
    context: str | None


def where_options(command: F) -> F:
    """Options of a command about a topology; it gets them as `where`."""

    @wraps(command)
    def called(
        *given: Any,
        state_dir: Path | None,
        cluster: bool,
        namespace: str,
        kubeconfig: str | None,
        context: str | None,
        **more: Any,
    ) -> Any:
        if cluster and state_dir is not None:
            invalid("--state-dir is for a run on this machine, and --cluster for one in Kubernetes")
        where = Where(state_dir, cluster, namespace, kubeconfig, context)
        return command(*given, where=where, **more)

    options = (
        click.option(
            "--state-dir",
            type=click.Path(path_type=Path, file_okay=False),
            help="Where the run keeps its state.  [default: .penstock/NAME]",
        ),
        click.option("--cluster", is_flag=True, help="The Topology in a cluster, instead of a run here."),
    )
    made: Any = cluster_options(called)
    for option in reversed(options):
        made = option(made)
    return cast("F", made)


@contextmanager
def asked(topology: str, where: Where) -> Iterator[AskedTopology]:
    """The topology, to be asked about; what is wrong ends the command."""
    name = name_of(topology, where)
    try:
        if where.cluster:
            from penstock_operator.cluster.asked.asked_cluster import asked_cluster

            kubeconfig = chosen_kubeconfig(where.kubeconfig)
            with asked_cluster(name, where.namespace, kubeconfig, where.context, _told) as found:
                yield found
        else:
            from penstock_operator.local.asked_run import asked_run

            with asked_run(folder_of(name, where)) as found:
                yield found
    except PenstockError as error:
        cannot_run(error)


def name_of(topology: str, where: Where) -> str:
    """The name of a topology that is given by it, or by its manifest."""
    from penstock_operator.local.showing.explain import topology_name

    try:
        return topology_name(topology, "cluster" if where.cluster else "local")
    except PenstockError as error:
        invalid(str(error))


def folder_of(name: str, where: Where) -> Path:
    return where.state_dir if where.state_dir is not None else Path(".penstock") / name


def invalid(what: str) -> NoReturn:
    """End the command: something of its line is wrong."""
    click.echo(f"penstock: {what}", err=True)
    sys.exit(EXIT_INVALID)


def _told(what: str) -> None:
    click.echo(f"penstock: {what}", err=True)
