"""A public name that has moved still does its work, and says where it is."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from tests.frozen import surface

import floodmark as fm

FACADES = {"Coordinator": fm.Coordinator, "Project": fm.Project}


def moved_names() -> Iterator[tuple[str, str, str]]:
    """Class, old name, and the attribute of the class where the name is."""
    for owner, cls in FACADES.items():
        for name, member in inspect.getmembers(cls):
            function = member.fget if isinstance(member, property) else member
            text = getattr(function, "__deprecated__", None)
            if text:
                yield owner, name, str(text).split(f"{owner}.")[-1].split(".")[0]


MOVED = list(moved_names())


def instance_of(owner: str, root: Path) -> Any:
    text = "project: x\npipelines: [{pipeline: p, upstreams: [u], function: m:f}]\n"
    (root / "floodmark.yaml").write_text(text)
    project = fm.Project.load(root)
    return project if owner == "Project" else project.coordinator


@pytest.mark.parametrize(("owner", "name", "part"), MOVED, ids=[f"{o}.{n}" for o, n, _ in MOVED])
def test_an_old_name_does_the_same_and_tells_the_new_one(
    owner: str, name: str, part: str, tmp_path: Path
) -> None:
    facade = instance_of(owner, tmp_path)
    new = getattr(getattr(facade, part), name)
    told = f"{owner}.{name} has moved: use {owner}.{part}.{name}"
    if not inspect.ismethod(new):
        with pytest.warns(DeprecationWarning, match=told):
            assert getattr(facade, name) == new
        return
    calls: list[tuple[Any, ...]] = []
    setattr(getattr(facade, part), name, lambda *a, **k: calls.append((a, k)))

    with pytest.warns(DeprecationWarning, match=told):
        getattr(facade, name)(1, key=2)

    assert calls == [((1,), {"key": 2})]
    assert inspect.signature(getattr(FACADES[owner], name)).parameters.keys() - {"self"} == (
        inspect.signature(new).parameters.keys()
    )


@pytest.mark.parametrize("owner", FACADES)
def test_a_facade_is_small_and_shows_what_it_showed(owner: str) -> None:
    cls = FACADES[owner]
    old = {name for each, name, _ in MOVED if each == owner}
    methods = (classmethod, FunctionType)
    own = {name for name, member in vars(cls).items() if isinstance(member, methods)}
    public = {name for name in own - old if not name.startswith("_")}

    assert cls.__bases__ == (object,)
    assert len(public) <= 25
    assert set(surface.recorded()["public"][owner]) - {"()"} <= set(dir(cls))
