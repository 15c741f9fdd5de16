"""The dialing plan as pure decisions: whom, where and when, without a storm and without giving up (profile §11)."""

from __future__ import annotations

import random
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.errors import CloseCode
from meshnode.limits import ADDRESSES_PER_SITE
from meshnode.net.addresses import Address
from meshnode.node.dialing import DialPlan
from meshnode.node.dialreason import Dialing
from meshnode.node.dialtarget import LASTING, Attempt, DialPolicy

SMALL, OWN, LARGE = b"\x01" * 16, b"\x02" * 16, b"\x03" * 16
HERE, THERE = Address("10.0.0.1", 4747), Address("10.0.0.2", 4747)
POLICY = DialPolicy()


def plan_of(*members: bytes, draw: float = 1.0) -> DialPlan:
    plan = DialPlan(OWN, lambda: draw)
    plan.members([OWN, *members], 0.0)
    return plan


def fail(plan: DialPlan, now: float, code: CloseCode | None = None) -> float:
    """Dial what is due at `now`, let it fail, and return how long the plan then waits."""
    (attempt,) = plan.due(now)
    plan.failed(attempt, now, code)
    due = plan.next_due()
    assert due is not None
    return due - now


def test_a_sighting_of_a_larger_site_is_dialed_at_once_and_of_a_smaller_one_a_little_later() -> None:
    plan = plan_of(SMALL, LARGE)
    plan.seen(LARGE, b"boot", [HERE], 5.0)
    plan.seen(SMALL, b"boot", [THERE], 5.0)
    assert plan.due(5.0) == [Attempt(LARGE, LARGE, (HERE,))]
    assert plan.next_due() == 5.0 + POLICY.yield_s
    assert plan.due(5.0 + POLICY.yield_s) == [Attempt(SMALL, SMALL, (THERE,))]


def test_nobody_is_dialed_who_is_no_member_or_is_ourself_or_has_no_address() -> None:
    plan = plan_of(LARGE)
    plan.seen(SMALL, b"", [HERE], 0.0)
    plan.seen(OWN, b"", [HERE], 0.0)
    assert plan.due(100.0) == []
    assert plan.next_due() is None


def test_a_site_that_is_linked_or_being_dialed_is_left_alone() -> None:
    plan = plan_of(LARGE)
    plan.seen(LARGE, b"", [HERE], 0.0)
    (attempt,) = plan.due(0.0)
    assert plan.due(1000.0) == []
    plan.succeeded(attempt, HERE, LARGE, 1.0)
    plan.linked(LARGE, 1.0)
    assert plan.due(1000.0) == []
    assert plan.next_due() is None


def test_a_link_that_does_not_answer_is_dialed_beside_and_left_alone_once_it_does() -> None:
    plan = plan_of(LARGE)
    plan.remembered(LARGE, [HERE], 0.0)
    plan.doubted(LARGE, 0.0)  # without a link there is nothing to doubt
    plan.linked(LARGE, 0.0)
    assert plan.due(10.0) == []
    plan.doubted(LARGE, 10.0)
    plan.doubted(LARGE, 10.0)
    (attempt,) = plan.due(10.0)
    plan.failed(attempt, 10.5)
    assert plan.due(10.5 + POLICY.base_s) != [], "as long as the doubt stands, with pauses as ever"
    plan.trusted(LARGE)
    assert plan.next_due() is None


@pytest.mark.parametrize("became", ["linked", "unlinked"])
def test_a_doubt_is_about_one_link(became: str) -> None:
    plan = plan_of(LARGE)
    plan.remembered(LARGE, [HERE], 0.0)
    plan.linked(LARGE, 0.0)
    plan.doubted(LARGE, 10.0)
    if became == "linked":
        plan.linked(LARGE, 11.0)
    else:
        plan.unlinked(LARGE, 11.0)
        plan.linked(LARGE, 12.0)
    assert plan.due(100.0) == []


@pytest.mark.parametrize("news", ["doubt", "network", "address"])
def test_news_does_not_wait_for_an_attempt_where_nobody_is(news: str) -> None:
    plan = plan_of(LARGE, draw=0.0)
    plan.remembered(LARGE, [HERE], 0.0)
    (old,) = plan.due(0.0)
    plan.linked(LARGE, 1.0) if news == "doubt" else None

    def tell(now: float) -> None:
        if news == "doubt":
            plan.doubted(LARGE, now)
        elif news == "network":
            plan.network_changed(now)
        else:
            plan.seen(LARGE, b"boot", [THERE], now)

    tell(2.0)
    (new,) = plan.due(2.0)
    assert new is not old
    tell(3.0)
    assert plan.due(5.0) == [], "two at most"
    plan.failed(old, 6.0, CloseCode.NOT_A_MEMBER)
    assert plan.due(1000.0) == [], "which says nothing about the other"
    plan.failed(new, 7.0)
    assert len(plan.due(7.0)) == 1


def test_a_static_address_that_answered_as_a_member_is_not_dialed_a_second_time() -> None:
    plan = plan_of(LARGE)
    plan.static([HERE], 0.0)
    plan.remembered(LARGE, [HERE], 0.0)
    attempts = {attempt.target: attempt for attempt in plan.due(0.0)}
    assert len(attempts) == 1, "the other would be a second link to the same site"
    (attempt,) = attempts.values()
    plan.succeeded(attempt, HERE, LARGE, 0.1)
    plan.linked(LARGE, 0.1)
    assert plan.due(1000.0) == []
    assert plan.next_due() is None


def test_a_static_address_is_not_dialed_a_second_time_where_the_member_was_dialed_first() -> None:
    plan = plan_of(LARGE)
    plan.remembered(LARGE, [HERE], 0.0)
    (attempt,) = plan.due(1.0)
    plan.static([HERE], 1.0)
    plan.succeeded(attempt, HERE, LARGE, 1.1)
    plan.linked(LARGE, 1.1)
    assert plan.due(1000.0) == []


def test_an_address_that_is_not_given_any_more_is_forgotten_whatever_becomes_of_its_attempt() -> None:
    plan = plan_of(LARGE)
    plan.static([HERE, THERE], 0.0)
    attempts = plan.due(0.0)
    plan.static([THERE], 0.1)
    for attempt in attempts:
        plan.succeeded(attempt, attempt.addresses[0], LARGE, 0.2)
    assert plan.owners == {THERE: LARGE}
    plan.static([], 0.3)
    assert (plan.owners, [name for name in plan.reasons(0.3) if isinstance(name, Address)]) == ({}, [])
    plan.static([HERE], 1.0)
    (attempt,) = plan.due(1.0)
    plan.static([], 1.1)
    plan.failed(attempt, 1.2, CloseCode.NOT_A_MEMBER, LARGE)
    assert plan.owners == {}


def test_a_link_that_was_gone_before_anyone_noticed_is_dialed_again() -> None:
    plan = plan_of(LARGE)
    plan.seen(LARGE, b"", [HERE], 0.0)
    (attempt,) = plan.due(0.0)
    plan.succeeded(attempt, HERE, LARGE, 1.0)
    assert plan.due(1.0 + POLICY.base_s) == []  # the greeting on a new link may take its time
    assert plan.due(1.0 + POLICY.settled_s) != []


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("linked", [False, True])
def test_a_link_that_is_to_be_made_again_is_so_whatever_is_told_of_it_later(linked: bool, static: bool) -> None:
    plan = plan_of(LARGE)
    if static:
        plan.static([HERE], 0.0)
    plan.remembered(LARGE, [HERE], 0.0)
    (attempt,) = plan.due(0.0)
    if linked:  # and over, before the dialer was told
        plan.linked(LARGE, 0.5)
        plan.unlinked(LARGE, 0.6, CloseCode.RETIRED)
    plan.again(LARGE, 0.6)
    if linked:
        plan.succeeded(attempt, HERE, LARGE, 0.7)
    else:
        plan.failed(attempt, 0.7, CloseCode.RETIRED, LARGE)
    (again,) = plan.due(POLICY.news_s)
    plan.failed(again, POLICY.news_s, CloseCode.RETIRED, LARGE)
    if not static:  # such an address is a target beside the site
        assert plan.due(POLICY.news_s + POLICY.lasting_s / 4) == [], "once, and then as after any refusal"


def test_a_refusal_right_after_the_handshake_keeps_its_long_pause() -> None:
    plan = plan_of(LARGE)
    plan.seen(LARGE, b"", [HERE], 0.0)
    (attempt,) = plan.due(0.0)
    plan.linked(LARGE, 1.0)
    plan.unlinked(LARGE, 1.1, CloseCode.NOT_A_MEMBER)  # before the dial had the time to report
    plan.succeeded(attempt, HERE, LARGE, 1.2)
    assert plan.next_due() == 1.1 + POLICY.lasting_s


def test_pauses_double_up_to_the_cap_and_the_draw_spreads_them() -> None:
    plan = plan_of(LARGE)
    plan.remembered(LARGE, [HERE], 0.0)
    waits, now = [], 0.0
    for _ in range(9):
        waits.append(fail(plan, now))
        now += waits[-1]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    half = plan_of(LARGE, draw=0.5)
    half.remembered(LARGE, [HERE], 0.0)
    assert fail(half, 0.0) == 0.5


def test_a_hundred_peers_that_lost_their_switch_do_not_come_back_at_once() -> None:
    source = random.Random(7)
    plan = DialPlan(OWN, source.random)
    sites = [b"\xff" + n.to_bytes(15, "big") for n in range(100)]
    plan.members(sites, 0.0)
    for site in sites:
        plan.remembered(site, [HERE], 0.0)
        plan.linked(site, 0.0)
    for site in sites:
        plan.unlinked(site, 1000.0)
    moments = []
    now = 1000.0
    while (due := plan.next_due()) is not None and due < 1002.0:
        now = max(now, due)
        for attempt in plan.due(now):
            moments.append(now)
            plan.failed(attempt, now + 100.0)
    assert len(moments) == 100
    assert max(sum(1 for other in moments if moment <= other < moment + 0.05) for moment in moments) < 20


@pytest.mark.parametrize("code", sorted(LASTING))
def test_a_refusal_that_lasts_waits_long_and_never_at_once(code: CloseCode) -> None:
    plan = plan_of(LARGE, draw=0.0)
    plan.remembered(LARGE, [HERE], 0.0)
    wait = fail(plan, 0.0, code)
    assert wait == POLICY.lasting_s / 2
    for now in range(1, 11):
        wait = fail(plan, now * 1000.0, code)
    assert wait == POLICY.lasting_cap_s / 2


@pytest.mark.parametrize("news", ["boot", "address", "network"])
def test_news_ends_a_long_pause(news: str) -> None:
    plan = plan_of(LARGE)
    plan.seen(LARGE, b"one", [HERE], 0.0)
    for now in (0.0, 1000.0, 2000.0, 3000.0):
        fail(plan, now, CloseCode.NOT_A_MEMBER)
    assert plan.due(3010.0) == []
    plan.seen(LARGE, b"one", [HERE], 3010.0)
    assert plan.due(3010.0) == []  # the same again is no news
    if news == "boot":
        plan.seen(LARGE, b"two", [HERE], 3010.0)
    elif news == "address":
        plan.seen(LARGE, b"one", [THERE, HERE], 3010.0)
    else:
        plan.network_changed(3009.0)
    assert plan.due(3010.0) != []
    assert plan.next_due() is None


def test_a_stream_of_news_does_not_make_a_stream_of_attempts() -> None:
    plan = plan_of(LARGE)
    attempts = 0
    for step in range(1000):
        now = step / 100
        plan.seen(LARGE, b"%d" % step, [HERE], now)
        for attempt in plan.due(now):
            attempts += 1
            plan.failed(attempt, now)
    assert attempts <= 10 / POLICY.news_s + 1


def test_a_link_that_keeps_ending_early_is_dialed_less_and_less() -> None:
    plan = plan_of(LARGE)
    plan.seen(LARGE, b"", [HERE], 0.0)
    now, waits = 0.0, []
    for _ in range(4):
        (attempt,) = plan.due(now)
        plan.linked(LARGE, now)
        plan.succeeded(attempt, HERE, LARGE, now)
        plan.unlinked(LARGE, now + 0.1, CloseCode.PROTOCOL_ERROR)
        due = plan.next_due()
        assert due is not None
        waits.append(round(due - now - 0.1))
        now = due
    assert waits == [1, 2, 4, 8]
    plan.linked(LARGE, now)
    plan.unlinked(LARGE, now + POLICY.settled_s + 1)
    assert plan.next_due() == now + POLICY.settled_s + 1 + POLICY.base_s


def test_a_duplicate_counts_as_no_failure() -> None:
    plan = plan_of(LARGE)
    plan.seen(LARGE, b"", [HERE], 0.0)
    assert [fail(plan, now, CloseCode.DUPLICATE) for now in (0.0, 10.0, 20.0, 30.0)] == [1.0] * 4


def test_a_static_peer_is_dialed_until_it_is_a_linked_member() -> None:
    plan = plan_of()
    plan.static([HERE], 0.0)
    (attempt,) = plan.due(0.0)
    assert attempt == Attempt(HERE, None, (HERE,))
    plan.members([LARGE], 0.0)
    plan.linked(LARGE, 0.0)
    plan.succeeded(attempt, HERE, LARGE, 0.0)
    assert plan.due(1000.0) == []
    plan.unlinked(LARGE, 1000.0)
    (again,) = plan.due(1001.0)  # one of the two: two links to one site at once would only be decided between
    assert (again.target, again.addresses) == (HERE, (HERE,))
    plan.failed(again, 1001.0)
    assert {one.target for one in plan.due(1005.0)} == {LARGE}


def test_addresses_that_worked_come_first_and_all_kinds_are_tried_within_the_bound() -> None:
    plan = plan_of(LARGE)
    worked = [Address(f"10.1.0.{n}", 1) for n in range(30)]
    seen = [Address(f"10.2.0.{n}", 1) for n in range(30)]
    plan.remembered(LARGE, worked, 0.0)
    plan.seen(LARGE, b"", seen, 0.0)
    (attempt,) = plan.due(0.0)
    assert len(attempt.addresses) == ADDRESSES_PER_SITE
    assert attempt.addresses[:8] == tuple(worked[:8])
    assert attempt.addresses[8:] == tuple(seen[:8])
    plan.succeeded(attempt, seen[3], LARGE, 0.0)
    plan.gone(LARGE)
    (attempt,) = plan.due(10.0)
    assert attempt.addresses[0] == seen[3]
    assert not set(attempt.addresses) & set(seen[4:])


def test_what_mdns_says_of_a_leaver_ends_no_link_and_leaves_what_worked() -> None:
    plan = plan_of(LARGE)
    plan.seen(LARGE, b"", [HERE, THERE], 0.0)
    (attempt,) = plan.due(0.0)
    plan.linked(LARGE, 0.0)
    plan.succeeded(attempt, HERE, LARGE, 0.0)
    plan.gone(LARGE)
    assert plan.due(1000.0) == []  # linked it is, whatever was announced
    plan.unlinked(LARGE, 1000.0)
    assert [attempt.addresses for attempt in plan.due(1001.0)] == [(HERE,)]


def test_attempts_under_way_are_bounded_and_the_longest_waiting_go_first() -> None:
    plan = DialPlan(OWN, lambda: 1.0)
    sites = [b"\xff" + n.to_bytes(15, "big") for n in range(50)]
    plan.members(sites, 0.0)
    for order, site in enumerate(reversed(sites)):
        plan.seen(site, b"", [HERE], float(order))
    first = plan.due(100.0)
    assert [attempt.target for attempt in first] == list(reversed(sites))[: POLICY.at_once]
    assert plan.due(100.0) == []
    assert plan.next_due() is None
    plan.failed(first[0], 100.0)
    assert len(plan.due(100.0)) == 1


def test_a_site_that_is_no_member_any_more_is_forgotten() -> None:
    plan = plan_of(LARGE)
    plan.seen(LARGE, b"", [HERE], 0.0)
    (attempt,) = plan.due(0.0)
    plan.members([], 1.0)
    plan.failed(attempt, 2.0)
    assert plan.next_due() is None


@given(
    st.lists(
        st.tuples(st.sampled_from(["seen", "fail", "link", "unlink", "gone", "net"]), st.floats(0, 30)), max_size=60
    )
)
def test_whatever_happens_an_unlinked_member_with_an_address_is_dialed_again(steps: list[tuple[str, float]]) -> None:
    plan = plan_of(LARGE, draw=0.7)
    plan.remembered(LARGE, [HERE], 0.0)
    now = 0.0
    for step, wait in steps:
        now += wait
        for attempt in plan.due(now):
            plan.failed(attempt, now, CloseCode.NOT_A_MEMBER if step == "fail" else None)
        match step:
            case "seen":
                plan.seen(LARGE, str(now).encode(), [THERE], now)
            case "link":
                plan.linked(LARGE, now)
            case "unlink":
                plan.unlinked(LARGE, now)
            case "gone":
                plan.gone(LARGE)
            case "net":
                plan.network_changed(now)
    plan.unlinked(LARGE, now)
    assert plan.due(now + POLICY.lasting_cap_s) != []


def test_where_a_peer_dialed_from_it_can_be_dialed_too() -> None:
    plan = plan_of(LARGE)
    assert plan.next_due() is None
    plan.linked(LARGE, 0.0)
    plan.came_from(LARGE, HERE)
    plan.came_from(LARGE, HERE)
    plan.came_from(SMALL, HERE)  # no member
    assert plan.due(1.0) == []
    plan.unlinked(LARGE, 1.0)
    (attempt,) = plan.due(10.0)
    assert (attempt.expect_site, attempt.addresses) == (LARGE, (HERE,))


@pytest.mark.parametrize("sign", ["announced", "linked", "named"])
def test_members_that_are_away_keep_nobody_waiting_of_whom_there_is_a_sign(sign: str) -> None:
    """Each of them is dialed for 10 s in vain; with 40 that is half a minute until the turn of the last one."""
    away = [bytes([number]) * 16 for number in range(10, 50)]
    plan = plan_of(LARGE, *away, draw=0.0)
    for site in away:
        plan.remembered(site, [Address(f"10.1.0.{site[0]}", 4747)], 0.0)
    if sign == "linked":
        plan.remembered(LARGE, [HERE], 0.0)
        plan.linked(LARGE, 0.0)
    plan.network_changed(0.0)
    assert len(plan.due(1.0)) == POLICY.unheard_at_once
    assert plan.next_due() is None
    if sign == "announced":
        plan.seen(LARGE, b"boot", [HERE], 2.0)
    elif sign == "named":
        plan.static([HERE], 2.0)
    else:
        plan.doubted(LARGE, 2.0)
    assert plan.next_due() == 2.0
    assert [attempt.addresses for attempt in plan.due(2.0)] == [(HERE,)]
    assert plan.explain(away[-1], 2.0).state is Dialing.QUEUED


def test_what_is_due_of_a_whole_mesh_is_found_in_few_steps() -> None:
    """It is asked at all news, an announcement's too: steps with the square of the members would stop the loop."""
    sites = [bytes([number]) * 16 for number in range(256)]
    plan = DialPlan(sites[128], lambda: 0.5, max_links=64)
    plan.members(sites, 0.0)
    for number, site in enumerate(sites):
        plan.seen(site, b"boot", [Address(f"10.0.0.{number}", 4747)], 0.0)
        if number % 5 == 0:
            plan.linked(site, 0.0)
    steps = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal steps
        steps += event == "call"

    sys.setprofile(count)
    try:
        assert plan.due(60.0)
        plan.next_due()
        plan.reasons(60.0)
    finally:
        sys.setprofile(None)
    assert steps < 200 * len(sites)
