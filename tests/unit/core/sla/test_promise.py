"""What a LatencySLA asks, as values: targets by operator, limits, edges."""

from __future__ import annotations

import pytest

from penstock.api.compile import compile_topology
from penstock.api.load import parse_manifest
from penstock.control.target import TaskLimits
from penstock.sla.promise import Promise, keyed_edges, promise_of

PROCESSOR = """
  - name: {name}
    inputs: [{inputs}]
    keyBy: [key]
    processor: m:P
    outputSchema: "key bigint"
    shards: 6
    tasks: {{min: 1, max: 8}}
"""


def topology_text(*operators: tuple[str, str]) -> str:
    head = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: t}
spec:
  code: {module: m}
  taskCpu: 500m
  operators:
  - name: orders
    source: {zipf: {keys: 10, ratePerSecond: 100}}
"""
    last = operators[-1][0]
    sink = f"  - {{name: shown, inputs: [{last}], sink: {{console: {{}}}}}}\n"
    return head + "".join(PROCESSOR.format(name=name, inputs=inputs) for name, inputs in operators) + sink


def promise(operators: tuple[tuple[str, str], ...], spec: str) -> Promise:
    sla = f"""
apiVersion: penstock.dev/v1alpha1
kind: LatencySLA
metadata: {{name: fast}}
spec: {{topology: t, {spec}}}
"""
    manifest = parse_manifest(f"{topology_text(*operators)}\n---\n{sla}")
    return promise_of(manifest.latency_slas[0], manifest.topology, compile_topology(manifest.topology))


def test_an_operators_sla_is_its_target() -> None:
    found = promise(
        (("a", "orders"), ("b", "a")),
        "operator: a, latency: 250ms, window: 2s, alertThreshold: 50ms, safetyMargin: 0.3, interval: 50ms, "
        "bounds: {tasks: {min: 2}}, budget: {cores: 3}, policy: StreamSwitch, dryRun: true",
    )
    target = found.scope.targets["a"]
    assert (target.latency_us, target.window_us, target.alert_us) == (250_000, 2_000_000, 50_000)
    assert (target.safety_margin, target.interval_us) == (0.3, 50_000)
    assert found.scope.limits == {"a": TaskLimits(2, 6)}
    assert found.scope.cores_max == 3
    assert found.scope.task_cpu == {"a": 0.5}
    assert (found.name, found.operator, found.policy, found.dry_run) == ("fast", "a", "StreamSwitch", True)


def test_the_alert_threshold_is_never_above_the_bound() -> None:
    assert promise((("a", "orders"),), "operator: a, latency: 40ms").scope.targets["a"].alert_us == 40_000


def test_an_end_to_end_bound_is_split_over_the_longest_path_through_each_operator() -> None:
    # orders -> a -> b -> d, and orders -> c -> d: a, b and d are on a path of three, c on one of two.
    operators = (("a", "orders"), ("b", "a"), ("c", "orders"), ("d", "b, c"))
    targets = promise(operators, "latency: 600ms").scope.targets
    assert {name: target.latency_us for name, target in targets.items()} == pytest.approx(
        {"a": 200_000, "b": 200_000, "c": 300_000, "d": 200_000}
    )


def test_edges_are_between_stages() -> None:
    plan = compile_topology(parse_manifest(topology_text(("a", "orders"), ("b", "a"))).topology)
    assert keyed_edges(plan) == (("orders", "a"), ("a", "b"))


def test_a_lag_is_asked_of_the_sources_upstream_alone() -> None:
    topic = "{kafka: {bootstrapServers: 'k:9092', topics: [t], value: {format: json, schema: 'key bigint'}}}"
    two = topology_text(("a", "orders"), ("b", "a"), ("other", "orders2")).replace(
        "    source: {zipf: {keys: 10, ratePerSecond: 100}}\n",
        f"    source: {topic}\n  - name: orders2\n    source: {topic}\n",
    )
    two = two.replace("inputs: [other]", "inputs: [other, b]")

    def asked(spec: str) -> Promise:
        sla = "apiVersion: penstock.dev/v1alpha1\nkind: LatencySLA\nmetadata: {name: fast}\n"
        manifest = parse_manifest(f"{two}\n---\n{sla}spec: {{topology: t, latency: 250ms, {spec}}}")
        return promise_of(manifest.latency_slas[0], manifest.topology, compile_topology(manifest.topology))

    assert asked("operator: b, sourceLag: 10s").sources == ("orders",)
    assert asked("sourceLag: 10s").sources == ("orders", "orders2")
    assert asked("sourceLag: 10s").source_lag_us == 10_000_000
    assert asked("operator: b").sources == ()
