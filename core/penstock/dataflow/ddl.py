"""Spark's DDL -> `Schema`: what an `outputSchema` string means, without a JVM.

sqlglot's Spark dialect cuts the text into tokens (quoting, comments, keywords); the grammar on top is
small and our own, because sqlglot's takes types that Spark has not (`text`), or that mean
something else there (`time`), and says of an unknown type no more than "Expecting >". sqlglot is imported
with the first schema: it takes 0.14 s, and whoever only reads compiled plans need not pay.
Neighbours: `schema` (the result), `api.graph` (the caller).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.dataflow.schema import Column, Schema
from penstock.errors import PermanentError

CARRIED_TYPES = (
    "string, int, bigint, smallint, tinyint, double, float, boolean, date, timestamp, timestamp_ntz, binary, "
    "decimal(p,s), array<...>, map<...,...>, struct<name:type,...>"
)
_COLUMNS_MAX = 1000
_DEPTH_MAX = 32
_DECIMAL_PRECISION_MAX = 38

# Spark's words for the simple types, and what each is called in a Schema.
_SIMPLE = {
    "string": "string",
    "int": "int",
    "integer": "int",
    "bigint": "bigint",
    "long": "bigint",
    "smallint": "smallint",
    "short": "smallint",
    "tinyint": "tinyint",
    "byte": "tinyint",
    "double": "double",
    "float": "float",
    "real": "float",
    "boolean": "boolean",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "binary": "binary",
}
_DECIMAL = frozenset({"decimal", "dec", "numeric"})
_NOT_CARRIED = frozenset(
    {
        "char", "character", "geography", "geometry", "interval", "object", "time", "varchar", "variant",
        "void",
    }
)  # fmt: skip
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD = re.compile(r"\w+")


class InvalidSchema(PermanentError):
    """A DDL string is no schema, or one that cannot be carried; the message says where and why."""


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    quoted: bool


def parse_schema(ddl: str, *, of_state: bool = False) -> Schema:
    """The columns of `ddl`, such as "word string, total long". `of_state`: one may be NOT NULL.

    Raises InvalidSchema.
    """
    return Schema(tuple(_Reader(_tokens(ddl), may_refuse_nulls=of_state).columns(end=None)))


def _tokens(ddl: str) -> list[_Token]:
    import sqlglot
    from sqlglot.errors import TokenError
    from sqlglot.tokens import TokenType

    try:
        found = sqlglot.tokenize(ddl, read="spark")
    except TokenError as error:
        raise InvalidSchema(f"cannot be read: {error}; is a quote left open?") from error
    tokens: list[_Token] = []
    for token in found:
        if token.token_type == TokenType.STRING:
            tokens.append(_Token(f"'{token.text}'", quoted=False))
        else:
            tokens.append(_Token(token.text, token.token_type == TokenType.IDENTIFIER))
    return tokens


class _Reader:
    """Recursive descent over the tokens; `_at` is the next one."""

    def __init__(self, tokens: Sequence[_Token], *, may_refuse_nulls: bool) -> None:
        self._tokens = tokens
        self._may_refuse_nulls = may_refuse_nulls
        self._at = 0
        self._depth = 0

    def columns(self, end: str | None) -> list[Column]:
        """name, type, name, type, ... up to `end` (None: the end of the text), with its token taken."""
        columns: list[Column] = []
        seen: set[str] = set()
        while True:
            name = self._name(len(columns) + 1)
            if name.lower() in seen:
                raise InvalidSchema(f"column {name!r} comes twice (case does not count)")
            seen.add(name.lower())
            self._take(":")
            type_ = self._type(name)
            columns.append(Column(name, type_, nullable=not self._never_null()))
            self._comment(name)
            if len(columns) > _COLUMNS_MAX:
                raise InvalidSchema(f"more than {_COLUMNS_MAX} columns")
            if self._take(","):
                continue
            if end is None and self._peek() is None:
                return columns
            if end is not None and self._take(end):
                return columns
            wanted = f"',' or {end!r}" if end else "',' or the end"
            raise InvalidSchema(f"{self._shown()} behind the type of column {name!r}; expected {wanted}")

    def _name(self, number: int) -> str:
        token = self._peek()
        if token is None or not token.text or not (token.quoted or _WORD.fullmatch(token.text)):
            raise InvalidSchema(f"{self._shown()} where the name of column {number} should be")
        self._at += 1
        return token.text

    def _type(self, column: str) -> str:
        token = self._peek()
        word = "" if token is None or token.quoted else token.text.lower()
        if token is None or not _WORD.fullmatch(word):
            raise InvalidSchema(f"column {column!r} has no type; give one of {CARRIED_TYPES}")
        self._at += 1
        if word in _SIMPLE:
            if self._take("("):
                raise InvalidSchema(f"column {column!r}: type {word} takes no length")
            return _SIMPLE[word]
        if word in _DECIMAL:
            return self._decimal(column)
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise InvalidSchema(f"column {column!r}: types are nested more than {_DEPTH_MAX} deep")
        type_ = self._nested(column, word)
        self._depth -= 1
        return type_

    def _nested(self, column: str, word: str) -> str:
        if word == "array":
            self._need("<", column, "array<type>")
            element = self._type(column)
            self._need(">", column, "array<type>")
            return f"array<{element}>"
        if word == "map":
            self._need("<", column, "map<type,type>")
            key = self._type(column)
            self._need(",", column, "map<type,type>")
            value = self._type(column)
            self._need(">", column, "map<type,type>")
            if key.startswith("map<"):
                raise InvalidSchema(f"column {column!r}: a map cannot be the key of a map")
            return f"map<{key},{value}>"
        if word == "struct":
            self._need("<", column, "struct<name:type,...>")
            fields = self.columns(end=">")
            return f"struct<{','.join(f'{_quoted(field.name)}:{field.type}' for field in fields)}>"
        state = "is not carried yet" if word in _NOT_CARRIED else "is unknown"
        raise InvalidSchema(f"column {column!r}: type {word} {state}; types are {CARRIED_TYPES}")

    def _decimal(self, column: str) -> str:
        precision, scale = 10, 0
        if self._take("("):
            precision = self._integer(column)
            scale = self._integer(column) if self._take(",") else 0
            self._need(")", column, "decimal(p,s)")
        if not (1 <= precision <= _DECIMAL_PRECISION_MAX and 0 <= scale <= precision):
            limits = f"1 to {_DECIMAL_PRECISION_MAX} digits, of which 0 to all behind the point"
            raise InvalidSchema(f"column {column!r}: decimal({precision},{scale}) is out of bounds; {limits}")
        return f"decimal({precision},{scale})"

    def _integer(self, column: str) -> int:
        token = self._peek()
        if token is None or not token.text.isdecimal():
            raise InvalidSchema(f"column {column!r}: {self._shown()} in a decimal; give decimal(p,s)")
        self._at += 1
        return int(token.text)

    def _never_null(self) -> bool:
        """Whether NOT NULL comes here, where it may."""
        words = [token.text.lower() for token in self._tokens[self._at : self._at + 2] if not token.quoted]
        if not self._may_refuse_nulls or words != ["not", "null"]:
            return False
        self._at += 2
        return True

    def _comment(self, column: str) -> None:
        """COMMENT 'text' is read over; anything else behind a type promises what is not kept."""
        token = self._peek()
        word = "" if token is None or token.quoted else token.text.lower()
        if word == "comment":
            self._at += 1
            text = self._peek()
            if text is None or not text.text.startswith("'"):
                raise InvalidSchema(f"column {column!r}: COMMENT needs a text in quotes")
            self._at += 1
        elif word in {"not", "default", "collate", "generated"}:
            raise InvalidSchema(f"column {column!r}: {word.upper()} ... is not carried; leave it out")

    def _need(self, text: str, column: str, form: str) -> None:
        if not self._take(text):
            raise InvalidSchema(f"column {column!r}: {self._shown()} where {text!r} should be; write {form}")

    def _take(self, text: str) -> bool:
        token = self._peek()
        if token is None or token.quoted or token.text != text:
            return False
        self._at += 1
        return True

    def _peek(self) -> _Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _shown(self) -> str:
        token = self._peek()
        return "the end" if token is None else repr(token.text)


def _quoted(name: str) -> str:
    if _PLAIN_NAME.fullmatch(name):
        return name
    return "`" + name.replace("`", "``") + "`"
