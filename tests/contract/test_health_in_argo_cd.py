"""Argo CD's script of docs/install.md, run by a Lua that is at hand, judges as kstatus does."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml

from backends.store_fixtures import private_store
from worlds.kstatus import kstatus

DOCUMENT = Path(__file__).parents[2] / "docs" / "install.md"
KEY = "resource.customizations.health.penstock.dev_Topology"
IN_ARGO_CD = {"Current": "Healthy", "InProgress": "Progressing", "Failed": "Degraded"}

pytestmark = pytest.mark.integration


def script() -> str:
    blocks = DOCUMENT.read_text(encoding="utf-8").split("```yaml\n")[1:]
    (found,) = (block.split("```")[0] for block in blocks if KEY in block)
    return str(yaml.safe_load(found)["data"][KEY])


def statuses() -> Iterator[dict[str, Any]]:
    """Every mixture of what the script goes by."""
    conditions = [
        {"type": kind, "status": value, "reason": "Word", "message": f"{kind} is {value}"}
        for kind, value in (("Ready", "True"), ("Ready", "False"), ("Ready", "Unknown"))
    ]
    abnormal = [
        {"type": kind, "status": "True", "reason": "Word", "message": kind}
        for kind in ("Reconciling", "Stalled")
    ]
    for generation, ready, other in itertools.product((-1, 1, 2), (None, *conditions), (None, *abnormal)):
        yield {
            "observedGeneration": generation,
            "conditions": [one for one in (ready, other) if one is not None],
        }


def test_the_script_for_argo_cd_judges_as_kstatus_does(tmp_path: Path) -> None:
    lua = (
        "local obj = cjson.decode(ARGV[1])\n"
        f"local function health()\n{script()}\nend\n"
        "return cjson.encode(health())"
    )
    judged = set()
    with private_store(tmp_path) as store, redis.Redis.from_url(store.url) as client:
        for status in statuses():
            thing = {"metadata": {"generation": 2}, "status": status}
            found = json.loads(str(client.eval(lua, 0, json.dumps(thing)), "utf-8"))
            assert found["status"] == IN_ARGO_CD[kstatus(thing)], status
            judged.add(found["status"])
        bare = {"metadata": {"generation": 1}}
        found = json.loads(str(client.eval(lua, 0, json.dumps(bare)), "utf-8"))
        assert found["status"] == "Progressing"
    assert judged == set(IN_ARGO_CD.values())
