"""What a JVM and Python need of a container in which only one folder may be written: a home, scratch space, a
name for the user.

Set before Spark is loaded, where the image or the user has not set it. Neighbour: `spark.session`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from collections.abc import Mapping

_USER = "penstock"
JVM_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:CICompilerCount=1",
    "-XX:ReservedCodeCacheSize=64m",
    "-Xss512k",
    # A JVM begins with a 64th of the machine's memory, and Spark's start touches all of its young part.
    "-Xms64m",
    "-XX:MaxNewSize=32m",
    "-XX:MinHeapFreeRatio=10",
    "-XX:MaxHeapFreeRatio=20",
)
"""For a JVM that schedules a handful of long tasks: serial collector, client compiler, small stacks and code
cache. With the defaults it is about 200 MiB larger."""


def prepare() -> Mapping[str, str]:
    """Fill the process's environment in, and answer it.

    Hadoop's login (which Spark makes) asks for the name of the user, and a pod's uid may have none.
    """
    scratch = tempfile.gettempdir()
    for name in ("HOME", "TMPDIR", "SPARK_LOCAL_DIRS"):
        if not os.access(os.environ.get(name) or "", os.W_OK):
            os.environ[name] = scratch
    for name in ("SPARK_USER", "HADOOP_USER_NAME"):
        os.environ.setdefault(name, _USER)
    return os.environ


def scratch_folder(folder: str) -> str:
    """`folder`, made empty; a new one for ""."""
    if not folder:
        return tempfile.mkdtemp(prefix="penstock-spark-")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    return folder


def nameless_user_options() -> tuple[str, ...]:
    """Options of a JVM whose user has no name and no home in the container; without them both are "?"."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return (f"-Duser.name={_USER}", f"-Duser.home={os.environ.get('HOME') or tempfile.gettempdir()}")
    return ()
