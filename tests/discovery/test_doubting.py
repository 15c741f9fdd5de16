"""Links are asked whether they answer when something suggests another path, and by nothing else (profile §7, §11)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from ipaddress import IPv4Interface
from typing import Any, cast

import pytest
from support.lan import Lan, lan_available
from support.quic import PATIENCE_S
from support.virtual_time import run_virtually

from meshnode.limits import LINK_ANSWER_S, LINK_DOUBT_S
from meshnode.net.addresses import Address
from meshnode.net.changes import LOOK_S, SLEPT_S, TRUSTED_S, KernelNews, Look, Remembered, changed
from meshnode.net.interfaces import Interface
from meshnode.net.link import Link
from meshnode.node.doubting import Doubts, elsewhere

SITE = b"\x01" * 16
HERE, THERE = Address("10.0.0.1", 4747), Address("fe80::1%3", 4747)
NETWORK = (Interface("eth0", 2, (IPv4Interface("10.0.0.7/24"),)),)
LOOK = Look(100.0, 5000.0, NETWORK)


@pytest.mark.parametrize(
    ("boot", "addresses", "is_elsewhere"),
    [
        (b"boot-one", [HERE], False),
        (b"boot-two", [HERE], True),
        (b"boot-one", [HERE, THERE], True),
        (b"boot-one", [THERE], True),
    ],
    ids=["the-same", "another-start", "one-more-address", "another-address"],
)
def test_what_an_announcement_says_of_a_link(boot: bytes, addresses: list[Address], is_elsewhere: bool) -> None:
    assert elsewhere(b"boot-one", "10.0.0.1:4747", boot, addresses) is is_elsewhere
    assert elsewhere(None, "10.0.0.1:4747", boot, addresses) is (addresses != [HERE])
    assert not elsewhere(b"boot-one", "[fe80::1%3]:4747", b"boot-one", [THERE])


def test_what_is_a_change_of_the_network() -> None:
    later = replace(LOOK, monotonic_s=100.0 + LOOK_S, wall_s=5000.0 + LOOK_S)
    assert not changed(LOOK, later)
    assert not changed(LOOK, replace(later, monotonic_s=100.0 + LOOK_S + SLEPT_S / 2))
    assert not changed(LOOK, replace(later, wall_s=0.0)), "a clock that was set back"
    assert changed(LOOK, replace(later, interfaces=()))
    assert changed(LOOK, replace(later, wall_s=5000.0 + LOOK_S + SLEPT_S)), "the machine slept"
    assert changed(LOOK, replace(later, monotonic_s=100.0 + LOOK_S + SLEPT_S)), "this process stood still"


def test_interfaces_are_looked_at_again_only_where_they_may_be_others() -> None:
    looks: list[int] = []
    now = 0.0

    def look() -> int:
        looks.append(1)
        return len(looks)

    seen = Remembered(look, lambda: now)
    assert [seen.look(), seen.look()] == [1, 2], "nobody tells of changes"
    seen.trusted = True
    assert [seen.look(), seen.look()] == [2, 2]
    seen.forget()
    assert [seen.look(), seen.look()] == [3, 3], "the kernel told of one"
    now = TRUSTED_S
    assert [seen.look(), seen.look()] == [4, 4], "what it told may have been lost"
    seen.trusted = False
    assert seen.look() == 5


def test_a_look_that_fails_is_remembered_by_nobody() -> None:
    answers: list[Exception | str] = [OSError("no file is free"), "eth0"]

    def look() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    seen = Remembered(look, lambda: 0.0)
    seen.trusted = True
    with pytest.raises(OSError, match="no file"):
        seen.look()
    assert [seen.look(), seen.look()] == ["eth0", "eth0"]


class FakeLink:
    """Answers at once, or not at all."""

    def __init__(self, answers: bool) -> None:
        self.answers = answers
        self.closed = False
        self.pings = 0

    async def ping(self, seconds: float) -> bool:
        self.pings += 1
        if not self.answers:
            await asyncio.sleep(seconds)
        return self.answers


class Asked:
    def __init__(self, link: FakeLink | None) -> None:
        self.link = link
        self.said: list[tuple[str, float]] = []
        self.begun = self.now()
        self.doubts = Doubts(
            lambda site: cast("Link | None", self.link),
            on_silent=lambda site: self.said.append(("silent", self.now() - self.begun)),
            on_answer=lambda site: self.said.append(("answers", self.now() - self.begun)),
        )

    def now(self) -> float:
        return asyncio.get_running_loop().time()


def test_a_link_that_answers_is_asked_once_a_second_however_much_is_announced() -> None:
    async def run() -> None:
        link = FakeLink(answers=True)
        asked = Asked(link)
        for _ in range(1000):
            asked.doubts.ask(SITE)
            await asyncio.sleep(0.01)
        assert 9 <= link.pings <= 10 / LINK_DOUBT_S + 1
        assert asked.said == []
        await asked.doubts.stop()

    run_virtually(run())


def test_silence_is_told_once_and_so_is_that_it_ended() -> None:
    async def run() -> None:
        link = FakeLink(answers=False)
        asked = Asked(link)
        asked.doubts.ask(SITE)
        await asyncio.sleep(LINK_ANSWER_S * 3.5)
        link.answers = True
        await asyncio.sleep(LINK_ANSWER_S)
        assert asked.said == [("silent", LINK_ANSWER_S), ("answers", 4 * LINK_ANSWER_S)]
        await asked.doubts.stop()

    run_virtually(run())


@pytest.mark.parametrize("then", ["closed", "replaced", "gone"])
def test_a_link_that_is_no_more_is_asked_nothing(then: str) -> None:
    async def run() -> None:
        link = FakeLink(answers=False)
        asked = Asked(link)
        asked.doubts.ask(SITE)
        await asyncio.sleep(LINK_ANSWER_S / 2)
        link.closed = then == "closed"
        asked.link = cast(Any, {"closed": link, "replaced": FakeLink(answers=True), "gone": None}[then])
        await asyncio.sleep(10.0)
        assert asked.said == ([("silent", LINK_ANSWER_S)] if then == "closed" else [])
        assert link.pings == 1
        await asked.doubts.stop()

    run_virtually(run())


@pytest.mark.skipif(not lan_available(), reason="needs root and iproute2 to make network namespaces")
async def test_the_kernel_says_that_an_address_changed() -> None:
    with Lan(1) as lan:
        stirred = asyncio.Event()
        with lan.inside(0):
            news = KernelNews(stirred.set)
        lan.readdress(0, "10.47.0.77/24")
        async with asyncio.timeout(PATIENCE_S):
            await stirred.wait()
        news.close()
