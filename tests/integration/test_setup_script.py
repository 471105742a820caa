"""tools/setup.sh on machines that lack something: it says what, and what to do, before it does anything.

Each machine is a folder of commands that is all of PATH; where apt-get is on it, it only notes its arguments.
"""

from __future__ import annotations

import subprocess
import sysconfig
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from processes.bare_machine import BareMachine

pytestmark = pytest.mark.integration

TOOLS = [
    "bash",
    "basename",
    "cat",
    "chmod",
    "dirname",
    "env",
    "head",
    "ln",
    "mkdir",
    "readlink",
    "rm",
    "sed",
    "sha256sum",
    "sort",
]
REDIS_7 = "echo 'Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64'"
JAVA_17 = "echo 'openjdk version \"17.0.15\" 2025-04-15' >&2"
PYTHON_3_12 = "exit 0"
"""Says yes to every question that the script asks a Python."""
PYTHON_THAT_MAKES_ENVIRONMENTS = """
if [[ $1 == -m && $2 == venv ]]; then
    mkdir -p "$4/bin"
    ln -s "$0" "$4/bin/python"
    ln -s "$0" "$4/bin/pip"
fi
"""


class Machine(BareMachine):
    """A clone of what sets the project up."""

    def __init__(self, folder: Path) -> None:
        files = ("tools/setup.sh", "tools/debian_packages.sh", "requirements.lock", "pyproject.toml")
        super().__init__(folder, files, TOOLS)

    def set_up(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return self.run("tools/setup.sh", *arguments, **variables)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_who_declines_is_told_everything_that_is_missing_and_nothing_is_changed(machine: Machine) -> None:
    machine.has("apt-get", f"touch {machine.clone}/installed")
    ended = machine.set_up("--tests", PENSTOCK_NO_INSTALL="1")
    assert ended.returncode == 1
    for needed in ("python3 ", "redis-server ", "Java >= 17", "strace ", "gcc ", "maven ", "postgresql "):
        assert f"\n  {needed}" in ended.stdout
    assert "PENSTOCK_NO_INSTALL=1 is set" in ended.stderr
    left = {path.name for path in machine.clone.iterdir()}
    assert left == {"pyproject.toml", "requirements.lock", "tools"}


def test_what_the_tests_alone_need_is_asked_for_by_them_alone(machine: Machine) -> None:
    ended = machine.set_up(PENSTOCK_NO_INSTALL="1")
    assert "redis-server" in ended.stdout
    assert "strace" not in ended.stdout
    assert "gcc" not in ended.stdout
    assert "maven" not in ended.stdout
    assert "postgresql" not in ended.stdout


def test_a_python_that_is_too_old_is_named_with_what_to_do(machine: Machine) -> None:
    machine.has("python3", "[[ $1 == --version ]] || exit 1; echo 'Python 3.10.12'")
    machine.has("apt-get", f"touch {machine.clone}/installed")
    ended = machine.set_up()
    assert ended.returncode == 1
    assert "Python 3.10.12 does not fit" in ended.stderr
    assert "python3.11-venv" in ended.stderr
    assert not (machine.clone / "installed").exists()


def test_a_redis_that_is_too_old_is_not_replaced(machine: Machine) -> None:
    machine.has("python3", PYTHON_3_12)
    machine.has("redis-server", "echo 'Redis server v=6.0.16 sha=00000000:0'")
    machine.has("apt-get", f"touch {machine.clone}/installed")
    ended = machine.set_up()
    assert ended.returncode == 1
    assert "redis-server 6.0 is too old" in ended.stderr
    assert not (machine.clone / "installed").exists()


def test_valkey_does_as_well_from_its_own_version_on(machine: Machine) -> None:
    machine.has("valkey-server", "echo 'Valkey server v=7.2.5 sha=00000000:0'")
    assert "redis-server" not in machine.set_up(PENSTOCK_NO_INSTALL="1").stdout
    machine.has("valkey-server", "echo 'Valkey server v=7.1.0 sha=00000000:0'")
    machine.has("python3", PYTHON_3_12)
    assert "valkey-server 7.1 is too old" in machine.set_up(PENSTOCK_NO_INSTALL="1").stderr


def test_a_java_home_without_a_fitting_java_is_named(machine: Machine) -> None:
    machine.has("python3", PYTHON_3_12)
    machine.has("redis-server", REDIS_7)
    ended = machine.set_up(JAVA_HOME="/nowhere")
    assert ended.returncode == 1
    assert "JAVA_HOME=/nowhere holds no Java 17 or newer" in ended.stderr


def test_without_apt_get_it_says_so(machine: Machine) -> None:
    machine.has("python3", PYTHON_3_12)
    machine.has("java", JAVA_17)
    ended = machine.set_up()
    assert ended.returncode == 1
    assert "\n  redis-server " in ended.stdout
    assert "Java >= 17" not in ended.stdout
    assert "there is no apt-get here" in ended.stderr


def test_a_machine_that_lacks_nothing_is_left_alone(machine: Machine) -> None:
    machine.has("redis-server", REDIS_7)
    machine.has("java", JAVA_17)
    machine.has("strace", "exit 0")
    machine.has("cc", "exit 0")
    machine.has("mvn", "exit 0")
    machine.has("pg_ctlcluster", "exit 0")
    machine.has("python3", PYTHON_THAT_MAKES_ENVIRONMENTS)
    first = machine.set_up("--tests")
    assert first.returncode == 0, first.stderr
    assert "installs the Python packages of requirements.lock" in first.stdout
    second = machine.set_up("--tests")
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    (machine.clone / "requirements.lock").write_text("another\n", encoding="utf-8")
    third = machine.set_up("--tests")
    assert "installs the Python packages of requirements.lock" in third.stdout


def test_what_is_installed_is_compiled_once_and_not_by_each_process_that_imports_it() -> None:
    modules = [
        module
        for package in ("pyspark/sql", "redis", "kubernetes/client/models")
        for module in Path(sysconfig.get_path("purelib"), package).rglob("*.py")
    ]
    assert len(modules) > 500
    assert [str(module) for module in modules if not Path(cache_from_source(module)).exists()] == []
