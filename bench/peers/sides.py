"""How each system is started between two topics of Kafka; started again in the same folder, it goes on from
what it kept there.

Each gives a `Start` as in `kafka_sides`. What they are tuned with stands in `settings.json` beside this.
Peers are not the project's: Flink and bytewax have virtual environments of their own, Java is compiled here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
import yaml
from bench import flink_environment, flink_side, kafka_sides
from bench.kafka_sides import Side, Start, jars, launched
from bench.peer_environment import NoPeerError, environment_folder, is_made, made
from bench.penstock_side import RunFailedError

from backends.kafka_broker import KafkaBroker

HERE = Path(__file__).parent
PINS = HERE / "bytewax.txt"
BYTEWAX_PYTHON = ["3.8", "3.12"]
COMPILE_S = 120.0


def settings() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads((HERE / "settings.json").read_text())
    return found


@dataclass(frozen=True, slots=True)
class Place:
    """What a system is started with: the broker, a folder for what is compiled, where to tell of installs."""

    broker: KafkaBroker
    built: Path
    tell: Callable[[str], None]


Prepare = Callable[[Place], Start]
"""Installs and compiles what a system needs; raises NoPeerError where that cannot be had."""


def penstock(durability: str = "Process", deliver: str = "AtLeastOnce") -> Prepare:
    """The product, through its own command."""
    return lambda place: kafka_sides.penstock(place.broker, deliver, settings()["penstock"], durability)


def spark_micro_batch(place: Place) -> Start:
    """Spark's `transformWithState` in Python, one micro-batch after the other."""
    return kafka_sides.spark(place.broker, settings()["spark_micro_batch"])


def spark_rtm_jvm(trigger: str) -> Prepare:
    """Spark's real-time mode on the JVM: its checkpoints are as far apart as its trigger says."""

    def prepare(place: Place) -> Start:
        home = Path(pyspark.__file__).parent
        classes = compiled("SparkCount", f"{home / 'jars'}/*", place.built)
        archive = place.built / "spark-count.jar"
        run_tool(["jar", "cf", str(archive), "-C", str(classes), "."])
        tuned = settings()["spark_rtm_jvm"]

        def command(source: str, sink: str, folder: Path) -> Sequence[str]:
            run = {
                "bootstrap": place.broker.bootstrap,
                "source": source,
                "sink": sink,
                "checkpoint": str(folder / "checkpoint"),
                "trigger": trigger,
                **prefixed("producer", tuned["producer"]),
            }
            conf = {**tuned["conf"], "spark.local.dir": str(folder / "local")}
            return [
                str(home / "bin" / "spark-submit"),
                *(word for name, value in conf.items() for word in ("--conf", f"{name}={value}")),
                *("--jars", ",".join(jars("spark")), "--class", "SparkCount"),
                *(str(archive), str(properties(folder / "run.properties", run))),
            ]

        return started(command, {**os.environ, "SPARK_HOME": str(home)})

    return prepare


def flink_java(state: str, checkpoints: str) -> Prepare:
    """Flink on the JVM, in a cluster of one process."""

    def prepare(place: Place) -> Start:
        flink = installed_flink(place)
        classes = f"{flink.home / 'lib'}/*{os.pathsep}{os.pathsep.join(jars('flink'))}"
        path = f"{compiled('FlinkCount', classes, place.built)}{os.pathsep}{classes}"
        tuned = settings()["flink"]
        opens = flink_side.flat(flink_config(flink))["env.java.opts.all"].split()
        log = f"-Dlog4j.configurationFile={flink.home / 'conf' / 'log4j-console.properties'}"

        def command(source: str, sink: str, folder: Path) -> Sequence[str]:
            run = {
                "bootstrap": place.broker.bootstrap,
                "source": source,
                "sink": sink,
                **prefixed("producer", tuned["producer"]),
                **prefixed("conf", flink_conf(tuned, state, checkpoints, folder)),
            }
            return [
                *("java", *tuned["java"], *opens, log, "-cp", path, "FlinkCount"),
                str(properties(folder / "run.properties", run)),
            ]

        return started(command, os.environ)

    return prepare


def pyflink(state: str, checkpoints: str) -> Prepare:
    """Flink in Python, in a cluster of one process and its JVM."""

    def prepare(place: Place) -> Start:
        flink = installed_flink(place)
        tuned = settings()["flink"]
        given = flink_config(flink)
        opens = flink_side.flat(given)["env.java.opts.all"]

        def command(source: str, sink: str, folder: Path) -> Sequence[str]:
            conf = folder / "conf"
            conf.mkdir(exist_ok=True)
            (conf / "config.yaml").write_text(
                json.dumps({"env.java.opts.all": f"{opens} {' '.join(tuned['java'])}"})
            )
            run = {
                "bootstrap": place.broker.bootstrap,
                "source": source,
                "sink": sink,
                "producer": tuned["producer"],
                "conf": {
                    **flink_conf(tuned, state, checkpoints, folder),
                    **tuned["python"],
                    "python.executable": str(flink.python),
                    "python.client.executable": str(flink.python),
                    "pipeline.jars": ";".join(Path(jar).as_uri() for jar in jars("flink")),
                },
            }
            path = folder / "run.json"
            path.write_text(json.dumps(run))
            return [
                # The Python within the JVM finds its packages by the first one on the path.
                *("env", f"PATH={flink.python.parent}{os.pathsep}{os.environ['PATH']}"),
                *(f"FLINK_CONF_DIR={conf}", f"FLINK_LOG_DIR={folder}", f"FLINK_HOME={flink.home}"),
                *(str(flink.python), str(HERE / "flink_count.py"), str(path)),
            ]

        return started(command, without_packages())

    return prepare


def bytewax(place: Place) -> Start:
    """bytewax, one worker, whose recovery store gets a snapshot at the end of each epoch."""
    flink_environment.check_python(sys.version_info, BYTEWAX_PYTHON)
    folder = environment_folder("bytewax")
    if not is_made(folder):
        place.tell(f"installing bytewax into {folder}: this once")
    python = made(folder, [["-r", str(PINS)]])
    tuned = settings()["bytewax"]

    def command(source: str, sink: str, folder: Path) -> Sequence[str]:
        run = {
            "bootstrap": place.broker.bootstrap,
            "source": source,
            "sink": sink,
            "folder": str(folder),
            **tuned,
        }
        path = folder / "run.json"
        path.write_text(json.dumps(run))
        return [str(python), str(HERE / "bytewax_count.py"), str(path)]

    return started(command, without_packages())


def installed_flink(place: Place) -> flink_environment.Flink:
    told = flink_side.read_settings()
    return flink_environment.install(told.version, told.python, place.tell)


def flink_config(flink: flink_environment.Flink) -> Mapping[str, Any]:
    """What the distribution's own configuration says."""
    found: Mapping[str, Any] = yaml.safe_load((flink.home / "conf" / "config.yaml").read_text())
    return found


def flink_conf(tuned: Mapping[str, Any], state: str, checkpoints: str, folder: Path) -> dict[str, str]:
    """Of a run in this folder, which goes on from the last checkpoint there is."""
    kept = folder / "checkpoints"
    last = last_checkpoint(kept)
    return {
        **tuned["conf"],
        "state.backend.type": state,
        "execution.checkpointing.interval": checkpoints,
        "execution.checkpointing.dir": kept.as_uri(),
        "io.tmp.dirs": str(folder),
        **({} if last is None else {"execution.state-recovery.path": last.as_uri()}),
    }


def last_checkpoint(folder: Path) -> Path | None:
    """The newest whole one below a folder that Flink writes checkpoints to."""
    whole = [path.parent for path in folder.glob("*/chk-*/_metadata")]
    return max(whole, key=lambda path: (path / "_metadata").stat().st_mtime_ns, default=None)


def prefixed(prefix: str, given: Mapping[str, str]) -> dict[str, str]:
    return {f"{prefix}.{name}": value for name, value in given.items()}


def properties(path: Path, given: Mapping[str, str]) -> Path:
    """A file that `java.util.Properties` reads: values are of one line."""
    path.write_text(
        "".join(f"{name}={value.replace(chr(92), chr(92) * 2)}\n" for name, value in given.items())
    )
    return path


def compiled(name: str, classes: str, built: Path) -> Path:
    """The folder with the classes of `NAME.java`."""
    folder = built / name
    if not folder.exists():
        run_tool(["javac", "-nowarn", "-cp", classes, "-d", str(folder), str(HERE / f"{name}.java")])
    return folder


def run_tool(command: Sequence[str]) -> None:
    """Of the JDK. Raises NoPeerError."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoPeerError(f"The peer needs {command[0]} of a JDK 17: {error}.") from error
    if ran.returncode != 0:
        raise NoPeerError(f"{command[0]} failed: {ran.stderr.strip()[-500:]}")


def without_packages() -> dict[str, str]:
    """The environment of a peer's own Python: the bench's packages stay out of it."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def started(command: Callable[[str, str, Path], Sequence[str]], environment: Mapping[str, str]) -> Start:
    """A side that is one process with what it starts."""

    @contextmanager
    def start(source: str, sink: str, folder: Path) -> Iterator[Side]:
        output = folder / "output.txt"
        with launched(command(source, sink, folder), environment, output) as process:

            def check() -> None:
                if process.poll() is not None:
                    raise RunFailedError(output.read_text(errors="replace")[-4000:])

            yield Side(process.pid, check, list)

    return start
