"""Keys go where Spark's hash says, whatever a dict takes for equal."""

from __future__ import annotations

import datetime
import random
from collections import Counter
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from penstock.dataflow.routing import CACHED_KEYS_MAX, Router, routable, spark_xxhash64

# As Spark 4.3 answers `SELECT xxhash64(...)`.
FROM_SPARK: list[tuple[tuple[object, ...], tuple[str, ...], int]] = [
    (("a",), ("string",), -8582455328737087284),
    (("",), ("string",), -7444071767201028348),
    (("Straße",), ("string",), 6066552736992114314),
    ((1,), ("int",), -6698625589789238999),
    ((1,), ("bigint",), -7001672635703045582),
    ((-1,), ("smallint",), 2017008487422258757),
    ((-1,), ("tinyint",), 2017008487422258757),
    ((-0.0,), ("double",), -5252525462095825812),
    ((float("nan"),), ("double",), -3127944061524951246),
    ((1.5,), ("float",), 6163473420726370430),
    ((True,), ("boolean",), -6698625589789238999),
    ((datetime.date(1969, 12, 31),), ("date",), 2017008487422258757),
    (
        (datetime.datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=datetime.UTC),),
        ("timestamp",),
        -404791865445102892,
    ),
    ((Decimal("12.34"),), ("decimal(9,2)",), -3802813071951760351),
    ((Decimal("-12.34"),), ("decimal(38,2)",), -5902959860576184235),
    ((b"\x00\xff",), ("binary",), 879945414100663330),
    (("a", 1, None, 2.5), ("string", "int", "string", "double"), 6644320777917447973),
]

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(("values", "types", "expected"), FROM_SPARK)
def test_hashes_equal_sparks(values: tuple[object, ...], types: tuple[str, ...], expected: int) -> None:
    assert spark_xxhash64(values, types) == expected


def test_a_null_leaves_the_seed_as_it_is() -> None:
    assert spark_xxhash64([None], ["string"]) == 42
    assert spark_xxhash64([None, 7], ["string", "bigint"]) == spark_xxhash64([7], ["bigint"])


def test_a_shard_is_the_hash_modulo_shards_and_never_negative() -> None:
    router = Router(["string"], 64)
    for number in range(1000):
        key = (f"word{number}",)
        assert router.route(key) == spark_xxhash64(key, ["string"]) % 64
    assert {router.route((f"word{n}",)) for n in range(1000)} == set(range(64))


def test_a_key_goes_to_the_same_shard_every_time() -> None:
    rng = random.Random(3)
    keys = [(rng.choice(["a", "b", None]), rng.randrange(50)) for _ in range(500)]
    warm, cold = Router(["string", "int"], 7), Router(["string", "int"], 7)
    first = [warm.route(key) for key in keys]
    assert [warm.route(key) for key in keys] == first
    assert [cold.route(key) for key in reversed(keys)] == first[::-1]


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        ("double", [0.0, -0.0]),
        ("float", [0.0, -0.0, -1e-60]),
        ("double", [1.0, 1, True]),
        ("boolean", [True, 1]),
        ("bigint", [1, True]),
        ("decimal(5,2)", [Decimal("1.5"), Decimal("1.50"), Decimal("1.499999")]),
        ("binary", [b"ab", bytearray(b"ab")]),
        ("timestamp", [1_700_000_000_000_000, datetime.datetime.fromtimestamp(1_700_000_000, datetime.UTC)]),
        ("timestamp_ntz", [1_700_000_000_000_000, datetime.datetime(2023, 11, 14, 22, 13, 20)]),  # noqa: DTZ001
        ("date", [19_000, datetime.date(1970, 1, 1) + datetime.timedelta(days=19_000)]),
    ],
)
def test_equal_keys_share_a_shard_whichever_comes_first(type_: str, values: list[object]) -> None:
    for ordered in (values, values[::-1]):
        router = Router([type_], 4093)
        assert len({router.route((value,)) for value in ordered}) == 1


def test_keys_that_a_dict_takes_for_equal_are_told_apart_by_their_types() -> None:
    shards = {Router([type_], 4093).route((1,)) for type_ in ("int", "bigint", "double", "float")}
    assert len(shards) == 4


def test_all_nans_are_one_key() -> None:
    router = Router(["double"], 4093)
    assert len({router.route((value,)) for value in (float("nan"), -float("nan"), float("inf") * 0)}) == 1


def test_the_two_hours_of_a_clock_put_back_are_different_keys() -> None:
    early = datetime.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN)
    late = early.replace(fold=1)
    assert early == late
    router = Router(["timestamp"], 4093)
    assert router.route((early,)) != router.route((late,))


def test_overrides_come_first() -> None:
    router = Router(["string", "timestamp"], 8, {("hot", None): 5, ("cold", 1): 6}, table_version=3)
    assert router.table_version == 3
    assert router.route(("hot", None)) == 5
    assert router.route(("cold", datetime.datetime.fromtimestamp(1e-6, datetime.UTC))) == 6
    assert router.route(("hot", 2)) == spark_xxhash64(("hot", 2), ("string", "timestamp")) % 8


@pytest.mark.parametrize("override", [{("a",): 8}, {("a",): -1}, {("a", 1): 0}])
def test_an_override_that_does_not_fit_is_refused(override: dict[tuple[object, ...], int]) -> None:
    with pytest.raises(ValueError, match="does not fit 8 shards"):
        Router(["string"], 8, override)


def test_the_cache_is_bounded_and_long_keys_stay_out() -> None:
    router = Router(["string"], 64)
    for number in range(CACHED_KEYS_MAX + 10):
        router.route((str(number),))
    assert len(router._cache) <= CACHED_KEYS_MAX
    size = len(router._cache)
    long_key = ("x" * 10_000,)
    assert router.route(long_key) == spark_xxhash64(long_key, ["string"]) % 64
    assert len(router._cache) == size


def test_keys_spread_over_shards_evenly() -> None:
    router = Router(["bigint"], 16)
    counts = Counter(router.route((number,)) for number in range(16_000))
    assert min(counts.values()) > 800
    assert max(counts.values()) < 1200


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("string", 5),
        ("string", b"x"),
        ("binary", "x"),
        ("double", "1.5"),
        ("decimal(5,2)", 1.5),
        ("decimal(5,2)", Decimal("NaN")),
        ("decimal(5,2)", Decimal(1000)),
    ],
)
def test_a_value_of_another_type_is_an_error(type_: str, value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        Router([type_], 8).route((value,))


def test_a_struct_is_hashed_as_its_fields_in_their_order() -> None:
    """The numbers are Spark 4.3's."""
    type_ = "struct<a:int,b:string,c:struct<d:date,e:decimal(10,2)>>"
    value = (1, "x", [None, Decimal("1.5")])
    assert spark_xxhash64([value], [type_]) == 2789242356132483943
    assert spark_xxhash64([5, value], ["int", type_]) == 5814099769501839342
    assert spark_xxhash64([None], [type_]) == 42
    assert spark_xxhash64([5, None], ["int", type_]) == 504019808641096632
    router = Router(["int", type_], 64)
    assert router.route((5, value)) == 5814099769501839342 % 64
    assert router.route((5, [1, "x", (None, Decimal("1.50"))])) == 5814099769501839342 % 64


def test_compound_types_cannot_be_routed() -> None:
    assert not any(map(routable, ["array<int>", "map<string,int>", "struct<a:array<int>>", "void"]))
    assert all(map(routable, ["string", "decimal(38,10)", "timestamp", "binary"]))
    with pytest.raises(ValueError, match="cannot be part of a key"):
        Router(["array<int>"], 8)
