"""What a Fleet hands to a worker process at its start: the only thing the two sides agree on
besides the store and the manifest."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class WorkerLaunch(BaseModel):
    """`python -m penstock_worker LAUNCH.json` reads one of these.

    `uid`, `start_ms`, `attempt` are the worker's incarnation; the schedule names the uid.
    Relative paths of the manifest (globs, sinks, code) are taken from `base_dir`.
    `store_url` is unix:///path or redis://host:port.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    topology_uid: str
    manifest: str
    overrides: tuple[str, ...] = ()
    """`--set` values of the run, applied to the manifest as the run applied them."""
    base_dir: str
    worker: str
    uid: str
    start_ms: int
    attempt: int
    store_id: str
    store_url: str
    metrics_port: int | None = None
