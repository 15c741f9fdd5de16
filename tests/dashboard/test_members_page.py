"""The members page in a real browser: who is in, letting devices in by an invite and by six digits, and retiring."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Browser, Page, expect
from support.crowd import Crowd, candidate, crowd
from support.dashboard import Served, overflows, peer, violations, visiting
from support.nodes import loopback

from meshnode import Node, join
from meshnode.control.web import live
from meshnode.node.nearby import Comparison
from meshnode.node.nearby_join import pair_nearby
from meshnode.node.pairing_views import InvitedView, NearbyView, OpenInviteView
from meshnode.node.storage import wall_ms

HOSTILE = "</bdi><script>document.title='owned'</script>\u202e{{ 7*7 }}'\"><img src=x onerror=alert(1)>" + "x" * 9000


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks follow each other sooner than people need them."""
    monkeypatch.setattr(live, "TICK_S", 0.1)
    monkeypatch.setattr(live, "APART_S", 0.1)


def told(page: Page) -> list[str]:
    """What the streams of a page are sent from now on."""
    heard: list[str] = []
    session = page.context.new_cdp_session(page)
    session.on("Network.eventSourceMessageReceived", lambda message: heard.append(message["data"]))
    session.send("Network.enable")
    return heard


def asks(node: Crowd, name: str = "phone") -> None:
    """Somebody holds an invite, and somebody else is nearby."""
    who = candidate(name)
    node.said["asking"] = [who]
    node.becomes = [InvitedView(state="asks", who=who)]
    node.near = NearbyView(state="asks", code="034917", who=who)


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (360, "dark"), (1600, "light"), (1600, "dark")])
def test_it_passes_the_audit_at_every_width_and_in_both_schemes(browser: Browser, width: int, scheme: str) -> None:
    node, options = crowd(6), {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    node.said["warnings"] = ["the recovery key still lies beside the node: move `/x` off this device"]
    with Served(node) as served, visiting(browser, served, **options) as (page, _):
        page.goto(f"{served.origin}/members?device={node.members_now[1].site}")
        page.get_by_text("Retire…").click()
        page.get_by_role("button", name="Make an invite").click()
        expect(page.get_by_role("img", name="QR code of the invite")).to_be_visible()
        asks(node)
        node.becomes.clear()  # that one holds another invite
        expect(page.get_by_role("heading", name="Let phone in?")).to_be_visible()
        expect(page.locator(".digits")).to_have_text("034 917")
        expect(page.locator("#invite-text")).to_be_visible()
        expect(page.locator("tbody tr")).to_have_count(7)
        assert violations(page) == []
        assert not overflows(page)
        page.evaluate("dispatchEvent(new Event('pagehide'))")  # a page that the browser keeps to go back to
        expect(page.locator("#invite-text")).to_have_count(0)


def test_a_device_joins_by_the_invite_of_the_page_which_nothing_else_has(
    browser: Browser, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    desk = Node(tmp_path / "desk", config=loopback(name="desk"))
    with (
        Served(desk) as served,
        visiting(browser, served, permissions=["clipboard-read", "clipboard-write"]) as (page, _),
        visiting(browser, served) as (other, _),
    ):
        heard = told(page), told(other)
        other.goto(f"{served.origin}/members")
        page.goto(f"{served.origin}/members")
        page.get_by_label("Ask me before it lets anybody in").check()
        expect(page.locator(".countdown")).to_have_count(0)
        page.get_by_role("button", name="Make an invite").press("Enter")
        text = page.locator("#invite-text").inner_text()
        page.get_by_role("button", name="Copy").click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == text
        expect(other.locator("#invites")).to_contain_text("asks you first, expires in 15 min")

        joining = served.begin(join(tmp_path / "lap", text, name="lap"))
        expect(page.get_by_role("heading", name="Let lap in?")).to_be_visible()
        expect(page.locator("nav .number-urgent")).to_have_text("1")
        expect(page.locator("#invite-text")).to_have_count(0)  # of no use to anybody else any more
        page.reload()
        page.get_by_role("button", name="Let in lap").click()
        joined = joining.result(20)
        expect(page.locator("#invites")).to_contain_text(f"lap {joined.short} joined by it")
        expect(page.locator("tbody tr", has_text=joined.short)).to_contain_text("let in, not seen yet")

        assert [each for told_of in heard for each in told_of if text in each] == []
        assert any(joined.short in each for each in heard[1])
        assert text not in page.content() + other.content() + page.url + caplog.text


def test_a_nearby_device_pairs_by_six_digits(browser: Browser, tmp_path: Path) -> None:
    desk, seen = Node(tmp_path / "desk", config=loopback(name="desk")), []

    async def look(comparison: Comparison) -> bool:
        seen.append(comparison.code)
        return True

    with Served(desk) as served, visiting(browser, served) as (page, _):
        page.goto(f"{served.origin}/members")
        page.get_by_role("button", name="Open to one nearby device").press("Enter")
        where = page.locator(".command").inner_text().removeprefix("meshnode pair ").strip()
        pairing = served.begin(pair_nearby(tmp_path / "lap", where, ask=look, name="lap"))
        expect(page.locator(".digits")).to_be_visible()
        page.reload()
        digits = page.locator(".digits").inner_text().replace(" ", "")
        page.get_by_role("button", name="Same digits: yes").press("Enter")
        joined = pairing.result(20)
        assert seen == [digits]
        expect(page.locator(".note-good", has_text=f"{joined.short} joined")).to_be_visible()
        expect(page.locator("tbody tr", has_text=joined.short)).to_be_visible()


def test_a_member_is_retired_by_keys_alone_and_whom_it_let_in_only_by_a_further_step(browser: Browser) -> None:
    node = crowd(3)
    node.company = ("phone (3c6f239b)",)
    lap = node.members_now[1]
    with Served(node) as served, visiting(browser, served) as (page, _):
        page.goto(f"{served.origin}/members")
        tab_to(page, "Manage lap")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="lap")).to_be_visible()
        tab_to(page, "Retire…")
        page.keyboard.press("Enter")
        expect(page.get_by_text("lap will be out for good.")).to_be_visible()
        tab_to(page, "Retire lap")
        page.keyboard.press("Enter")
        expect(page.locator("#said")).to_contain_text("phone (3c6f239b) would be out")
        assert (node.signed, violations(page)) == ([], [])
        page.get_by_role("button", name="Retire it and whom it let in").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#said")).to_have_text("lap (00003039) is retired. With it went phone (3c6f239b).")
        expect(page.locator(f"#member-{lap.site}")).to_contain_text("retired")
        expect(page.locator(".device")).to_contain_text("A retired device stays retired")
        assert node.signed == [("retirement", lap.site)]


def tab_to(page: Page, name: str) -> None:
    """As somebody without a mouse gets there."""
    said = "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent.trim()"
    for _ in range(60):
        if page.evaluate(said) == name:
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"no key leads to {name}")


def test_roles_words_and_answers_are_given(browser: Browser) -> None:
    node = crowd(3)
    nas = node.members_now[2]
    with Served(node) as served, visiting(browser, served) as (page, _):
        page.goto(f"{served.origin}/members?device={nas.site}")
        page.get_by_label("reader").check()
        page.get_by_role("button", name="Set role").click()
        expect(page.locator("#said")).to_have_text("nas (9e37a9ea) is a reader from now on.")
        page.get_by_role("button", name="Vouch again").click()
        expect(page.locator("#said")).to_have_text("nas (9e37a9ea) is in by the word of this device.")
        page.get_by_text("Let one in again").click()
        page.get_by_role("textbox", name="Device").fill("ab" * 32)
        page.get_by_role("textbox", name="Name").fill("attic")
        asks(node)
        expect(page.locator(".digits")).to_be_visible()
        expect(page.get_by_role("textbox", name="Name")).to_have_value("attic")
        page.get_by_role("button", name="Vouch", exact=True).click()
        expect(page.locator("#said")).to_contain_text("is in by the word of this device.")
        page.get_by_role("button", name="Same digits: no").click()
        expect(page.get_by_text("Nobody joined: declined here")).to_be_visible()
        page.get_by_role("button", name="Open again").press("Enter")
        expect(page.get_by_role("button", name="Close", exact=True)).to_be_focused()
        page.get_by_role("button", name="Close", exact=True).press("Enter")
        expect(page.locator("#said")).to_have_text("This device is not open to nearby ones any more.")
        page.get_by_role("button", name="Deny phone").click()
        expect(page.get_by_role("heading", name="Let phone in?")).to_have_count(0)
        assert node.signed == [("role", nas.site, "reader"), ("vouch", nas.site, ""), ("vouch", "ab" * 32, "attic")]
        assert node.becomes[0].state == "denied"


def test_who_is_no_authority_is_told_why_and_where(browser: Browser) -> None:
    node = Crowd([peer(0), peer(1)], own={"role": "reader", "seniority": None})
    node.members_now[1] = msgspec.structs.replace(node.members_now[1], role="authority", seniority=1)
    with Served(node) as served, visiting(browser, served) as (page, _):
        page.goto(f"{served.origin}/members?device={node.members_now[2].site}")
        why = "This device is a reader: letting others in, roles and retiring are for authorities. Do it on lap."
        expect(page.get_by_text(why)).to_have_count(2)
        assert page.locator("main form").count() == 0


def test_hostile_names_are_shown_and_nothing_else(browser: Browser) -> None:
    node = Crowd([peer(0, name=HOSTILE), peer(1, name=HOSTILE)])
    asks(node, HOSTILE)
    node.members_now = [msgspec.structs.replace(each, by=HOSTILE, since_ms=2**63) for each in node.members_now]
    with Served(node) as served, visiting(browser, served, viewport={"width": 360, "height": 900}) as (page, _):
        page.goto(f"{served.origin}/members?device={node.members_now[1].site}")
        expect(page.get_by_role("heading", name="Let </bdi><script>")).to_be_visible()
        page.get_by_role("button", name="Let in </bdi>").click()
        expect(page.locator("#said")).to_contain_text("</bdi><script>document.title=")
        expect(page.locator("#said")).to_contain_text("is a member now.")
        assert page.title() == "Members · desk · meshnode"
        assert page.locator("main script, main img, main [onerror]").count() == 0
        assert not overflows(page)


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "none"])
def test_an_invite_is_taken_back_and_of_two_pages_the_second_is_told(browser: Browser, scripts: bool) -> None:
    node = crowd(1)
    elsewhere = OpenInviteView(id="ee" * 8, expires_ms=wall_ms() + 3_600_000, who=candidate("phone"))
    node.open_invites.append(elsewhere)
    options: dict[str, Any] = {"java_script_enabled": scripts}
    with (
        Served(node) as served,
        visiting(browser, served, **options) as (page, _),
        visiting(browser, served, java_script_enabled=False) as (other, late),
    ):
        page.goto(f"{served.origin}/members")
        page.get_by_role("button", name="Make an invite").click()
        expect(page.locator("#invite-text")).to_be_visible()
        if not scripts:
            page.get_by_role("link", name="Back").click()
        other.goto(f"{served.origin}/members")
        expect(page.locator(f"#invite-{elsewhere.id}")).to_contain_text("waits for your answer")
        for tab in (page, other):
            tab.locator(f"#invite-{'01' * 8} summary").click()
        assert not scripts or violations(page) == []
        page.get_by_role("button", name="Withdraw it").locator("visible=true").click()
        expect(page.get_by_text("The invite 01010101 is withdrawn: nobody comes in by it.")).to_be_visible()
        if not scripts:
            page.get_by_role("link", name="Back").click()
        expect(page.locator(f"#invite-{'01' * 8}")).to_contain_text("withdrawn")
        expect(page.locator("#invite-text")).to_have_count(0)
        other.get_by_role("button", name="Withdraw it").locator("visible=true").click()
        expect(other.get_by_text(f"no invite {'01' * 8} is open here")).to_be_visible()
        late.wrong = [text for text in late.wrong if "404" not in text]  # the answer to what is over
        page.goto(f"{served.origin}/members")
        page.locator(f"#invite-{elsewhere.id} summary").click()
        page.get_by_role("button", name="Withdraw it").locator("visible=true").click()
        expect(page.get_by_text("phone (")).to_contain_text("who asked, was not let in")
        assert node.open_invites == []


def test_it_works_without_scripts_and_shows_an_invite_once(browser: Browser) -> None:
    node = crowd(1)
    node.company = ("nas (9e37a9ea)",)
    node.near = NearbyView(state="open", until_ms=wall_ms() + 65_500, addresses=["192.0.2.1:9"], announced="off")
    options: dict[str, Any] = {"java_script_enabled": False}
    with Served(node) as served, visiting(browser, served, **options) as (page, _):
        page.goto(f"{served.origin}/members")
        expect(page.locator(".countdown")).to_have_text(re.compile(r"1:0\d"))
        expect(page.locator(".command")).to_have_text("meshnode pair 192.0.2.1:9")
        page.get_by_label("Valid for").select_option("1 hour")
        with page.expect_response("**/members/invite") as answer:
            page.get_by_role("button", name="Make an invite").click()
        assert answer.value.headers["cache-control"] == "no-store"
        expect(page.locator("#invite-text")).to_contain_text("meshnode-invite:1abc")
        expect(page.get_by_role("button", name="Copy")).to_have_count(0)
        page.get_by_role("link", name="Back").click()
        expect(page.locator("#invites")).to_contain_text("expires in 1 h")
        assert "meshnode-invite:" not in page.content()
        assert node.ttls == [(3_600_000, False)]
        page.get_by_role("link", name="Manage lap").click()
        page.get_by_text("Retire…").click()
        page.get_by_role("button", name="Retire lap").click()
        expect(page.get_by_role("heading", name="Others would be out too")).to_be_visible()
        page.get_by_role("button", name="Retire it and whom it let in").click()
        page.get_by_role("link", name="Back").click()
        expect(page.locator(".device")).to_contain_text("A retired device stays retired")


def test_fifty_members_are_one_small_page(browser: Browser) -> None:
    node = crowd(50)
    with Served(node) as served, visiting(browser, served) as (page, _):
        page.goto(f"{served.origin}/members")
        expect(page.locator("tbody tr")).to_have_count(51)
        assert len(page.content()) < 90_000
        page.get_by_role("link", name="Manage attic", exact=True).focus()
        node.members_now[1] = msgspec.structs.replace(node.members_now[1], linked=False)
        expect(page.locator("tbody tr").nth(1)).to_contain_text("not linked")
        expect(page.get_by_role("link", name="Manage attic", exact=True)).to_be_focused()
