"""What `penstock run` needs on this machine, looked at before anything starts.

Each lack is one `MissingPrerequisiteError`, whose message is one sentence that says what to do. The
private store looks for redis-server itself. Neighbour: `cli.run` turns the error into exit code 3.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import PermanentError

JAVA_VERSION_MIN = 17
_INSTALL = "install one (Debian, Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"


class MissingPrerequisiteError(PermanentError):
    """Something that the run needs is not there."""


def check_java(environment: Mapping[str, str]) -> None:
    """Spark's JVM: the one of JAVA_HOME, else `java` on PATH. Raises MissingPrerequisiteError."""
    home = environment.get("JAVA_HOME", "")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH"))
    if java is None:
        raise MissingPrerequisiteError(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer and found none: {_INSTALL}."
        )
    if not os.access(java, os.X_OK):
        raise MissingPrerequisiteError(
            f"JAVA_HOME is {home}, but there is no {java}: correct it, or {_INSTALL}."
        )
    version = _java_version(Path(java))
    if version is not None and version < JAVA_VERSION_MIN:
        raise MissingPrerequisiteError(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer, and {java} is Java {version}: {_INSTALL}."
        )


def check_ports(first: int, count: int) -> None:
    """The loopback ports first, first + 1, ... are free. Raises MissingPrerequisiteError."""
    for port in range(first, first + count):
        if not 0 < port < 65536:
            raise MissingPrerequisiteError(f"There is no port {port}: choose another with --metrics-port.")
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise MissingPrerequisiteError(
                    f"Port {port} cannot be used for metrics ({error.strerror}): "
                    "choose another with --metrics-port."
                ) from error


def _java_version(java: Path) -> int | None:
    """Java's major version, None when it does not say. Its `release` file costs no start of a JVM."""
    release = java.resolve().parent.parent / "release"
    if release.is_file():
        text = release.read_text(encoding="utf-8", errors="replace")
    else:
        try:
            ran = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        text = ran.stderr + ran.stdout
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None
