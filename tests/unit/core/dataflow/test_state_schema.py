"""What a state variable may become, and that its words say all of it."""

from __future__ import annotations

import itertools

import pytest

from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.state_schema import LIST, MAP, VALUE, Declared, declared_in, may_become, reads, words

NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double")


def ddl(text: str) -> str:
    return parse_schema(text).ddl()


@pytest.mark.parametrize(
    "declared",
    [
        (VALUE, (ddl("n long, `a``b) to (c` string"),)),
        (LIST, (ddl("p struct<a:int,b:map<string,int>>"),)),
        (MAP, (ddl("k string"), ddl("v long, w date"))),
    ],
)
def test_words_are_read_back(declared: Declared) -> None:
    assert declared_in(words(declared)) == declared


@pytest.mark.parametrize("text", ["", "nothing", "a heap of (`n` int)", "a value of `n` int"])
def test_other_words_say_nothing(text: str) -> None:
    assert declared_in(text) is None


def test_numbers_become_wider_and_never_narrower() -> None:
    for (at, before), (to, now) in itertools.product(enumerate(NUMBERS), repeat=2):
        assert reads(ddl(f"n {before}"), ddl(f"n {now}")) == (at <= to)


@pytest.mark.parametrize(
    ("before", "now", "can"),
    [
        ("n int, m int", "m int", True),
        ("n int", "m string, n int", True),
        ("n int", "N int", False),
        ("n int", "m int", False),
        ("n bigint", "n timestamp", False),
        ("n timestamp", "n timestamp_ntz", False),
        ("d decimal(9,2)", "d decimal(10,2)", False),
        ("a array<int>", "a array<bigint>", True),
        ("a array<int>", "a array<string>", False),
        ("a array<int>", "a int", False),
        ("m map<string,int>", "m map<string,double>", True),
        ("m map<int,int>", "m map<bigint,int>", False),
        ("s struct<a:int,b:int>", "s struct<b:bigint,c:date>", True),
        ("s struct<a:int>", "s struct<b:int>", False),
        ("a array<struct<x:array<int>>>", "a array<struct<y:int,x:array<double>>>", True),
    ],
)
def test_fields_go_by_their_names_at_any_depth(before: str, now: str, *, can: bool) -> None:
    assert reads(ddl(before), ddl(now)) == can


def test_kinds_and_keys_of_maps_stay() -> None:
    keys, wider, value = ddl("k int"), ddl("k bigint"), ddl("n int")
    assert may_become((MAP, (keys, value)), (MAP, (keys, ddl("n bigint"))))
    assert not may_become((MAP, (keys, value)), (MAP, (wider, value)))
    assert not may_become((VALUE, (value,)), (LIST, (value,)))
    assert not may_become((VALUE, (value,)), (MAP, (keys, value)))
