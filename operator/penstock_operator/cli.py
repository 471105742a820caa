"""The command line: `penstock run`, `explain`, `simulate`, `validate`, `crds`, and what runs in a cluster:
`operator`, `agent`.

Thin: it reads options, calls, and turns errors into sentences and exit codes. Everything heavy is imported
where it is used, so that `--help` is quick.
Exit codes: 0 done, 1 the run failed, 2 the manifest or the command line is wrong, 3 the machine lacks
something or the state cannot be used, 4 an operator has lost its Lease.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.errors import PenstockError
from penstock_operator.cli_faults import (
    EXIT_CANNOT_RUN,
    EXIT_FAILED,
    EXIT_INVALID,
    cannot_run,
    file_faults,
    write_faults,
)
from penstock_operator.cli_options import a_number, new_file, picture, seconds, store_memory

if TYPE_CHECKING:
    from penstock.manifest.faults import Fault


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="penstock", message="penstock %(version)s")
def main() -> None:
    """Keyed stream processing that keeps a latency promise."""


@main.command()
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
    from penstock_operator.checked_manifest import check_manifest

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
    import os

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


@main.command()
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
    from penstock_operator.checked_manifest import check_for_cluster, check_manifest, warnings_of

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
        import json

        click.echo(json.dumps([{"path": fault.path, "message": fault.message} for fault in faults], indent=2))
    elif faults:
        write_faults(manifest, faults)
    else:
        click.echo(f"{manifest}: valid")
    for hint in hints:
        click.echo(hint, err=True)
    if faults:
        sys.exit(EXIT_INVALID)


@main.command()
@click.argument("topology", metavar="TOPOLOGY")
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the run keeps its state.  [default: .penstock/NAME]",
)
@click.option("--last", type=click.IntRange(min=1), default=10, show_default=True, help="How many decisions.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, one object a decision.")
def explain(topology: str, state_dir: Path | None, last: int, as_json: bool) -> None:
    """Show the last decisions about TOPOLOGY (its name, or its manifest) that kept a LatencySLA.

    Each with what was seen, what was predicted with and without it, what was chosen, and what it brought.
    Works while `penstock run --sla` goes on, and afterwards.
    """
    from penstock_operator.local.kept.decision_log import read_decisions
    from penstock_operator.local.showing.explain import explanation, explanation_json, topology_name

    try:
        name = topology_name(topology)
    except PenstockError as error:
        click.echo(f"penstock: {error}", err=True)
        sys.exit(EXIT_INVALID)
    folder = state_dir if state_dir is not None else Path(".penstock") / name
    with file_faults(folder, "read"):
        records = read_decisions(folder)[-last:]
    if as_json:
        click.echo(explanation_json(records), nl=False)
    elif records:
        click.echo(explanation(records))
    else:
        click.echo(f"No decision about {name} is kept in {folder}: run it with --sla.", err=True)
    if not records:
        sys.exit(EXIT_FAILED)


@main.command()
@click.argument("manifest", type=click.Path(path_type=Path), metavar="TOPOLOGY.yaml")
@click.argument("sla_file", type=click.Path(path_type=Path, dir_okay=False), metavar="SLA.yaml")
@click.option(
    "--trace",
    "trace_file",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The rate of each source over time: lines of seconds,rate_per_s.",
)
@click.option(
    "--service",
    "services",
    multiple=True,
    metavar="OPERATOR=DURATION",
    help="How long a row takes, such as auction=2ms. May be repeated; a zipf source says it itself.",
)
@click.option(
    "--rows",
    "factors",
    multiple=True,
    metavar="OPERATOR=NUMBER",
    help="Rows that reach the operator for each one upstream.  [default: 1]",
)
@click.option(
    "--skew",
    type=click.FloatRange(min=0, max=10),
    callback=a_number,
    help="Zipf exponent of the keys.  [default: the source's, or 0]",
)
@click.option(
    "--for", "length_s", callback=seconds, metavar="DURATION", help="Instead of the trace's length."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=picture,
    metavar="FILE",
    help="Draw a picture.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def simulate(
    manifest: Path,
    sla_file: Path,
    trace_file: Path,
    services: tuple[str, ...],
    factors: tuple[str, ...],
    skew: float | None,
    length_s: float | None,
    seed: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    """What would the LatencySLA in SLA.yaml cost, and would it be kept? Nothing is started.

    The topology runs in virtual time under the SLA's policy, and beside it with as many tasks all the time.
    Rows come at random at the trace's rates, and take a random time around --service.
    """
    from penstock.manifest.faults import InvalidManifest
    from penstock_operator.local.simulating.answer import as_json as answer_json
    from penstock_operator.local.simulating.answer import draw, show
    from penstock_operator.local.simulating.request import read_request
    from penstock_operator.local.simulating.simulate import simulate as run_simulation

    try:
        request = read_request(manifest, sla_file, trace_file, services, factors, skew, length_s, seed)
        answer = run_simulation(request)
    except InvalidManifest as invalid:
        write_faults(manifest, invalid.faults)
        sys.exit(EXIT_INVALID)
    except PenstockError as error:
        click.echo(f"penstock: {error}", err=True)
        sys.exit(EXIT_INVALID)
    if as_json:
        import json

        click.echo(json.dumps(answer_json(answer), indent=2))
    else:
        from rich.console import Console

        show(answer, Console())
    if plot is not None:
        with file_faults(plot, "written"):
            is_drawn = draw(plot, answer)
        if not is_drawn:
            click.echo("penstock: no picture: matplotlib is not installed; the extra dev has it.", err=True)
            sys.exit(EXIT_CANNOT_RUN)


@main.command()
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
    import os

    from penstock.api.operator_config import load_operator_config
    from penstock.manifest.faults import InvalidManifest

    try:
        config = load_operator_config(config_file)
    except InvalidManifest as invalid:
        write_faults(config_file, invalid.faults)
        sys.exit(EXIT_INVALID)
    from penstock_operator.cluster.main import operate

    operate(config, os.environ)


@main.command()
def agent() -> None:
    """Keep one node's store: create and move its shards, tell its workers, deliver to other stores.

    Runs beside redis-server in the pods that the operator makes; they give it all settings.
    """
    from penstock_operator.agent.main import run_agent

    sys.exit(run_agent())


@main.command()
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


@main.command(hidden=True)
@click.option("--fullname", required=True, help="What the release's names begin with.")
@click.option("--namespace", envvar="PENSTOCK_NAMESPACE", required=True)
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0), default=45.0, show_default=True)
@click.option("--keep-volumes", is_flag=True, help="Leave the stores' volumes and retained Schedules.")
@click.option("--crds-go", is_flag=True, help="Refuse while other namespaces have Topologies.")
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="Instead of the pod's service account.")
def uninstall(
    fullname: str,
    namespace: str,
    timeout_s: float,
    keep_volumes: bool,
    crds_go: bool,
    kubeconfig: str | None,
) -> None:
    """Delete all that the operator made in the namespace, as the hook before `helm uninstall` does."""
    import asyncio
    import time

    from penstock_operator.cluster.kubernetes_api.client import connect
    from penstock_operator.cluster.uninstall import Uninstalled, check_others, run_uninstall

    async def work() -> Uninstalled:
        cluster = await connect(namespace, kubeconfig)
        try:
            if crds_go:
                await check_others(cluster)
            return await run_uninstall(
                cluster,
                fullname,
                keep_volumes=keep_volumes,
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


if __name__ == "__main__":
    main()
