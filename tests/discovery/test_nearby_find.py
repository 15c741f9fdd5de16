"""Finding a device that was opened by what people call it: names are claims, ids tell them apart (profile §10, §11)."""

from __future__ import annotations

import asyncio

import pytest

from meshnode.errors import PairingError, UsageError
from meshnode.net.sightings import Sighting
from meshnode.node import nearby_join
from meshnode.node.config import Config
from meshnode.node.nearby_join import Nearby

ONE, TWO = b"\x01" * 16, b"\x02" * 16


def seen(site: bytes, name: str, port: int = 4748) -> Sighting:
    return Sighting(site, bytes(8), 4747, ("192.0.2.1",), b"att", False, b"", port, name)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearby_join, "SETTLE_S", 0.05)


async def test_a_name_in_any_case_a_short_id_or_a_site_id(monkeypatch: pytest.MonkeyPatch) -> None:
    nearby = Nearby()
    nearby._saw(seen(ONE, "Desk"))
    nearby._saw(seen(TWO, "lap"))
    for named in ("desk", "DESK", "01010101", "01" * 16):
        assert (await nearby.find(named, 5.0)).site == ONE
    assert [(each.name, each.addresses) for each in nearby.devices()] == [
        ("Desk", ["192.0.2.1:4748"]),
        ("lap", ["192.0.2.1:4748"]),
    ]


async def test_two_of_one_name_are_told_apart_by_their_ids() -> None:
    nearby = Nearby()
    nearby._saw(seen(ONE, "desk"))
    nearby._saw(seen(TWO, "Desk"))
    with pytest.raises(UsageError, match=r"several devices here are called 'desk': .*\(01010101, 02020202\)"):
        await nearby.find("desk", 5.0)
    assert (await nearby.find("02020202", 5.0)).site == TWO


async def test_a_second_one_that_shows_just_after_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearby_join, "SETTLE_S", 5.0)
    nearby = Nearby()
    nearby._saw(seen(ONE, "desk"))
    finding = asyncio.create_task(nearby.find("desk", 5.0))
    await asyncio.sleep(0)
    assert not finding.done()
    nearby._saw(seen(TWO, "desk"))
    with pytest.raises(UsageError, match="several devices"):
        await finding


async def test_a_name_that_poses_as_an_id_does_not_win() -> None:
    nearby = Nearby()
    nearby._saw(seen(ONE, "02020202"))
    nearby._saw(seen(TWO, "lap"))
    assert (await nearby.find("02020202", 5.0)).site == TWO


async def test_one_that_comes_while_it_is_looked_for() -> None:
    nearby = Nearby()
    finding = asyncio.create_task(nearby.find("desk", 5.0))
    await asyncio.sleep(0)
    nearby._saw(seen(ONE, "desk", port=0))  # there, and not open
    await asyncio.sleep(0)
    assert nearby.devices() == []
    nearby._saw(seen(ONE, "desk"))
    assert (await finding).site == ONE


async def test_nobody_is_one_line_with_who_is_there() -> None:
    nearby = Nearby()
    nearby._saw(seen(ONE, "desk"))
    with pytest.raises(PairingError, match=r"no device called 'nas' is open .*\(open: 'desk'\): `meshnode nearby"):
        await nearby.find("nas", 0.05)
    nearby._gone(ONE)
    with pytest.raises(PairingError, match=r"\(starting\)"):
        await nearby.find("desk", 0.05)


async def test_where_the_settings_turn_mdns_off_that_is_why_nobody_is_found() -> None:
    async with Nearby.looking(Config(mdns_enabled=False)) as nearby:
        with pytest.raises(PairingError, match="mdns_enabled is false"):
            await nearby.find("desk", 0.0)
