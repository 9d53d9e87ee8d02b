"""Who says that nothing else writes to a table on S3, and what is warned of if nobody does."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodmark.config import load_project
from floodmark.run.nodes.writes import quarantine_of

PROJECT = """\
project: shop
connections:
  lake: {{type: lake, root: "{root}"{lake}}}
pipelines:
  - pipeline: orders
    nodes:
      - name: copy
        read: {{connection: lake, path: orders}}
        write: {{connection: lake, path: copy, merge: {{keys: [id]}}{write}}}
"""
SAID = ", allow_single_writer: true"


@pytest.mark.parametrize(
    ("root", "said_by", "warned"),
    [
        ("s3://bucket/lake", "nobody", True),
        ("s3a://bucket/lake", "nobody", True),
        ("s3://bucket/lake", "lake", False),
        ("s3://bucket/lake", "write", False),
        ("abfss://c@account.dfs.core.windows.net/lake", "nobody", False),
        ("lake", "nobody", False),
    ],
)
def test_a_write_to_s3_is_warned_of_unless_it_is_said_to_be_the_only_one(
    tmp_path: Path, root: str, said_by: str, warned: bool
) -> None:
    lake, write = (SAID if said_by == place else "" for place in ("lake", "write"))
    allowed = said_by != "nobody"
    file = tmp_path / "floodmark.yaml"
    file.write_text(PROJECT.format(root=root, lake=lake, write=write))

    loaded = load_project(file)

    assert [each.code for each in loaded.warnings] == ["FM-CONFIG-041"] * warned
    spec = loaded.pipelines[0].nodes[0].spec
    assert spec is not None
    assert spec.allow_single_writer == allowed
    assert quarantine_of(spec, replaces=False).allow_single_writer == allowed
