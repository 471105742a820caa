"""Value states: what user code sees, what a commit writes, what a new owner finds."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import ValueState
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock.dataflow.plan import PROCESSING_TIME
from penstock.store.ownership import OwnershipLost
from penstock.store.port import StateWrite
from penstock_worker.state import cache, encoding
from penstock_worker.state.handle import TaskHandle
from penstock_worker.state.shapes import StateMisuse, StateUnreadable
from scenes.owned_state import OwnedState


def total_and_name(handle: TaskHandle) -> tuple[Any, Any]:
    return handle.getValueState("total", "total long"), handle.getValueState("name", "name string")


def one(schema: Any) -> OwnedState:
    """A shard with one variable, `v`."""
    return OwnedState(lambda handle: handle.getValueState("v", schema))


def test_state_objects_are_pysparks_own() -> None:
    assert type(one("total long").variables) is ValueState


def test_a_value_is_none_until_it_is_set_and_after_it_was_cleared() -> None:
    owned = one("total long")
    with owned.at("a") as value:
        assert value.get() is None
        assert not value.exists()
        value.update((1,))
        assert value.get() == (1,)
        assert value.exists()
        value.clear()
        assert value.get() is None
        assert not value.exists()


def test_a_tuple_of_nulls_is_a_value() -> None:
    owned = one("a long, b string")
    with owned.at("a") as value:
        value.update((None, None))
        assert value.exists()
        assert value.get() == (None, None)


def test_a_new_owner_finds_what_was_committed_and_nothing_else() -> None:
    owned = OwnedState(total_and_name)
    with owned.at("a") as (total, name):
        total.update((1,))
        name.update(("first",))
    owned.commit()
    with owned.at("a") as (total, name):
        total.update((2,))
    owned.new_owner()
    with owned.at("a") as (total, name):
        assert total.get() == (1,)
        assert name.get() == ("first",)
    with owned.at("b") as (total, _):
        assert total.get() is None


def test_a_commit_writes_the_last_value_of_what_changed_and_only_that() -> None:
    owned = OwnedState(total_and_name)
    with owned.at("a") as (total, _):
        total.update((1,))
        total.update((2,))
    with owned.at("b") as (total, _):
        assert total.get() is None
    field = encoding.field_prefix(encoding.VALUE, "total") + encoding.pack(("a",))
    assert owned.commit() == (StateWrite(b"", field, encoding.pack((2,))),)
    assert owned.commit() == ()


def test_a_value_set_and_cleared_in_one_batch_is_one_delete() -> None:
    owned = one("total long")
    with owned.at("a") as value:
        value.update((1,))
        value.clear()
    (write,) = owned.commit()
    assert write.value is None
    assert owned.stored() == {}


def test_the_values_of_a_batch_come_in_one_load() -> None:
    owned = OwnedState(total_and_name)
    for key in "abc":
        with owned.at(key) as (total, _):
            total.update((1,))
    owned.commit()
    owned.new_owner()
    owned.calls.clear()
    load = owned.prefetch(("a",), ("b",), ("x",))
    assert load is not None
    assert len(load.fields) == 6
    for key, expected in (("a", (1,)), ("b", (1,)), ("x", None)):
        with owned.at(key) as (total, name):
            assert total.get() == expected
            assert name.get() is None
            total.update((2,))
    assert owned.calls == [load]
    owned.commit()
    assert owned.prefetch(("a",), ("x",)) is None


def test_keys_beyond_one_load_are_loaded_together_when_the_first_is_touched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cache, "LOAD_FIELDS_MAX", 8)
    owned = OwnedState(total_and_name)
    keys = [(f"k{i}",) for i in range(10)]
    load = owned.prefetch(*keys)
    assert load is not None
    assert len(load.fields) == 8
    for key in keys:
        with owned.at(*key) as (total, _):
            assert total.get() is None
    assert len(owned.calls) == 3


def test_a_rolled_back_batch_can_be_worked_on_again() -> None:
    owned = one("total long")
    with owned.at("a") as value:
        value.update((1,))
    owned.commit()
    owned.prefetch(("a",), ("b",))
    for key in "ab":
        with owned.at(key) as value:
            value.update((9,))
    owned.state.rollback()
    owned.calls.clear()
    with owned.at("a") as value:
        assert value.get() == (1,)
        value.update((2,))
    with owned.at("b") as value:
        assert value.get() is None
    assert len(owned.calls) == 1
    assert len(owned.commit()) == 1
    owned.new_owner()
    with owned.at("a") as value:
        assert value.get() == (2,)


def test_a_rolled_back_batch_leaves_nothing_behind() -> None:
    owned = one("total long")
    owned.prefetch(("a",))
    with owned.at("a") as value:
        value.update((9,))
    owned.state.rollback()
    assert owned.state.take_writes() == ()


@pytest.mark.parametrize(
    ("schema", "given", "read"),
    [
        ("a double", (1,), (1.0,)),
        ("a float", (1.1,), (1.100000023841858,)),
        ("a long", (np.int64(7),), (7,)),
        ("a double", (np.float32(0.5),), (0.5,)),
        ("a boolean", (np.bool_(1),), (True,)),
        ("a string, b long", Row(b="x", a=1), ("x", 1)),
        ("a string, b long", ["x", None], ("x", None)),
        ("a binary", (bytearray(b"\x00\xff"),), (b"\x00\xff",)),
        ("a date", (datetime.date(1960, 2, 29),), (datetime.date(1960, 2, 29),)),
        (
            "a timestamp",
            (datetime.datetime(2020, 1, 2, 4, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),),
            (datetime.datetime(2020, 1, 2, 3),),  # noqa: DTZ001 - as Spark's state hands it out
        ),
        (
            "a timestamp_ntz",
            (datetime.datetime(2020, 1, 2, 4),),  # noqa: DTZ001 - no zone is meant
            (datetime.datetime(2020, 1, 2, 4),),  # noqa: DTZ001
        ),
        ("a long NOT NULL COMMENT 'never', b long", (1, None), (1, None)),
        (
            "a array<timestamp_ntz>",
            (np.array(["2020-01-02T04"], "M8[ns]"),),
            ([datetime.datetime(2020, 1, 2, 4)],),  # noqa: DTZ001
        ),
        ("a decimal(10,2)", (decimal.Decimal("1.255"),), (decimal.Decimal("1.26"),)),
        ("a decimal(10,2)", (decimal.Decimal("-0.001"),), (decimal.Decimal("0.00"),)),
        ("a array<int>", ((1, None),), ([1, None],)),
        ("a map<string,date>", ({"x": datetime.date(2020, 1, 1)},), ({"x": datetime.date(2020, 1, 1)},)),
        ("a struct<x:int,y:array<string>>", ({"y": ["q"], "x": 1},), (Row(x=1, y=["q"]),)),
    ],
)
def test_values_come_back_as_sparks_state_hands_them_out(
    schema: str, given: Any, read: tuple[Any, ...]
) -> None:
    owned = one(schema)
    with owned.at("a") as value:
        value.update(given)
        assert value.get() == read
    owned.commit()
    owned.new_owner()
    with owned.at("a") as value:
        got = value.get()
    assert got == read
    assert repr(got) == repr(read)
    assert type(got) is tuple


@pytest.mark.parametrize(
    "type_",
    ["map<array<int>,int>", "array<struct<x:map<struct<y:array<int>>,int>>>", "map<int,map<array<int>,int>>"],
)
def test_a_map_that_python_has_no_dict_for_is_refused_where_it_is_declared(type_: str) -> None:
    with pytest.raises(StateMisuse, match=r"state 'v', column 'a', is .* which cannot have such keys"):
        one(f"a {type_}")


@pytest.mark.parametrize(
    ("schema", "given", "message"),
    [
        ("a long", (1.5,), "column 'a', expects bigint, got float 1.5"),
        ("a long NOT NULL", (None,), "column 'a', is declared as NOT NULL, got None"),
        ("a date, b array<int> NOT NULL", (None, None), "column 'b', is declared as NOT NULL, got None"),
        (
            "a timestamp_ntz",
            (datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC),),
            "which has a zone; give its time there, value.replace(tzinfo=None)",
        ),
        ("a long", (True,), "column 'a', expects bigint, got bool True"),
        ("a long", (1 << 63,), "-9223372036854775808 to 9223372036854775807"),
        ("a tinyint", (300,), "expects tinyint, -128 to 127, got int 300"),
        ("a string", (5,), "expects string, got int 5"),
        ("a date", (datetime.datetime.now(datetime.UTC),), "expects date, got datetime"),
        ("a decimal(4,2)", (decimal.Decimal(100),), "does not fit"),
        ("a array<int>", ([1, "x"],), "has element 1 that expects int, got str 'x'"),
        ("a binary", ("YWJj",), "expects binary, got str 'YWJj'"),
        ("a long", 5, "takes a tuple (`a` bigint), got int 5"),
        ("a long", None, "takes a tuple (`a` bigint), got None"),
        ("a long, b long", (1,), "takes 2 values"),
        ("a string", "ab", "takes a tuple (`a` string), got str 'ab'"),
        ("a long", "5", "expects bigint, got str '5'"),
        ("a long", {"a": 1}, "takes a tuple"),
        ("a string", ("\ud800",), "column 'a', expects string, got str '\\ud800', which has half of"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_column_and_type(
    schema: str, given: Any, message: str
) -> None:
    owned = one(schema)
    with owned.at("a") as value:
        with pytest.raises(StateMisuse) as refused:
            value.update(given)
        assert "state 'v'" in str(refused.value)
        assert message in str(refused.value)
        assert value.get() is None


def test_a_text_of_one_letter_passes_for_the_tuple_of_it_as_in_spark() -> None:
    owned = one("a string")
    with owned.at("a") as value:
        value.update("5")
        assert value.get() == ("5",)


def test_what_user_code_does_to_a_value_it_got_or_gave_changes_no_state() -> None:
    owned = one("a array<int>")
    given = [1, 2]
    with owned.at("a") as value:
        value.update((given,))
        given.append(3)
        value.get()[0].append(4)
        assert value.get() == ([1, 2],)


def test_a_struct_type_declares_as_its_ddl_does() -> None:
    owned = one(StructType([StructField("name", StringType()), StructField("n", LongType())]))
    with owned.at("a") as value:
        value.update(("x", 1))
        assert value.get() == ("x", 1)


def test_a_large_value_lies_in_parts_that_go_with_it() -> None:
    owned = one("text string")
    large = "x" * (3 * encoding.PART_BYTES)
    with owned.at("a") as value:
        value.update((large,))
    owned.commit()
    assert all(len(part) <= encoding.PART_BYTES for part in owned.stored().values())
    assert len(owned.stored()) == 5
    owned.new_owner()
    owned.prefetch(("a",))
    with owned.at("a") as value:
        assert value.exists()
        assert value.get() == (large,)
        value.update(("y" * (encoding.PART_BYTES + 1),))
    owned.commit()
    assert len(owned.stored()) == 3
    owned.new_owner()
    with owned.at("a") as value:
        value.update(("small",))
    owned.commit()
    assert len(owned.stored()) == 1
    with owned.at("a") as value:
        value.update((large,))
    owned.commit()
    with owned.at("a") as value:
        value.clear()
    owned.commit()
    assert owned.stored() == {}


def test_what_was_taken_to_be_written_can_still_be_rolled_back() -> None:
    owned = one("text string")
    with owned.at("a") as value:
        value.update(("x" * 2000,))
    owned.state.take_writes()
    assert 2000 <= owned.state.taken_bytes <= 2100
    owned.state.rollback()
    with owned.at("a") as value:
        assert value.get() is None


def test_state_of_another_schema_is_refused_by_name() -> None:
    owned = one("total long")
    with owned.at("a") as value:
        value.update((1,))
    owned.commit()
    other = OwnedState(lambda handle: handle.getValueState("v", "total string"), after=owned)
    with other.at("a") as value, pytest.raises(StateUnreadable, match=r"state 'v' was written under another"):
        value.get()


def test_state_is_out_of_reach_between_keys() -> None:
    value = one("total long").variables
    for use in (value.get, value.exists, value.clear, lambda: value.update((1,))):
        with pytest.raises(StateMisuse, match="only while handleInputRows runs"):
            use()


def test_a_late_owner_that_loads_state_learns_that_the_shard_is_lost() -> None:
    owned = one("total long")
    owned.lose()
    with owned.at("a") as value, pytest.raises(OwnershipLost):
        value.get()
    assert isinstance(owned.state.failure, OwnershipLost)


def test_an_answer_that_is_no_list_means_that_the_shard_is_lost() -> None:
    owned = one("total long")
    owned.lose()
    with pytest.raises(OwnershipLost):
        owned.prefetch(("a",))


def test_variables_are_declared_once_by_name_and_in_init_only() -> None:
    handle = TaskHandle()
    handle.getValueState("v", "a long")
    with pytest.raises(StateMisuse, match="declared twice"):
        handle.getListState("v", "a long")
    with pytest.raises(StateMisuse, match="no name"):
        handle.getValueState("", "a long")
    handle.seal()
    with pytest.raises(StateMisuse, match=r"init\(\) only"):
        handle.getValueState("w", "a long")


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda h: h.getValueState("v", "a long", 1000), "ttlDurationMs=1000 of state 'v'"),
        (lambda h: h.getListState("v", "a long", ttlDurationMs=1000), "ttlDurationMs=1000 of state 'v'"),
        (lambda h: h.getMapState("v", "a long", "b long", 1000), "ttlDurationMs=1000 of state 'v'"),
        (lambda h: h.registerTimer(5), "registerTimer"),
        (lambda h: h.deleteTimer(5), "deleteTimer"),
        (lambda h: h.listTimers(), "listTimers"),
    ],
)
def test_what_needs_a_time_mode_is_refused_without_one(call: Any, named: str) -> None:
    with pytest.raises(StateMisuse) as refused:
        call(TaskHandle())
    assert str(refused.value).startswith(f"{named}, which needs a time mode; give the operator timeMode")


@pytest.mark.parametrize("ttl_ms", [0, -5, 1.5])
def test_a_time_to_live_is_a_positive_number_of_milliseconds(ttl_ms: Any) -> None:
    with pytest.raises(StateMisuse, match="a whole number of milliseconds above 0"):
        TaskHandle(PROCESSING_TIME).getValueState("v", "a long", ttl_ms)
