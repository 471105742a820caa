"""Texts of expressions: how they are read, which types they have, and what is refused."""

from __future__ import annotations

import pytest

from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.expression_tree import Call, Column, Expression, InvalidExpression, Literal
from penstock.dataflow.expressions.reading import read, read_named

GIVEN = parse_schema(
    "amount int, country string, price decimal(10,2), wide decimal(38,18), x double, "
    "at timestamp, m array<int>, b boolean"
)


def plain(expression: Expression) -> str:
    match expression:
        case Column():
            return expression.name
        case Literal():
            return str(expression.value)
        case Call("cast"):
            return f"{plain(expression.arguments[0])}::{expression.type}"
        case _:
            return f"{expression.function}({', '.join(map(plain, expression.arguments))})"


@pytest.mark.parametrize(
    ("text", "understood", "type_"),
    [
        ("amount + 2 * 3 - 1", "subtract(add(amount, multiply(2, 3)), 1)", "int"),
        ("NOT b AND b OR b", "or(and(not(b), b), b)", "boolean"),
        ("amount = 1 OR NOT amount > 2", "or(equal(amount, 1), not(less(2, amount)))", "boolean"),
        ("AMOUNT * 2L", "multiply(AMOUNT::bigint, 2)", "bigint"),
        ("amount / 2", "divide(amount::double, 2.0)", "double"),
        ("amount div 2", "integral_divide(amount::bigint, 2)", "bigint"),
        ("price * 1.5", "multiply(price, 1.5)", "decimal(13,3)"),
        ("wide + wide", "add(wide, wide)::decimal(38,17)", "decimal(38,17)"),
        ("price > 1", "less(1, price)", "boolean"),
        ("-5", "-5", "int"),
        ("- -5Y", "negate(-5)", "tinyint"),
        ("cast(x AS int)::string", "x::int::string", "string"),
        ("country || 'a' || 'b'", "concat(concat(country, a), b)", "string"),
        ("amount NOT IN (1, NULL)", "not(in(amount, 1, None))", "boolean"),
        ("CASE WHEN b THEN 1 ELSE 2.5 END", "choose(b, 1, 2.5)", "decimal(11,1)"),
        ("m IS NOT NULL", "not(is_null(m))", "boolean"),
    ],
)
def test_an_expression_is_read_with_sparks_precedence_and_types(
    text: str, understood: str, type_: str
) -> None:
    found = read(text, GIVEN)
    assert (plain(found), found.type) == (understood, type_)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "ends where a value should be"),
        ("amount +", "ends where a value should be"),
        ("amount amount", "'amount' where nothing"),
        ("(amount", "the end where \\) should be"),
        ("'it''s'", "two texts side by side|escapes are not read"),
        ("'a", "is a quote left open"),
        ("amont > 1", "did you mean amount"),
        ("price / 3", "cast one side to double"),
        ("-wide", "rounded by Spark to 34 digits"),
        ("amount > '5'", "int and string|string and int"),
        ("at > TIMESTAMP '2020-01-01 00:00:00'", "without a zone it is the session's"),
        ("DATE '2020-02-30' = DATE '2020-01-01'", "day is out of range|day 30 must be"),
        ("m[0]", "parts of nested values"),
        ("m = m", "array<int>: of nested values only IS NULL"),
        ("try_cast(amount AS int)", "function try_cast|where"),
        ("rand()", "function rand is not among those"),
        ("300Y", "does not fit tinyint"),
        ("a.b", "no column 'a'|parts of nested"),
        ("(" * 100 + "1" + ")" * 100, "nested more than 64 deep"),
        ("-" + "(-" * 100 + "1" + ")" * 100, "nested more than 64 deep"),
        ("CAST(x AS string)", "CAST from double to string is not among"),
        ("CAST(amount AS texts)", "type texts is unknown"),
        ("country RLIKE 'x'", "Java's patterns"),
        ("@x", "where a value should be"),
        ("SELECT 1", "where a value should be"),
    ],
)
def test_what_is_not_taken_is_refused_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(InvalidExpression, match=why):
        read(text, GIVEN)


def test_what_comes_out_has_a_name() -> None:
    assert read_named("*", GIVEN) is None
    assert (read_named("Amount", GIVEN) or ("",))[0] == "Amount"
    assert (read_named("amount + 1 `a b`", GIVEN) or ("",))[0] == "a b"
    for text, why in {"amount + 1": "AS name", "NULL AS x": "no type", "amount AS": "behind AS"}.items():
        with pytest.raises(InvalidExpression, match=why):
            read_named(text, GIVEN)
