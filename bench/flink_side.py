"""Runs the peer of the scale-out bench: a Flink cluster of this machine, its job, and the rescale.

One JobManager and one TaskManager with the adaptive scheduler, set up as `flink_settings.json` says; the job
is `flink_peer`. At the load step the keyed operator is given more subtasks through the REST interface
(`PUT /jobs/ID/resource-requirements`): nobody has to notice the load first, which favours the peer.
Neighbours: `flink_environment` installs, `sink_watch` sees the rows.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from bench.flink_environment import Flink
from bench.sink_watch import SinkWatch
from bench.step_figures import Rows
from numpy.typing import NDArray

SETTINGS = Path(__file__).with_name("flink_settings.json")
START_WITHIN_S = 60.0
JOB_WITHIN_S = 60.0
REST_WITHIN_S = 60.0
STOP_WITHIN_S = 10.0
_HOST = "127.0.0.1"


class PeerFailedError(Exception):
    """The peer did not start or did not go on; the text says what it told."""


@dataclass(frozen=True, slots=True)
class Settings:
    """As frozen in `flink_settings.json`."""

    version: str
    python: tuple[str, ...]
    parallelism_before: int
    parallelism_after: int
    conf: Mapping[str, str]


def read_settings(path: Path = SETTINGS) -> Settings:
    told = json.loads(path.read_text())
    parallelism = told["parallelism"]
    return Settings(
        told["version"], tuple(told["python"]), parallelism["before"], parallelism["after"], told["conf"]
    )


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """A nested configuration with dotted names, as Flink reads both."""
    found: dict[str, str] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            found.update(flat(value, f"{prefix}{name}."))
        else:
            found[f"{prefix}{name}"] = str(value)
    return found


def measure(
    flink: Flink,
    settings: Settings,
    keys: NDArray[Any],
    due_us: NDArray[Any],
    step_s: float,
    end_s: float,
    folder: Path,
    tell: Callable[[str], None],
) -> Rows:
    """Run the job over records whose keys and due times (since the source's start) are given, and ask for
    more subtasks at second `step_s`. `folder` must be empty. Raises PeerFailedError."""
    (folder / "out").mkdir()
    (folder / "keys.bin").write_bytes(keys.astype("int64").tobytes())
    (folder / "due.bin").write_bytes(due_us.astype("int64").tobytes())
    environment = _environment(flink, folder)
    with _cluster(flink, settings, environment, folder) as rest, SinkWatch(folder / "out") as watch:
        tell("submitting the job")
        job = _submit(flink, environment, folder, len(keys))
        begun = folder / "begun"
        _wait(begun.exists, JOB_WITHIN_S, "the job's source did not start", folder)
        begun_s = int(begun.read_text()) / 1e6
        tell("before the step")
        _sleep_until(begun_s + step_s)
        _rescale(rest, job, settings.parallelism_after)
        tell("after the step")
        _sleep_until(begun_s + end_s)
        tell("waiting for the records under way")
        _wait(
            lambda: len(np.unique(watch.rows().numbers)) == len(keys),
            REST_WITHIN_S,
            "not all came out",
            folder,
        )
        return watch.rows()


def _environment(flink: Flink, folder: Path) -> dict[str, str]:
    """Of the cluster's processes and of the client. The bench's own Python stays out of the peer's."""
    return {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "FLINK_CONF_DIR": str(folder / "conf"),
        "FLINK_LOG_DIR": str(folder / "log"),
        "FLINK_HOME": str(flink.home),
        "PATH": f"{flink.python.parent}{os.pathsep}{os.environ['PATH']}",
    }


@contextmanager
def _cluster(flink: Flink, settings: Settings, environment: Mapping[str, str], folder: Path) -> Iterator[str]:
    """A JobManager and a TaskManager; the address of their REST interface."""
    conf = folder / "conf"
    conf.mkdir()
    defaults = flink.home / "conf"
    for name in ("log4j.properties", "log4j-console.properties", "logback-console.xml"):
        (conf / name).write_bytes((defaults / name).read_bytes())
    rest_port, rpc_port = _free_ports(2)
    told = {
        **flat(yaml.safe_load((defaults / "config.yaml").read_text())),
        **settings.conf,
        "parallelism.default": str(settings.parallelism_before),
        "rest.address": _HOST,
        "rest.bind-address": _HOST,
        "rest.port": str(rest_port),
        "jobmanager.rpc.address": _HOST,
        "jobmanager.rpc.port": str(rpc_port),
        "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
        "io.tmp.dirs": str(folder / "tmp"),
        "python.executable": str(flink.python),
        "python.client.executable": str(flink.python),
    }
    (conf / "config.yaml").write_text(yaml.safe_dump(told))
    (folder / "log").mkdir()
    (folder / "tmp").mkdir()
    started: list[subprocess.Popen[bytes]] = []
    try:
        for name in ("jobmanager", "taskmanager"):
            with (folder / f"{name}.txt").open("wb") as output:
                started.append(
                    subprocess.Popen(
                        ["bash", str(flink.home / "bin" / f"{name}.sh"), "start-foreground"],
                        env=dict(environment), cwd=folder, stdin=subprocess.DEVNULL, stdout=output,
                        stderr=subprocess.STDOUT, start_new_session=True,
                    )
                )  # fmt: skip
        rest = f"http://{_HOST}:{rest_port}"
        _wait(lambda: _slots(rest) > 0, START_WITHIN_S, "no TaskManager came", folder)
        yield rest
    finally:
        for process in started:
            _end(process)


def _submit(flink: Flink, environment: Mapping[str, str], folder: Path, records: int) -> str:
    """The job's id."""
    job = folder / "job.json"
    job.write_text(json.dumps({"folder": str(folder), "records": records}))
    script = Path(__file__).with_name("flink_peer.py")
    ran = subprocess.run(
        ["bash", str(flink.home / "bin" / "flink"), "run", "-d", "-py", str(script), str(job)],
        env=dict(environment), cwd=folder, capture_output=True, text=True, timeout=JOB_WITHIN_S * 2,
        check=False,
    )  # fmt: skip
    if ran.returncode != 0:
        raise PeerFailedError((ran.stderr or ran.stdout)[-4000:])
    return (folder / "job_id").read_text()


def _rescale(rest: str, job: str, parallelism: int) -> None:
    """More subtasks for the keyed operator alone; the source keeps its one."""
    path = f"{rest}/jobs/{job}/resource-requirements"
    wanted = _ask(path)
    names = {vertex["id"]: vertex["name"] for vertex in _ask(f"{rest}/jobs/{job}")["vertices"]}
    for vertex, requirement in wanted.items():
        if "numbers" not in names[vertex]:
            requirement["parallelism"] = {"lowerBound": 1, "upperBound": parallelism}
    _ask(path, "PUT", json.dumps(wanted).encode())


def _ask(url: str, method: str = "GET", body: bytes | None = None) -> Any:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            told = answer.read()
    except urllib.error.HTTPError as error:
        raise PeerFailedError(f"{method} {url}: {error.code} {error.read()[-500:]!r}") from error
    return json.loads(told) if told else None


def _slots(rest: str) -> int:
    try:
        return int(_ask(f"{rest}/overview")["slots-total"])
    except (OSError, PeerFailedError):
        return 0


def _wait(done: Callable[[], bool], within_s: float, missing: str, folder: Path) -> None:
    end_s = time.monotonic() + within_s
    while not done():
        if time.monotonic() > end_s:
            raise PeerFailedError(f"{missing} within {within_s:.0f} s; {folder} has the logs")
        time.sleep(0.05)


def _sleep_until(at_s: float) -> None:
    time.sleep(max(0.0, at_s - time.time()))


def _end(process: subprocess.Popen[bytes]) -> None:
    """The shell script, and the JVM that it became or started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            continue


def _free_ports(count: int) -> Sequence[int]:
    """Ports that nobody listens on now."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind((_HOST, 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
