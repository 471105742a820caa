"""What a Spark worker on another node is started with: it joins the Spark master of one of our workers, and
runs that worker's remote tasks.

As with a worker, `penstock run` writes a file and a pod's environment says the same. The secret that both
sides share goes over no wire and into no object: each derives it from a key that it has.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from penstock.errors import PermanentError

MASTER_PORT = 7077
"""Of the Spark master of a worker in a pod, which has its ports for itself."""
ENV_SPARK_MASTER = "PENSTOCK_SPARK_MASTER"
ENV_NODE = "PENSTOCK_NODE"
ENV_HOST = "PENSTOCK_HOST"
ENV_KEY_FILE = "PENSTOCK_SPARK_KEY_FILE"
ENV_HOME_UID = "PENSTOCK_HOME_UID"
_NEEDED = (ENV_SPARK_MASTER, ENV_NODE, ENV_HOST, ENV_KEY_FILE, ENV_HOME_UID)


class SparkWorkerLaunch(BaseModel):
    """`python -m penstock_worker.spark.spark_worker LAUNCH.json` reads one of these; without a file, from the
    environment.

    `worker`, `uid` and `attempt` name this process in the fleet; `home_uid` is the uid of the worker whose
    `master` (spark://host:port) it joins. `node` is what schedules call the place, `host` where it listens.
    `folder` is for Spark's scratch files and its executor's logs; "" is a new one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    worker: str = ""
    uid: str = ""
    attempt: int = 0
    master: str
    node: str
    host: str
    key_file: str
    home_uid: str
    folder: str = ""


def spark_worker_launch_from(environment: Mapping[str, str]) -> SparkWorkerLaunch:
    """The launch of a Spark worker in a pod. PermanentError, in a sentence, for what is missing."""
    missing = [name for name in _NEEDED if not environment.get(name)]
    if missing:
        raise PermanentError(
            f"the environment lacks {', '.join(missing)}: Penstock's operator sets them in a Spark worker's "
            "pod; elsewhere give a launch file, as penstock run does"
        )
    return SparkWorkerLaunch(
        master=environment[ENV_SPARK_MASTER],
        node=environment[ENV_NODE],
        host=environment[ENV_HOST],
        key_file=environment[ENV_KEY_FILE],
        home_uid=environment[ENV_HOME_UID],
    )


def spark_secret(key_file: str, home_uid: str) -> str:
    """Of one start of one worker: whoever has its key may join its Spark master. PermanentError without."""
    try:
        key = Path(key_file).read_bytes().strip()
    except OSError as error:
        raise PermanentError(
            f"the key of remote tasks, {key_file}, cannot be read: {error.strerror}"
        ) from error
    if not key:
        raise PermanentError(f"the key of remote tasks, {key_file}, is empty")
    return hmac.new(key, f"spark/{home_uid}".encode(), hashlib.sha256).hexdigest()
