"""What a Fleet hands to a worker process at its start: the only thing the two sides agree on
besides the store and the manifest.

`penstock run` writes it into a file; in a cluster the pod's environment says the same, under the names that
stand here, and `launch_from` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

from penstock.api.graph import Runtime
from penstock.api.launch.spark_worker_launch import ENV_HOST, ENV_KEY_FILE
from penstock.errors import PermanentError

ENV_TOPOLOGY_UID = "PENSTOCK_TOPOLOGY_UID"
ENV_MANIFEST = "PENSTOCK_MANIFEST"
ENV_BASE_DIR = "PENSTOCK_BASE_DIR"
ENV_WORKER = "PENSTOCK_WORKER"
ENV_POD_UID = "PENSTOCK_POD_UID"
ENV_STORE_ID = "PENSTOCK_STORE_ID"
ENV_STORE_URL = "PENSTOCK_STORE_URL"
ENV_METRICS_PORT = "PENSTOCK_METRICS_PORT"
ENV_TEMPLATE = "PENSTOCK_TEMPLATE"
ENV_REMOTE_STORE_URL = "PENSTOCK_REMOTE_STORE_URL"
_NEEDED = (
    ENV_TOPOLOGY_UID,
    ENV_MANIFEST,
    ENV_BASE_DIR,
    ENV_WORKER,
    ENV_POD_UID,
    ENV_STORE_ID,
    ENV_STORE_URL,
    ENV_METRICS_PORT,
)


class WorkerLaunch(BaseModel):
    """`python -m penstock_worker LAUNCH.json` reads one of these; without a file, from the environment.

    `uid`, `attempt` are a part of the worker's incarnation; the schedule names the uid.
    Relative paths of the manifest (globs, sinks, code) are taken from `base_dir`.
    `store_url` is unix:///path or redis://host:port, with user@ before the host where one logs in.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    topology_uid: str
    manifest: str
    overrides: tuple[str, ...] = ()
    """`--set` values of the run, applied to the manifest as the run applied them."""
    base_dir: str
    worker: str
    uid: str
    attempt: int
    store_id: str
    store_url: str
    metrics_port: int | None = None
    runtime: Runtime = "local"
    """In a cluster a worker that is not wanted waits, instead of leaving: its pod would be started again."""
    template: str = ""
    """What the worker was made from, in a cluster: a failure of other code is none of its business."""
    spark_host: str = "127.0.0.1"
    """With remote tasks: where its Spark master listens,"""
    spark_key_file: str = ""
    """what its secret is derived from,"""
    spark_folder: str = ""
    """where its executor's files and logs are ("": a new folder),"""
    remote_store_url: str = ""
    """and where they find its node's store; "" where `store_url` leads there from everywhere."""
    kills_file: str = ""
    """Where the run writes whom of the worker's processes it has killed for memory: lines "PID REASON"."""


def launch_from(environment: Mapping[str, str]) -> WorkerLaunch:
    """The launch of a worker in a pod. PermanentError, in a sentence, for what is missing or wrong."""
    missing = [name for name in _NEEDED if not environment.get(name)]
    if missing:
        raise PermanentError(
            f"the environment lacks {', '.join(missing)}: Penstock's operator sets them in a worker's pod; "
            "elsewhere give a launch file, as penstock run does"
        )
    port = environment[ENV_METRICS_PORT]
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65_536):
        raise PermanentError(f"{ENV_METRICS_PORT} is {port!r}; give a port, from 1 to 65535")
    return WorkerLaunch(
        topology_uid=environment[ENV_TOPOLOGY_UID],
        manifest=environment[ENV_MANIFEST],
        base_dir=environment[ENV_BASE_DIR],
        worker=environment[ENV_WORKER],
        uid=environment[ENV_POD_UID],
        attempt=0,
        store_id=environment[ENV_STORE_ID],
        store_url=environment[ENV_STORE_URL],
        metrics_port=int(port),
        runtime="cluster",
        template=environment.get(ENV_TEMPLATE, ""),
        spark_host=environment.get(ENV_HOST, "127.0.0.1"),
        spark_key_file=environment.get(ENV_KEY_FILE, ""),
        remote_store_url=environment.get(ENV_REMOTE_STORE_URL, ""),
    )
