"""The chart's files agree with the rest of the repository; what needs Helm is among the integration tests."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import pytest
import yaml

from house import ROOT

CHART = ROOT / "charts/penstock"


def values() -> dict[str, Any]:
    return dict(yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8")))


def paths_of(value: Any, path: str = "") -> set[str]:
    if not isinstance(value, dict) or not value:
        return {path}
    return {found for key, item in value.items() for found in paths_of(item, f"{path}.{key}")}


def test_the_chart_installs_the_crds_of_the_models() -> None:
    def texts(folder: str) -> dict[str, str]:
        return {path.name: path.read_text(encoding="utf-8") for path in (ROOT / folder).glob("*.yaml")}

    assert texts("charts/penstock/files/crds") == texts("crds"), "the chart's copy is stale: run `make crds`"


def test_chart_and_package_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert chart["appVersion"] == project["version"]
    example = (ROOT / "examples/word-count/Dockerfile").read_text(encoding="utf-8")
    assert f"ARG WORKER_IMAGE=penstock-worker:{project['version']}\n" in example


def test_every_value_has_a_schema_and_every_schema_a_value() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))

    def resolved(part: dict[str, Any]) -> dict[str, Any]:
        if "$ref" in part:
            return dict(schema["definitions"][part["$ref"].rsplit("/", 1)[1]])
        return part

    def check(part: dict[str, Any], value: Any, path: str) -> None:
        part = resolved(part)
        if "properties" not in part or path in {"images.operator", ".operator.resources"}:
            return
        assert part["additionalProperties"] is False, path
        assert isinstance(value, dict), path
        free = {"global"} if not path else set()
        assert set(part["properties"]) - free == set(value), path
        for key, item in value.items():
            check(part["properties"][key], item, f"{path}.{key}")

    check(schema, values(), "")


def test_every_value_is_used_by_a_template() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in CHART.rglob("templates/**/*.*"))
    used = set(re.findall(r"\.Values((?:\.\w+)+)", text))
    unused = [
        path
        for path in paths_of(values())
        if not any(path == name or path.startswith(f"{name}.") for name in used)
    ]
    assert unused == []


METRICS = (
    "worker/penstock_worker/main_process/prometheus.py",
    "operator/penstock_operator/agent/endpoint.py",
    "operator/penstock_operator/cluster/carrying_out/operator_metrics.py",
    "operator/penstock_operator/cluster/carrying_out/sla_metrics.py",
)


@pytest.mark.parametrize("path", ["files/dashboard.json", "templates/metrics/alerts.yaml"])
def test_dashboard_and_alerts_ask_for_metrics_that_there_are(path: str) -> None:
    served = "".join((ROOT / source).read_text(encoding="utf-8") for source in METRICS)
    asked = re.findall(r"\b(penstock_\w+)\{", (CHART / path).read_text(encoding="utf-8"))
    names = {re.sub(r"_(total|bucket)$", "", name) for name in asked}
    assert names
    assert [name for name in sorted(names) if f'"{name}"' not in served] == []
