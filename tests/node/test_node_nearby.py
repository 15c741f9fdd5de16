"""Nodes that let nearby devices in: what is open, for how long, for whom, and what each side is told (profile §10)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from cryptography.x509 import Certificate, UnrecognizedExtension
from support.nodes import PATIENCE_S, add_notes, linked, loopback, until

from meshnode import Node, limits
from meshnode.engine.authority import issue_retirement, issue_role
from meshnode.errors import CloseCode, NotFoundError, PairingError, TransportError, UsageError
from meshnode.model.nearby import NO_MESH
from meshnode.model.site import SiteKey
from meshnode.net.endpoint import ALPN_NEARBY, ALPN_PAIRING, ALPN_SYNC, Admission, Endpoint, EndpointIdentity, Link
from meshnode.net.identity import BINDING_OID, self_signed
from meshnode.node import nearby_ceremony, nearby_join, nearby_mode
from meshnode.node.home import Home
from meshnode.node.nearby import Comparison
from meshnode.node.nearby_join import pair_nearby
from meshnode.node.pairing_views import JoinView, NearbyView

GUEST = SiteKey.from_seed(b"a guest without a mesh anywhere ")


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Node]:
    async with Node(tmp_path / "desk", config=loopback(name="desk")) as node:
        yield node


async def yes(_: Comparison) -> bool:
    return True


async def no(_: Comparison) -> bool:
    return False


def pairing(
    home: Path, opened: NearbyView, ask: Callable[[Comparison], Awaitable[bool]] = yes
) -> asyncio.Task[JoinView]:
    """A guest at the address that the host showed."""
    return asyncio.create_task(pair_nearby(home, opened.addresses[0], ask=ask, name=home.name))


async def asked(node: Node) -> NearbyView:
    """The digits at the host."""
    view = await node.nearby(seen="open", timeout_s=PATIENCE_S)
    assert view.state == "asks", view
    return view


async def refused(guest: asyncio.Task[JoinView]) -> str:
    with pytest.raises(PairingError) as error:
        await guest
    return str(error.value)


async def test_pair_nearby_then_sync(desk: Node, tmp_path: Path) -> None:
    seen: list[Comparison] = []

    async def look(comparison: Comparison) -> bool:
        seen.append(comparison)
        return True

    await add_notes(desk)
    await desk.put("notes", {"id": "n1"}, {"title": "Milk"})
    guest = pairing(tmp_path / "lap", await desk.nearby_open(), look)
    view = await asked(desk)
    assert view.who is not None
    assert view.who.name == "lap"
    assert (await desk.nearby_answer(view.code, yes=True)).state in ("agreed", "joined")
    joined = await guest
    assert (joined.site, joined.inviter_name) == (view.who.site, "desk")
    assert seen == [Comparison(view.code, "desk")]
    assert (await desk.nearby(seen="agreed", timeout_s=PATIENCE_S)).state == "joined"
    async with Node(tmp_path / "lap", config=loopback(name="lap")) as lap:  # it was told no address but by pairing
        await add_notes(lap)
        await linked(lap, desk)

        async def there() -> bool:
            return await lap.get("notes", {"id": "n1"}) is not None

        await until(lap, there)


async def test_one_opening_shows_digits_once(desk: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearby_join, "DIAL_S", 0.2)  # nobody listens there any more
    opened = await desk.nearby_open()
    guest = pairing(tmp_path / "lap", opened)
    view = await asked(desk)
    await desk.nearby_answer(view.code, yes=False)
    assert await refused(guest) == "declined at the other device"
    closed = await desk.nearby(seen="asks", timeout_s=PATIENCE_S)
    assert (closed.state, closed.reason, closed.code) == ("closed", "declined here", "")
    assert "cannot be reached (tried " in await refused(pairing(tmp_path / "lap", opened))
    with pytest.raises(NotFoundError, match="not to be compared any more"):
        await desk.nearby_answer(view.code, yes=True)
    assert await desk.peers() == []
    await _pairs(desk, tmp_path / "lap")  # opened again, the same home goes on


async def _pairs(desk: Node, home: Path) -> None:
    guest = pairing(home, await desk.nearby_open())
    await desk.nearby_answer((await asked(desk)).code, yes=True)
    await guest
    assert len(await desk.peers()) == 1


async def test_another_guest_is_told_to_wait(desk: Node, tmp_path: Path) -> None:
    opened = await desk.nearby_open()
    first = pairing(tmp_path / "lap", opened)
    view = await asked(desk)
    assert "another one just now" in await refused(pairing(tmp_path / "phone", opened))
    await desk.nearby_answer(view.code, yes=True)
    await first
    assert [peer.name for peer in await desk.peers()] == ["lap"]


async def test_an_answer_about_other_digits_counts_for_nothing(desk: Node, tmp_path: Path) -> None:
    guest = pairing(tmp_path / "lap", await desk.nearby_open())
    view = await asked(desk)
    other = f"{(int(view.code) + 1) % 10**6:06}"
    with pytest.raises(NotFoundError):
        await desk.nearby_answer(other, yes=True)
    assert (await desk.nearby()).state == "asks"
    await desk.nearby_close()
    assert "not open to pairing any more" in await refused(guest)
    assert await desk.peers() == []


async def test_it_closes_by_itself(desk: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearby_join, "DIAL_S", 0.2)  # nobody listens there any more
    opened = await desk.nearby_open(50)
    closed = await desk.nearby(seen="open", timeout_s=PATIENCE_S)
    assert (closed.state, closed.reason) == ("closed", "nobody came in time")
    assert "cannot be reached" in await refused(pairing(tmp_path / "lap", opened))


async def test_opening_again_ends_what_was_under_way(desk: Node, tmp_path: Path) -> None:
    guest = pairing(tmp_path / "lap", await desk.nearby_open())
    await asked(desk)
    await desk.nearby_open()
    assert "not open to pairing any more" in await refused(guest)
    assert (await desk.nearby()).state == "open"


async def test_a_guest_that_says_no_is_told_of(desk: Node, tmp_path: Path) -> None:
    guest = pairing(tmp_path / "lap", await desk.nearby_open(), no)
    assert "declined here" in await refused(guest)
    closed = await desk.nearby(seen="open", timeout_s=PATIENCE_S)
    if closed.state == "asks":
        closed = await desk.nearby(seen="asks", timeout_s=PATIENCE_S)
    assert (closed.state, closed.reason) == ("closed", "declined at the other device")
    assert not (tmp_path / "lap" / "incarnation").exists()


async def test_a_node_that_is_left_or_cut_off_is_open_no_more(desk: Node, tmp_path: Path) -> None:
    guest = pairing(tmp_path / "lap", await desk.nearby_open())
    await asked(desk)
    await desk.set_online(False)
    assert "not open to pairing any more" in await refused(guest)
    assert (await desk.nearby()).state == "closed"
    with pytest.raises(UsageError, match="cut off"):
        await desk.nearby_open()


async def test_only_who_may_let_others_in_can_be_opened(desk: Node, tmp_path: Path) -> None:
    for ttl_ms in (0, 16 * 60_000):
        with pytest.raises(UsageError, match="at most 15 minutes"):
            await desk.nearby_open(ttl_ms)
    guest = pairing(tmp_path / "lap", await desk.nearby_open())
    await desk.nearby_answer((await asked(desk)).code, yes=True)
    await guest
    async with Node(tmp_path / "lap", config=loopback(name="lap")) as lap:
        with pytest.raises(UsageError, match="no authority"):
            await lap.nearby_open()


async def test_a_retired_device_is_told_so(desk: Node, tmp_path: Path) -> None:
    await _pairs(desk, tmp_path / "lap")
    (tmp_path / "lap" / "unfinished").touch()  # it lost everything but its key
    site = bytes.fromhex((await desk.peers())[0].site)

    await desk.storage.write(
        lambda engine: engine.context.transact(lambda tx: issue_retirement(engine.context, tx, site))
    )
    opened = await desk.nearby_open()
    assert "was retired" in await refused(pairing(tmp_path / "lap", opened))
    assert (await desk.nearby()).state == "open"  # nobody was asked, so it waits for another
    await desk.nearby_close()


async def test_authority_that_was_lost_meanwhile(desk: Node, tmp_path: Path) -> None:
    opened = await desk.nearby_open()
    recovery = Home.load(tmp_path / "desk").recovery_key()

    await desk.storage.write(
        lambda engine: engine.context.transact(
            lambda tx: issue_role(engine.context, tx, engine.context.site, "member", signer=recovery)
        )
    )
    assert "may not let this one in" in await refused(pairing(tmp_path / "lap", opened))


async def bare(identity: EndpointIdentity) -> Endpoint:
    """An endpoint that only dials."""
    return await Endpoint.create(
        "127.0.0.1",
        0,
        identity=identity,
        admit=lambda *_: Admission.UNKNOWN,
        on_link=lambda _: None,
        on_notice=lambda *_: None,
    )


async def dialing(key: SiteKey, mesh: bytes, port: int, alpn: str) -> Link:
    """A bare endpoint's link, closed again."""
    endpoint = await bare(EndpointIdentity.create(mesh, key, 0))
    try:
        return await endpoint.dial("127.0.0.1", port, alpn=alpn, timeout=PATIENCE_S)
    finally:
        await endpoint.close()


async def test_doors_are_apart(desk: Node) -> None:
    """No other ALPN and no binding of a mesh at the one; neither that ALPN nor such a binding at the other."""
    status, opened = await desk.status(), await desk.nearby_open()
    assert status.port is not None
    near = int(opened.addresses[0].rpartition(":")[2])
    assert (await dialing(GUEST, NO_MESH, near, ALPN_NEARBY)).site == bytes.fromhex(status.site)
    mesh = desk.storage.engine.context.mesh_id
    for bound, port, alpn in (
        (mesh, near, ALPN_NEARBY),
        (NO_MESH, near, ALPN_SYNC),
        (NO_MESH, near, ALPN_PAIRING),
        (NO_MESH, status.port, ALPN_NEARBY),
        (NO_MESH, status.port, ALPN_SYNC),
    ):
        with pytest.raises(TransportError):
            await dialing(GUEST, bound, port, alpn)
    await desk.nearby_close()
    assert await desk.peers() == []


async def test_another_sites_binding_is_of_no_use_to_a_guest(desk: Node) -> None:
    """An unknown-key share: the binding of a third device, taken from its own certificate, under another TLS key."""
    opened = await desk.nearby_open()
    near = int(opened.addresses[0].rpartition(":")[2])
    victim = EndpointIdentity.create(NO_MESH, GUEST, 0)
    thief = EndpointIdentity.create(NO_MESH, SiteKey.from_seed(b"m" * 32), 0)
    stolen = EndpointIdentity(NO_MESH, thief.key, _with_binding_of(victim, thief), thief.spki, thief.tls_key)
    closed: asyncio.Future[CloseCode | None] = asyncio.get_running_loop().create_future()
    endpoint = await bare(stolen)
    try:
        link = await endpoint.dial("127.0.0.1", near, alpn=ALPN_NEARBY, timeout=PATIENCE_S)
        link.on_closed = lambda code, _reason, _local: closed.set_result(code)
        async with asyncio.timeout(PATIENCE_S):
            code = link.ending.code if link.ending is not None else await closed
    except TransportError as error:  # the refusal may arrive while it still dials, or just after
        code = error.code
    finally:
        await endpoint.close()
    assert code is CloseCode.NOT_AUTHENTICATED
    assert (await desk.nearby()).state == "open"


def _with_binding_of(victim: EndpointIdentity, thief: EndpointIdentity) -> Certificate:
    extension = victim.certificate.extensions.get_extension_for_oid(BINDING_OID).value
    assert isinstance(extension, UnrecognizedExtension)
    return self_signed(thief.tls_key, extension.value)


async def test_a_home_with_a_node_pairs_with_nobody(desk: Node, tmp_path: Path) -> None:
    opened = await desk.nearby_open()
    await _founded(tmp_path / "other")
    with pytest.raises(UsageError, match="there is a node"):
        await pairing(tmp_path / "other", opened)
    assert (await desk.nearby()).state == "open"


async def _founded(home: Path) -> None:
    async with Node(home, config=loopback()):
        pass


async def test_an_opening_may_be_closed_at_any_moment(desk: Node, tmp_path: Path) -> None:
    """Also before the guest's ceremony has begun to run, and after both said yes: what is on disk counts."""
    opened = await desk.nearby_open()
    guest = pairing(tmp_path / "lap", opened)
    view = await asked(desk)
    await desk.nearby_answer(view.code, yes=True)
    await desk.nearby_close()
    try:
        joined = (await guest).site
    except PairingError:
        joined = None
    peers = [peer.site for peer in await desk.peers()]
    assert joined is None or peers == [joined]
    assert len(peers) <= 1
    assert (await desk.nearby()).state in ("closed", "joined")
    await _pairs(desk, tmp_path / "lap")


def test_both_endpoints_wait_for_people_to_compare() -> None:
    config = nearby_ceremony.endpoint_config()
    assert config.pairing_s > limits.HANDSHAKE_S + limits.NEARBY_CONFIRM_S
    assert config.keep_alive_s < config.idle_s  # nobody says anything meanwhile


@pytest.mark.parametrize("side", [nearby_join, nearby_mode], ids=["guest", "host"])
async def test_each_endpoint_ends_what_takes_longer_than_that(
    desk: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: ModuleType
) -> None:
    short = replace(nearby_ceremony.endpoint_config(), pairing_s=0.2)
    monkeypatch.setattr(side, "endpoint_config", lambda: short)

    async def never(_: Comparison) -> bool:
        await asyncio.Event().wait()
        return False

    guest = pairing(tmp_path / "lap", await desk.nearby_open(), never)
    assert "took too long" in await refused(guest)
    assert await desk.peers() == []
