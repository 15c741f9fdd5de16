"""The first device is stolen: another one retires it with the recovery key, in real processes (profile §9).

What the thief writes then is taken back everywhere, on a node that was cut off at the time too; what the owner wrote
before stays. The device that is found again comes back as another site, with its rows.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from support.command import meshnode
from support.nodes import LOOK_S, PATIENCE_S, TABLE, Process, add_notes, free_port, loopback, pair_of_homes

from meshnode import Node, join
from meshnode.control.client import ControlClient
from meshnode.errors import MembershipError
from meshnode.node.home import Home
from meshnode.node.local import open_local


async def holds(client: ControlClient, what: Callable[[], Awaitable[bool]]) -> None:
    """Look again after every change there, and now and then."""
    async with asyncio.timeout(PATIENCE_S):
        while not await what():
            await client.wait(timeout_s=LOOK_S / 4)


async def titles(client: ControlClient) -> dict[str, str]:
    return {str(row.key["id"]): str(row.columns["title"]) for row in await client.rows(TABLE)}


async def three_homes(folder: Path, ports: tuple[int, int, int]) -> tuple[Path, Path, Path]:
    """Homes a, b and c with the shared table; the recovery key was moved away to `safe`."""
    a_home, b_home = await pair_of_homes(folder, ports[:2])
    async with Node(a_home, config=loopback(port=ports[0], name="a")) as a:
        await join(folder / "c", (await a.invite()).invite, name="c")
    async with open_local(Home.load(folder / "c"), writing=True) as c:
        await add_notes(c)
    (folder / "safe").mkdir()
    shutil.move(a_home / "recovery.key", folder / "safe" / "recovery.key")
    return a_home, b_home, folder / "c"


async def test_a_stolen_first_device_is_retired_by_the_recovery_key(tmp_path: Path) -> None:
    ports = free_port(), free_port(), free_port()
    homes = await three_homes(tmp_path, ports)
    recovery = str(tmp_path / "safe" / "recovery.key")
    a, b, c = (
        Process.on_loopback(home, port, *(other for other in ports if other != port))
        for home, port in zip(homes, ports, strict=True)
    )
    async with AsyncExitStack() as running:
        for process in (a, b, c):
            await running.enter_async_context(process)
        await a.client.put(TABLE, {"id": "1"}, {"title": "the owner's"})
        for process in (b, c):
            await holds(process.client, lambda process=process: has(process, "1"))  # type: ignore[misc]
        await c.stop()

        # The thief keeps the device from the others; its owner retires it on b, which alone is at hand.
        await b.client.set_online(False)
        refused = await meshnode("retire", "a", "--yes", home=homes[1])
        assert (refused.code, "the recovery key (--recovery FILE)" in refused.err) == (1, True), refused
        retired = await meshnode("retire", "a", "--recovery", recovery, "--yes", "--output", "json", home=homes[1])
        assert (retired.code, retired.json["name"], retired.json["by"]) == (0, "a", "the recovery key"), retired

        # Meanwhile c, which was away, hears of the thief alone.
        await c.start()
        await a.client.put(TABLE, {"id": "1"}, {"title": "the thief's"})
        await a.client.put(TABLE, {"id": "2"}, {"title": "the thief's"})
        await holds(c.client, lambda: has(c, "2"))
        assert (await titles(c.client))["1"] == "the thief's"

        await b.client.set_online(True)
        owners = {"1": "the owner's"}
        for process in (b, c, a):
            await holds(process.client, lambda process=process: equals(process, owners))  # type: ignore[misc]
        for process in (b, c):
            (stolen,) = [each for each in await process.client.members() if each.retired]
            assert (stolen.name, stolen.retired_by, stolen.linked) == ("a", "the recovery key", False)

        await is_told(a, homes[0])
        await comes_back_as_another(a, b, c, homes, ports, recovery)


async def has(process: Process, row: str) -> bool:
    return row in await titles(process.client)


async def equals(process: Process, rows: dict[str, str]) -> bool:
    return await titles(process.client) == rows


async def is_told(process: Process, home: Path) -> None:
    """It says so to its user, over a restart too, writes nothing, and is refused by everybody."""
    start = 0  # of what it said in the present run
    for restarted in (False, True):
        await holds(process.client, lambda: knows(process))
        with pytest.raises(MembershipError, match="retired"):
            await process.client.put(TABLE, {"id": "3"}, {"title": "x"})
        wrote = await meshnode("put", TABLE, "id=3", "title=x", home=home)
        assert (wrote.code, "identity renew INVITE" in wrote.err) == (1, True), wrote
        shown = await meshnode("status", home=home)
        assert "retired from mesh" in shown.out
        assert "Warning: this device was retired" in shown.out
        await process.stop()
        if restarted:
            assert any("this device was retired" in line for line in process.said[start:]), "it says so when it starts"
        start = len(process.said)
        await process.start()


async def knows(process: Process) -> bool:
    status = await process.client.status()
    return status.retired and not any(peer.linked for peer in status.peers)


async def comes_back_as_another(
    a: Process, b: Process, c: Process, homes: tuple[Path, Path, Path], ports: tuple[int, int, int], recovery: str
) -> None:
    before = (await a.client.status()).site
    nobody = await meshnode("status", home=homes[1])
    assert "no device can let others in" in nobody.out
    made = await meshnode("role", "b", "authority", "--recovery", recovery, home=homes[1])
    assert (made.code, made.out.startswith("'b'")) == (0, True), made
    warned = await meshnode("status", home=homes[1])
    assert "'b'" in warned.out
    assert "is the only device that can let others in" in warned.out
    invite = (await b.client.invite()).invite
    await a.stop()
    renewed = await meshnode("identity", "renew", "-", "--name", "found", home=homes[0], stdin=invite.encode())
    assert renewed.code == 0, renewed
    await a.start()
    status = await a.client.status()
    assert (status.retired, status.site == before) == (False, False)
    assert all("only device" in each for each in status.warnings), status.warnings
    await a.client.put(TABLE, {"id": "4"}, {"title": "found again"})
    expected = {"1": "the owner's", "4": "found again"}
    for process in (a, b, c):
        await holds(process.client, lambda process=process: equals(process, expected))  # type: ignore[misc]
    digests = {(await process.client.digest(TABLE))[0].digest for process in (a, b, c)}
    assert len(digests) == 1
    assert [each.count for each in [await process.client.check() for process in (a, b, c)]] == [0, 0, 0]
    names = {each.site: (each.name, each.retired) for each in await c.client.members()}
    assert names[before] == ("a", True)
    assert names[status.site] == ("found", False)
