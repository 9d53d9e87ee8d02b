"""Which calls of a package can block, by its syntax trees."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

POSTGRES = "floodmark.postgres"
"""The room whose `run` executes a statement."""
LIMITS = re.compile(r"time_?out|seconds|deadline|left|remaining|interval", re.IGNORECASE)

WAITS = {
    # Threads and processes.
    "acquire", "communicate", "join", "result", "wait", "get", "put", "as_completed",
    "Popen", "check_call", "check_output", "call", "flock", "lockf", "waitpid",
    # Sockets and servers.
    "connect", "urlopen", "create_connection", "recv", "accept", "select", "serve_forever",
    "request", "getresponse", "open", "sendall", "recv_into", "getaddrinfo", "read1", "readline",
    "readlines", "input", "shutdown", "map",
    # The driver of PostgreSQL.
    "execute", "executemany", "copy", "commit", "rollback",
    # Kafka's client.
    "poll", "flush", "list_topics", "consume", "describe_topics", "list_offsets",
    # Spark: actions, queries, and what asks a database for its columns.
    "awaitTermination", "collect", "count", "first", "head", "toArrow", "toPandas", "take",
    "toLocalIterator", "saveAsTable", "save", "insertInto", "csv", "parquet", "json", "orc",
    "text", "load", "jdbc", "start", "stop", "processAllAvailable", "tryLock", "getOrCreate",
    "foreachPartition", "isEmpty", "sql", "executeCompaction", "executeZOrderBy",
    # delta-rs.
    "DeltaTable", "write_deltalake", "create_write_transaction", "create_checkpoint", "optimize",
    "vacuum", "load_cdf", "to_pyarrow_table", "cleanup_metadata", "compact", "restore",
}  # fmt: skip
"""Names of functions and methods, whatever they belong to."""

_NEEDS_MODULE = {"call": ("subprocess",), "get": (), "put": ()}
"""Names that mean something else elsewhere: only of these modules, or without an argument."""
_OTHER_FUNCTIONS = {"json", "first", "text", "map", "open", "request", "shutdown"}
"""Of Python, or of nobody, where nothing is in front of the name."""
_LOCKS = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore"}


@dataclass(frozen=True, order=True)
class Call:
    """A call that can block."""

    where: str
    """File and function."""
    callee: str
    line: int
    has_limit: bool
    """Whether the call itself says how long."""


def blocking_calls(package: Path) -> Iterator[Call]:
    """Every call of a package that can block."""
    paths = {str(path.relative_to(package)): path for path in sorted(package.rglob("*.py"))}
    trees = {
        name: ast.parse(path.read_text())
        for name, path in paths.items()
        if name.split("/", maxsplit=1)[0] not in ("testing", "demo")  # no part of what users run
    }
    locks = {lock for tree in trees.values() for lock in _locks(tree)}
    for name, tree in trees.items():
        yield from _Finder(name, locks).found(tree)


def _locks(tree: ast.AST) -> Iterator[str]:
    """The names of what is a lock, or gives one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            made = ast.unparse(node.value)
            if _names_a_lock(made):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield from (_last(target) for target in targets)
        elif isinstance(node, ast.FunctionDef) and node.returns is not None:
            yield from [node.name] if _names_a_lock(ast.unparse(node.returns)) else []


def _names_a_lock(text: str) -> bool:
    return any(re.search(rf"\b{kind}\b", text) for kind in _LOCKS)


def _last(node: ast.expr) -> str:
    """The last name of an expression: `guard` of `self.guard` and of `guard(x)`."""
    return ast.unparse(node).partition("(")[0].rpartition(".")[2]


class _Finder(ast.NodeVisitor):
    def __init__(self, name: str, locks: Collection[str]) -> None:
        self._scope = [name]
        self._locks = locks
        self._calls: list[Call] = []
        self._imported: dict[str, str] = {}

    def found(self, tree: ast.AST) -> list[Call]:
        self.visit(tree)
        return self._calls

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self._imported[alias.asname or alias.name] = node.module or ""

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._inside(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._inside(node)

    def _inside(self, node: ast.ClassDef | ast.FunctionDef) -> None:
        self._scope.append(node.name)
        self.generic_visit(node)
        self._scope.pop()

    def visit_With(self, node: ast.With) -> None:
        where = f"{self._scope[0]}::{'.'.join(self._scope[1:])}"
        for item in node.items:
            name = _last(item.context_expr)
            if name in self._locks:
                self._calls.append(Call(where, f"with {name}", node.lineno, has_limit=False))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        callee = self._blocking(node)
        if callee:
            where = f"{self._scope[0]}::{'.'.join(self._scope[1:])}"
            self._calls.append(Call(where, callee, node.lineno, _has_limit(node)))
        self.generic_visit(node)

    def _blocking(self, node: ast.Call) -> str | None:
        function = node.func
        if isinstance(function, ast.Name):
            if function.id == "run" and self._imported.get("run", "").startswith(POSTGRES):
                return "run"
            return function.id if function.id in WAITS - _OTHER_FUNCTIONS else None
        if not isinstance(function, ast.Attribute):
            return None
        name, of = function.attr, ast.unparse(function.value)
        if name == "run" and of == "subprocess":
            return "subprocess.run"
        if name not in WAITS or _means_something_else(name, of, node):
            return None
        return f"{_short(of)}.{name}"


def _short(receiver: str) -> str:
    last = re.sub(r"\(.*\)|\[.*\]", "", receiver, flags=re.DOTALL).split(".")[-1].strip()
    return last if re.fullmatch(r"\w+", last) else "_"


def _means_something_else(name: str, of: str, node: ast.Call) -> bool:  # noqa: PLR0911  (a table)
    arguments = [*node.args, *(word.value for word in node.keywords)]
    if name in ("get", "put"):
        return bool(arguments) and not _has_limit(node)
    if name == "join":
        return bool(node.args) and not _has_limit(node)
    if name in ("open", "shutdown", "map", "request"):
        return _short(of) not in (
            "open",
            "opener",
            "build_opener",
            "pool",
            "executor",
            "connection",
        )
    if name == "select":
        # Of columns, unless it is the one of sockets: that one takes a time, or nothing.
        return bool(arguments) and of != "select"
    if name in _NEEDS_MODULE:
        return of not in _NEEDS_MODULE[name]
    if name == "count":
        # Of text and lists it takes what is counted.
        return bool(arguments)
    if name in ("json", "text", "csv", "parquet", "orc", "load", "first", "sql"):
        return of in ("json", "yaml", "tomllib", "pa", "pc", "f", "fn", "self", "cls", "point")
    if name == "copy":
        return not arguments
    return name in ("collect", "commit", "start", "stop", "head", "save", "restore") and of in (
        "self", "cls", "fn", "f",
    )  # fmt: skip


def _has_limit(node: ast.Call) -> bool:
    """Whether an argument is a time, or is called one."""
    for each in node.args:
        is_number = isinstance(each, ast.Constant) and isinstance(each.value, int | float)
        if (is_number and not isinstance(each.value, bool)) or LIMITS.search(ast.unparse(each)):  # type: ignore[attr-defined]
            return True
    return any(word.arg and LIMITS.search(word.arg) for word in node.keywords)
