"""Code whose schema of a variable became another one goes on with all that was there, as in Spark."""

from __future__ import annotations

import decimal
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import Row

from penstock_worker.state.encoding import PART_BYTES
from penstock_worker.state.handle import TaskHandle
from scenes.owned_state import OwnedState

Declare = Callable[[TaskHandle], Any]


def value(schema: str) -> Declare:
    return lambda handle: handle.getValueState("v", schema)


def items(schema: str) -> Declare:
    return lambda handle: handle.getListState("v", schema)


def entries(schema: str) -> Declare:
    return lambda handle: handle.getMapState("v", "k string", schema)


def begun(declare: Declare, *keys: str, after: OwnedState | None = None) -> OwnedState:
    owned = OwnedState(declare, after=after)
    owned.prefetch(*((key,) for key in keys))
    assert owned.state.refusal == ""
    return owned


def written(declare: Declare, given: Any, key: str = "a", after: OwnedState | None = None) -> OwnedState:
    owned = begun(declare, key, after=after)
    with owned.at(key) as variable:
        variable.update(given)
    owned.commit()
    return owned


@pytest.mark.parametrize(
    ("before", "given", "now", "found"),
    [
        ("n int", (5,), "n long", (5,)),
        ("n tinyint", (5,), "n double", (5.0,)),
        ("n float", (0.5,), "n double", (0.5,)),
        ("n long", ((1 << 24) + 1,), "n float", (16777216.0,)),
        ("n int", (None,), "n double", (None,)),
        ("n int, word string", (5, "x"), "word string, n int", ("x", 5)),
        ("n int, word string", (5, "x"), "n int, word string, x double, y date", (5, "x", None, None)),
        ("n int, word string", (5, "x"), "word string", ("x",)),
        ("n int, word string", (5, "x"), "more date, word string, n long", (None, "x", 5)),
        ("l array<int>", ([1, None],), "l array<double>", ([1.0, None],)),
        (
            "l array<struct<a:int,b:string>>",
            ([(1, "x")],),
            "l array<struct<c:int,a:long>>",
            ([Row(c=None, a=1)],),
        ),
        ("p map<string,int>", ({"a": 1},), "p map<string,double>", ({"a": 1.0},)),
        (
            "s struct<a:struct<b:int>>",
            (((5,),),),
            "s struct<a:struct<c:int,b:long>>",
            (Row(a=Row(c=None, b=5)),),
        ),
        (
            "d decimal(9,2), n int",
            (decimal.Decimal("1.50"), 1),
            "n bigint, d decimal(9,2)",
            (1, decimal.Decimal("1.50")),
        ),
    ],
)
def test_what_was_written_under_one_schema_is_read_under_another(
    before: str, given: Any, now: str, found: Any
) -> None:
    later = begun(value(now), "a", after=written(value(before), given))
    with later.at("a") as variable:
        assert variable.get() == found
        assert variable.exists()


def test_values_of_several_schemas_lie_beside_each_other() -> None:
    owned = written(value("n int"), (1,), "a")
    owned = written(value("n int, word string"), (2, "x"), "b", after=owned)
    owned = written(value("word string, n long"), ("y", 3), "c", after=owned)
    for _ in range(2):
        owned = begun(value("word string, n long"), "a", "b", "c", after=owned)
        found = []
        for key in ("a", "b", "c"):
            with owned.at(key) as variable:
                found.append(variable.get())
                if key == "a":
                    variable.update((None, 1))
        assert found == [(None, 1), ("x", 2), ("y", 3)]
        owned.commit()


def test_a_field_that_went_and_came_back_has_what_lies_in_values_that_nobody_rewrote() -> None:
    owned = written(value("n int, word string"), (1, "x"), "a")
    owned = written(value("n int"), (2,), "b", after=owned)
    owned = begun(value("n int, word string"), "a", "b", after=owned)
    with owned.at("a") as variable:
        assert variable.get() == (1, "x")
    with owned.at("b") as variable:
        assert variable.get() == (2, None)


def test_a_schema_that_an_earlier_one_cannot_become_is_refused_however_long_ago_it_was() -> None:
    owned = written(value("n int, word string"), (1, "x"), "a")
    owned = written(value("n int"), (2,), "b", after=owned)
    later = OwnedState(value("n int, word date"), after=owned)
    later.prefetch(("a",))
    assert "state 'v' is a value of (`n` int) in the store" in later.state.refusal
    assert "A schema may gain, lose and reorder fields" in later.state.refusal


def test_code_that_became_wider_cannot_go_back() -> None:
    owned = written(value("n long"), (1 << 40,), after=written(value("n int"), (1,)))
    earlier = OwnedState(value("n int"), after=owned)
    earlier.prefetch(("a",))
    assert "in the code" in earlier.state.refusal


def test_a_schema_as_it_was_before_writes_values_as_it_did() -> None:
    first = written(value("n int, word string"), (1, "x"))
    (raw,) = first.stored().values()
    second = written(value("word string, n int"), ("x", 1), after=first)
    (other,) = second.stored().values()
    third = written(value("n int, word string"), (1, "x"), after=second)
    assert list(third.stored().values()) == [raw]
    assert other != raw


def test_a_value_in_parts_is_read_under_another_schema() -> None:
    text = "é" * PART_BYTES
    owned = written(value("text string, n int"), (text, 1))
    owned = begun(value("n long, text string"), "a", after=owned)
    with owned.at("a") as variable:
        assert variable.get() == (1, text)
        variable.update((2, text))
    owned.commit()
    owned = begun(value("n long, text string"), "a", after=owned)
    with owned.at("a") as variable:
        assert variable.get() == (2, text)
        variable.clear()
    owned.commit()
    assert owned.stored() == {}


def test_lists_hold_rows_of_several_schemas_in_chunks_and_behind_them() -> None:
    rows = [(number, "x" * 300) for number in range(9)]
    owned = begun(items("n int, word string"), "a")
    with owned.at("a") as variable:
        variable.appendList(rows)
    owned.commit()
    owned = begun(items("word string, n long"), "a", after=owned)
    with owned.at("a") as variable:
        variable.appendList([("y" * 300, number) for number in range(9, 18)])
    owned.commit()
    for _ in range(2):
        owned = begun(items("word string, n long"), "a", after=owned)
        with owned.at("a") as variable:
            found = list(variable.get())
            assert found == [("x" * 300 if n < 9 else "y" * 300, n) for n in range(18)]
            variable.put(found)
        owned.commit()


def test_maps_hold_entries_of_several_schemas_and_keep_their_keys() -> None:
    owned = begun(entries("n int"), "a")
    with owned.at("a") as variable:
        for key in ("k", "l"):
            variable.updateValue((key,), (1,))
    owned.commit()
    owned = begun(entries("word string, n long"), "a", after=owned)
    with owned.at("a") as variable:
        assert variable.getValue(("k",)) == Row(word=None, n=1)
        variable.updateValue(("l",), ("x", 2))
        variable.updateValue(("m",), ("y", 3))
    owned.commit()
    owned = begun(entries("word string, n long"), "a", after=owned)
    with owned.at("a") as variable:
        assert list(variable.iterator()) == [(("k",), (None, 1)), (("l",), ("x", 2)), (("m",), ("y", 3))]


def test_a_batch_that_is_rolled_back_leaves_the_schema_as_it_was() -> None:
    owned = written(value("n int"), (1,))
    noted = owned.noted()
    later = begun(value("n long"), "a", after=owned)
    with later.at("a") as variable:
        variable.update((1 << 40,))
    later.state.take_writes()
    later.state.rollback()
    assert later.noted() == noted
    with later.at("a") as variable:
        assert variable.get() == (1,)


def test_all_ways_between_a_few_schemas_keep_what_they_share() -> None:
    schemas = [
        "a int, b string",
        "b string, a long",
        "a double",
        "b string, c date, a long",
        "c date, a double",
    ]
    taken = 0
    for path in itertools.product(schemas, repeat=3):
        owned: OwnedState | None = None
        number = 0
        for schema in path:
            owned = OwnedState(value(schema), after=owned)
            owned.prefetch((str(number),), ("0",))
            if owned.state.refusal:
                break
            for earlier in range(number):
                owned.prefetch((str(earlier),))
                with owned.at(str(earlier)) as variable:
                    names = [column.split()[0] for column in schema.split(", ")]
                    assert dict(zip(names, variable.get(), strict=True))["a"] == earlier
            with owned.at(str(number)) as variable:
                columns = [column.split() for column in schema.split(", ")]
                variable.update(tuple(number if name == "a" else None for name, _ in columns))
            owned.commit()
            number += 1
        taken += number == len(path)
    assert taken > len(schemas)
