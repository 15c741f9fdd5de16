"""What pages show, as plain functions: texts, the picture, what is to be looked at."""

from __future__ import annotations

import datetime
import math

import pytest
from support.dashboard import MeshInMemory, large_mesh, peer

from meshnode.control.web import texts
from meshnode.control.web.kinds import KINDS
from meshnode.control.web.pages.mesh import attention_of
from meshnode.control.web.picture import NARROW, WIDE, picture_of, summary_of
from meshnode.control.web.rendering import named_home, told
from meshnode.control.web.shell import state_of
from meshnode.control.web.throughput import Rate
from meshnode.errors import CloseCode
from meshnode.model.noticekinds import NOTICE_KINDS


def test_what_steers_text_is_shown_and_what_is_long_is_cut() -> None:
    assert texts.shown("a\u202eb\x1b[0m\n\u2066") == "a\\u202eb\\x1b[0m\\x0a\\u2066"
    assert texts.shown("x" * 10_000) == "x" * 80 + "…"
    assert texts.shown("\ud800") == "\\ud800"
    assert texts.whole("a\n\tb\x00") == "a\n\tb\\x00"
    assert texts.label("garden-shed-29", 8) == "garde…29"


def test_backquotes_make_code_and_never_markup() -> None:
    assert told("run `meshnode up <x>` & `y`") == "run <code>meshnode up &lt;x&gt;</code> &amp; <code>y</code>"
    assert told("one ` <b>") == "one ` &lt;b&gt;"


def test_a_command_for_this_node_names_a_home_that_is_not_the_usual_one() -> None:
    assert told("`meshnode up` & `id`", home="/srv/a b") == (
        "<code>meshnode --home &#39;/srv/a b&#39; up</code> &amp; <code>id</code>"
    )
    assert told("`meshnode invite` here, `meshnode join` there", home="/x") == (
        "<code>meshnode --home /x invite</code> here, <code>meshnode join</code> there"
    )
    assert (named_home("/x", "/x"), named_home("/x", "/y")) == ("", "/x")


@pytest.mark.parametrize(
    ("given", "said"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (45_000, "44 KiB"), (3_200_000, "3.1 MiB"), (2**54, "16384 TiB")],
)
def test_sizes(given: int, said: str) -> None:
    assert texts.size(given) == said


def test_times_read_well_whatever_a_clock_says() -> None:
    assert [texts.ago(1000_000 - ms, 1000_000) for ms in (0, 5_000, 125_000, -60_000)] == [
        "now", "5 s ago", "2 min ago", "in 1 min",
    ]  # fmt: skip
    ahead = (899_500, 600_000, 3_599_000, 86_399_000, 100_000, 59_900)
    assert [texts.ago(ms, 0) for ms in ahead] == [
        "in 15 min",
        "in 10 min",
        "in 1 h",
        "in 1 day",
        "in 2 min",
        "in 1 min",
    ]
    assert texts.span(2 * 86_400_000) == "2 days"
    assert texts.iso(0) == "1970-01-01T00:00:00Z"
    assert texts.iso(2**63).startswith("9999-12-31")
    assert texts.absolute(2**63).startswith("9999-12-31")


@pytest.mark.parametrize(
    ("minutes", "said"), [(0, "UTC"), (60, "UTC+1"), (-210, "UTC-3:30"), (345, "UTC+5:45"), (840, "UTC+14")]
)
def test_a_time_says_its_zone(minutes: int, said: str) -> None:
    assert texts.zone(datetime.timedelta(minutes=minutes)) == said


@pytest.mark.parametrize("members", [1, 2, 3, 6, 8, 9, 50, 200])
@pytest.mark.parametrize("canvas", [WIDE, NARROW], ids=["wide", "narrow"])
async def test_everybody_has_a_place_of_their_own(members: int, canvas: object) -> None:
    status = await large_mesh(members).status()
    picture = picture_of(status, lambda _short: Rate(10.0, 10.0), canvas)  # type: ignore[arg-type]
    assert len(picture.spots) == min(members, 60)
    assert picture.left_out == members - len(picture.spots)
    places = [(spot.x, spot.y) for spot in picture.spots]
    apart = 12.0 if picture.ring else 60.0
    near = [math.dist(a, b) for at, a in enumerate(places) for b in places[:at]]
    assert min(near, default=math.inf) >= apart * (0.8 if members > 60 else 1)
    assert all(0 < x < picture.width and 0 < y < picture.height for x, y in places)


async def test_what_stands_below_a_place_is_short() -> None:
    """The reason stands in the table: the picture ends not far right of a place, and would cut it."""
    spot = picture_of(await MeshInMemory([peer(0, groups_behind=2)]).status(), lambda _short: Rate(), WIDE).spots[0]
    assert spot.detail == "2 groups not applied there"


async def test_a_place_stays_when_its_state_changes() -> None:
    node = large_mesh(5)
    before = picture_of(await node.status(), lambda _short: Rate(), WIDE)
    node.changed(0, linked=False, opened_by_us=None)
    after = picture_of(await node.status(), lambda _short: Rate(), WIDE)
    assert [(spot.x, spot.y) for spot in before.spots] == [(spot.x, spot.y) for spot in after.spots]
    assert before != after


async def test_the_state_says_the_most_important_thing() -> None:
    async def said(node: MeshInMemory) -> tuple[str, str]:
        state = state_of(await node.status())
        return state.kind, state.text

    assert await said(MeshInMemory()) == ("idle", "no other members yet")
    assert await said(MeshInMemory([peer(0)])) == ("good", "1 of 1 linked, level")
    assert await said(MeshInMemory([peer(0, behind=1)])) == ("warn", "1 of 1 linked, catching up")
    assert await said(MeshInMemory([peer(0, groups_behind=1)])) == ("warn", "1 of 1 linked, not all applied")
    assert await said(MeshInMemory([peer(0), peer(1, linked=False)])) == ("warn", "1 of 2 linked")
    assert await said(MeshInMemory([peer(0, linked=False)])) == ("warn", "none of 1 linked")
    assert await said(MeshInMemory([peer(0, stuck=True)])) == ("bad", "1 of 1 linked, a stream stands still")
    assert await said(MeshInMemory([peer(0)], online=False)) == ("warn", "cut off on purpose")
    assert await said(MeshInMemory([peer(0)], retired=True)) == ("bad", "this device is retired")
    assert (await said(MeshInMemory([peer(0, retired=True)])))[0] == "idle"


async def test_what_stands_still_is_said_with_its_reason() -> None:
    node = MeshInMemory(
        [peer(0, stuck=True, note="unreadable")],
        publishing=False,
        warnings=["only this device can let others in"],
        waiting={"tasks": 3},
        restart_required=["port"],
        discovery="port 5353 is taken",
    )
    status = await node.status()
    assert [each.kind for each in attention_of(status)] == ["bad", "bad", "warn", "warn", "warn", "info"]
    assert any("3 events wait for table tasks" in each.text for each in attention_of(status))
    assert summary_of(status) == "desk is linked to 1 of 1 other member."


def test_every_kind_of_notice_has_words_but_those_by_which_a_link_ended() -> None:
    ends = {code.name.lower().replace("_", "-") for code in CloseCode}
    assert NOTICE_KINDS - KINDS.keys() <= ends
    assert KINDS.keys() <= NOTICE_KINDS


async def test_a_link_on_which_next_to_nothing_passes_is_drawn() -> None:
    picture = picture_of(await MeshInMemory([peer(0)]).status(), lambda _short: Rate(0.6, 0.6), WIDE)
    assert [line.flow for line in picture.lines] == [""]
