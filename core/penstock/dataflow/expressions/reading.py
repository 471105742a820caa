"""The text of an expression -> `Expression`, over the columns of a schema.

sqlglot's Spark dialect cuts the text into tokens, as it does for schemas (record 0005); the grammar on top is
Spark's for the part of it that is taken, with its precedence. Types are given as it is read: `operations` and
`functions` make the parts. Neighbour: `column_step`, which reads all of a step's.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.dataflow.ddl import InvalidSchema, parse_schema
from penstock.dataflow.expression_tree import (
    VOID,
    Call,
    Column,
    Expression,
    InvalidExpression,
    Literal,
)
from penstock.dataflow.expressions import literals, operations
from penstock.dataflow.expressions.functions import called, concatenated, like
from penstock.dataflow.expressions.types import cast
from penstock.dataflow.schema import Schema

_DEPTH_MAX = 64
_NOT_A_NAME = frozenset(
    {
        "and", "as", "between", "case", "cast", "div", "else", "end", "from", "in", "is", "like", "not",
        "null", "or", "rlike", "regexp", "select", "then", "true", "false", "when",
    }
)  # fmt: skip
_COMPARISONS = {
    "=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "<=>": "<=>",
}  # fmt: skip
_SUMS = ("+", "-", "||")
_PRODUCTS = ("*", "/", "%", "div")
_MOMENTS = ("date", "timestamp", "timestamp_ntz")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class _Token:
    """`source` as it stands in the text; `word` in small letters where it may be a keyword or a sign."""

    source: str
    word: str
    is_text: bool
    name: str | None
    start: int
    end: int


def read(text: str, schema: Schema) -> Expression:
    """An expression over `schema`. Raises InvalidExpression."""
    reader = _Reader(text, schema)
    expression = reader.expression()
    reader.end()
    return expression


def read_named(text: str, schema: Schema) -> tuple[str, Expression] | None:
    """An expression with the name of what comes out: `AS name`, or a column's own. None for `*`, which is all
    columns. Raises InvalidExpression."""
    if text.strip() == "*":
        return None
    reader = _Reader(text, schema)
    expression = reader.expression()
    name = reader.alias()
    reader.end()
    if name is None:
        if not isinstance(expression, Column):
            raise InvalidExpression(f"has no name; write {text.strip()} AS name")
        name = expression.name
    if expression.type == VOID:
        raise InvalidExpression("NULL alone has no type; write CAST(NULL AS string), or what it should be")
    return name, expression


def _tokens(text: str) -> list[_Token]:
    import sqlglot
    from sqlglot.errors import TokenError
    from sqlglot.tokens import TokenType

    try:
        found = sqlglot.tokenize(text, read="spark")
    except TokenError as error:
        raise InvalidExpression(f"cannot be read: {error}; is a quote left open?") from error
    tokens: list[_Token] = []
    for token in found:
        if tokens and tokens[-1].start == token.start:
            continue  # a number's suffix comes as a cast behind it
        source = text[token.start : token.end + 1]
        quoted = token.token_type == TokenType.IDENTIFIER
        is_text = token.token_type == TokenType.STRING
        name = token.text if quoted else source if _WORD.fullmatch(source) else None
        word = "" if quoted or is_text else source.lower()
        tokens.append(_Token(source, word, is_text, name, token.start, token.end))
    return tokens


class _Reader:
    """Recursive descent over the tokens; `_at` is the next one."""

    def __init__(self, text: str, schema: Schema) -> None:
        self._text = text
        self._schema = schema
        self._tokens: Sequence[_Token] = _tokens(text)
        self._at = 0
        self._depth = 0

    # --- what stands around it ---

    def alias(self) -> str | None:
        """`AS name`, or a name alone."""
        has_as = self._take("as")
        token = self._peek()
        if token is None or token.name is None:
            if has_as:
                raise InvalidExpression(f"{self._shown()} where a name should be, behind AS")
            return None
        self._at += 1
        return token.name

    def end(self) -> None:
        if self._peek() is not None:
            raise InvalidExpression(f"{self._shown()} where nothing, or an operator, should be")

    # --- booleans ---

    def expression(self) -> Expression:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise InvalidExpression(f"is nested more than {_DEPTH_MAX} deep")
        left = self._conjunction()
        while self._take("or"):
            left = operations.junction("or", left, self._conjunction())
        self._depth -= 1
        return left

    def _conjunction(self) -> Expression:
        left = self._negation()
        while self._take("and"):
            left = operations.junction("and", left, self._negation())
        return left

    def _negation(self) -> Expression:
        nots = 0
        while self._take("not") or self._take("!"):
            nots += 1
        found = self._predicate()
        for _ in range(nots):
            found = operations.negation(found)
        return found

    def _predicate(self) -> Expression:
        value = self._comparison()
        if self._take("is"):
            negative = self._take("not")
            found = self._is(value)
        else:
            negative = self._take("not")
            if self._take("between"):
                least = self._sum()
                self._need("and")
                most = self._sum()
                found = operations.junction(
                    "and", operations.compared(">=", value, least), operations.compared("<=", value, most)
                )
            elif self._take("in"):
                self._need("(")
                found = operations.among(value, self._listed(")"))
            elif self._take("like"):
                found = like(value, self._sum())
            elif negative:
                raise InvalidExpression(f"{self._shown()} behind NOT; expected BETWEEN, IN or LIKE")
            elif (token := self._peek()) is not None and token.word in ("rlike", "regexp", "ilike"):
                raise InvalidExpression(
                    f"{token.source} is not promised: Java's patterns are not those that are here. LIKE, "
                    "contains, startswith and endswith are; code may do it"
                )
            else:
                return value
        return operations.negation(found) if negative else found

    def _is(self, value: Expression) -> Expression:
        if self._take("null"):
            return Call("is_null", (value,), operations.BOOLEAN)
        for word in ("true", "false"):
            if self._take(word):
                truth = operations.truth(value, f"IS {word.upper()}")
                return operations.compared("<=>", truth, Literal(word == "true", operations.BOOLEAN))
        if self._take("distinct"):
            self._need("from")
            return operations.negation(operations.compared("<=>", value, self._sum()))
        raise InvalidExpression(f"{self._shown()} behind IS; expected NULL, TRUE, FALSE or DISTINCT FROM")

    # --- values ---

    def _comparison(self) -> Expression:
        left = self._sum()
        while (sign := self._any_of(tuple(_COMPARISONS))) is not None:
            left = operations.compared(_COMPARISONS[sign], left, self._sum())
        return left

    def _sum(self) -> Expression:
        left = self._product()
        while (sign := self._any_of(_SUMS)) is not None:
            right = self._product()
            left = (
                concatenated("||", (left, right))
                if sign == "||"
                else operations.arithmetic(sign, left, right)
            )
        return left

    def _product(self) -> Expression:
        left = self._signed()
        while (sign := self._any_of(_PRODUCTS)) is not None:
            left = operations.arithmetic(sign, left, self._signed())
        return left

    def _signed(self) -> Expression:
        if self._take("+"):
            return self._signed()
        if not self._take("-"):
            return self._postfixed()
        token = self._peek()
        if token is not None and token.source[0].isdigit():
            return self._postfixed(negative=True)
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise InvalidExpression(f"is nested more than {_DEPTH_MAX} deep")
        found = operations.negated(self._signed())
        self._depth -= 1
        return found

    def _postfixed(self, *, negative: bool = False) -> Expression:
        found = self._primary(negative=negative)
        while self._take("::"):
            found = cast(found, self._type(None))
        if (token := self._peek()) is not None and token.word in (".", "[", "->"):
            raise InvalidExpression(
                f"{token.source!r}: parts of nested values are not taken out; code may do it"
            )
        return found

    def _primary(self, *, negative: bool) -> Expression:
        token = self._peek()
        if token is None:
            raise InvalidExpression("ends where a value should be")
        self._at += 1
        if token.is_text:
            following = self._peek()
            if following is not None and following.is_text:
                raise InvalidExpression("two texts side by side are not read; join them with ||")
            return literals.text(token.source)
        if token.source[0].isdigit():
            return literals.number(token.source, negative=negative)
        if token.word == "(":
            found = self.expression()
            self._need(")")
            return found
        if token.word == "null":
            return Literal(None, VOID)
        if token.word in ("true", "false"):
            return Literal(token.word == "true", operations.BOOLEAN)
        if token.word == "case":
            return self._case()
        if token.word == "cast" and self._take("("):
            return self._cast()
        following = self._peek()
        if token.word in _MOMENTS and following is not None and following.is_text:
            self._at += 1
            return literals.moment(token.word, str(literals.text(following.source).value))
        if token.name is None or token.word in _NOT_A_NAME:
            self._at -= 1
            raise InvalidExpression(f"{self._shown()} where a value should be")
        if self._take("("):
            return called(token.name, self._listed(")") if not self._take(")") else ())
        return self._column(token.name)

    def _column(self, name: str) -> Expression:
        for place, column in enumerate(self._schema.columns):
            if column.name.lower() == name.lower():
                return Column(place, column.type, name)
        close = difflib.get_close_matches(name, self._schema.names, 1)
        meant = f" (did you mean {close[0]}?)" if close else ""
        columns = ", ".join(f"{column.name} {column.type}" for column in self._schema.columns)
        raise InvalidExpression(f"there is no column {name!r}{meant}; columns are {columns}")

    def _case(self) -> Expression:
        operand = None if self._next_is("when") else self.expression()
        conditions: list[Expression] = []
        values: list[Expression] = []
        while self._take("when"):
            condition = self.expression()
            if operand is None and condition.type == VOID:
                raise InvalidExpression(
                    "NULL is no condition of CASE, in Spark neither; leave that branch out"
                )
            conditions.append(condition if operand is None else operations.compared("=", operand, condition))
            self._need("then")
            values.append(self.expression())
        if not conditions:
            raise InvalidExpression(f"{self._shown()} behind CASE; expected WHEN")
        otherwise: Expression = self.expression() if self._take("else") else Literal(None, VOID)
        self._need("end")
        return operations.chosen(tuple(conditions), tuple(values), otherwise, "CASE")

    def _cast(self) -> Expression:
        value = self.expression()
        self._need("as")
        found = cast(value, self._type(")"))
        self._need(")")
        return found

    def _type(self, end: str | None) -> str:
        """The type whose tokens come next: up to `end`, or a name with what stands in brackets behind it."""
        first = self._peek()
        depth = 0
        last = first
        while (token := self._peek()) is not None:
            if depth == 0 and token.word == end:
                break
            depth += (token.word in ("(", "<")) - (token.word in (")", ">"))
            last = token
            self._at += 1
            following = self._peek()
            if end is None and depth == 0 and (following is None or following.word not in ("(", "<")):
                break
        if first is None or last is None or first.word == end:
            raise InvalidExpression("has a cast without a type")
        text = self._text[first.start : last.end + 1]
        try:
            columns = parse_schema(f"x {text}").columns
        except InvalidSchema as error:
            raise InvalidExpression(f"cast to {text}: {error}") from None
        return columns[0].type

    def _listed(self, end: str) -> tuple[Expression, ...]:
        found = [self.expression()]
        while self._take(","):
            found.append(self.expression())
        self._need(end)
        return tuple(found)

    # --- tokens ---

    def _peek(self) -> _Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next_is(self, word: str) -> bool:
        token = self._peek()
        return token is not None and token.word == word

    def _take(self, word: str) -> bool:
        if not self._next_is(word):
            return False
        self._at += 1
        return True

    def _any_of(self, words: Sequence[str]) -> str | None:
        token = self._peek()
        if token is None or token.word not in words:
            return None
        self._at += 1
        return token.word

    def _need(self, word: str) -> None:
        if not self._take(word):
            raise InvalidExpression(f"{self._shown()} where {word.upper()} should be")

    def _shown(self) -> str:
        token = self._peek()
        return "the end" if token is None else repr(token.source)
