"""News of another path to a linked member, or of another network here, and what the finder does (profile §11)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from support.announcer import MESH_ID, site_key

from meshnode import Config
from meshnode.errors import TransportError
from meshnode.limits import LINK_ANSWER_S, LINK_SILENT_S
from meshnode.net.adapters import local_interfaces
from meshnode.net.addresses import Address
from meshnode.net.interfaces import Selection
from meshnode.net.sightings import Sighting
from meshnode.node import finding
from meshnode.node.finding import Finder
from meshnode.node.settings import NetworkSettings

OWN, PEER = site_key(1), site_key(2)
OLD, NEW = Address("10.0.0.2", 4747), Address("10.0.0.3", 4747)
LIMIT_S = 10.0


class Rig:
    """A finder around a link that answers or does not."""

    def __init__(self, *, answers: bool) -> None:
        self.answers = answers
        self.pings = 0
        self.reroutings = 0
        self.rerouting = asyncio.Event()
        self.dialed: asyncio.Queue[Address] = asyncio.Queue()
        self.link = SimpleNamespace(
            site=PEER.site,
            boot=b"boot-one",
            remote_address=OLD.text(),
            closed=False,
            ping=self.ping,
            unanswered_s=0.0,
        )
        self.interfaces: Any = Selection(())
        settings = NetworkSettings(OWN, MESH_ID, "own", "software", Config(mdns_enabled=False), False, True)
        self.finder = Finder(
            settings,
            b"own-boot",
            key_of=lambda site: None,
            dial=self.dial,
            on_worked=lambda site, address: None,
            on_failed=lambda attempt, text: None,
            on_notice=lambda kind, site, text: None,
        )
        self.finder._scan = lambda: self.interfaces  # type: ignore[method-assign]

    async def ping(self, seconds: float) -> bool:
        self.pings += 1
        assert seconds == LINK_ANSWER_S
        await asyncio.sleep(0 if self.answers else seconds / 20)
        return self.answers

    async def dial(self, address: Address, expect_site: bytes | None, on_proven: Callable[[], None]) -> bytes:
        self.dialed.put_nowait(address)
        await asyncio.Event().wait()
        raise AssertionError

    def rerouted(self) -> None:
        self.reroutings += 1
        self.rerouting.set()

    def sight(self, boot: bytes, *addresses: Address) -> None:
        hosts = tuple(address.host for address in addresses)
        self.finder._seen(Sighting(PEER.site, b"tag", 4747, hosts, b"", True, boot))


@asynccontextmanager
async def running(*, answers: bool) -> AsyncIterator[Rig]:
    rig = Rig(answers=answers)
    endpoint: Any = SimpleNamespace(
        port=4747, links=lambda: [rig.link], link_to=lambda site: rig.link, rerouted=rig.rerouted
    )
    rig.finder.start(endpoint, [PEER.site], {PEER.site: [OLD.text()]})
    rig.finder.linked(PEER.site)
    try:
        async with asyncio.timeout(LIMIT_S):
            yield rig
    finally:
        await rig.finder.stop()


@pytest.mark.parametrize("news", ["start", "address", "network", "silence"])
async def test_a_dead_link_is_dialed_beside_after_the_news(news: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "LOOK_S", 0.01)
    async with running(answers=False) as rig:
        await asyncio.sleep(0)  # the watch took its first look
        if news == "network":
            rig.interfaces = Selection(local_interfaces())
        elif news == "silence":
            rig.link.unanswered_s = LINK_SILENT_S
        else:
            rig.sight(b"boot-two" if news == "start" else b"boot-one", *([OLD] if news == "start" else [NEW, OLD]))
        assert await rig.dialed.get() == OLD
        assert rig.pings >= 1
        assert rig.reroutings == (news == "network")


async def test_a_link_that_answers_is_let_be() -> None:
    async with running(answers=True) as rig:
        rig.sight(b"boot-one", OLD)
        await asyncio.sleep(0)
        assert rig.pings == 0
        rig.sight(b"boot-two", NEW)
        await asyncio.sleep(0.01)
        assert rig.pings == 1
        assert rig.dialed.empty()


async def test_a_machine_that_does_not_tell_of_its_interfaces_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where no file is free for a moment: whatever changed meanwhile shows afterwards."""
    monkeypatch.setattr(finding, "LOOK_S", 0.01)
    async with running(answers=True) as rig:
        await asyncio.sleep(0)  # the watch took its first look
        refused = asyncio.Event()

        def refuse() -> Selection:
            refused.set()
            raise TransportError("this machine does not tell")

        scan, rig.finder._scan = rig.finder._scan, refuse  # type: ignore[method-assign]
        await refused.wait()
        assert rig.reroutings == 0
        rig.interfaces = Selection(local_interfaces())
        rig.finder._scan = scan  # type: ignore[method-assign]
        await rig.rerouting.wait()
