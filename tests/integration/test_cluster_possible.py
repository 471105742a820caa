"""e2e/cluster/possible.sh: where CI goes on without a cluster, and where one has to come up."""

from __future__ import annotations

from pathlib import Path

import pytest

from processes.bare_machine import BareMachine

pytestmark = pytest.mark.integration

TOOLS = ("bash", "cat", "cut", "dirname", "sed", "timeout", "tr")
GO = "echo go1.21.3"


@pytest.fixture
def machine(tmp_path: Path) -> BareMachine:
    return BareMachine(tmp_path, ("e2e/cluster/possible.sh", "e2e/cluster/common.sh"), TOOLS)


def possible(machine: BareMachine) -> tuple[int, str]:
    ended = machine.run("e2e/cluster/possible.sh", HOME=str(machine.clone))
    assert ended.stderr == ""
    return ended.returncode, ended.stdout


@pytest.mark.parametrize("go", ["", "echo go1.20.14"], ids=["none", "too old"])
def test_without_a_go_that_fits_there_is_no_cluster(machine: BareMachine, go: str) -> None:
    if go:
        machine.has("go", go)
    machine.has("docker", "exit 0")
    code, said = possible(machine)
    assert code == 1
    assert "no kind cluster can be made on this machine: it has no Go 1.21 or newer" in said


def test_where_an_engine_answers_a_cluster_has_to_come_up(machine: BareMachine) -> None:
    machine.has("go", GO)
    machine.has("docker", "exit 0")
    assert possible(machine) == (0, "")


def test_without_an_engine_and_a_way_to_install_one_there_is_no_cluster(machine: BareMachine) -> None:
    machine.has("go", GO)
    code, said = possible(machine)
    assert code == 1
    assert "no Docker engine answers, and starting one needs" in said
