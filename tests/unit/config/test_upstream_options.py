"""What a project file says about an upstream."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodmark.config import load_project
from floodmark.errors import ConfigError
from floodmark.model.upstream import Upstream


def loaded(folder: Path, upstreams: str) -> list[Upstream]:
    path = folder / "floodmark.yaml"
    path.write_text(
        f"project: p\npipelines:\n  - pipeline: a\n    function: 'm:f'\n    upstreams: {upstreams}\n"
    )
    (pipeline,) = load_project(path).settings.pipelines
    assert pipeline.upstreams == [declared.name for declared in pipeline.declared]
    return [declared.upstream() for declared in pipeline.declared]


def test_a_name_alone_and_a_mapping_with_options_are_both_upstreams(tmp_path: Path) -> None:
    found = loaded(
        tmp_path,
        "[lake/a, {name: lake/b, baseline: 5}, {name: lake/c, baseline: latest, method: feed,"
        " on_feed_gap: fail, on_schema_change: reload, on_recreated: reload, on_lost_range: accept}]",
    )

    assert found == [
        Upstream("lake/a"),
        Upstream("lake/b", baseline=5),
        Upstream(
            "lake/c",
            baseline="latest",
            method="feed",
            on_feed_gap="fail",
            on_schema_change="reload",
            on_recreated="reload",
            on_lost_range="accept",
        ),
    ]


@pytest.mark.parametrize(
    ("upstreams", "code", "key", "told"),
    [
        ("[{name: lake/a, baseline: -1}]", "FM-CONFIG-004", "upstreams[0].baseline", "latest"),
        ("[{name: lake/a, baseline: true}]", "FM-CONFIG-004", "upstreams[0].baseline", "latest"),
        (
            "[lake/b, {name: lake/a, on_feed_gap: fial}]",
            "FM-CONFIG-004",
            "upstreams[1].on_feed_gap",
            "nearest: fail",
        ),
        ("[{name: lake/a, basline: 1}]", "FM-CONFIG-003", "upstreams[0].basline", "baseline"),
        ("[{baseline: 1}]", "FM-CONFIG-004", "upstreams[0]", "name"),
        ("[5]", "FM-CONFIG-004", "upstreams[0]", "text"),
        ("[lake/a, {name: lake/a/}]", "FM-CONFIG-005", "upstreams[1]", "each name once"),
    ],
)
def test_a_wrong_option_is_shown_with_its_key(
    tmp_path: Path, upstreams: str, code: str, key: str, told: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, upstreams)

    assert caught.value.code == code
    assert f"pipelines[0].{key} " in str(caught.value)
    assert told in str(caught.value)
