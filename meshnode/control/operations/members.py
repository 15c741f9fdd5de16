"""Who belongs to the mesh (profile §9)."""

from __future__ import annotations

from typing import Final

from meshnode.control import requests as asked
from meshnode.control.operation import Call
from meshnode.errors import ClockExhaustedError, IdentityError, LockedError, MembershipError, NotFoundError
from meshnode.node.api import LEAVE_S, Operations
from meshnode.node.memberviews import LeaveView, MemberView, RecordView

_SIGNING: Final = (NotFoundError, MembershipError, IdentityError, LockedError, ClockExhaustedError)


async def _leave(node: Operations, arguments: asked.Leave) -> LeaveView:
    return await node.leave(timeout_s=min(arguments.timeout_s, LEAVE_S))


MEMBERS: Final = Call("members", asked.NoArguments, list[MemberView], lambda node, _: node.members(), reads=True)
VOUCH: Final = Call(
    "vouch",
    asked.Vouch,
    RecordView,
    lambda node, a: node.vouch(a.subject, name=a.name, recovery=a.recovery, passphrase=a.passphrase),
    raises=_SIGNING,
)
SET_ROLE: Final = Call(
    "set-role",
    asked.SetRole,
    RecordView,
    lambda node, a: node.set_role(a.subject, a.role, recovery=a.recovery, passphrase=a.passphrase),
    raises=_SIGNING,
)
RETIRE: Final = Call(
    "retire",
    asked.Retire,
    RecordView,
    lambda node, a: node.retire(a.subject, at_ms=a.at_ms, alone=a.alone, recovery=a.recovery, passphrase=a.passphrase),
    raises=_SIGNING,
)
LEAVE: Final = Call("leave", asked.Leave, LeaveView, _leave, raises=_SIGNING, waits=True)
