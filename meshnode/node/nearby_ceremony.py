"""Pairing without a string over a link: the machines of `nearby` joined to streams, people and close codes (§10)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from meshnode.errors import CloseCode, MeshError, PairingError, ProtocolError
from meshnode.limits import FRAME_BYTES, HANDSHAKE_S, HELLO_BYTES, NEARBY_CONFIRM_S
from meshnode.model.nearby import NearbyEnds
from meshnode.net.endpoint import ALPN_NEARBY, EndpointConfig
from meshnode.node.ceremony_frames import CeremonyFrames, LinkClosedError, PairingLink
from meshnode.node.nearby import Agreed, Comparison, Guest, Host, Named, Welcome

# Reasons of a close that the other side tells its person by; whatever else comes is told as a lost link.
DECLINED, BUSY, TOO_LATE, REFUSED = "declined", "busy", "not confirmed in time", "nearby pairing refused"
CLOSED = "not open any more"
STRANGERS = 8  # connections in handshake: it is opened for one
_MARGIN_S = 5.0  # seconds in which the ceremony ends by its own deadline, before the endpoint ends it
_FRAMES = 4  # frames taken from the other side; the ceremony has three each way
_RETIRED = "it was retired from the mesh and cannot come back with its old key"
_UNABLE = "this device may not let it in"

Ask = Callable[[Comparison], Awaitable[bool]]
"""Shows the digits to the person here and returns their word; cancelled where the other side left meanwhile."""


def endpoint_config() -> EndpointConfig:
    """What either side's endpoint is for, and for how long: people take longer than the ceremony of an invite."""
    pairing_s = HANDSHAKE_S + NEARBY_CONFIRM_S + _MARGIN_S
    return EndpointConfig(alpns=(ALPN_NEARBY,), handshakes=STRANGERS, pairing_s=pairing_s)


class NearbyDesk(Protocol):
    """The host's store; each call is one transaction on the writer."""

    async def nearby_refusal(self, public_key: bytes) -> CloseCode | None:
        """Why this site could not be let in whatever people say."""

    async def let_in(self, public_key: bytes, name: str) -> tuple[bytes, ...] | CloseCode:
        """Vouch for it; the records that it begins with."""


@dataclass(frozen=True, slots=True)
class Visit:
    """How one guest's ceremony ended at the host."""

    name: str
    compared: bool  # digits were shown: whatever came of it, another guest needs another opening
    joined: bool = False
    reason: str = ""  # where nobody joined


@dataclass(frozen=True, slots=True)
class Hosting:
    """What the host brings along."""

    mesh_id: bytes
    founder: bytes
    name: str
    nonce: bytes
    port: int  # where it listens for `ssp/1`
    turn: Callable[[], bool] = lambda: True  # whether the guest that revealed its nonce is the one that is compared


def host_over(
    link: PairingLink, ends: NearbyEnds, desk: NearbyDesk, hosting: Hosting, ask: Ask
) -> Coroutine[Any, Any, Visit]:
    """Listen at once; awaiting the result runs the host's side. The link is closed at the end."""
    return _host(link, CeremonyFrames(link, HELLO_BYTES, _FRAMES), ends, desk, hosting, ask)


async def _host(
    link: PairingLink, frames: CeremonyFrames, ends: NearbyEnds, desk: NearbyDesk, hosting: Hosting, ask: Ask
) -> Visit:
    host, compared = Host(ends, hosting.nonce, hosting.name), False
    code, reason = CloseCode.NOT_AUTHENTICATED, CLOSED
    try:
        async with asyncio.timeout(HANDSHAKE_S) as deadline:
            assert isinstance(host.receive_untrusted(await frames.next()), Named)
            refused = await desk.nearby_refusal(ends.guest.public_key)
            if refused is not None:
                code, reason = refused, REFUSED
                return Visit(host.guest_name, False, reason=_RETIRED if refused is CloseCode.RETIRED else _UNABLE)
            frames.send(host.opened())
            comparison = host.receive_untrusted(await frames.next())
            assert isinstance(comparison, Comparison)
            if not hosting.turn():
                code, reason = CloseCode.LIMIT, BUSY
                return Visit(host.guest_name, False, reason="another one was faster")
            frames.send(host.revealed())
            compared = True
            deadline.reschedule(asyncio.get_running_loop().time() + NEARBY_CONFIRM_S)
            if not await _both_agree(frames, host, ask(comparison)):
                reason = DECLINED
                return Visit(host.guest_name, True, reason="declined here")
            deadline.reschedule(None)  # what is on disk counts, however long that takes
            records = await desk.let_in(ends.guest.public_key, host.guest_name)
            if isinstance(records, CloseCode):
                code, reason = records, REFUSED
                return Visit(host.guest_name, True, reason=_UNABLE)
            frames.send(host.welcome(hosting.mesh_id, hosting.founder, records, hosting.port))
            code, reason = CloseCode.DONE, ""
            await _until_closed(frames)
            return Visit(host.guest_name, True, joined=True)
    except ProtocolError as error:
        code, reason = error.code, str(error)
        return Visit(host.guest_name, compared, reason=f"it broke the protocol: {error}")
    except LinkClosedError as error:
        return Visit(host.guest_name, compared, reason=_left(error))
    except TimeoutError:
        reason = TOO_LATE
        return Visit(host.guest_name, compared, reason="nobody confirmed in time")
    except MeshError:
        code, reason = CloseCode.INTERNAL, "internal error"
        raise
    finally:
        link.close(code, reason)


async def _both_agree(frames: CeremonyFrames, host: Host, asking: Awaitable[bool]) -> bool:
    """Whether the person here said yes; returns with yes once the guest's has too."""
    person, heard, agreed = asyncio.ensure_future(asking), asyncio.ensure_future(frames.next()), False
    try:
        while True:
            await asyncio.wait({each for each in (person, heard) if not each.done()}, return_when="FIRST_COMPLETED")
            if heard.done():
                agreed = isinstance(host.receive_untrusted(heard.result()), Agreed)
                heard = asyncio.ensure_future(frames.next())
            if person.done() and (agreed or not person.result()):
                return person.result()
    finally:
        await _let_go(person, heard)


async def _until_closed(frames: CeremonyFrames) -> None:
    """The guest closes once it has the welcome; where it does not, it still may have it."""
    with suppress(LinkClosedError, ProtocolError, TimeoutError):
        async with asyncio.timeout(HANDSHAKE_S):
            await frames.next()


async def visit_over(
    link: PairingLink, ends: NearbyEnds, ask: Ask, *, name: str, nonce: bytes, now_ms: Callable[[], int]
) -> tuple[Welcome, str]:
    """Run the guest's side: the mesh, and what the host calls itself. PairingError says what to do where it fails."""
    frames, guest = CeremonyFrames(link, FRAME_BYTES, _FRAMES), Guest(ends, nonce, name)
    code, reason = CloseCode.NOT_AUTHENTICATED, "pairing given up"
    try:
        async with asyncio.timeout(HANDSHAKE_S) as deadline:
            frames.send(guest.hello())
            step = guest.receive_untrusted(await frames.next(), now_ms())
            assert isinstance(step, bytes)
            frames.send(step)
            comparison = guest.receive_untrusted(await frames.next(), now_ms())
            assert isinstance(comparison, Comparison)
            deadline.reschedule(asyncio.get_running_loop().time() + NEARBY_CONFIRM_S)
            welcome = await _welcomed(frames, guest, ask(comparison), now_ms)
            if welcome is None:
                reason = DECLINED
                raise PairingError("declined here: nothing was told to the other device")
            code, reason = CloseCode.DONE, ""
            return welcome, guest.host_name
    except ProtocolError as error:
        code, reason = error.code, str(error)
        raise PairingError(f"the other device broke the pairing protocol: {error}") from error
    except LinkClosedError as error:
        raise PairingError(_why(error)) from error
    except TimeoutError as error:
        reason = TOO_LATE
        raise PairingError("not confirmed on both devices in time: open the other one again, and pair again") from error
    finally:
        link.close(code, reason)


async def _welcomed(
    frames: CeremonyFrames, guest: Guest, asking: Awaitable[bool], now_ms: Callable[[], int]
) -> Welcome | None:
    """The host's welcome, once the person here said yes; None where they said no."""
    person, heard, told = asyncio.ensure_future(asking), asyncio.ensure_future(frames.next()), False
    try:
        while True:
            await asyncio.wait({each for each in (person, heard) if not each.done()}, return_when="FIRST_COMPLETED")
            if person.done() and not told:
                if not person.result():
                    return None
                frames.send(guest.agreed())
                told = True
            if heard.done():
                step = guest.receive_untrusted(heard.result(), now_ms())
                assert isinstance(step, Welcome)
                return step
    finally:
        await _let_go(person, heard)


async def _let_go(*under_way: asyncio.Future[Any]) -> None:
    for each in under_way:
        each.cancel()
    await asyncio.gather(*under_way, return_exceptions=True)


def _left(error: LinkClosedError) -> str:
    if str(error) == DECLINED:
        return "declined at the other device"
    return "nobody confirmed in time" if str(error) == TOO_LATE else "the other device went away"


def _why(error: LinkClosedError) -> str:
    """What the person at the guest is told."""
    if error.code is CloseCode.RETIRED:
        return "this device was retired from the mesh and cannot come back with its old key: start with a new home"
    told = {
        DECLINED: "declined at the other device",
        BUSY: "the other device is pairing with another one just now: try again",
        TOO_LATE: "not confirmed on both devices in time: open the other one again, and pair again",
        CLOSED: "the other device is not open to pairing any more: open it again, and pair again",
        REFUSED: "the other device may not let this one in: pair with one that may let others in",
    }
    lost = f"the link to the other device was lost ({error}): open it again, and pair again"
    return told.get(str(error), lost)
