"""The end-to-end tests' cluster, installation and topologies; `make e2e` brings up what they need.

All tests share one installation (`prepare` makes it). Those that harm nobody run side by side, in several
processes. Those marked `alone` disturb all that runs, or measure time: they come afterwards, one by one, what
takes the installation away or replaces it last. Each test's own topologies are deleted at its end. After a
failure the state of everything is kept in artifacts/e2e.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from e2e.harness.cluster import ROOT, Cluster
from e2e.harness.evidence import gather, unready_in_short
from e2e.harness.installation import Installation
from e2e.harness.shared_folder import SharedFolder
from e2e.harness.topologies import Running, WordCount
from e2e.harness.zipf_calculator import apply_code
from e2e.prepare import NAMESPACE

ARTIFACTS = ROOT / "artifacts/e2e"
TEST_TIMEOUT_S = 420
ORDER = (
    "locality",
    "latency_sla",
    "kafka",
    "errors",
    "zipf_calculator",
    "edits",
    "word_count",
    "event_time",
    "life",
    "process_faults",
    "moves",
    "remote_tasks",
    "passwords",
    "volumes",
    "servers",
    "namespaces",
    "node_faults",
    "release",
    "refused",
)
"""Of those that run side by side the long ones first, so that no process is left with one at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: ORDER.index(item.path.stem.removeprefix("test_")))
    for item in items:
        item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Gather evidence before the test's topologies are deleted."""
    report = yield
    if report.failed and call.when in ("setup", "call"):
        folder = ARTIFACTS / re.sub(r"\W+", "-", item.name).strip("-")
        found = Cluster.found(NAMESPACE)
        report.sections.append(("pods that are not ready", unready_in_short(found)))
        gather(found, folder)
        report.sections.append(("evidence", f"events, logs and objects are in {folder.relative_to(ROOT)}"))
    return report


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    return Cluster.found(NAMESPACE)


@pytest.fixture(scope="session")
def installation(cluster: Cluster) -> Installation:
    """The chart, installed into a namespace at Pod Security `restricted`."""
    found = Installation(cluster)
    assert found.is_installed(), "the chart is not installed: run `make e2e`, or `python -m e2e.prepare`"
    return found


@pytest.fixture(scope="session")
def shared(cluster: Cluster, installation: Installation) -> SharedFolder:
    return SharedFolder.of(cluster)


@pytest.fixture
def run(cluster: Cluster, installation: Installation) -> Iterator[Callable[[Running], None]]:
    """Applies topologies, and deletes them at the test's end."""
    applied: list[Running] = []

    def apply(topology: Running) -> None:
        applied.append(topology)
        cluster.apply(topology.manifest)

    yield apply
    if not installation.is_installed():
        return  # the test uninstalled it, and with it all topologies
    for topology in applied:
        topology.delete()
    for topology in applied:
        topology.wait_gone()


@pytest.fixture
def word_count(
    cluster: Cluster, shared: SharedFolder, run: Callable[[Running], None]
) -> Callable[..., WordCount]:
    """Applies a word count; arguments are those of `WordCount.made`."""

    def start(name: str, **settings: Any) -> WordCount:
        made = WordCount.made(cluster, shared, name, **settings)
        run(made)
        return made

    return start


@pytest.fixture
def calculators_code(cluster: Cluster) -> Iterator[Callable[..., str]]:
    """Puts the zipf calculator's code into ConfigMaps, as `apply_code`; they go at the test's end."""
    names = set()

    def put(name: str, more: str = "") -> str:
        names.add(name)
        apply_code(cluster, name, more)
        return name

    yield put
    cluster.delete("configmap", *names)
