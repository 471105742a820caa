"""Options of the commands that ask a cluster: which one, and where in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def cluster_options(command: F) -> F:
    """--namespace, --kubeconfig and --context."""
    options = (
        click.option("--namespace", "-n", default="default", show_default=True, help="The Topology's."),
        click.option(
            "--kubeconfig",
            envvar="KUBECONFIG",
            type=click.Path(dir_okay=False),
            help="[default: $KUBECONFIG, ~/.kube/config, or the pod's service account]",
        ),
        click.option("--context", help="One of the kubeconfig's contexts.  [default: its current one]"),
    )
    for option in reversed(options):
        command = option(command)
    return command


def chosen_kubeconfig(given: str | None) -> str | None:
    """The file to go by; None: the pod's service account."""
    usual = Path.home() / ".kube" / "config"
    return given or (str(usual) if usual.exists() else None)
