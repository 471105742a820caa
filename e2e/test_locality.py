"""Keys that belong together come to one node of a cluster while rows flow, and go back when nobody asks for
it any more. All rows count once and in their order: the topology's code raises otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.harness.as_user import User
from e2e.harness.cluster import Cluster
from e2e.harness.correlated_keys import CorrelatedKeys, apply_code
from e2e.harness.installation import Installation, node_of
from e2e.harness.shared_folder import SharedFolder
from e2e.harness.topologies import START_S, Running
from e2e.harness.watching import Object, wait_until
from penstock.api.schedule_object import from_object
from penstock.dataflow.routing_table import decode_table

TABLE_S = 240.0
"""10 000 rows of those that are counted, and counts that come every ten seconds."""
MEETS_S = 240.0
BACK_S = 240.0
"""Workers of the edited topology one after the other, then the last tables."""
CODE = "correlated-code"


@pytest.fixture
def user(cluster: Cluster, tmp_path: Path) -> Iterator[User]:
    made = User.made(cluster, "locality-editor", tmp_path)
    yield made
    made.remove()


@pytest.fixture
def code(cluster: Cluster) -> Iterator[str]:
    apply_code(cluster, CODE)
    yield CODE
    cluster.delete("configmap", CODE)


def locality(found: Object) -> dict[str, Any]:
    told: dict[str, Any] = found.get("status", {}).get("locality", {})
    return told


def share_here(found: Object) -> float:
    """What part of the rows from tags to lands stays on its node; 0 where that is not told."""
    return max((float(edge.get("localShare", 0)) for edge in locality(found).get("edges", ())), default=0.0)


def is_carried_out(found: Object) -> bool:
    told = locality(found)
    return bool(told.get("tables")) and "underWay" not in told


def keys_in_tables(running: Running) -> int:
    """How many keys the tables have that Schedules carry."""
    places = [from_object(one).table for one in running.schedules()]
    tables = [decode_table(place.content) for place in places if place is not None]
    return sum(len(table.keys) + len(table.moves) for table in tables)


def turned_off(running: Running) -> list[Object]:
    """Its operators, where none asks for tables."""
    operators: list[Object] = running.object()["spec"]["operators"]
    return [one | {"locality": "Off"} if "processor" in one else one for one in operators]


def test_keys_that_belong_together_meet_on_one_node_and_go_back_when_nobody_asks(
    cluster: Cluster,
    installation: Installation,
    shared: SharedFolder,
    run: Callable[[Running], None],
    user: User,
    code: str,
) -> None:
    running = CorrelatedKeys.made(cluster, shared, "correlated", code)
    run(running)
    with running.growing():
        workers = running.wait_workers(2)
        assert {node_of(pod) for pod in workers} == set(cluster.worker_nodes)
        running.wait_rows(seconds=START_S)

        def wait(what: str, found: Callable[[Object], bool], seconds: float) -> Object:
            return cluster.wait("topology", running.name, what, found, seconds)

        wait("there is a table", lambda found: bool(locality(found).get("tables")), TABLE_S)
        assert keys_in_tables(running) > 0
        met = wait("keys meet", lambda found: is_carried_out(found) and share_here(found) >= 0.8, MEETS_S)
        versions = {one["operator"]: one["version"] for one in locality(met)["tables"]}
        change = next(one for one in locality(met)["decisions"] if one.get("actions"))
        described = cluster.kubectl("describe", "topology", running.name)
        assert "Local Share:" in described
        assert "Version:" in described
        assert change["reason"] in described
        explained = user.told("explain", running.name)
        assert "(locality, rule gain)" in explained
        assert change["reason"] in explained

        running.edit({"operators": turned_off(running)})
        cluster.delete("pod", running.workers()[0]["metadata"]["name"])
        wait("nothing is told of tables any more", lambda found: not locality(found), BACK_S)
        assert keys_in_tables(running) == 0
        places = [from_object(one) for one in running.schedules()]
        after = {one.operator: one.table.version for one in places if one.table is not None}
        # The other operator's table may have come between: one is carried out at a time.
        assert after.keys() >= versions.keys()
        assert all(after[name] > version for name, version in versions.items())

        def counted() -> list[str]:
            found = installation.store_keys(running.state_uid())
            return [key for keys in found.values() for key in keys if key.endswith(":pairs")]

        wait_until("no store has counts any more", lambda: not counted(), BACK_S, every_s=2)
    running.assert_exact()
