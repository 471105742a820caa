"""What a JVM and Python need of a container in which only one folder may be written: a home, scratch space, a
name for the user.

Set before Spark is loaded, where the image or the user has not set it. Neighbour: `spark_session`.
"""

from __future__ import annotations

import os
import pwd
import tempfile
from collections.abc import Mapping

_USER = "penstock"


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


def nameless_user_options() -> tuple[str, ...]:
    """Options of a JVM whose user has no name and no home in the container; without them both are "?"."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return (f"-Duser.name={_USER}", f"-Duser.home={os.environ.get('HOME') or tempfile.gettempdir()}")
    return ()
