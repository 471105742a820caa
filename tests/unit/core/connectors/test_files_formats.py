"""The formats of files as a source: which columns come out, what is refused, and what state depends on."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.connectors.files import TEXT_SCHEMA, FilesSource, FilesSourceSpec
from penstock.dataflow.ddl import parse_schema

ORDERS = "user string, amount long"


def faults(**body: Any) -> list[str]:
    return [str(fault) for fault in FilesSourceSpec.faults_of("here", {"glob": "*", **body})]


def test_text_has_one_column_and_jsonl_those_of_its_schema() -> None:
    assert FilesSourceSpec.schema_of({}) == TEXT_SCHEMA
    assert FilesSourceSpec.schema_of({"format": "text"}) == TEXT_SCHEMA
    assert FilesSourceSpec.schema_of({"format": "jsonl", "schema": ORDERS}) == parse_schema(ORDERS)


@pytest.mark.parametrize(
    "body",
    [{"format": "jsonl"}, {"format": "csv"}, {"format": 3}, {"format": "jsonl", "schema": "a lnog"},
     {"format": "jsonl", "schema": 3}, {"format": ["text"]}],
)  # fmt: skip
def test_columns_of_what_is_wrong_are_not_known(body: dict[str, Any]) -> None:
    assert FilesSourceSpec.schema_of(body) is None


def test_a_schema_goes_with_jsonl_alone() -> None:
    assert faults() == faults(format="jsonl", schema=ORDERS) == []
    assert faults(format="jsonl") == [
        "here.schema: is missing; format jsonl needs its columns, such as 'user string, amount bigint'"
    ]
    assert faults(schema=ORDERS) == [
        "here.schema: format text has the one column `value string`; leave it out, or give format: jsonl"
    ]


def test_a_schema_that_cannot_be_read_says_why() -> None:
    (unknown,) = faults(format="jsonl", schema="a lnog")
    assert unknown.startswith("here.schema: column 'a': type lnog is unknown")
    assert faults(format="jsonl", schema="m map<int,int>") == [
        "here.schema: column m: map<int,int> cannot be read from JSON, whose keys are text"
    ]


def test_a_fault_of_the_field_itself_is_not_named_twice() -> None:
    assert faults(format="jsonl", schema=3) == faults(format="jsonl", schema="") == faults(format="csv") == []
    assert faults(format="jsonl", schme=ORDERS) == []


def test_a_plan_has_the_columns_and_its_state_goes_by_files_and_format() -> None:
    source = FilesSourceSpec.model_validate({"glob": "*.jsonl", "format": "jsonl", "schema": ORDERS}).plan()
    assert source == FilesSource("*.jsonl", "jsonl", None, None, parse_schema(ORDERS))
    assert source.identity_text() == "*.jsonl (jsonl)"
