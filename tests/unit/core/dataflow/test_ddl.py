"""Spark's DDL becomes a Schema with one name for each type, or says what is wrong."""

from __future__ import annotations

import pytest

from penstock.dataflow.ddl import InvalidSchema, parse_schema


@pytest.mark.parametrize(
    ("ddl", "types"),
    [
        ("a string", "string"),
        ("a INT", "int"),
        ("a integer", "int"),
        ("a long, b bigint", "bigint bigint"),
        ("a short, b smallint", "smallint smallint"),
        ("a byte, b tinyint", "tinyint tinyint"),
        ("a float, b real, c double", "float float double"),
        ("a boolean, b date, c timestamp, d binary", "boolean date timestamp binary"),
        (
            "a timestamp_ntz, b timestamp_ltz, c array<timestamp_ntz>",
            "timestamp_ntz timestamp array<timestamp_ntz>",
        ),
        ("a decimal, b dec(5), c numeric(20, 3)", "decimal(10,0) decimal(5,0) decimal(20,3)"),
        ("a ARRAY<Int>, b map<string,array<long>>", "array<int> map<string,array<bigint>>"),
        ("a struct<x: int, `y z`: struct<w string>>", "struct<x:int,`y z`:struct<w:string>>"),
        ("a: int, b: string", "int string"),
        ("a int COMMENT 'one, two', b string -- the end", "int string"),
    ],
)
def test_types_get_their_one_name(ddl: str, types: str) -> None:
    schema = parse_schema(ddl)
    assert tuple(column.type for column in schema.columns) == split_types(types)


def split_types(text: str) -> tuple[str, ...]:
    """Split at spaces outside of backquotes."""
    parts = text.split("`")
    outside = [part.replace(" ", "\n") if at % 2 == 0 else part for at, part in enumerate(parts)]
    return tuple("`".join(outside).split("\n"))


def test_names_may_be_keywords_or_quoted() -> None:
    schema = parse_schema(
        "order int, `my col` int, `a``b` int, select string, Count long, timestamp timestamp"
    )
    assert schema.names == ("order", "my col", "a`b", "select", "Count", "timestamp")


def test_a_schema_written_out_reads_back_the_same() -> None:
    schema = parse_schema("`a``b` array<struct<`x y`:int,z:map<string,decimal(3,1)>>>, c string")
    assert parse_schema(schema.ddl()) == schema


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("", "the end where the name of column 1 should be"),
        ("a", "column 'a' has no type; give one of string, int, bigint"),
        ("a string,", "the end where the name of column 2 should be"),
        ("a string b int", "'b' behind the type of column 'a'; expected ',' or the end"),
        ("a string>, b struct<c int", "'>' behind the type of column 'a'"),
        ("a strng", "column 'a': type strng is unknown; types are string, int"),
        ("a text", "column 'a': type text is unknown"),
        ("a varchar(10)", "column 'a': type varchar is not carried yet"),
        ("a interval day", "column 'a': type interval is not carried yet"),
        ("a variant", "column 'a': type variant is not carried yet"),
        ("a array", "column 'a': the end where '<' should be; write array<type>"),
        ("a map<string>", "column 'a': '>' where ',' should be; write map<type,type>"),
        ("a map<map<int,int>,int>", "a map cannot be the key of a map"),
        ("a array<strng>", "column 'a': type strng is unknown"),
        ("a struct<x strng>", "column 'x': type strng is unknown"),
        ("a decimal(39,0)", r"decimal\(39,0\) is out of bounds"),
        ("a decimal(5,6)", r"decimal\(5,6\) is out of bounds"),
        ("a decimal(x)", "'x' in a decimal"),
        ("a string(5)", "type string takes no length"),
        ("a int NOT NULL", "column 'a': NOT ... is not carried; leave it out"),
        ("a int DEFAULT 5", "column 'a': DEFAULT ... is not carried; leave it out"),
        ("a int, A string", "column 'A' comes twice"),
        ("a `string", "is a quote left open?"),
        ("`` int", "'' where the name of column 1 should be"),
        ("a " + "array<" * 33 + "int" + ">" * 33, "nested more than 32 deep"),
        (", ".join(f"c{n} int" for n in range(1001)), "more than 1000 columns"),
    ],
)
def test_what_is_no_schema_says_why(ddl: str, message: str) -> None:
    with pytest.raises(InvalidSchema, match=message):
        parse_schema(ddl)
