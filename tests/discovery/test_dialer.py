"""The dialer: races addresses, cancels the losers, reports, and goes on after every failure (profile §11)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from meshnode.errors import CloseCode, TransportError
from meshnode.limits import ADDRESSES_PER_SITE
from meshnode.net.addresses import Address
from meshnode.node.dialer import Dialer
from meshnode.node.dialing import DialPlan
from meshnode.node.dialtarget import Attempt, DialPolicy

OWN, PEER = b"\x01" * 16, b"\x02" * 16
DEAD, SLOW, LIVE = Address("10.0.0.1", 1), Address("10.0.0.2", 1), Address("10.0.0.3", 1)
LIMIT_S = 5.0


class Network:
    """Addresses that answer, refuse or stay silent; remembers who was dialed and who was cancelled."""

    def __init__(self) -> None:
        self.answers: dict[Address, bytes | Exception] = {}
        self.dialed: list[Address] = []
        self.cancelled: list[Address] = []
        self.silence = asyncio.Event()  # set once somebody waits for an address that never answers

    async def dial(self, address: Address, expect_site: bytes | None, on_proven: Callable[[], None]) -> bytes:
        self.dialed.append(address)
        answer = self.answers.get(address)
        if answer is None:
            self.silence.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.append(address)
                raise
        if isinstance(answer, bytes):
            return answer
        assert answer is not None
        raise answer


class Rig:
    def __init__(self, network: Network, stagger_s: float) -> None:
        self.plan = DialPlan(OWN, lambda: 0.0, DialPolicy(base_s=0.01))
        self.plan.members([PEER], 0.0)
        self.worked: asyncio.Queue[tuple[bytes, Address]] = asyncio.Queue()
        self.failed: asyncio.Queue[tuple[Attempt, str]] = asyncio.Queue()
        self.dialer = Dialer(
            self.plan,
            network.dial,
            now=self.now,
            on_worked=self.on_worked,
            on_failed=lambda attempt, text: self.failed.put_nowait((attempt, text)),
            stagger_s=stagger_s,
        )

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def on_worked(self, site: bytes, address: Address) -> None:
        self.plan.linked(site, self.now())
        self.worked.put_nowait((site, address))

    def see(self, *addresses: Address) -> None:
        self.plan.seen(PEER, b"", addresses, self.now())
        self.dialer.wake()


@contextlib.asynccontextmanager
async def running(network: Network, stagger_s: float = 0.0) -> AsyncIterator[Rig]:
    rig = Rig(network, stagger_s)
    task = asyncio.create_task(rig.dialer.run())
    try:
        async with asyncio.timeout(LIMIT_S):
            yield rig
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_the_first_address_to_answer_wins_and_the_silent_ones_are_cancelled() -> None:
    network = Network()
    network.answers = {DEAD: OSError(101, "Network is unreachable"), LIVE: PEER}
    async with running(network) as rig:
        rig.see(DEAD, SLOW, LIVE)
        assert await rig.worked.get() == (PEER, LIVE)
    assert network.dialed == [DEAD, SLOW, LIVE]
    assert network.cancelled == [SLOW]


async def test_a_quick_first_answer_leaves_the_others_alone() -> None:
    network = Network()
    network.answers = {LIVE: PEER}
    async with running(network, stagger_s=LIMIT_S) as rig:
        rig.see(LIVE, SLOW)
        await rig.worked.get()
    assert network.dialed == [LIVE]


async def test_a_refused_address_does_not_wait_for_the_stagger() -> None:
    network = Network()
    network.answers = {DEAD: TransportError("refused"), LIVE: PEER}
    async with running(network, stagger_s=2 * LIMIT_S) as rig:
        rig.see(DEAD, LIVE)
        assert await rig.worked.get() == (PEER, LIVE)


async def test_when_all_fail_the_site_s_own_answer_is_reported_and_it_is_tried_again() -> None:
    network = Network()
    network.answers = {DEAD: OSError(111, "refused"), LIVE: TransportError("shutting down", CloseCode.SHUTTING_DOWN)}
    async with running(network) as rig:
        rig.see(DEAD, LIVE)
        attempt, text = await rig.failed.get()
        assert attempt.target == PEER
        assert "shutting down" in text
        assert LIVE.text() in text
        network.answers[LIVE] = PEER
        assert await rig.worked.get() == (PEER, LIVE)


async def test_an_error_that_names_its_address_names_it_once() -> None:
    network = Network()
    network.answers = {LIVE: TransportError(f"{LIVE.text()}: refused: too many peers", CloseCode.LIMIT)}
    async with running(network) as rig:
        rig.see(LIVE)
        _, text = await rig.failed.get()
        assert text == f"{LIVE.text()}: refused: too many peers"


async def test_a_site_that_refuses_lastingly_is_not_hammered() -> None:
    network = Network()
    network.answers = {LIVE: TransportError("not a member", CloseCode.NOT_A_MEMBER)}
    async with running(network) as rig:
        rig.see(LIVE)
        await rig.failed.get()
        due = rig.plan.next_due()
        assert due is not None
        assert due - rig.now() > 10.0


async def test_an_address_of_somebody_else_is_passed_over_and_told_and_makes_no_long_pause() -> None:
    other = b"\x03" * 16
    answer = TransportError("another site answers at that address", CloseCode.NOT_AUTHENTICATED, other)
    network = Network()
    network.answers = {DEAD: answer, SLOW: TransportError("no answer"), LIVE: PEER}
    async with running(network) as rig:
        rig.see(DEAD, SLOW)
        _, text = await rig.failed.get()
        assert "another site" in text
        told = rig.plan.explain(PEER, rig.now())
        assert (told.elsewhere, told.failures) == (((DEAD, other),), 1)
        assert told.in_s < 1.0
        rig.see(DEAD, LIVE)
        assert await rig.worked.get() == (PEER, LIVE)
        assert rig.plan.explain(PEER, rig.now()).elsewhere == ((DEAD, other),)


async def test_all_sixteen_addresses_are_tried_and_the_last_one_wins_over_fifteen_silent_ones() -> None:
    silent = [Address(f"10.0.1.{each}", 1) for each in range(ADDRESSES_PER_SITE - 1)]
    network = Network()
    network.answers = {LIVE: PEER}
    async with running(network) as rig:
        rig.see(*silent, LIVE)
        assert await rig.worked.get() == (PEER, LIVE)
    assert network.dialed == [*silent, LIVE]
    assert network.cancelled == silent


async def test_stopping_cancels_what_is_under_way() -> None:
    network = Network()
    async with running(network) as rig:
        rig.see(SLOW)
        await network.silence.wait()
    assert network.cancelled == [SLOW]


async def test_a_dial_that_was_cancelled_under_us_is_a_failure_like_any_other() -> None:
    network = Network()
    gave_up = asyncio.Event()

    async def dial(address: Address, expect_site: bytes | None, on_proven: Callable[[], None]) -> bytes:
        gave_up.set()
        raise asyncio.CancelledError

    network.dial = dial  # type: ignore[method-assign]
    async with running(network) as rig:
        rig.see(LIVE)
        _, text = await rig.failed.get()
        assert gave_up.is_set()
        assert LIVE.text() in text


async def test_where_the_site_itself_answered_no_other_address_is_dialed_meanwhile() -> None:
    """It waits for an old link to be looked at; further links would have to be decided between."""
    network = Network()
    decided = asyncio.Event()

    async def dial(address: Address, expect_site: bytes | None, on_proven: Callable[[], None]) -> bytes:
        network.dialed.append(address)
        on_proven()
        await decided.wait()
        if address == SLOW:
            raise TransportError("the old link answers after all", CloseCode.DUPLICATE)
        return PEER

    network.dial = dial  # type: ignore[method-assign]
    async with running(network) as rig:
        rig.see(SLOW, LIVE)
        for _ in range(10):
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        assert network.dialed == [SLOW]
        decided.set()
        assert await rig.worked.get() == (PEER, LIVE)


async def test_a_defect_in_a_dial_costs_that_dial_alone() -> None:
    network = Network()
    network.answers = {DEAD: RuntimeError("what nobody thought of"), LIVE: PEER}
    async with running(network) as rig:
        rig.see(DEAD)
        _, why = await rig.failed.get()
        assert "internal error (RuntimeError)" in why
        rig.see(DEAD, LIVE)
        assert await rig.worked.get() == (PEER, LIVE)
