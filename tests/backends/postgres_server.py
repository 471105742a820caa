"""A real PostgreSQL for tests: Debian's server on loopback, in a temporary folder, as a user that it takes.

It refuses to run as root, so there it runs as `postgres`, or `nobody` where that is missing. Neighbour:
`tools/postgres.sh` says where its programs and its JDBC driver are.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clocks.eventually import eventually
from house import ROOT
from penstock_operator.local.processes.parent_death import ends_with_starter
from processes.free_ports import free_port

READY_WITHIN_S = 60
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",
    "max_connections": "40",
    "shared_buffers": "16MB",
}


def _asked(what: str) -> Path:
    command = [str(ROOT / "tools/postgres.sh"), what]
    return Path(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip())


def jdbc_driver() -> Path:
    """The driver's jar; brought with Maven where this machine has none."""
    (jar,) = _asked("jdbc").glob("*.jar")
    return jar


class PostgresServer:
    """Runs from `start` to `close`, with one database that everybody on loopback may use."""

    def __init__(self) -> None:
        self._bin = _asked("bin")
        self._port = free_port()
        # Not below pytest's own folder, which no other user may enter.
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
        self._user = _user()
        if self._user:
            shutil.chown(self._folder, self._user)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """As libpq has it."""
        return f"postgresql://penstock@127.0.0.1:{self._port}/postgres"

    @property
    def jdbc_url(self) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self._port}/postgres?user=penstock"

    def start(self) -> None:
        data = str(self._folder / "data")
        initdb = (str(self._bin / "initdb"), "-D", data, "-U", "penstock", "-A", "trust", "-E", "UTF8")
        assert self._run(*initdb, "--locale=C", "-N").wait() == 0, self._log()
        settings = {**_SETTINGS, "port": str(self._port), "unix_socket_directories": str(self._folder)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self._process = self._run(str(self._bin / "postgres"), "-D", data, *options)
        eventually(self._is_ready, "PostgreSQL answers", READY_WITHIN_S)

    def close(self) -> None:
        if self._process is not None:
            # At once, and its connections with it.
            self._process.send_signal(signal.SIGQUIT)
            try:
                self._process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def query(self, sql: str) -> list[list[str]]:
        """What psql answers, in texts."""
        command = ["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", self.url, "-c", sql]
        answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        return [line.split("|") for line in answer.splitlines()]

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"PostgreSQL has ended:\n{self._log()}"
        command = ["pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self._port), "-U", "penstock"]
        return subprocess.run(command, check=False).returncode == 0

    def _log(self) -> str:
        return (self._folder / "log").read_text()

    def _run(self, *command: str) -> subprocess.Popen[bytes]:
        as_user: dict[str, Any] = {}
        if self._user:
            known = pwd.getpwnam(self._user)
            as_user = {"user": known.pw_uid, "group": known.pw_gid, "extra_groups": []}
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env={**os.environ, "HOME": str(self._folder)},
                preexec_fn=ends_with_starter(),
                **as_user,
            )


@contextmanager
def postgres_with(sql: str) -> Iterator[PostgresServer]:
    """A server of one's own, once it has carried out `sql`."""
    server = PostgresServer()
    try:
        server.start()
        server.query(sql)
        yield server
    finally:
        server.close()


def _user() -> str:
    """Whom it runs as; "" for who runs the tests."""
    if os.geteuid() != 0:
        return ""
    names = {known.pw_name for known in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"
