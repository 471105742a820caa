"""`penstock run`: a topology on this machine. Neighbours: `checking`, and `local.run_start` that runs it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from penstock.errors import PenstockError
from penstock_operator.cli.faults import EXIT_FAILED, EXIT_INVALID, cannot_run, file_faults, write_faults
from penstock_operator.cli.options import new_file, seconds, store_memory


@click.command()
@click.argument("manifest", type=click.Path(path_type=Path), metavar="TOPOLOGY.yaml")
@click.option("--workers", type=click.IntRange(min=1), help="Number of workers, instead of the manifest's.")
@click.option(
    "--for",
    "time_limit_s",
    callback=seconds,
    metavar="DURATION",
    help="End after this time, such as 60s or 5m, counted from when the work begins.",
)
@click.option(
    "--sla",
    "sla_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Keep the LatencySLAs in FILE, which may be the manifest itself.",
)
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where state is kept between runs.  [default: .penstock/NAME]",
)
@click.option(
    "--store-memory",
    "store_memory_bytes",
    callback=store_memory,
    metavar="SIZE",
    help="What inboxes and state may take of memory, such as 2Gi; then the sources wait."
    "  [default: a quarter of the machine's]",
)
@click.option("--fresh", is_flag=True, help="Remove the state and the sink files of earlier runs first.")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="PATH=VALUE",
    help="Change one value of the manifest, such as count.tasks.initial=4. May be repeated.",
)
@click.option("--live/--no-live", default=True, help="Live view on a terminal.  [default: live]")
@click.option(
    "--log-every",
    "log_every_s",
    callback=seconds,
    default="5s",
    metavar="DURATION",
    help="Without a live view: how often to write a line.  [default: 5s]",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(1, 65535),
    help="Prometheus metrics of worker w0 on this loopback port, of w1 on the next, ...",
)
@click.option(
    "--json-summary",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=new_file,
    metavar="FILE",
    help="Write the summary at the end as JSON.",
)
def run(
    manifest: Path,
    workers: int | None,
    time_limit_s: float | None,
    sla_file: Path | None,
    state_dir: Path | None,
    store_memory_bytes: int | None,
    fresh: bool,
    overrides: tuple[str, ...],
    live: bool,
    log_every_s: float,
    metrics_port: int | None,
    json_summary: Path | None,
) -> None:
    """Run a topology on this machine, with a private store and workers as processes.

    Ends when the input is used up, after --for, or on Ctrl-C: then no more input is read and what waits is
    worked through; a second Ctrl-C ends at once. Nothing is lost either way: the next run goes on where this
    one stopped, unless --fresh is given.

    With --sla, tasks and shards follow the load so that the latency stays within its bound; `penstock
    explain` shows the decisions afterwards.

    Rows of console sinks go to stdout, everything else to stderr.
    """
    from penstock.manifest.faults import InvalidManifest
    from penstock_operator.checking.checked_manifest import check_manifest

    try:
        checked = check_manifest(manifest, overrides, sla_file)
        plan = checked.plan
    except InvalidManifest as invalid:
        write_faults(manifest, invalid.faults)
        sys.exit(EXIT_INVALID)
    except PenstockError as error:
        cannot_run(error)
    for hint in checked.hints:
        click.echo(hint, err=True)
    from penstock_operator.local.prerequisites import check_java, check_ports
    from penstock_operator.local.run_start import RunRequest, run_topology, state_folder
    from penstock_operator.local.run_state import Result
    from penstock_operator.local.showing.run_output import open_output
    from penstock_operator.local.showing.run_summary import summary_json

    count = workers or plan.workers_initial
    output = open_output(live=live, log_every_s=log_every_s)
    try:
        check_java(os.environ)
        if metrics_port is not None:
            check_ports(metrics_port, max(count, plan.workers.most))
        summary = run_topology(
            RunRequest(
                plan=plan,
                manifest_text=checked.text,
                base_dir=manifest.parent,
                state_folder=state_folder(state_dir, plan.topology),
                workers=count,
                time_limit_s=time_limit_s,
                fresh=fresh,
                metrics_port=metrics_port,
                promises=checked.promises,
                store_memory_bytes=store_memory_bytes,
                state=checked.state,
            ),
            output,
        )
    except PenstockError as error:
        cannot_run(error)
    output.end(summary)
    if json_summary is not None:
        with file_faults(json_summary, "written"):
            json_summary.write_bytes(summary_json(summary))
    if summary.result == Result.FAILED:
        sys.exit(EXIT_FAILED)
