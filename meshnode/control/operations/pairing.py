"""Letting devices in (profile §10)."""

from __future__ import annotations

from typing import Final

from meshnode.control import requests as asked
from meshnode.control.operation import Call
from meshnode.errors import ConfigError, IdentityError, MembershipError, NotFoundError, TransportError
from meshnode.node.api import Operations
from meshnode.node.pairing_views import CandidateView, InvitedView, InviteView, NearbyView, OpenInviteView


async def _invited(node: Operations, arguments: asked.Invited) -> InvitedView:
    timeout_s = min(arguments.timeout_s, asked.WAIT_SLICE_S)
    return await node.invited(arguments.id, seen=arguments.seen, timeout_s=timeout_s)


async def _nearby(node: Operations, arguments: asked.Nearby) -> NearbyView:
    return await node.nearby(seen=arguments.seen, timeout_s=min(arguments.timeout_s, asked.WAIT_SLICE_S))


INVITE: Final = Call(
    "invite",
    asked.Invite,
    InviteView,
    lambda node, a: node.invite(a.ttl_ms, confirm=a.confirm),
    raises=(MembershipError, IdentityError),
)
INVITED: Final = Call("invited", asked.Invited, InvitedView, _invited, waits=True)
INVITES: Final = Call("invites", asked.NoArguments, list[OpenInviteView], lambda node, _: node.invites(), reads=True)
WITHDRAW_INVITE: Final = Call(
    "withdraw-invite",
    asked.WithdrawInvite,
    OpenInviteView,
    lambda node, a: node.withdraw_invite(a.id),
    raises=(NotFoundError,),
)
DECIDE: Final = Call(
    "decide",
    asked.Decide,
    CandidateView,
    lambda node, a: node.decide(a.named, approve=a.approve),
    raises=(NotFoundError, MembershipError, IdentityError),
)
NEARBY_OPEN: Final = Call(
    "nearby-open",
    asked.NearbyOpen,
    NearbyView,
    lambda node, a: node.nearby_open(a.ttl_ms),
    raises=(MembershipError, IdentityError, ConfigError, TransportError),
)
NEARBY: Final = Call("nearby", asked.Nearby, NearbyView, _nearby, waits=True)
NEARBY_ANSWER: Final = Call(
    "nearby-answer",
    asked.NearbyAnswer,
    NearbyView,
    lambda node, a: node.nearby_answer(a.code, yes=a.yes),
    raises=(NotFoundError, MembershipError),
)
NEARBY_CLOSE: Final = Call("nearby-close", asked.NoArguments, NearbyView, lambda node, _: node.nearby_close())
