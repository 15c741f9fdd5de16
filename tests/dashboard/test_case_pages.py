"""Conflicts, notices and doctor in a real browser: what is decided, acknowledged and looked at, and by keys alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from playwright.sync_api import Browser, expect
from support.cases import LAP, CasesInMemory, conflict, notice
from support.dashboard import Served, overflows, violations, visiting
from support.memory_node import SITE

from meshnode.control.web import live
from meshnode.control.web.doors import SESSION_IDLE_S
from meshnode.control.web.examination import NAMES
from meshnode.node.conflict_views import SideView

HOSTILE = "<script>document.title='owned'</script>\u202egnihton <img src=x onerror=alert(1)>\x00"
LONG = HOSTILE + "x" * 1_000_000


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks follow each other sooner than people need them."""
    monkeypatch.setattr(live, "TICK_S", 0.1)
    monkeypatch.setattr(live, "APART_S", 0.05)


def side(site: str, name: str, value: Any) -> SideView:
    return SideView(site=site, name=name, value=value, hlc=(2**60, 0), event="ab" * 32)


@pytest.fixture
def crowded() -> CasesInMemory:
    """Everything that may be shown, as hostile as it may be."""
    ours, theirs = side(SITE, "desk", LONG), side(LAP.site, HOSTILE, {HOSTILE: LONG, "b": b"\x00" * 9, "n": None})
    text = side(LAP.site, HOSTILE, HOSTILE)
    ledger = [conflict(1), conflict(2, table=HOSTILE, key={"a": HOSTILE, "b": 1}, ours=ours, theirs=text)]
    ledger.append(
        conflict(3, column=None, certainty="possible", shown="neither", ours=side(SITE, "desk", None), theirs=theirs)
    )
    ledger += [conflict(number) for number in range(4, 40)]
    book = [notice(1), notice(2, HOSTILE, site="", table=HOSTILE, sample=LONG[:16_000])]
    book += [notice(number, "joined", sample=HOSTILE) for number in range(3, 60)]
    node = CasesInMemory(ledger, book)
    node.told = {"links": ("fail", LONG), "clock": ("warn", HOSTILE)}
    return node


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1600, "light")])
def test_hostile_content_is_shown_at_every_width_and_the_pages_pass_the_audit(
    browser: Browser, crowded: CasesInMemory, width: int, scheme: str
) -> None:
    options: dict[str, Any] = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    with Served(crowded) as served, visiting(browser, served, **options) as (page, _):
        origin = page.url
        for name in ("conflicts?show=all", "notices", "doctor"):
            page.goto(origin + name)
            expect(page.locator("main").get_by_text("<script>document.title=").first).to_be_visible()
            assert "owned" not in page.title()
            assert page.locator("main script, main img, main [onerror]").count() == 0
            assert len(page.content()) < 120_000
            assert not overflows(page)
            assert violations(page) == []


def test_conflicts_are_decided_by_keys_alone_and_focus_goes_on_to_the_next(browser: Browser) -> None:
    node = CasesInMemory([conflict(number) for number in range(1, 4)])
    with Served(node) as served, visiting(browser, served) as (page, _):
        page.goto(page.url + "conflicts")
        number = page.locator("nav.places [aria-current] .number")
        expect(number).to_have_text("3")
        page.get_by_role("button", name="Prefer desk: notes, row n2, column title").press("Enter")
        expect(page.locator("#said")).to_contain_text("what desk wrote was written again, as event efefefef, and shows")
        expect(page.locator(".case")).to_have_count(2)
        expect(page.locator(f"#conflict-{3:032x}")).to_be_focused()
        expect(number).to_have_text("2")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        expect(page.get_by_role("button", name="Prefer lap: notes, row n3, column title")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("#said")).to_contain_text("what lap wrote showed already")
        expect(page.locator(f"#conflict-{1:032x}")).to_be_focused()
        page.get_by_role("button", name="Leave as it is: notes, row n1").press("Enter")
        expect(page.get_by_text("No conflict is open", exact=True)).to_be_visible()
        expect(page.locator("#main")).to_be_focused()
        expect(number).to_have_count(0)
        page.get_by_role("link", name="With those that are over").press("Enter")
        expect(page.locator(".case")).to_have_count(3)
        assert [each.status for each in node.ledger] == ["acknowledged", "resolved", "resolved"]


def test_notices_arise_on_an_open_page_which_does_not_grow_and_are_acknowledged(browser: Browser) -> None:
    node = CasesInMemory(notices=[*(notice(number, "joined") for number in range(50, 80)), notice(90)])
    with Served(node) as served, visiting(browser, served) as (page, _):
        page.goto(page.url + "notices")
        expect(page.locator(".notice")).to_have_count(20)
        node.book.insert(0, notice(7, "bad-signature", sample="an event at 1-0"))
        served.do(ring(node))
        first = page.locator(".notice").first
        expect(first).to_contain_text("Events whose signature is wrong")
        expect(first).to_contain_text("7 times")
        expect(page.locator(".notice")).to_have_count(20)
        page.get_by_role("button", name="Acknowledge notice 7: Events whose signature is wrong, lap").press("Enter")
        expect(page.locator("#said")).to_contain_text("Notice 7 was seen")
        expect(page.locator("#notice-50")).to_be_focused()
        page.get_by_role("link", name="A device joined").click()
        page.get_by_role("button", name="Acknowledge this kind").click()
        expect(page.locator("#said")).to_contain_text("30 notices seen.")
        expect(page.get_by_text("Nothing that you have not seen", exact=True)).to_be_visible()


async def ring(node: CasesInMemory) -> None:
    node.rang.set()


def test_doctor_runs_once_for_all_pages_and_shows_how_far_it_is(browser: Browser) -> None:
    node = CasesInMemory()
    node.told = {"mdns": ("warn", "nobody is heard"), "links": ("fail", "none of 1 linked")}
    node.hold = asyncio.Event()
    with Served(node) as served, visiting(browser, served) as (page, _):
        for _each in range(5):
            page.goto(served.origin + "/doctor")
        expect(page.locator(".progress")).to_contain_text(f"0 of {len(NAMES)}, looking at home")
        page.get_by_role("button", name="Run all checks again").click()
        expect(page.locator("#said")).to_contain_text("Checks are being made already")
        assert node.looked_at == [["home"]]
        served.do(release(node))
        expect(page.locator(".summary")).to_have_text(f"{len(NAMES)} checks: 1 fail, 1 warn, {len(NAMES) - 2} pass.")
        assert node.looked_at == [[name] for name in NAMES]
        expect(page.locator(".check h3").first).to_have_text("links")
        expect(page.locator(".check h3").nth(1)).to_have_text("mdns")
        expect(page.get_by_role("link", name="See Mesh")).to_be_visible()
        node.told["mdns"] = ("pass", "heard")
        again = page.get_by_role("button", name="Run the check mdns again")
        again.press("Enter")
        expect(page.locator(".summary")).to_have_text(f"{len(NAMES)} checks: 1 fail, 0 warn, {len(NAMES) - 1} pass.")
        expect(again).to_be_focused()
        assert node.looked_at[len(NAMES) :] == [["mdns"]]


async def release(node: CasesInMemory) -> None:
    assert node.hold is not None
    node.hold.set()


def test_a_page_whose_session_is_over_says_so_and_connects_no_more(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "ALIVE_S", 0.1)
    clock = [0.0]
    with Served(CasesInMemory(), clock=lambda: clock[0]) as served, visiting(browser, served) as (page, watch):
        expect(page.locator(".state")).to_have_text("1 of 1 linked, level")
        watch.expects_loss = True
        clock[0] += SESSION_IDLE_S
        expect(page.get_by_role("alert")).to_contain_text(
            "This session has ended: run meshnode --home /home/ada/mesh dashboard again."
        )
        page.get_by_role("button", name="Request sync from every member").click()
        expect(page.locator("#said")).to_have_text("This session has ended: run meshnode dashboard again.")
        assert violations(page) == []
