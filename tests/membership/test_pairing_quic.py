"""The ceremony over real QUIC on loopback: bindings, close codes, and the sync link it leads to (profile §7, §10)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from support.desk import StoreDesk
from support.memory_link import inviter_ends, joiner_ends
from support.mesh_context import Device, TestTime
from support.records import MESH_ID, site_key

from meshnode.engine import invites
from meshnode.engine.authority import issue_retirement
from meshnode.errors import CloseCode, MeshError, PairingError, TransportError
from meshnode.model.invite import Invite, parse_invite_untrusted
from meshnode.model.membership import Membership
from meshnode.model.site import SiteKey
from meshnode.net.endpoint import ALPN_PAIRING, ALPN_SYNC, Endpoint, EndpointIdentity, Link
from meshnode.net.endpoint import Admission as Admitted
from meshnode.node.ceremony import UnknownInvites, invite_over, join_over
from meshnode.node.pairing import Joined

FIRST, PHONE, LAPTOP = site_key(1), site_key(2), site_key(3)


def by_membership(membership: Callable[[], Membership]) -> Callable[[bytes, bytes, str], Admitted]:
    """How a node judges sites: strangers may pair, members may sync."""

    def admit(site: bytes, public_key: bytes, _alpn: str) -> Admitted:
        if membership().retired(site) is not None:
            return Admitted.RETIRED
        return Admitted.MEMBER if membership().is_peer(site, public_key) else Admitted.UNKNOWN

    return admit


class Inviting:
    """An inviter that listens."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.endpoint: Endpoint
        self.ceremonies: list[asyncio.Task[bytes | None]] = []
        self.synced: asyncio.Queue[Link] = asyncio.Queue()
        self._unknown = UnknownInvites(device.time.wall_ms)

    def take(self, link: Link) -> None:
        if link.alpn == ALPN_SYNC:
            self.synced.put_nowait(link)
            return
        ceremony = invite_over(
            link,
            inviter_ends(link, MESH_ID, FIRST.site),
            StoreDesk(self.device),
            name="nas",
            nonce=self.device.time.random_bytes(16),
            unknown=self._unknown,
        )
        self.ceremonies.append(asyncio.create_task(ceremony))


@asynccontextmanager
async def listening(
    key: SiteKey, admit: Callable[..., Admitted], take: Callable[[Link], None]
) -> AsyncIterator[Endpoint]:
    endpoint = await Endpoint.create(
        "127.0.0.1",
        0,
        identity=EndpointIdentity.create(MESH_ID, key, 0),
        admit=admit,
        on_link=take,
        on_notice=lambda *_: None,
    )
    try:
        yield endpoint
    finally:
        await endpoint.close()


@pytest.fixture
async def inviting(tmp_path: Path) -> AsyncIterator[Inviting]:
    device = Device.founded(tmp_path / "inviter.db", FIRST, TestTime())
    inviter = Inviting(device)
    async with listening(FIRST, by_membership(lambda: device.context.membership), inviter.take) as endpoint:
        inviter.endpoint = endpoint
        yield inviter
        await asyncio.gather(*inviter.ceremonies)
    device.context.db.close()


def invite_of(inviting: Inviting) -> Invite:
    device, port = inviting.device, inviting.endpoint.port
    made = device.run(lambda tx: invites.create_invite(device.context, tx, addrs=[f"127.0.0.1:{port}"]))
    return parse_invite_untrusted(made.text())


async def join(endpoint: Endpoint, invite: Invite, key: SiteKey, time: TestTime) -> Joined:
    host, port = invite.addrs[0].rsplit(":", 1)
    link = await endpoint.dial(host, int(port), alpn=ALPN_PAIRING, expect_site=invite.site)
    return await join_over(
        link,
        joiner_ends(link, invite, key.public_key),
        invite,
        key=key,
        name="phone",
        random_bytes=time.random_bytes,
        now_ms=time.wall_ms,
    )


async def test_pair_then_sync(inviting: Inviting) -> None:
    invite = invite_of(inviting)
    known: list[Membership] = []
    async with listening(PHONE, by_membership(lambda: known[0]), lambda link: None) as endpoint:
        joined = await join(endpoint, invite, PHONE, inviting.device.time)
        known.append(joined.membership)
        assert await inviting.ceremonies[0] == PHONE.public_key
        link = await endpoint.dial("127.0.0.1", inviting.endpoint.port, expect_site=FIRST.site)
        assert link.admitted
        assert (await inviting.synced.get()).site == PHONE.site


async def test_refusals_and_their_codes(inviting: Inviting) -> None:
    device, invite = inviting.device, invite_of(inviting)
    async with listening(LAPTOP, lambda *_: Admitted.UNKNOWN, lambda link: None) as endpoint:
        with pytest.raises(PairingError, match="refused"):
            await join(endpoint, replace(invite, secret=bytes(16)), LAPTOP, device.time)
        with pytest.raises(TransportError) as refused:
            await join(endpoint, replace(invite, site=PHONE.site), LAPTOP, device.time)
        assert refused.value.code is CloseCode.NOT_AUTHENTICATED
        await join(endpoint, invite, LAPTOP, device.time)
        device.run(lambda tx: issue_retirement(device.context, tx, LAPTOP.site))
        # The refusal may arrive while the joiner still dials, or just after.
        with pytest.raises(MeshError) as retired:
            await join(endpoint, invite_of(inviting), LAPTOP, device.time)
        assert getattr(retired.value, "code", None) is CloseCode.RETIRED or "was retired" in str(retired.value)
    assert PHONE.site not in device.context.membership.by_site
