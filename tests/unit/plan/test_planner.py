"""Which upstreams belong into a batch, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from floodmark.errors import PlanError
from floodmark.model.delta import TableFacts, VersionFacts
from floodmark.model.plan import PlanRequest, Probe
from floodmark.model.state import Mark, Pipeline, PlannedBatch, State
from floodmark.model.window import VersionWindow, Window
from floodmark.plan.planner import (
    closure,
    draft_batch,
    open_batch,
    refuse_repeated,
    unplanned,
)

AT = datetime(2026, 1, 1, tzinfo=UTC)


def store(**pipelines: str) -> State:
    """A state with pipelines by the letters of their upstreams."""
    found = {
        name: Pipeline(name, "default", tuple(f"/u/{letter}" for letter in letters), "h", AT)
        for name, letters in pipelines.items()
    }
    return State(control_id="c", pipelines=found)


def request(*upstreams: str, scope: str = "default") -> PlanRequest:
    return PlanRequest(tuple(f"/u/{u}" for u in upstreams), scope)


def probe(upstream: str, latest: int = 1, table_id: str | None = None) -> Probe:
    return Probe(TableFacts(upstream, table_id or upstream, latest, AT, 0, True, "{}", "f"))


def probes(*upstreams: str) -> dict[str, Probe]:
    return {f"/u/{u}": probe(f"/u/{u}") for u in upstreams}


def with_mark(state: State, upstream: str, version: int, *readers: str) -> State:
    """The upstream is committed, and some pipelines have processed it."""
    mark = Mark("default", upstream, version, upstream, True, "f", "b0", AT, "t")
    seeded = {(reader, upstream): version for reader in readers}
    return replace(
        state,
        marks={**state.marks, ("default", upstream): mark},
        seeded_through={**state.seeded_through, **seeded},
    )


def window(upstream: str) -> Window:
    return VersionWindow(
        upstream=upstream,
        method="feed",
        after=-1,
        through=1,
        reason="",
        table_id=upstream,
        feed_enabled=True,
        schema_fingerprint="f",
        latest_version=1,
    )


def with_open_batch(state: State, batch_id: str, seq: int, *upstreams: str) -> State:
    names = [f"/u/{u}" for u in upstreams]
    windows: dict[str, Window] = {n: window(n) for n in names}
    batch = PlannedBatch(batch_id, seq, "default", AT, "t", windows, {})
    opened = {("default", name): batch_id for name in names}
    return replace(
        state,
        batches={**state.batches, batch_id: batch},
        open_windows={**state.open_windows, **opened},
    )


def refused(state: State, *upstreams: str, given: dict[str, Probe] | None = None) -> PlanError:
    with pytest.raises(PlanError) as caught:
        draft_batch(state, request(*upstreams), given or probes(*upstreams))
    return caught.value


def test_closure_adds_every_upstream_that_shares_a_pipeline_however_far() -> None:
    state = store(P="ab", Q="bc", R="cd", Z="xy")
    assert set(closure(state, request("a"))) == {"/u/a", "/u/b", "/u/c", "/u/d"}


def test_closure_stays_inside_its_scope() -> None:
    state = store(P="ab")
    assert closure(state, request("a", scope="other")) == ("/u/a",)


def test_closure_keeps_what_nobody_reads() -> None:
    assert closure(store(P="ab"), request("lonely")) == ("/u/lonely",)


def test_an_open_batch_is_found_through_the_closure() -> None:
    state = with_open_batch(store(P="ab", Q="bc"), "b1", 1, "c")
    found = open_batch(state, "default", closure(state, request("a")))
    assert found is not None
    assert found.batch_id == "b1"
    assert unplanned(found, request("a")) == ("/u/a",)


def test_of_several_open_batches_the_oldest_has_to_finish_first() -> None:
    state = with_open_batch(with_open_batch(store(), "new", 7, "a"), "old", 3, "b")
    found = open_batch(state, "default", ["/u/a", "/u/b"])
    assert found is not None
    assert found.batch_id == "old"


def test_an_open_batch_of_another_scope_is_none_of_ours() -> None:
    state = with_open_batch(store(), "b1", 1, "a")
    assert open_batch(state, "other", ["/u/a"]) is None


def test_a_draft_freezes_every_upstream_and_requires_who_reads_news() -> None:
    state = with_mark(store(P="ab", Q="b", R="c"), "/u/c", 1, "R")
    draft = draft_batch(state, request("a", "b", "c"), probes("a", "b", "c"))
    assert [w.status for w in draft.windows] == ["PENDING", "PENDING", "NOOP"]
    assert draft.required == {"P": ("/u/a", "/u/b"), "Q": ("/u/b",)}
    assert draft.has_news


def test_a_draft_without_news_requires_nobody() -> None:
    state = with_mark(store(P="a"), "/u/a", 1, "P")
    draft = draft_batch(state, request("a"), probes("a"))
    assert (draft.has_news, draft.required) == (False, {})


def test_one_table_under_two_names_in_a_request_is_refused() -> None:
    given = {"/u/a": probe("/u/a", table_id="same"), "/u/b": probe("/u/b", table_id="same")}
    assert refused(store(P="ab"), "a", "b", given=given).code == "FM-PLAN-003"


def test_a_second_name_for_a_processed_table_is_refused() -> None:
    state = with_mark(store(P="a"), "/u/a", 1, "P")
    given = {"/u/alias": probe("/u/alias", table_id="/u/a")}
    assert refused(state, "alias", given=given).code == "FM-PLAN-003"


def test_a_pipeline_that_joined_late_is_refused() -> None:
    state = with_mark(store(P="a", L="a"), "/u/a", 0, "P")
    error = refused(state, "a", given={"/u/a": feed_probe("/u/a")})
    assert error.code == "FM-PLAN-008"
    assert "pipeline L" in error.title


def feed_probe(upstream: str) -> Probe:
    versions = (VersionFacts(1, AT, "WRITE", frozenset({"insert"}), 1, 1),)
    return replace(probe(upstream), versions=versions)


def test_a_pipeline_that_takes_up_a_committed_upstream_is_refused() -> None:
    state = with_mark(store(P="ab", Q="a"), "/u/a", 1, "Q")
    assert refused(state, "a", "b").code == "FM-PLAN-008"


def test_a_latecomer_without_news_blocks_nobody() -> None:
    state = with_mark(store(P="a", L="a"), "/u/a", 1, "P")
    assert not draft_batch(state, request("a"), probes("a")).has_news


def test_an_upstream_named_twice_is_refused() -> None:
    with pytest.raises(PlanError) as caught:
        refuse_repeated(["/u/a", "/u/b", "/u/a"])
    assert caught.value.code == "FM-PLAN-003"
