"""What only a JVM has stays in the room of engines: others may have none."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[3] / "src" / "floodmark"
OF_A_JVM = {"_gateway", "_jdf", "_jsc", "_jsparkSession", "_jvm", "sparkContext", "java_exception"}


def test_nobody_but_the_engines_touches_a_jvm() -> None:
    places = [
        (path.relative_to(SOURCE).as_posix(), node.lineno)
        for path in sorted(SOURCE.rglob("*.py"))
        if "engines" not in path.parts
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in OF_A_JVM
    ]

    assert places == []
