"""What a machine lacks is one sentence that says what to do."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from penstock_operator.local.prerequisites import MissingPrerequisiteError, check_java, check_ports


def java_home(folder: Path, version: str, *, release: bool) -> dict[str, str]:
    """A folder that looks like a Java of `version`, told by its release file or by the program."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n")
    java.chmod(0o755)
    if release:
        (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return {"JAVA_HOME": str(folder), "PATH": ""}


@pytest.mark.parametrize("version", ["17.0.9", "21", "21.0.1"])
@pytest.mark.parametrize("release", [True, False])
def test_a_new_enough_java_is_found(tmp_path: Path, version: str, release: bool) -> None:
    check_java(java_home(tmp_path, version, release=release))


@pytest.mark.parametrize(("version", "told"), [("11.0.2", "Java 11"), ("1.8.0_392", "Java 8")])
@pytest.mark.parametrize("release", [True, False])
def test_an_old_java_is_named(tmp_path: Path, version: str, told: str, release: bool) -> None:
    with pytest.raises(MissingPrerequisiteError, match=f"{told}: install"):
        check_java(java_home(tmp_path, version, release=release))


def test_no_java_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(MissingPrerequisiteError, match=r"found none: install one .*openjdk"):
        check_java({"PATH": str(tmp_path)})


def test_a_wrong_java_home_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingPrerequisiteError, match="JAVA_HOME is"):
        check_java({"JAVA_HOME": str(tmp_path)})


def test_java_on_the_path_is_enough(tmp_path: Path) -> None:
    home = java_home(tmp_path, "17.0.1", release=True)["JAVA_HOME"]
    check_java({"PATH": str(Path(home) / "bin")})


def test_a_taken_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(MissingPrerequisiteError, match=f"Port {port} .*--metrics-port"):
            check_ports(port, 1)
    check_ports(port, 1)


def test_ports_beyond_the_last_one_do_not_exist() -> None:
    with pytest.raises(MissingPrerequisiteError, match="no port 65536"):
        check_ports(65535, 2)
