"""Reading SQL that users wrote: what it names, and where its columns come from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from floodmark.model import ColumnRef
from floodmark.transforms.sql.building import DIALECT, VERBATIM, Expr, NotSqlError

if TYPE_CHECKING:
    from sqlglot.lineage import Node

_SPARK = Spark()
_UNREAD = "floodmark_unread"
_OPENING = {TokenType.L_PAREN: TokenType.R_PAREN, TokenType.L_BRACKET: TokenType.R_BRACKET}
_QUERIES = frozenset(("SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE", "("))
"""How Spark's queries begin."""
_NO_EXPRESSION = (exp.Alias, exp.Aliases, exp.Star, exp.Block, exp.Query, exp.DDL, exp.Command)


def expression(text: str) -> Expr:
    """One expression of a user; raises NotSqlError if it is none.

    What sqlglot cannot parse passes as it is if its brackets match, because Spark knows more SQL
    than sqlglot does: then `is_understood` says no.
    """
    tokens = tokens_of(text)
    _require_one_piece(tokens)
    try:
        parsed = _parsed(text)
    except SqlglotError:
        unread = _kept(exp.Var(this="unread"), f"({_in_lines(text)})")
        unread.meta[_UNREAD] = True
        return unread
    if isinstance(parsed, _NO_EXPRESSION):
        raise NotSqlError("that is not one expression")
    return _kept(exp.paren(parsed, copy=False), f"({_in_lines(text)})")


def call(text: str) -> Expr:
    """One call of a function, for a window; raises NotSqlError if it is none."""
    found = expression(text)
    inner = found.this if isinstance(found, exp.Paren) else found
    if not isinstance(inner, exp.Func | exp.IgnoreNulls | exp.RespectNulls | exp.Filter):
        raise NotSqlError("that is not the call of one function")
    return _kept(inner, _in_lines(text))


def _in_lines(text: str) -> str:
    """A comment at the end must not swallow what follows."""
    return f"{text.strip()}\n" if "--" in text else text.strip()


def _kept(node: Expr, text: str) -> Expr:
    node.meta[VERBATIM] = text
    return node


def is_understood(node: Expr) -> bool:
    """Whether sqlglot could parse all that users wrote in it."""
    return not any(part.meta_get(_UNREAD) for part in node.walk())


def tokens_of(text: str) -> list[Token]:
    """The words of a text; raises NotSqlError if a quote is left open."""
    try:
        return list(_tokens(text))
    except SqlglotError as error:
        raise NotSqlError("a quote or comment is not closed") from error


@lru_cache(maxsize=256)
def _tokens(text: str) -> tuple[Token, ...]:
    # Kept: whatever is asked about a text begins with its words, and they take as long as the rest.
    return tuple(_SPARK.tokenize(text))


def _require_one_piece(tokens: Sequence[Token]) -> None:
    if not tokens:
        raise NotSqlError("it is empty")
    if any(token.token_type == TokenType.SEMICOLON for token in tokens):
        raise NotSqlError("there is a ; in it")
    waiting: list[TokenType] = []
    for token in tokens:
        if token.token_type in _OPENING:
            waiting.append(_OPENING[token.token_type])
        elif token.token_type in _OPENING.values() and (
            not waiting or waiting.pop() != token.token_type
        ):
            raise NotSqlError(f"a {token.text} closes nothing")
    if waiting:
        raise NotSqlError("a bracket is not closed")


def one_query(text: str) -> str:
    """A user's query without the ; at its end; raises NotSqlError if it is not one query."""
    tokens = tokens_of(text)
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        text = text[: tokens.pop().start]
    _require_one_piece(tokens)
    if tokens[0].text.upper() not in _QUERIES:
        words = ", ".join(sorted(_QUERIES - {"("}))
        raise NotSqlError(f"it begins with {tokens[0].text[:40]}; a query begins with {words}")
    if isinstance(statement_of(text), exp.DDL | exp.DML):
        raise NotSqlError("it changes a table; a step only reads, and write says where rows go")
    return text


def unread(text: str) -> str | None:
    """Why sqlglot cannot read a query; None where it can. Spark knows more SQL than sqlglot."""
    parsed = statement_of(text)
    if not isinstance(parsed, SqlglotError):
        return None
    found = getattr(parsed, "errors", None)
    if not found:
        return str(parsed).splitlines()[0][:200]
    return f"line {found[0]['line']}, column {found[0]['col']}, near {found[0]['highlight']!r}"


@lru_cache(maxsize=256)
def statement_of(text: str) -> Expr | SqlglotError:
    try:
        return _parsed(text)
    except SqlglotError as error:
        return error


def words_of(text: str) -> set[str]:
    """Every name in a text, in lower case: a superset of the tables it reads."""
    names = (TokenType.VAR, TokenType.IDENTIFIER)
    found = {token.text.lower() for token in tokens_of(text) if token.token_type in names}
    # Some words are key words for sqlglot and names for Spark.
    return found | {token.text.lower() for token in tokens_of(text) if token.text.isidentifier()}


def columns_in(node: Expr) -> Iterator[tuple[str, ...]]:
    """The columns an expression names, by their parts; those of sub-queries are not its own."""
    for found in _own_parts(node):
        if isinstance(found, exp.Column):
            yield tuple(part.name for part in found.parts)


def reads_every_column(node: Expr) -> bool:
    """Whether a * stands for all columns, other than in count(*)."""
    stars = (part for part in _own_parts(node) if isinstance(part, exp.Star))
    return any(not isinstance(star.parent, exp.Count) for star in stars)


def _own_parts(node: Expr) -> Iterator[Expr]:
    """Everything in an expression that is not inside a sub-query."""
    is_query = (exp.Query, exp.Subquery)
    inside = node.walk(prune=lambda part: isinstance(part, is_query))
    return (part for part in inside if not isinstance(part, is_query))


def may_aggregate(node: Expr) -> bool:
    """Whether an expression has an aggregate function, or one that sqlglot does not know."""
    known = any(node.find_all(exp.AggFunc, exp.Anonymous, exp.AnonymousAggFunc))
    return known or not is_understood(node)


def sources_of_query(
    text: str, schemas: Mapping[str, Mapping[str, str]]
) -> dict[str, tuple[ColumnRef, ...]]:
    """Each output column of a query with the columns it is made of.

    Raises NotSqlError with the reason where sqlglot cannot tell.
    """
    # Imported here: the optimizer is not needed to read a query.
    from sqlglot.lineage import lineage
    from sqlglot.optimizer.qualify import qualify

    known: dict[str, object] = {name: dict(columns) for name, columns in schemas.items()}
    try:
        parsed = _parsed(text)
        query = qualify(parsed.copy(), schema=known, dialect=DIALECT)
        names = query.named_selects if isinstance(query, exp.Query) else []
        if not names or "*" in names:
            raise NotSqlError("its columns cannot be listed")
        nodes = lineage(None, query, known, dialect=DIALECT)
    except SqlglotError as error:
        raise NotSqlError(str(error).splitlines()[0][:200]) from error
    spelled = _spelled(parsed, schemas)
    return {spelled.get(name, name): _leaves(nodes[name].walk(), spelled) for name in names}


def _spelled(parsed: Expr, schemas: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Names as they are written, by what sqlglot makes of them: it writes all of them small."""
    written = [*schemas, *(name for columns in schemas.values() for name in columns)]
    written += parsed.named_selects if isinstance(parsed, exp.Query) else []
    return {name.lower(): name for name in written}


def _leaves(nodes: Iterable[Node], spelled: Mapping[str, str]) -> tuple[ColumnRef, ...]:
    found: dict[ColumnRef, None] = {}
    for node in nodes:
        if isinstance(node.expression, exp.Table):
            frame, column = node.expression.name, exp.to_column(node.name).name
            found[ColumnRef(spelled.get(frame, frame), spelled.get(column, column))] = None
    return tuple(found)


def tables_of(text: str) -> tuple[str, ...]:
    """The tables a query reads, without its own CTEs; none where sqlglot cannot tell."""
    try:
        parsed = _parsed(text)
    except SqlglotError:
        return ()
    own = {cte.alias.lower() for cte in parsed.find_all(exp.CTE)}
    plain = (found for found in parsed.find_all(exp.Table) if found.name.lower() not in own)
    return tuple(dict.fromkeys(".".join(part.name for part in found.parts) for found in plain))


def output_names(text: str) -> tuple[str, ...] | None:
    """The names of a query's columns; None where a * stands among them, or sqlglot cannot tell."""
    try:
        parsed = _parsed(text)
    except SqlglotError:
        return None
    if not isinstance(parsed, exp.Query) or not parsed.named_selects or parsed.is_star:
        return None
    return tuple(parsed.named_selects)


def _parsed(text: str) -> Expr:
    """As sqlglot's parse_one, from words that may be known already."""
    found = _SPARK.parser().parse(list(_tokens(text)), text)
    if not found or found[0] is None:
        raise ParseError(f"No expression was parsed from '{text}'")
    return exp.Block(expressions=found) if len(found) > 1 else found[0]
