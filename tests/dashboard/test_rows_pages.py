"""Tables, rows and one row in a real browser: looks, paging, life, keys, and what rows may hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect
from support.dashboard import MeshInMemory, Served, overflows, violations, visiting
from support.nodes import loopback

from meshnode import Node
from meshnode.control.web import live
from meshnode.control.web.pages.rows import ROWS
from meshnode.control.web.values import CLEARED, UNMATERIALIZED, cells_of, key_of, key_token, value_shown
from meshnode.errors import UsageError
from meshnode.node.views import RowChange

_HEX = re.compile("^[0-9a-f]{64}$")
SCRIPT = "<script>document.title='owned'</script>"
HOSTILE = {
    "title": "<img src=x onerror=document.title='owned'>\u202egnihton\x00 javascript:alert(1)",
    "raw": b"\xff\xfe\x00" * 400,
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks follow each other sooner than people need them."""
    monkeypatch.setattr(live, "TICK_S", 0.2)
    monkeypatch.setattr(live, "APART_S", 0.1)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    node = Node(Path(tmp_path_factory.mktemp("rows")) / "n", config=loopback(name="desk"))
    with Served(node) as found:
        columns = {"title": "TEXT", "done": "INTEGER", "raw": "BLOB"}
        found.do(node.add_table("notes", {"id": "TEXT"}, columns))
        rows = [RowChange(key={"id": f"n{at:03}"}, columns={"title": f"Milk {at}"}) for at in range(2 * ROWS + 20)]
        found.do(node.import_rows("notes", rows))
        found.do(node.remove("notes", {"id": "n001"}))
        found.do(node.put("notes", {"id": "n001"}, {"title": None}))
        found.do(node.add_table(SCRIPT, {"<b>id": "TEXT"}, {"<img src=x onerror=alert(1)>": "TEXT"}))
        found.do(node.put(SCRIPT, {"<b>id": SCRIPT}, {"<img src=x onerror=alert(1)>": "<svg onload=alert(1)>" * 99}))
        found.do(node.put("notes", {"id": SCRIPT}, HOSTILE))
        yield found


def go(page: Page, served: Served, path: str) -> None:
    page.goto(served.origin + path)
    page.wait_for_selector("h1")


def row(table: str, key: dict[str, Any]) -> str:
    return f"/tables/row?table={quote(table)}&key={quote(key_token(key))}"


def test_rows_are_paged_both_ways_by_keys_alone_and_found_by_key(browser: Browser, served: Served) -> None:
    with visiting(browser, served) as (page, _):
        first = page.locator("#rows tbody tr").first
        page.keyboard.press("g")
        page.keyboard.press("t")
        page.get_by_role("link", name="notes", exact=True).press("Enter")
        expect(page.locator("#rows tbody tr")).to_have_count(ROWS)
        expect(first).to_contain_text("n000")
        expect(page.locator("#pager-previous")).to_have_count(0)
        page.locator("#pager-next").press("Enter")
        expect(first).to_contain_text(f"n{ROWS:03}")
        page.locator("#pager-next").press("Enter")
        expect(first).to_contain_text(f"n{2 * ROWS:03}")
        expect(page.locator("#pager-next")).to_have_count(0)
        page.locator("#pager-previous").press("Enter")
        expect(first).to_contain_text(f"n{ROWS:03}")
        page.get_by_role("textbox", name="id").fill("n077")
        page.get_by_role("textbox", name="id").press("Enter")
        expect(first).to_contain_text("n077")
        page.get_by_role("textbox", name="id").fill(
            "n1"
        )  # of a key that is not there, what comes after it: keys are in the order of their bytes
        page.get_by_role("textbox", name="id").press("Enter")
        expect(first).to_contain_text("n000")


def test_what_is_written_shows_by_itself_and_a_page_stays_where_it_is(browser: Browser, served: Served) -> None:
    node = served.node
    with visiting(browser, served) as (page, _):
        go(page, served, "/tables/rows?table=notes")
        page.evaluate("window.stayed = true")
        served.do(node.put("notes", {"id": "n000"}, {"title": "Bread"}))
        expect(page.locator("#rows tbody")).to_contain_text("Bread")
        assert page.evaluate("window.stayed")
        page.get_by_role("link", name="n000", exact=True).click()
        expect(page.locator("#columns")).to_contain_text("Bread")
        served.do(node.put("notes", {"id": "n000"}, {"title": "Butter"}))
        expect(page.locator("#columns")).to_contain_text("Butter")
        expect(page.locator("#columns .site").first).to_contain_text("desk")


def test_a_null_a_cleared_column_and_one_never_written_look_different(browser: Browser, served: Served) -> None:
    with visiting(browser, served) as (page, _):
        go(page, served, row("notes", {"id": "n001"}))
        cells = page.locator("#columns tbody tr")
        expect(cells.nth(0)).to_contain_text("null")
        expect(cells.nth(0)).to_contain_text("written")
        expect(cells.nth(1)).to_contain_text("cleared")
        go(page, served, row("notes", {"id": "n002"}))
        expect(page.locator("#columns .nothing-unmaterialized")).to_have_count(2)
        expect(page.locator("#columns code[title]").first).to_have_attribute("title", _HEX)
        named = str(page.locator("#columns code[title]").first.get_attribute("title"))
        page.locator("#columns a", has=page.locator("code[title]")).first.press("Enter")
        page.wait_for_url("**/events/one?position=*")
        expect(page.locator("dd code", has_text=named)).to_be_visible()
        assert page.request.get(f"{served.origin}/events/named?id={named}&ms=1").status == 404


def test_actions_of_a_table(browser: Browser, served: Served) -> None:
    with visiting(browser, served) as (page, _):
        go(page, served, "/tables/rows?table=notes")
        page.get_by_role("button", name="Digest").press("Enter")
        expect(page.locator("#said code")).to_have_text(_HEX)
        page.get_by_role("button", name="Request sync").press("Enter")
        expect(page.locator("#said")).to_contain_text("Nobody was asked for notes: there is no other member yet.")
        page.get_by_text("Change class").press("Enter")
        page.get_by_label("private").check()
        page.get_by_role("button", name="Change it").press("Enter")
        expect(page.locator("#said")).to_contain_text("notes is private from now on")
        expect(page.locator(".facts .badge")).to_have_text("private")
        assert violations(page) == []


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1600, "light")])
def test_hostile_content_is_shown_and_every_page_passes_the_audit(
    browser: Browser, served: Served, width: int, scheme: str
) -> None:
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    with visiting(browser, served, **options) as (page, _):
        table = f"/tables/rows?table={quote(SCRIPT)}"
        for path in ("/tables", table, row("notes", {"id": SCRIPT}), row(SCRIPT, {"<b>id": SCRIPT})):
            go(page, served, path)
            expect(page.locator("main")).to_contain_text(SCRIPT)
            for each in page.locator("main details.long").all():
                each.locator("summary").click()
            assert page.title() != "owned"
            assert page.locator("main script, main img, main b b, main [onload], main [onerror]").count() == 0
            assert not overflows(page)
            assert violations(page) == []
        go(page, served, row("notes", {"id": SCRIPT}))
        expect(page.locator("#columns")).to_contain_text("\\u202egnihton\\x00 javascript:alert(1)")
        expect(page.locator("#columns")).to_contain_text("1.2 KiB")
        assert page.locator('main a[href^="javascript"]').count() == 0


def test_ten_megabytes_are_a_line_their_beginning_and_a_file(browser: Browser) -> None:
    node = MeshInMemory()
    values = {"text": "<b>x</b>\n" * 1_200_000, "raw": b"\xff" * 10_000_000}
    with Served(node) as served, visiting(browser, served) as (page, _):
        served.do(node.add_table("notes", {"id": "TEXT"}, {"text": "TEXT", "raw": "BLOB"}))
        served.do(node.put("notes", {"id": "x"}, values))
        go(page, served, "/tables/rows?table=notes")
        expect(page.locator("#rows")).to_contain_text("9.5 MiB")
        assert len(page.content()) < 20_000
        go(page, served, row("notes", {"id": "x"}))
        assert len(page.content()) < 500_000
        answer = page.request.get(
            served.origin + row("notes", {"id": "x"}).replace("/row?", "/value?") + "&column=text"
        )
        assert (answer.headers["content-type"], len(answer.body())) == ("text/plain; charset=utf-8", 10_800_000)
        assert answer.headers["x-content-type-options"] == "nosniff"
        answer = page.request.get(served.origin + row("notes", {"id": "x"}).replace("/row?", "/value?") + "&column=raw")
        assert answer.headers["content-disposition"] == 'attachment; filename="value.bin"'


def test_values_as_they_are_shown() -> None:
    assert cells_of(["a", "b", "c", "d"], {"a": 1, "b": None, "c": None}, ["c"]) == [
        value_shown(1), value_shown(None), CLEARED, UNMATERIALIZED,
    ]  # fmt: skip
    assert (value_shown(b"\x00\xff").text, value_shown(b"\x00\xff").large) == ("00ff", "2 bytes")
    assert value_shown("").kind == "empty"
    assert (value_shown(True).text, value_shown(-0.0).text) == ("true", "-0.0")
    assert key_of(key_token({"a": 1, "b": b"\xff"})) == {"a": 1, "b": b"\xff"}
    with pytest.raises(UsageError, match="lacks its `key`"):
        key_of("")
    for broken in ("[]", "{", '{"a": [1]}', '{"a": 1, "a": 2}'):
        with pytest.raises(UsageError):
            key_of(broken)
