"""How a Spark worker for remote tasks is started, and the secret that it shares with its worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.api.launch.spark_worker_launch import SparkWorkerLaunch, spark_secret, spark_worker_launch_from
from penstock.errors import PermanentError
from penstock_worker.spark.places import ENV_PLACE, Misplaced, check_place
from penstock_worker.spark.spark_worker import spark_command, spark_environment

LAUNCH = SparkWorkerLaunch(
    master="spark://10.0.0.1:7077", node="n2", host="10.0.0.2", key_file="/key", home_uid="u1"
)
POD = {
    "PENSTOCK_SPARK_MASTER": "spark://10.0.0.1:7077",
    "PENSTOCK_NODE": "n2",
    "PENSTOCK_HOST": "10.0.0.2",
    "PENSTOCK_SPARK_KEY_FILE": "/key",
    "PENSTOCK_HOME_UID": "u1",
}


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text("something that nobody guesses\n")
    return path


def test_a_pods_environment_says_what_a_launch_file_does() -> None:
    assert spark_worker_launch_from(POD) == LAUNCH


def test_what_the_environment_lacks_is_named() -> None:
    with pytest.raises(PermanentError, match="lacks PENSTOCK_SPARK_MASTER, PENSTOCK_HOME_UID: "):
        spark_worker_launch_from({**POD, "PENSTOCK_SPARK_MASTER": "", "PENSTOCK_HOME_UID": ""})


def test_both_sides_find_the_same_secret_and_each_start_of_a_worker_has_its_own(key_file: Path) -> None:
    found = spark_secret(str(key_file), "u1")
    assert found == spark_secret(str(key_file), "u1")
    assert found != spark_secret(str(key_file), "u2")
    assert "nobody guesses" not in found


def test_without_a_key_there_is_a_sentence(key_file: Path) -> None:
    with pytest.raises(PermanentError, match="/nowhere, cannot be read: No such file"):
        spark_secret("/nowhere", "u1")
    key_file.write_text(" \n")
    with pytest.raises(PermanentError, match="is empty"):
        spark_secret(str(key_file), "u1")


def test_the_secret_is_in_no_command_line(tmp_path: Path) -> None:
    folder = tmp_path / "spark"
    command = spark_command(LAUNCH.model_copy(update={"folder": str(folder)}))
    assert command[-3:] == ["--work-dir", str(folder), "spark://10.0.0.1:7077"]
    assert folder.is_dir()
    environment = spark_environment(LAUNCH, "s3cret", {"PATH": "/bin"})
    assert [name for name, value in environment.items() if "s3cret" in value] == ["_SPARK_AUTH_SECRET"]
    assert "-Dspark.authenticate=true" in environment["SPARK_DAEMON_JAVA_OPTS"]
    assert (environment[ENV_PLACE], environment["PATH"]) == ("n2", "/bin")


def test_a_task_that_is_elsewhere_than_it_should_be_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_PLACE, "n2")
    check_place("n2")
    with pytest.raises(Misplaced, match="a task for home was started on n2"):
        check_place("")
    monkeypatch.delenv(ENV_PLACE)
    check_place("")
    with pytest.raises(Misplaced, match="a task for n2 was started on home"):
        check_place("n2")
