"""A key on the command line becomes what is routed and kept, or is told what it should be."""

from __future__ import annotations

from decimal import Decimal

import pytest
import yaml

from penstock.api.compile import compile_topology
from penstock.api.load import read_topology
from penstock.dataflow.routing import Router
from penstock_operator.asking.keys import KeyUnknown, key_of, keyed_head, shard_of_key

PLAN = compile_topology(
    read_topology(
        yaml.safe_load("""
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: keyed}
spec:
  code: {module: code}
  operators:
  - name: rows
    source:
      files: {glob: '*.jsonl', format: jsonl, schema: "a string, b long, c decimal(10,2), d boolean, e date"}
  - name: all
    inputs: [rows]
    keyBy: [a, b, c, d]
    processor: "code:Any"
    outputSchema: "a string"
  - name: days
    inputs: [rows]
    keyBy: [e]
    processor: "code:Any"
    outputSchema: "a string"
  - name: made
    inputs: [rows]
    transform: "code:made"
    outputSchema: "a string"
  - name: out
    inputs: [all, days, made]
    sink: {console: {}}
""")
    )
)
ALL = keyed_head(PLAN, "all")


def test_texts_become_values_of_the_keys_columns() -> None:
    assert key_of(ALL, ["7", "7", "7.50", "true"]) == ["7", 7, "7.50", True]
    assert list(ALL.key_types) == ["string", "bigint", "decimal(10,2)", "boolean"]


def test_a_keys_shard_is_the_one_that_its_rows_went_to() -> None:
    key = ["ash", 7, "7.50", True]
    part = Router(ALL.key_types, ALL.shards).route(("ash", 7, Decimal("7.50"), True))
    assert shard_of_key("all", ALL, key) == f"all/{part}"


@pytest.mark.parametrize(
    ("operator", "given", "told"),
    [
        ("made", ["x"], "no operator 'made' keeps state by key; there are all, days"),
        ("rows", ["x"], "no operator 'rows' keeps state by key; there are all, days"),
        ("all", ["x"], "a key has 4 values here, one for each column: a(string) b(bigint)"),
        ("all", ["x", "seven", "1", "true"], "'seven' is no bigint for column b"),
        ("all", ["x", "7", "much", "true"], "'much' is no decimal(10,2) for column c"),
        ("all", ["x", "7", "1", "yes"], "'yes' is no boolean for column d"),
        ("days", ["2026-01-01"], "column e is a date: keys of such columns can be listed, and not asked for"),
    ],
)
def test_what_is_no_key_is_told_with_what_is(operator: str, given: list[str], told: str) -> None:
    with pytest.raises(KeyUnknown) as refused:
        key_of(keyed_head(PLAN, operator), given)
    assert told in str(refused.value)
