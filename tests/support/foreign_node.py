"""A real node on loopback and foreign peers that are members of its mesh."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshnode import Config, Node
from support.foreign_bytes import Site
from support.foreign_pairing import pair
from support.foreign_peer import Foreigner

INVITE_MS = 600_000


@dataclass
class Here:
    """The node under test."""

    node: Node
    home: Path
    port: int

    def recovery(self) -> Site:
        """The founder's key, as its file in the home has it."""
        return Site.from_cose_key((self.home / "recovery.key").read_bytes())

    async def member(self, name: str = "foreigner", site: Site | None = None) -> Foreigner:
        """A foreign peer that was paired."""
        peer = Foreigner(site or Site(os.urandom(32)), name)
        await pair(peer, self.port, (await self.node.invite(INVITE_MS)).invite)
        return peer

    async def put(self, key: str, title: str = "text", table: str = "notes") -> None:
        """Write a row on the node."""
        await self.node.put(table, {"id": key}, {"title": title})

    async def title(self, key: str, table: str = "notes") -> Any:
        """What the node's table says, None without a row."""
        row = await self.node.get(table, {"id": key})
        return None if row is None else row.columns.get("title")

    async def noticed(self, kind: str) -> int:
        """How often the node surfaced a kind of condition."""
        return sum(notice.count for notice in (await self.node.status()).notices if notice.kind == kind)


def free_port() -> int:
    """A UDP port that nobody uses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def running(home: Path, *tables: str, **config: Any) -> AsyncIterator[Here]:
    """The node of a home, with these tables (`id`, `title`) besides `notes`."""
    port = free_port()
    settings = Config(name="node", listen="127.0.0.1", port=port, mdns_enabled=False, **config)
    async with Node(home, config=settings) as node:
        for table in ("notes", *tables):
            await node.add_table(table, {"id": "TEXT"}, {"title": "TEXT"})
        yield Here(node, home, port)
