"""The events page in a real browser: life, filters, standing still, one event, and an hour of writes at speed."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from support.dashboard import Served, overflows, violations, visiting
from support.nodes import loopback

from meshnode import Node
from meshnode.control.web import live
from meshnode.control.web.arrivals import Arrivals
from meshnode.control.web.pages.events import EVENTS
from meshnode.node.views import RowChange

FLOOD, BATCH = 3000, 250  # changes, and how many of them at once
NODES_PER_EVENT = 80  # of the DOM: cells, chips and texts
COUNT_NODES = "document.querySelectorAll('*').length"
SCRIPT = "<script>document.title='owned'</script>"
HEX = re.compile("^[0-9a-f]{64}$")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks follow each other sooner than people need them."""
    monkeypatch.setattr(live, "TICK_S", 0.2)
    monkeypatch.setattr(live, "APART_S", 0.1)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    node = Node(Path(tmp_path_factory.mktemp("events")) / "n", config=loopback(name="desk"))
    with Served(node) as found:
        for table in ("notes", "other"):
            found.do(node.add_table(table, {"id": "TEXT"}, {"title": "TEXT", "raw": "BLOB"}))
        rows = [RowChange(key={"id": f"n{at:03}"}, columns={"title": f"Milk {at}"}) for at in range(EVENTS + 20)]
        found.do(node.import_rows("notes", rows))
        found.do(node.put("other", {"id": SCRIPT}, {"title": f"{SCRIPT}\u202e\x00", "raw": b"\xff" * 20}))
        yield found


def go(page: Page, served: Served, path: str) -> None:
    page.goto(served.origin + path)
    page.wait_for_selector("h1")


@pytest.mark.usefixtures("quick")
def test_events_come_by_themselves_stand_still_and_go_on_by_keys_alone(browser: Browser, served: Served) -> None:
    with visiting(browser, served) as (page, _):
        page.keyboard.press("g")
        page.keyboard.press("e")
        rows = page.locator("#events tbody tr")
        expect(rows).to_have_count(EVENTS)
        served.do(served.node.put("notes", {"id": "fresh"}, {"title": "x"}))
        expect(rows.first).to_contain_text("fresh")
        page.locator("#pause").press("Enter")
        expect(page.locator("#resume")).to_be_visible()
        served.do(served.node.put("notes", {"id": "later"}, {"title": "x"}))
        expect(page.get_by_text("1 newer event")).to_be_visible()
        expect(rows.first).to_contain_text("fresh")
        page.locator("#pager-older").press("Enter")
        expect(rows.last).to_contain_text("n000")
        page.locator("#pager-newer").press("Enter")
        page.locator("#resume").press("Enter")
        expect(rows.first).to_contain_text("later")


def test_filters_stand_in_the_address(browser: Browser, served: Served) -> None:
    with visiting(browser, served) as (page, _):
        go(page, served, "/events")
        page.get_by_label("Table").select_option("other")
        page.get_by_label("Author").select_option(index=1)
        page.get_by_label("Verdict").select_option("applied")
        page.get_by_role("button", name="Filter").press("Enter")
        page.wait_for_url("**table=other**")
        expect(page.locator("#events tbody tr")).to_have_count(1)
        go(page, served, "/events?verdict=held")
        expect(page.get_by_text("No events here")).to_be_visible()


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1600, "dark")])
def test_one_event_with_all_there_is_of_it(browser: Browser, served: Served, width: int, scheme: str) -> None:
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    with visiting(browser, served, **options) as (page, _):
        go(page, served, "/events?table=other")
        assert violations(page) == []
        assert not overflows(page)
        page.locator("#events a").first.press("Enter")
        expect(page.locator("#written")).to_contain_text(SCRIPT + "\\u202e\\x00")
        expect(page.locator("dd code", has_text=HEX)).to_have_count(1)
        page.get_by_role("link", name="Verify signature").press("Enter")
        expect(page.get_by_text("Its signature verifies")).to_be_visible()
        page.locator("#bytes summary").click()
        expect(page.locator("#bytes pre")).to_contain_text("84 58")  # an array of four, and a byte string
        assert page.title() != "owned"
        assert page.locator("main script").count() == 0
        assert violations(page) == []
        assert not overflows(page)


def test_where_it_is_narrowest_nothing_leaves_its_card_and_no_name_is_broken(browser: Browser, served: Served) -> None:
    with visiting(browser, served, viewport={"width": 320, "height": 900}) as (page, _):
        go(page, served, "/events?table=other")
        name, when = page.locator("#events .site-name").first, page.locator("#events time").first
        assert name.evaluate("each => each.clientHeight < 2 * parseFloat(getComputedStyle(each).fontSize)")
        inside = "each => each.getBoundingClientRect().right <= each.closest('td').getBoundingClientRect().right"
        assert when.evaluate(inside)
        assert not overflows(page)


def test_a_page_that_stays_open_while_thousands_are_written_does_not_grow(browser: Browser, served: Served) -> None:
    """As an hour of writes, at speed: nodes of the DOM, bytes and messages of the stream, memory of the node."""
    node = served.node
    with visiting(browser, served) as (page, _):
        session = page.context.new_cdp_session(page)
        received: list[float] = []
        messages: list[int] = []
        session.on(
            "Network.eventSourceMessageReceived",
            lambda e: (
                (received.append(e["timestamp"]), messages.append(len(e["data"])))
                if e["eventName"] == "events"
                else None
            ),
        )
        session.send("Network.enable")
        go(page, served, "/events")
        expect(page.locator("#events tbody tr")).to_have_count(EVENTS)
        before = page.evaluate(COUNT_NODES)
        tracemalloc.start()
        held = []
        for first in range(0, FLOOD, BATCH):
            rows = [RowChange(key={"id": f"f{first + at:05}"}, columns={"title": "x"}) for at in range(BATCH)]
            served.do(node.import_rows("notes", rows))
            page.wait_for_timeout(10)
            held.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        expect(page.locator("#events tbody tr").first).to_contain_text(f"f{FLOOD - 1:05}")
        assert page.evaluate(COUNT_NODES) <= before + 20
        assert before < EVENTS * NODES_PER_EVENT
        expect(page.locator("#events tbody tr")).to_have_count(EVENTS)
        assert max(messages) < 150_000
        for early, late in zip(received, received[2:], strict=False):
            assert late - early > 2 * live.APART_S * 0.8  # two a second at most, as they arrive
        assert held[-1] - held[2] < 4_000_000


def test_arrivals_between_two_looks() -> None:
    arrivals = Arrivals()
    assert arrivals.look(500, 10.0) == 0  # whoever looks for the first time has seen nothing come
    assert arrivals.look(900, 10.1) == 0
    assert arrivals.look(1500, 10.5) == 1000
    assert arrivals.look(1500, 10.6) == 1000
    assert arrivals.look(1500, 11.1) == 0
    assert arrivals.look(9000, 99.0) == 0
