"""The dialing plan explains itself: of every target why it is dialed at the moment, or is not (profile §11)."""

from __future__ import annotations

import pytest

from meshnode.errors import CloseCode
from meshnode.limits import ADDRESSES_PER_SITE
from meshnode.net.addresses import Address
from meshnode.node.dialing import DialPlan
from meshnode.node.dialreason import Dialing, DialReason
from meshnode.node.dialtarget import Attempt, DialPolicy, Target

SMALL, OWN, LARGE, OTHER = b"\x01" * 16, b"\x02" * 16, b"\x03" * 16, b"\x04" * 16
HERE, THERE = Address("10.0.0.1", 4747), Address("10.0.0.2", 4747)
POLICY = DialPolicy()


def plan_of(*members: bytes, **options: int) -> DialPlan:
    """A plan that draws the longest pause each time."""
    plan = DialPlan(OWN, lambda: 1.0, POLICY, **options)
    plan.members(members, 0.0)
    return plan


def begin(plan: DialPlan, now: float) -> Attempt:
    (attempt,) = plan.due(now)
    return attempt


def test_without_an_address_that_is_the_reason() -> None:
    plan = plan_of(LARGE)
    assert plan.explain(LARGE, 0.0).state is Dialing.NO_ADDRESS
    plan.seen(LARGE, b"", [HERE], 0.0)
    plan.gone(LARGE)
    assert plan.explain(LARGE, 0.0).state is Dialing.NO_ADDRESS


def test_the_larger_site_yields_to_the_smaller_and_says_so() -> None:
    plan = plan_of(SMALL)
    plan.seen(SMALL, b"", [HERE], 10.0)
    assert plan.explain(SMALL, 10.1) == DialReason(Dialing.YIELDING, pytest.approx(0.4), 0, "", (HERE,))
    plan.failed(begin(plan, 10.5), 10.6, why="no answer")
    assert plan.explain(SMALL, 10.6).state is Dialing.WAITING
    plan.again(SMALL, 20.0)
    assert plan.explain(SMALL, 20.0).state is Dialing.YIELDING
    plan.network_changed(20.0)
    assert plan.explain(SMALL, 20.0).state is Dialing.WAITING


def test_a_failure_is_told_with_how_often_when_next_and_the_last_error() -> None:
    plan = plan_of(LARGE)
    plan.seen(LARGE, b"", [HERE], 0.0)
    plan.failed(begin(plan, 0.0), 0.0, why="first")
    attempt = begin(plan, 1.0)
    assert plan.explain(LARGE, 1.0).state is Dialing.DIALING
    plan.failed(attempt, 2.0, CloseCode.NOT_A_MEMBER, why="refused: not a member")
    told = plan.explain(LARGE, 12.0)
    assert told == DialReason(Dialing.WAITING, 2 * POLICY.lasting_s - 10.0, 2, "refused: not a member", (HERE,))
    assert plan.explain(LARGE, 1000.0) == DialReason(Dialing.QUEUED, 0.0, 2, "refused: not a member", (HERE,))


def test_a_link_is_the_reason_whoever_made_it_and_its_end_is_told() -> None:
    plan = plan_of(LARGE)
    plan.linked(LARGE, 0.0)
    assert plan.explain(LARGE, 0.0).state is Dialing.LINKED
    plan.came_from(LARGE, HERE)
    plan.unlinked(LARGE, 5.0, CloseCode.LIMIT, "the last link ended: too many peers")
    told = plan.explain(LARGE, 5.0)
    assert (told.state, told.failures, told.error) == (Dialing.WAITING, 1, "the last link ended: too many peers")


def test_an_address_where_another_site_answered_is_told_until_it_is_the_right_one_again() -> None:
    plan = plan_of(LARGE)
    plan.seen(LARGE, b"", [HERE, THERE], 0.0)
    attempt = begin(plan, 0.0)
    plan.passed_over(attempt, HERE, OTHER)
    assert plan.explain(LARGE, 0.0).elsewhere == ((HERE, OTHER),)
    plan.succeeded(attempt, THERE, LARGE, 1.0)
    assert plan.explain(LARGE, 1.0).elsewhere == ((HERE, OTHER),)
    plan.succeeded(begin(plan, 100.0), HERE, LARGE, 100.0)
    assert plan.explain(LARGE, 100.0).elsewhere == ()


def test_addresses_that_are_tried_no_more_are_not_kept() -> None:
    target = Target()
    for turn in range(40):
        target.seen = tuple(Address(f"10.{turn}.0.{each}", 1) for each in range(ADDRESSES_PER_SITE))
        for address in target.addresses():
            target.was_elsewhere(address, OTHER)
        assert target.elsewhere == dict.fromkeys(target.seen, OTHER)


def test_who_is_no_member_is_no_target_and_may_still_be_linked() -> None:
    plan = plan_of(LARGE)
    assert plan.explain(OTHER, 0.0).state is Dialing.NO_TARGET
    plan.linked(OTHER, 0.0)
    assert plan.explain(OTHER, 0.0).state is Dialing.LINKED


def test_as_many_attempts_as_are_made_at_once_leave_the_others_in_a_queue() -> None:
    sites = [b"\xff" + number.to_bytes(15, "big") for number in range(POLICY.at_once + 1)]
    plan = plan_of(*sites)
    for order, site in enumerate(sites):
        plan.seen(site, b"", [Address(f"10.0.1.{order}", 1)], float(order))
    plan.due(100.0)
    assert plan.explain(sites[0], 100.0).state is Dialing.DIALING
    assert plan.explain(sites[-1], 100.0).state is Dialing.QUEUED


def test_where_links_are_scarce_a_farther_member_is_told_why() -> None:
    sites = [bytes([2, number]) + bytes(14) for number in range(1, 7)]
    plan = plan_of(*sites, max_links=2)
    for site in sites:
        plan.remembered(site, [Address(f"10.0.2.{site[1]}", 1)], 0.0)
    for neighbour in sites[1:3]:  # own is between the two
        plan.linked(neighbour, 0.0)
    assert plan.explain(sites[4], 1.0).state is Dialing.NO_PLACE
    plan.unlinked(sites[2], 1.0)
    assert plan.explain(sites[4], 1.0).state is Dialing.QUEUED


def test_an_address_given_by_the_operator_is_explained_too() -> None:
    plan = plan_of(LARGE)
    plan.static([HERE], 0.0)
    plan.remembered(LARGE, [HERE], 0.0)
    attempt, *_ = plan.due(0.0)
    other = LARGE if isinstance(attempt.target, Address) else HERE
    assert plan.explain(attempt.target, 0.0).state is Dialing.DIALING
    assert plan.explain(other, 0.0).state is Dialing.DOUBLED
    assert (set(plan.reasons(0.0)), plan.owners) == ({HERE, LARGE}, {})
    plan.succeeded(Attempt(HERE, None, (HERE,)), HERE, LARGE, 1.0)
    plan.linked(LARGE, 1.0)
    assert plan.owners == {HERE: LARGE}
    assert plan.explain(HERE, 1.0).state is Dialing.LINKED


def test_an_address_of_this_very_node_is_dialed_no_more_until_the_network_or_the_settings_change() -> None:
    plan = plan_of()
    plan.static([HERE], 0.0)
    plan.failed(begin(plan, 0.0), 0.0, CloseCode.DUPLICATE, OWN, "that address is this node itself")
    assert (plan.explain(HERE, 9.0).state, plan.due(9.0), plan.next_due()) == (Dialing.OWN, [], None)
    plan.network_changed(10.0)
    plan.failed(begin(plan, 20.0), 20.0, CloseCode.DUPLICATE, OWN)
    assert plan.due(30.0) == []
    plan.static([HERE, THERE], 40.0)
    assert {attempt.target for attempt in plan.due(41.0)} == {HERE, THERE}


def test_a_twin_of_this_node_is_not_this_very_node() -> None:
    plan = plan_of()
    plan.static([HERE], 0.0)
    plan.failed(begin(plan, 0.0), 0.0, CloseCode.TWIN, OWN)
    assert plan.explain(HERE, 1.0).state is Dialing.WAITING


def test_a_single_link_gives_way_to_nobody_so_that_nobody_is_dialed_beside_it() -> None:
    plan = plan_of(SMALL, LARGE, max_links=1)
    plan.linked(SMALL, 0.0)
    plan.remembered(LARGE, [HERE], 0.0)
    plan.static([THERE], 0.0)
    assert (plan.due(60.0), plan.next_due()) == ([], None)
    assert {plan.explain(name, 60.0).state for name in (LARGE, THERE)} == {Dialing.NO_PLACE}
    plan.unlinked(SMALL, 60.0)
    assert plan.due(61.0)


def test_our_own_limit_is_no_failure_and_that_of_another_is_one() -> None:
    plan = plan_of(SMALL, LARGE, max_links=1)
    plan.seen(LARGE, b"", [HERE], 0.0)
    plan.failed(begin(plan, 0.0), 1.0, CloseCode.LIMIT, LARGE, "full", ours=True)
    told = plan.explain(LARGE, 1.0)
    assert (told.state, told.failures, told.error, told.in_s) == (Dialing.WAITING, 0, "", POLICY.settled_s)
    plan.linked(LARGE, 20.0)
    plan.unlinked(LARGE, 21.0, CloseCode.LIMIT, "nearer members need the place", ours=True)
    assert (plan.explain(LARGE, 21.0).failures, plan.explain(LARGE, 21.0).error) == (0, "")
    plan.failed(begin(plan, 31.0), 31.0, CloseCode.LIMIT, LARGE, "full")
    assert (plan.explain(LARGE, 31.0).failures, plan.explain(LARGE, 31.0).error) == (1, "full")
