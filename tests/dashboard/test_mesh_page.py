"""The mesh page in a real browser: looks, life, keys, and what peers may call themselves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from support.dashboard import MeshInMemory, Served, large_mesh, overflows, peer, violations, visiting
from support.nodes import COLUMNS, KEY, TABLE, loopback

from meshnode import Node
from meshnode.control.web import live
from meshnode.control.web.pages import PAGES

HOSTILE = (
    "<script>document.title='owned'</script>",
    "\u202egnihton\u202c <img src=x onerror=alert(1)>",
    "{{ 7*7 }}'\"><svg onload=alert(1)>" + "x" * 10_000,
)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks follow each other sooner than people need them."""
    monkeypatch.setattr(live, "TICK_S", 0.1)
    monkeypatch.setattr(live, "APART_S", 0.1)


@pytest.mark.parametrize(
    ("members", "width", "scheme"), [(3, 360, "light"), (3, 1600, "dark"), (50, 360, "dark"), (20, 1600, "light")]
)
def test_it_passes_the_audit_at_every_width_and_in_both_schemes(
    browser: Browser, members: int, width: int, scheme: str
) -> None:
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    with Served(large_mesh(members)) as served, visiting(browser, served, **options) as (page, _):
        expect(page.locator("tbody tr")).to_have_count(members)
        expect(page.locator("svg.picture:visible")).to_have_count(1)
        assert violations(page) == []
        assert not overflows(page)


@pytest.mark.usefixtures("quick")
def test_a_real_node_is_seen_to_change_without_a_reload(browser: Browser, tmp_path: Path) -> None:
    node = Node(tmp_path / "n", config=loopback(name="desk"))
    with Served(node) as served, visiting(browser, served) as (page, _):
        expect(page.locator(".node-name")).to_have_text("desk")
        expect(page.get_by_text("No other members yet", exact=True)).to_be_visible()
        page.evaluate("window.stayed = true")
        served.do(node.add_table(TABLE, KEY, COLUMNS))
        served.do(node.put(TABLE, {"id": "n1"}, {"title": "Milk"}))
        expect(page.locator(".facts div", has_text="Rows").locator("dd")).to_have_text("1")
        assert page.evaluate("window.stayed")


@pytest.mark.usefixtures("quick")
def test_links_come_and_go_before_ones_eyes_and_focus_stays(browser: Browser) -> None:
    node = MeshInMemory([peer(0), peer(1)])
    with Served(node) as served, visiting(browser, served) as (page, _):
        state = page.locator(".state")
        expect(state).to_have_text("2 of 2 linked, level")
        button = page.get_by_role("button", name="Request sync from lap")
        button.focus()
        node.changed(1, linked=False, opened_by_us=None)
        expect(state).to_have_text("1 of 2 linked")
        expect(page.get_by_role("row", name="nas")).to_contain_text("not linked")
        expect(button).to_be_focused()


def test_a_sync_is_requested_of_one_and_of_all_by_keys_alone(browser: Browser) -> None:
    node = MeshInMemory([peer(0), peer(1, linked=False)])
    with Served(node) as served, visiting(browser, served) as (page, _):
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        expect(page.get_by_role("button", name="Request sync from every member")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("#said")).to_have_text(
            "Asked 2 members for everything: 1 of them hears of it at the next link."
        )
        expect(page.get_by_role("button", name="Request sync from every member")).to_be_focused()
        page.get_by_role("button", name="Request sync from lap").press("Enter")
        expect(page.locator("#said")).to_have_text("Asked 1 member for everything.")
        assert node.asked == [None, peer(0).site]


def test_what_was_told_of_an_action_goes_after_a_while_and_what_is_needed_later_stays(browser: Browser) -> None:
    with Served(MeshInMemory([peer(0)])) as served, visiting(browser, served) as (page, _):
        page.clock.install()
        page.reload()
        page.get_by_role("button", name="Request sync from every member").click()
        expect(page.locator("#said")).to_have_text("Asked 1 member for everything.")
        page.mouse.move(0, 0)
        page.clock.fast_forward(19_000)
        expect(page.locator("#said")).to_have_text("Asked 1 member for everything.")
        page.clock.fast_forward(2_000)
        expect(page.locator("#said")).to_have_text("")


def test_a_retired_device_offers_no_sync_and_says_what_it_is(browser: Browser) -> None:
    node = MeshInMemory([peer(0, behind=7)], retired=True)
    with Served(node) as served, visiting(browser, served) as (page, _):
        expect(page.locator(".attention-bad")).to_contain_text("This device is retired")
        expect(page.get_by_role("row", name="lap")).to_contain_text("nothing")
        expect(page.get_by_text("7 events to send")).to_have_count(0)
        expect(page.get_by_role("button", name="Request sync")).to_have_count(0)


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1600, "light")])
def test_a_refusal_is_a_page_like_the_others(browser: Browser, width: int, scheme: str) -> None:
    with Served(MeshInMemory()) as served:
        context = browser.new_context(viewport={"width": width, "height": 600}, color_scheme=scheme)  # type: ignore[arg-type]
        page = context.new_page()
        for path in ("/", "/enter?token=x"):
            page.goto(served.origin + path)
            expect(page.locator("main")).to_contain_text("Open it with meshnode dashboard.")
            ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
            assert ground == ("rgb(14, 17, 22)" if scheme == "dark" else "rgb(245, 246, 248)")
            assert violations(page) == []
            assert not overflows(page)
        context.close()


def test_the_page_says_when_the_node_is_gone(browser: Browser) -> None:
    with Served(MeshInMemory([peer(0)])) as served, visiting(browser, served) as (page, watch):
        expect(page.locator(".state")).to_have_text("1 of 1 linked, level")
        expect(page.get_by_role("alert")).to_be_hidden()
        watch.expects_loss = True
        served.stop()
        expect(page.get_by_role("alert")).to_contain_text("Not connected to the node.")
        expect(page.get_by_role("alert")).to_contain_text(re.compile(r"What you see is from \d\d:\d\d:\d\d UTC\S*\."))
        assert violations(page) == []


def test_an_open_page_is_good_again_once_the_restarted_node_let_its_browser_in(browser: Browser) -> None:
    """The cookie from before opens nothing: whoever got the port meanwhile may have been sent it."""
    with Served(MeshInMemory([peer(0)])) as before, visiting(browser, before) as (page, watch):
        page.evaluate("window.stayed = true")
        watch.expects_loss = True
        port = int(before.origin.rpartition(":")[2])
        before.stop()
        with Served(MeshInMemory([peer(0), peer(1)]), port=port) as served:
            expect(page.get_by_role("alert")).to_contain_text(
                "This session has ended: run meshnode --home /home/ada/mesh dashboard again"
            )
            page.context.new_page().goto(served.way_in())
            page.evaluate("dispatchEvent(new Event('focus'))")
            expect(page.locator(".state")).to_have_text("2 of 2 linked, level")
            expect(page.get_by_role("alert")).to_be_hidden()
            assert not page.evaluate("window.stayed")


@pytest.mark.usefixtures("quick")
def test_a_page_that_nobody_looks_at_lets_its_stream_go_and_takes_it_up_again(browser: Browser) -> None:
    """A browser has six connections to one host: a seventh page would wait for ever."""
    node = MeshInMemory([peer(0)])
    with Served(node) as served, visiting(browser, served) as (page, watch):
        page.clock.install()
        page.reload()
        expect(page.locator(".state")).to_have_text("1 of 1 linked, level")
        look = "hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});"
        look += " document.dispatchEvent(new Event('visibilitychange')); }"
        with page.expect_event("requestfailed", lambda request: "/live" in request.url):
            page.evaluate(look, True)
            page.clock.fast_forward(21_000)
        expect(page.get_by_role("alert")).to_be_hidden()
        node.changed(0, linked=False)
        page.evaluate(look, False)
        expect(page.locator(".state")).to_have_text("none of 1 linked")
        expect(page.get_by_role("alert")).to_be_hidden()
        watch.wrong = [text for text in watch.wrong if "[object Event]" not in text]  # htmx tells of the end


@pytest.mark.usefixtures("quick")
def test_hostile_names_are_shown_and_nothing_else(browser: Browser) -> None:
    node = MeshInMemory([peer(at, name=name) for at, name in enumerate(HOSTILE)])
    with Served(node) as served, visiting(browser, served, viewport={"width": 360, "height": 900}) as (page, _):
        rows = page.locator("tbody tr")
        expect(rows.filter(has_text="<script>document.title=")).to_have_count(1)
        expect(rows.filter(has_text="\\u202egnihton\\u202c <img src=x")).to_have_count(1)
        expect(rows.filter(has_text="{{ 7*7 }}")).to_have_count(1)
        node.changed(0, behind=7)
        expect(rows.filter(has_text="7 events to send")).to_have_count(1)
        assert page.title() == "Mesh · desk · meshnode"
        assert page.locator("main script, main img, main [onload], main [onerror]").count() == 0
        assert len(page.content()) < 60_000
        assert not overflows(page)
        assert violations(page) == []


def test_every_page_is_reached_by_keys(browser: Browser) -> None:
    with Served(MeshInMemory([peer(0)])) as served, visiting(browser, served) as (page, _):
        for each in PAGES:
            page.keyboard.press("g")
            page.keyboard.press(each.key)
            expect(page.locator("h1")).to_have_text(each.title)
            expect(page.locator("nav.places [aria-current=page]")).to_have_text(each.title)
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_be_visible()
        assert violations(page) == []
        page.get_by_label("Leave letter keys alone").check()
        page.keyboard.press("Escape")
        page.keyboard.press("g")
        page.keyboard.press("m")
        expect(page.locator("h1")).to_have_text(PAGES[-1].title)


def test_the_theme_that_was_chosen_stays(browser: Browser) -> None:
    with Served(MeshInMemory()) as served, visiting(browser, served, color_scheme="light") as (page, _):
        theme = page.get_by_role("button", name="Theme")
        ground = "getComputedStyle(document.documentElement).backgroundColor"
        light = page.evaluate(ground)
        theme.click()
        theme.click()
        expect(theme).to_have_text("Theme: dark")
        dark = page.evaluate(ground)
        page.reload()
        assert (page.evaluate(ground), dark == light) == (dark, False)
