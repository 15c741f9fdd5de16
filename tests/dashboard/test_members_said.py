"""What the members page says, as plain functions: how each device stands, why something cannot be done, the QR code."""

from __future__ import annotations

import re

import msgspec
import pytest
import segno
from support.crowd import Crowd, crowd, member
from support.dashboard import peer

from meshnode.control.web import roster
from meshnode.control.web.invites import KEPT, Invites
from meshnode.control.web.qr import QUIET, qr_of
from meshnode.control.web.texts import left
from meshnode.node.pairing_views import InvitedView


def test_a_path_draws_the_very_code() -> None:
    text = "meshnode-invite:" + "abcdefghijklmnop234567" * 12
    code = qr_of(text)
    drawn = [[0] * code.size for _ in range(code.size)]
    for x, y, width in re.findall(r"M(\d+) (\d+)h(\d+)v1h-\d+z", code.path):
        drawn[int(y)][int(x) : int(x) + int(width)] = [1] * int(width)
    assert drawn == [list(row) for row in segno.make(text.upper(), error="l").matrix_iter(border=QUIET)]


def test_every_device_stands_somehow() -> None:
    said = [roster.standing_of(each).text for each in crowd(5).members_now]
    assert said == ["this device", "linked", "linked", "let in, not seen yet", "not linked", "retired"]
    assert [roster.rank_of(each) for each in crowd(1).members_now] == ["most senior", "senior no. 2"]


def test_it_is_said_why_a_device_cannot_be_changed_here() -> None:
    desk, lap, nas = Crowd([peer(0), peer(1)]).members_now
    senior = msgspec.structs.replace(lap, role="authority", seniority=1)
    junior = msgspec.structs.replace(desk, seniority=2)
    assert roster.untouchable(nas, [desk, lap, nas]) == ""
    assert "it leaves the mesh by `meshnode leave`" in roster.untouchable(desk, [desk, lap, nas])
    assert "senior to this device" in roster.untouchable(senior, [senior, junior, nas])
    assert roster.untouchable(junior, [msgspec.structs.replace(desk, site="x", own=True), junior])
    assert "stays retired" in roster.untouchable(msgspec.structs.replace(nas, retired=True), [desk])


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ({"role": "reader"}, "This device is a reader"),
        ({"role": "authority", "retired": True}, "This device was retired"),
        ({"own": False}, "This device is no member"),
    ],
    ids=["reader", "retired", "out"],
)
def test_who_can_do_nothing_is_told_who_can(own: dict[str, object], why: str) -> None:
    desk, *others = Crowd([peer(number) for number in range(5)]).members_now
    desk = msgspec.structs.replace(desk, seniority=None, **own)
    assert roster.hindrance([desk, *others]).startswith(why)
    assert "`meshnode role SITE authority --recovery FILE`" in roster.hindrance([desk, *others])
    able = [msgspec.structs.replace(each, seniority=at) for at, each in enumerate(others, 1)]
    assert roster.hindrance([desk, *able]).endswith("Do it on lap, nas, phone and 2 more.")


def test_one_device_alone_with_the_say_is_lonely_where_it_is_this_one() -> None:
    desk, lap = Crowd([peer(0)]).members_now
    assert roster.lonely([desk, lap])
    assert not roster.lonely([desk])
    assert not roster.lonely([desk, msgspec.structs.replace(member(peer(0)), seniority=2)])


async def test_what_became_of_invites_is_kept_and_bounded() -> None:
    node, invites = Crowd(), Invites()
    for _ in range(KEPT + 3):
        invites.add(await node.invite())
    made = [each.id for each, _ in await invites.look(node)]
    assert (len(made), made[0]) == (KEPT, f"{KEPT + 3:02}" * 8)
    node.becomes = [InvitedView(state="joined")]
    await invites.look(node)
    node.becomes = [InvitedView(state="expired")]  # as the store says of one that it forgot
    assert {view.state for _, view in await invites.look(node)} == {"joined"}


def test_time_left() -> None:
    assert [left(ms, 0) for ms in (125_999, 9_000, -1)] == ["2:05", "0:09", "0:00"]
