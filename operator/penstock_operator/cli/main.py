"""The command line: `penstock` and its commands, a module each.

Thin: a command reads options, calls, and turns errors into sentences and exit codes. Everything heavy is
imported where it is used, so that `--help` is quick. Nothing of the product imports from here.
Exit codes: 0 done, 1 the run failed, 2 the manifest or the command line is wrong, 3 the machine lacks
something or the state cannot be used, 4 an operator has lost its Lease.
"""

from __future__ import annotations

import click

from penstock_operator.cli.accept_loss import accept_loss
from penstock_operator.cli.crds import crds
from penstock_operator.cli.dead_letters import dead_letters
from penstock_operator.cli.explain import explain
from penstock_operator.cli.in_cluster import agent, operator, uninstall
from penstock_operator.cli.new import new
from penstock_operator.cli.run import run
from penstock_operator.cli.simulate import simulate
from penstock_operator.cli.state import logs, state
from penstock_operator.cli.validate import validate


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="penstock", message="penstock %(version)s")
def main() -> None:
    """Keyed stream processing that keeps a latency promise."""


for _command in (
    new,
    run,
    validate,
    explain,
    dead_letters,
    state,
    logs,
    simulate,
    operator,
    agent,
    crds,
    uninstall,
    accept_loss,
):
    main.add_command(_command)
