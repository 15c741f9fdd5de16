"""Pairing over a link: the state machines of `pairing` joined to streams, deadlines and close codes (profile §10)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, Literal, Protocol

from meshnode.engine.invites import Admission, Waiting
from meshnode.errors import CloseCode, MeshError, PairingError, ProtocolError, UnansweredError
from meshnode.limits import (
    CONFIRM_HOLD_S,
    FRAME_BYTES,
    HANDSHAKE_S,
    HELLO_BYTES,
    PAIRING_S,
    UNKNOWN_INVITES_PER_MINUTE,
)
from meshnode.model.invite import Invite
from meshnode.model.pairing import NONCE_BYTES, Ends, Proof
from meshnode.model.site import SiteKey
from meshnode.node.ceremony_frames import CeremonyFrames, LinkClosedError, PairingLink
from meshnode.node.pairing import REFUSED, SAID_NO, Claimed, Inviter, Joined, Joiner, Named

_REFUSAL = "pairing refused"  # one reason for every refusal with code 2: they look alike from outside
WAITING = "waiting for confirmation"  # the other reason with code 2, for who proved to hold the invite (profile §13)
DECLINED: Final = "declined"  # the one once that person said no
ASKED_S = 2.0  # seconds without an answer after which a joiner tells that a person may be asked
# How a link ends that can be made again at once.
_LOST = frozenset({None, CloseCode.DUPLICATE, CloseCode.LIMIT, CloseCode.SHUTTING_DOWN})
_LOOK_S = 1.0  # seconds between two looks whether a person has decided
_MINUTE_MS = 60_000
_FRAMES = 4  # frames taken from the other side; the ceremony has two each way


class Desk(Protocol):
    """The inviter's store; each call is one transaction on the writer."""

    async def refusal(self, invite_id: bytes, public_key: bytes) -> CloseCode | None:
        """Why a joiner may not try this invite, or None (`engine.invites.refusal`)."""

    async def settle(self, invite_id: bytes, proof: Proof, name: str) -> Admission | Waiting | CloseCode:
        """Check, consume and vouch at once (`engine.invites.settle`)."""

    async def decided(self, invite_id: bytes, seconds: float) -> bool:
        """Whether `settle` would say more than that a person is asked; waits for that at most so long."""


class UnknownInvites:
    """How many hellos were refused in the last minute, all strangers together; they burn nothing but our time."""

    def __init__(self, now_ms: Callable[[], int], per_minute: int = UNKNOWN_INVITES_PER_MINUTE) -> None:
        self._now_ms = now_ms
        self._per_minute = per_minute
        self._refused: deque[int] = deque()

    def may_answer(self) -> bool:
        """Count one refusal; False where it is not to be answered at once."""
        now = self._now_ms()
        while self._refused and not now - _MINUTE_MS < self._refused[0] <= now:
            self._refused.popleft()
        if len(self._refused) >= self._per_minute:
            return False
        self._refused.append(now)
        return True


def invite_over(
    link: PairingLink, ends: Ends, desk: Desk, *, name: str, nonce: bytes, unknown: UnknownInvites
) -> Coroutine[Any, Any, bytes | None]:
    """Listen at once; awaiting the result runs the inviter's side and returns the public key that was admitted.

    Call it while the link is handed over: a joiner's first frame may be there already. The link is closed at the end.
    """
    return _invite(link, CeremonyFrames(link, HELLO_BYTES, _FRAMES), ends, desk, name, nonce, unknown)


async def _invite(
    link: PairingLink,
    frames: CeremonyFrames,
    ends: Ends,
    desk: Desk,
    name: str,
    nonce: bytes,
    unknown: UnknownInvites,
) -> bytes | None:
    admitted: bytes | None = None
    code, reason = CloseCode.NOT_AUTHENTICATED, _REFUSAL
    try:
        async with asyncio.timeout(HANDSHAKE_S) as deadline:
            refused = await _admit(frames, Inviter(ends, nonce), desk, ends, name, unknown, deadline)
            if isinstance(refused, Waiting):
                reason = WAITING
            elif isinstance(refused, str):
                reason = refused
            elif refused is None:
                admitted = ends.joiner_public_key
                code, reason = CloseCode.DONE, ""
                await frames.next()  # the joiner closes; a further frame or silence is the end too
            else:
                code = refused
    except ProtocolError as error:
        code, reason = error.code, str(error)
    except MeshError:
        code, reason = CloseCode.INTERNAL, "internal error"
        raise
    except (LinkClosedError, TimeoutError):
        pass
    finally:
        link.close(code, reason)
    return admitted


async def _admit(
    frames: CeremonyFrames,
    inviter: Inviter,
    desk: Desk,
    ends: Ends,
    name: str,
    unknown: UnknownInvites,
    deadline: asyncio.Timeout,
) -> CloseCode | Waiting | Literal["declined"] | None:
    named = inviter.receive_untrusted(await frames.next())
    assert isinstance(named, Named)
    refused = await desk.refusal(named.invite_id, ends.joiner_public_key)
    if refused is not None:
        if refused is CloseCode.NOT_AUTHENTICATED and not unknown.may_answer():
            await frames.next()  # until the joiner gives up or the deadline comes: a guess costs its sender that long
        return refused
    frames.send(inviter.opened())
    claimed = inviter.receive_untrusted(await frames.next())
    assert isinstance(claimed, Claimed)
    answer = await desk.settle(claimed.invite_id, claimed.proof, claimed.name)
    if isinstance(answer, Waiting):
        until = asyncio.get_running_loop().time() + CONFIRM_HOLD_S
        deadline.reschedule(until + HANDSHAKE_S)
        if await _decided(frames, desk, claimed.invite_id, until):
            answer = await desk.settle(claimed.invite_id, claimed.proof, claimed.name)
            if answer is CloseCode.NOT_AUTHENTICATED:
                return DECLINED
    if not isinstance(answer, Admission):
        return answer
    frames.send(inviter.paired(answer.mac, answer.records, name))
    return None


async def _decided(frames: CeremonyFrames, desk: Desk, invite_id: bytes, until: float) -> bool:
    """Whether a person decided before `until`; the joiner, who has nothing to say meanwhile, may give up first."""
    clock = asyncio.get_running_loop().time
    said = asyncio.ensure_future(frames.next())
    looking: asyncio.Future[bool] | None = None
    try:
        while clock() < until:
            looking = asyncio.ensure_future(desk.decided(invite_id, min(_LOOK_S, until - clock())))
            await asyncio.wait({said, looking}, return_when=asyncio.FIRST_COMPLETED)
            if said.done():
                said.result()  # raises where the link ended
                raise ProtocolError("a pairing frame that is not due")
            if looking.result():
                return True
        return False
    finally:
        under_way = [task for task in (said, looking) if task is not None]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


async def join_over(
    link: PairingLink,
    ends: Ends,
    invite: Invite,
    *,
    key: SiteKey,
    name: str,
    random_bytes: Callable[[int], bytes],
    now_ms: Callable[[], int],
    on_asked: Callable[[], None] = lambda: None,
) -> Joined:
    """Run the joiner's side; PairingError says what to do where it fails. The link is closed when this ends.

    UnansweredError where nothing was decided: the link was lost, or the inviter's owner is asked, of which `on_asked`
    tells while it goes on.
    """
    frames = CeremonyFrames(link, FRAME_BYTES, _FRAMES)
    code, reason = CloseCode.NOT_AUTHENTICATED, "pairing given up"
    asked: asyncio.TimerHandle | None = None
    try:
        async with asyncio.timeout(PAIRING_S):
            if link.site != invite.site:
                raise PairingError("another device than the inviter answered: nothing was told to it")
            joiner = Joiner(invite, ends, key, name, random_bytes(NONCE_BYTES))
            frames.send(joiner.hello())
            while True:
                step = joiner.receive_untrusted(await frames.next(), now_ms())
                if isinstance(step, Joined):
                    code, reason = CloseCode.DONE, ""
                    return step
                frames.send(step)
                asked = asyncio.get_running_loop().call_later(ASKED_S, on_asked)
    except ProtocolError as error:
        code, reason = error.code, str(error)
        raise PairingError(f"the inviter broke the pairing protocol: {error}") from error
    except LinkClosedError as error:
        raise _unfinished(error, on_asked) from error
    except TimeoutError as error:
        raise UnansweredError("the inviter did not answer in time: try again", asked=False) from error
    finally:
        if asked is not None:
            asked.cancel()
        link.close(code, reason)


def _unfinished(error: LinkClosedError, on_asked: Callable[[], None]) -> PairingError:
    if error.code is CloseCode.NOT_AUTHENTICATED and str(error) == WAITING:
        on_asked()
        return UnansweredError("nobody has confirmed at the inviter yet: the same invite goes on", asked=True)
    if error.code is CloseCode.NOT_AUTHENTICATED and str(error) == DECLINED:
        return PairingError(SAID_NO)
    if error.code is not None and error.code in REFUSED:
        return PairingError(REFUSED[error.code])
    lost = f"the link to the inviter was lost before it answered ({error}): try again, the invite is still good"
    return UnansweredError(lost, asked=False) if error.code in _LOST else PairingError(lost)
