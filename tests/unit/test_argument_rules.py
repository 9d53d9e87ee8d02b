"""FM-CONFIG-007 is one code of many causes: each says by a stable word which one it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from floodmark import errors
from floodmark.coordinator import Coordinator
from floodmark.errors import ARGUMENT_RULES, ConfigError

SOURCE = Path(errors.__file__).parent


def calls() -> Iterator[tuple[str, ast.Call]]:
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                yield f"{path.relative_to(SOURCE)}:{node.lineno}", node


def rule_of(call: ast.Call) -> ast.expr | None:
    return next((each.value for each in call.keywords if each.arg == "rule"), None)


def test_every_argument_that_is_refused_says_by_which_rule() -> None:
    without = [
        where
        for where, call in calls()
        if call.args
        and isinstance(call.args[0], ast.Constant)
        and call.args[0].value == "FM-CONFIG-007"
        and rule_of(call) is None
    ]

    assert without == []


def test_every_rule_is_used_and_is_known() -> None:
    rules = (rule_of(call) for _, call in calls())
    used = {str(rule.value) for rule in rules if isinstance(rule, ast.Constant)}

    assert used == ARGUMENT_RULES.keys()


def test_machines_get_the_rule(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        Coordinator(str(tmp_path)).register("a/b", ["/lake/t"])

    assert (caught.value.rule, caught.value.as_dict()["rule"]) == ("name_of_pipeline",) * 2
    assert "rule" not in ConfigError("FM-CONFIG-005", "no").as_dict()


def test_a_rule_that_is_not_in_the_list_is_a_mistake_of_ours() -> None:
    with pytest.raises(ValueError, match="no_such_rule"):
        ConfigError("FM-CONFIG-007", "no", rule="no_such_rule")
