"""The lines of `meshnode status` that say how far behind whom: short, in one unit, without control characters."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.command import meshnode
from support.memory_node import PEER, MemoryNode

from meshnode.cli import lag
from meshnode.control.server import ControlServer
from meshnode.node.config import Config
from meshnode.node.home import Home
from meshnode.node.views import GroupView, LaggingView, PeerView, Status

SITE = "83561adb398fd87f8e7ed8331bff2fcb"


def group(side: str, gap_ms: int | None, table: str = "notes", name: str = "desk") -> GroupView:
    return GroupView(site=SITE, name=name, table=table, side=side, gap_ms=gap_ms)


def lines(**changes: object) -> list[str]:
    return list(lag.peer_lines([replace(PEER, linked=True, **changes)]))


def test_a_peer_that_has_everything_needs_no_line() -> None:
    assert lines(groups=[], told_ms=5) == []


def test_one_line_for_each_side_with_the_largest_gap() -> None:
    groups = [group("behind", 120_000), group("ahead", 5_999, "s.t", "lap"), group("behind", 1)]
    assert lines(groups_behind=3, groups_ahead=1, groups=groups) == [
        "nas: 3 groups behind, most: notes of desk by 2 min",
        "nas: 1 group ahead of this node, most: s.t of lap by 5 s",
    ]


def test_what_was_never_told_is_said_so() -> None:
    groups = [group("behind", None), group("ahead", None, "t")]
    assert lines(groups_behind=12, groups_ahead=1, groups=groups) == [
        "nas: 12 groups behind, most: notes of desk, of which it told nothing",
        "nas: 1 group ahead of this node, most: t of desk, of which nothing is applied here",
    ]


def test_who_has_all_events_and_did_not_say_so_yet_is_not_called_behind() -> None:
    assert lines(groups_behind=1, groups=[group("behind", 600_000)], behind=0) == [
        "nas: has all events, and did not yet say that it applied them in 1 group, most: notes of desk by 10 min"
    ]
    assert lines(groups_behind=1, groups=[group("behind", None)], behind=0)[0].endswith(
        "most: notes of desk, of which it told nothing: is the table missing there?"
    )


def test_of_an_absent_peer_the_age_of_its_word_is_told() -> None:
    told_ms = time.time_ns() // 1_000_000 - 3 * 3_600_000 - 60_000
    peer = replace(PEER, groups_behind=1, groups=[group("behind", 0)], told_ms=told_ms)
    assert list(lag.peer_lines([peer])) == ["nas: 1 group behind, most: notes of desk by less than 1 ms (told 3 h ago)"]


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "less than 1 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (119_999, "1 min"),
        (7_200_000, "2 h"),
        (86_400_000 * 400, "400 d"),
    ],
)
def test_a_span_has_one_unit(ms: int, text: str) -> None:
    assert lag.span(ms) == text


def status(*views: LaggingView, more: int = 0) -> Status:
    return Status(
        running=False,
        site=SITE,
        short=SITE[:8],
        name="desk",
        mesh_tag="",
        home="",
        database="",
        peers=[],
        lagging=list(views),
        lagging_more=more,
    )


def lagging(reason: str, gap_ms: int | None, **changes: object) -> LaggingView:
    return replace(LaggingView(site=SITE, name="lap", table="t", reason=reason, known=(9, 0), gap_ms=gap_ms), **changes)


def test_this_nodes_own_lag_has_its_reason() -> None:
    views = [
        lagging("held", None, events=4),
        lagging("rejected", 60_000, table="*.*"),
        lagging("hole", 1_000),
        lagging("missing", 5, told_by="nas\x1b[31m"),
    ]
    assert list(lag.own_lines(status(*views))) == [
        "this node: t of lap: nothing applied, held until there is such a table: 4 events",
        "this node: *.* of lap: 1 min behind, events of it were rejected and will be offered again",
        "this node: t of lap: 1 s behind, later events are here, and earlier ones may be missing",
        "this node: t of lap: 5 ms behind, nas\\x1b[31m told of later events",
    ]


def test_a_few_groups_have_a_line_and_the_others_are_counted() -> None:
    shown = list(lag.own_lines(status(*[lagging("hole", 1)] * 7, more=10)))
    assert (len(shown), shown[-1]) == (6, "this node: 12 groups more, `--output json` lists them")


class LateNode(MemoryNode):
    """Its only peer is behind."""

    async def peers(self) -> list[PeerView]:
        return [replace(PEER, linked=True, groups_behind=1, groups=[group("behind", 4_000, name="a\x1b[0m")])]


async def test_status_prints_them_and_json_has_the_list(tmp_path: Path) -> None:
    home = Home(tmp_path / "n", Config())
    home.prepare()
    home.write_incarnation(bytes(16))
    async with ControlServer(LateNode(), home):
        shown = await meshnode("status", home=home.path)
        assert "nas: 1 group behind, most: notes of a\\x1b[0m by 4 s" in shown.out.splitlines()
        as_json = (await meshnode("status", "--output", "json", home=home.path)).json
    [listed] = as_json["peers"][0]["groups"]
    assert (listed["side"], listed["gap_ms"], listed["told"]) == ("behind", 4_000, None)
    assert as_json["lagging"] == []
