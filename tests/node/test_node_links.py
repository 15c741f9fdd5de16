"""Fewer links than members: six nodes with two or three each still become equal (profile §12; `max_links`)."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path

import msgspec
import pytest
from support.nodes import TABLE, add_notes, free_port, loopback, note, until

from meshnode import Node, join

MEMBERS = 6


async def homes_of(folder: Path, ports: Sequence[int]) -> list[Path]:
    """Six homes of one mesh, each with the table and the addresses at which the others were; nobody runs."""
    homes = [folder / str(number) for number in range(MEMBERS)]
    sites = []
    async with Node(homes[0], config=loopback(port=ports[0], name="0")) as founder:
        await add_notes(founder)
        for home in homes[1:]:
            await join(home, (await founder.invite()).invite, name=home.name)
        sites.append((await founder.status()).site)
    for home, port in zip(homes[1:], ports[1:], strict=True):
        async with Node(home, config=loopback(port=port)) as node:
            await add_notes(node)
            sites.append((await node.status()).site)
    for home in homes:
        with closing(sqlite3.connect(home / "meshnode.db", isolation_level=None)) as database:
            database.executemany(
                "INSERT OR REPLACE INTO meshnode_addresses VALUES (?, ?, 1)",
                [(bytes.fromhex(site), f"127.0.0.1:{port}") for site, port in zip(sites, ports, strict=True)],
            )
    return homes


@asynccontextmanager
async def running(
    homes: Sequence[Path], ports: Sequence[int], most: int, given: Sequence[int]
) -> AsyncIterator[list[Node]]:
    async with AsyncExitStack() as stack:
        configs = [msgspec.structs.replace(loopback(*given, port=port), max_links=most) for port in ports]
        nodes = [Node(home, config=config) for home, config in zip(homes, configs, strict=True)]
        await asyncio.gather(*(stack.enter_async_context(node) for node in nodes))
        yield nodes


async def links(node: Node) -> int:
    return sum(peer.linked for peer in await node.peers())


@pytest.mark.parametrize(("most", "by_address"), [(2, False), (3, False), (2, True)])
@pytest.mark.usefixtures("soon_again")
async def test_six_nodes_with_few_links_each_become_equal(tmp_path: Path, most: int, by_address: bool) -> None:
    """Whether they know who is at which address, or were only told all addresses."""
    ports = [free_port() for _ in range(MEMBERS)]
    homes = await homes_of(tmp_path, ports)
    if by_address:
        ports = [free_port() for _ in range(MEMBERS)]  # those that were remembered lead nowhere
    async with running(homes, ports, most, ports if by_address else []) as nodes:
        for number, node in enumerate(nodes):
            await node.import_rows(TABLE, [note(number)])

        async def equal() -> bool:
            rows = [await node.digest() for node in nodes]
            return rows[0][0].rows == MEMBERS and rows == [rows[0]] * len(nodes)

        await until(nodes[0], equal)
        assert max([await links(node) for node in nodes]) <= most
        # Later writes need no luck: they go along the links that are there.
        await nodes[3].import_rows(TABLE, [note(100)])

        async def arrived() -> bool:
            found = [await node.get(TABLE, {"id": "n000100"}) for node in nodes]
            return None not in found

        await until(nodes[0], arrived)
        kinds = {each.kind for node in nodes for each in (await node.status()).notices}
        assert "too-many-peers" not in kinds, "few links are no condition to be told about"
