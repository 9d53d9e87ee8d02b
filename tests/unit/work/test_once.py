"""What the room for work has, no other room has too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[3] / "src" / "floodmark"
ASKED_HERE = {
    "os.getpid": {"work/process.py", "failpoints.py"},  # a failpoint ends its own process
    "socket.gethostname": set[str](),
    "platform.node": {"work/process.py"},
    "getpass.getuser": {"work/process.py"},
    "random.SystemRandom": {"work/retry.py"},
    "random.random": set[str](),
    "random.uniform": set[str](),
}
"""Who may ask for who this process is, and for chance."""


def asked() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                yield f"{node.value.id}.{node.attr}", path.relative_to(SOURCE).as_posix()


def test_identity_and_chance_are_asked_for_in_one_place() -> None:
    elsewhere = [(what, who) for what, who in asked() if who not in ASKED_HERE.get(what, {who})]

    assert elsewhere == []


def test_a_policy_of_retries_is_one_type() -> None:
    policies = [
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef) and "RetryPolicy" in node.name
    ]

    assert policies == ["work/retry.py"]
