"""What cards show, as plain functions: values in words, names that differ, pages by address."""

from __future__ import annotations

from support.cases import LAP, conflict, notice
from support.memory_node import SITE

from meshnode.control.web.kinds import KINDS, kind_of
from meshnode.control.web.pages.conflicts import card_of, distinct_names, reason_of
from meshnode.control.web.pages.notices import line_of
from meshnode.control.web.paging import part_of
from meshnode.control.web.written import COLUMNS, key_of, values_of, written
from meshnode.model.noticekinds import NOTICE_KINDS
from meshnode.node.conflict_views import SideView
from meshnode.node.views import Status


def test_values_that_look_alike_are_told_apart() -> None:
    said = [(each.kind, each.text) for each in map(written, (None, True, 1, 1.0, "1", "", b"\x01\x02"))]
    assert said == [
        ("no value (null)", ""), ("boolean", "true"), ("integer", "1"), ("real", "1.0"), ("text", "1"),
        ("empty text", ""), ("2 bytes", "0102"),
    ]  # fmt: skip
    assert written("x" * 5000).left_out == "1,000 more characters"
    assert written(b"x" * 2001).left_out == "1 more bytes"


def test_a_row_that_was_written_shows_its_columns_and_a_delete_says_so() -> None:
    deleted = SideView(site=SITE, name="desk", value=None, hlc=(1, 0), event="ab" * 32)
    wide = {f"c{number:02}": number for number in range(COLUMNS + 2)}
    row = SideView(site=LAP.site, name="lap", value=wide, hlc=(1, 0), event="cd" * 32)
    one = conflict(1, column=None, ours=deleted, theirs=row)
    assert [each.kind for each in values_of(one, deleted)] == ["deleted the row"]
    assert [each.name for each in values_of(one, row)][:2] == ["c00", "c01"]
    assert values_of(one, row)[-1].kind == "and 2 more columns"


def test_a_key_reads_as_one_value_or_as_named_ones() -> None:
    assert key_of(conflict(1, key={"id": "n1"})) == "n1"
    assert key_of(conflict(1, key={"a": 1, "b": b"\xff"})) == "a 1, b ff"
    assert key_of(conflict(1, key={})) == "a key too large to show"


def test_two_devices_of_one_name_are_told_apart_by_their_ids() -> None:
    ours, theirs = (SideView(site=site, name="lap", hlc=(1, 0), event="ab" * 32) for site in (SITE, LAP.site))
    assert distinct_names(ours, theirs) == [f"lap {SITE[:8]}", f"lap {LAP.site[:8]}"]
    card = card_of(conflict(1, ours=ours, theirs=theirs, certainty="possible"), SITE)
    assert f"lap {LAP.site[:8]} had seen" in card.certainty
    assert [side.here for side in card.sides] == [True, False]


def test_pages_follow_each_other_and_a_number_that_is_none_is_the_first() -> None:
    part = part_of(range(25), 10, "/x", {"show": "all", "page": "2"})
    assert (list(part.items), part.text) == (list(range(10, 20)), "11 to 20 of 25")
    assert (part.previous, part.next) == ("/x?show=all&page=1", "/x?show=all&page=3")
    for page, first in (("99", 20), ("0", 0), ("-1", 0), ("é", 0), ("9" * 400, 0), ("³", 0)):
        assert part_of(range(25), 10, "/x", {"page": page}).items[0] == first
    assert part_of([], 10, "/x", {}).text == ""


def test_why_a_conflict_is_over_is_a_sentence_with_names() -> None:
    assert reason_of(f"what {LAP.site[:8]} wrote was preferred here", {SITE: "desk", LAP.site: "lap"}) == (
        "What lap wrote was preferred here."
    )
    assert reason_of("", {}) == ""


_JOINED = ("If you do not know it, retire it: see ", "Members", "/members", ".")


def test_a_notice_leads_to_the_pages_of_what_it_is_about() -> None:
    status = Status(
        running=True, site=SITE, short=SITE[:8], name="desk", mesh_tag="", home="/x", database="", role="member",
        software="", tables=1, rows=1, events=1, peers=[LAP],
    )  # fmt: skip
    line = line_of(notice(1, "withheld", table="notes & more"), status, {"notes & more"})
    assert (line.member, line.rows) == (f"/members?device={LAP.site}", "/tables/rows?table=notes+%26+more")
    line = line_of(notice(1, "joined", site="ef" * 16, table="gone"), status)
    assert (line.name, line.member, line.rows, line.kind.see) == ("efefefef", "", "", _JOINED)


def test_every_kind_of_notice_has_words() -> None:
    ordinary = {"done", "duplicate", "reserved", "shutting-down"}  # ends of links that need none
    assert NOTICE_KINDS - KINDS.keys() == ordinary
    assert KINDS["retired"].todo


def test_a_kind_that_has_no_words_is_called_what_it_is() -> None:
    assert kind_of("schema-drift").todo
    assert (kind_of("new-kind").title, kind_of("new-kind").todo) == ("New kind", "")
