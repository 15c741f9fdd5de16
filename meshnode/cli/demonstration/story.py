"""The demo's story: three devices pair, share a table, lose each other in every way, and end equal."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from meshnode.cli.demonstration.actors import Actor
from meshnode.cli.demonstration.result import NodeResult, Result
from meshnode.cli.demonstration.screen import Screen
from meshnode.cli.demonstration.zones import COLUMNS, KEY, TABLE, zone_rows
from meshnode.node.api import ROWS_PER_IMPORT
from meshnode.node.views import RowChange

WAIT_S = 60.0  # seconds the nodes have to become equal at each step
HERE = ("--listen", "127.0.0.1")  # all three are on this machine: nothing is said to its network
LOOK_S = 0.05  # seconds between two looks at the links
SHARED_EDITS = 40  # rows that all three edit
BURST = 60  # single writes under way when a node is killed


@dataclass(slots=True)
class Story:
    """The cast and what is measured on the way."""

    folder: Path
    screen: Screen
    started: float = field(default_factory=time.monotonic)
    killed: list[int] = field(default_factory=list)
    cut_s: float = 0.0
    cast: list[Actor] = field(default_factory=list)

    async def run(self) -> Result:
        """Play it; raises MeshError where a step fails."""
        laptop, phone, nas = self.cast = [Actor(name, self.folder / name, HERE) for name in ("laptop", "phone", "nas")]
        try:
            async with self.screen.following(self.cast):
                await self._pair(laptop, phone, nas)
                await self._load(laptop)
                await self._edit_apart(laptop, phone, nas)
                await self._settle("all three talk again")
                return await self._result()
        finally:
            await asyncio.gather(*(actor.stop() for actor in self.cast))

    async def _pair(self, laptop: Actor, *joiners: Actor) -> None:
        self.screen.say("[bold]laptop[/bold] founds a mesh")
        await laptop.verb("init", "--name", "laptop")
        await laptop.start()
        for joiner in joiners:
            invite = await laptop.node.invite(ttl_ms=5 * 60_000)
            self.screen.say(f"[bold]{joiner.name}[/bold] joins with an invite")
            await joiner.verb("join", "-", "--yes", "--name", joiner.name, stdin=invite.invite)
            await joiner.start()
        self.screen.say("every node links to every other")
        await asyncio.gather(*(self._linked(actor, len(joiners)) for actor in self.cast))

    async def _linked(self, actor: Actor, peers: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while await self._links(actor) < peers:  # noqa: ASYNC110  # links are no change that could be followed
                await asyncio.sleep(LOOK_S)

    async def _links(self, actor: Actor) -> int:
        return sum(peer.linked for peer in await actor.node.peers())

    async def _load(self, laptop: Actor) -> None:
        for actor in self.cast:
            await actor.node.add_table(TABLE, KEY, COLUMNS)
        rows = zone_rows()
        self.screen.say(f"[bold]laptop[/bold] loads the IANA zone table: {len(rows)} rows")
        for start in range(0, len(rows), ROWS_PER_IMPORT):
            await laptop.node.import_rows(TABLE, rows[start : start + ROWS_PER_IMPORT])
        await self._settle("every node has the table")

    async def _edit_apart(self, laptop: Actor, phone: Actor, nas: Actor) -> None:
        rows = zone_rows()[:SHARED_EDITS]
        cut_at = time.monotonic()
        await phone.node.set_online(False)
        self.screen.say("[bold]phone[/bold] is [yellow]cut off[/yellow], and goes on editing")
        self.screen.say(f"the same {len(rows)} rows are edited on all three")
        await asyncio.gather(
            laptop.node.import_rows(TABLE, [_note(row, "laptop") for row in rows]),
            phone.node.import_rows(TABLE, [_note(row, "phone", comments="edited on the phone") for row in rows]),
        )
        await phone.node.remove(TABLE, rows[0].key)
        await self._kill_while_writing(nas, rows)
        await laptop.node.import_rows(TABLE, [_note(row, "laptop again") for row in rows[: len(rows) // 2]])
        await nas.start()
        self.screen.say("[bold]nas[/bold] is [green]started again[/green]")
        await phone.node.set_online(True)
        self.cut_s = time.monotonic() - cut_at
        self.screen.say(f"[bold]phone[/bold] is [green]back[/green] after {self.cut_s:.1f} s")

    async def _kill_while_writing(self, nas: Actor, rows: list[RowChange]) -> None:
        """Kill between two writes of a burst: what was acknowledged to the writer must be there afterwards."""
        written: list[str] = []
        half = asyncio.Event()

        async def burst() -> None:
            for number in range(BURST):
                row = rows[number % len(rows)]
                await nas.node.put(TABLE, row.key, {"note": f"nas {number}"})
                written.append(str(row.key["zone"]))
                if len(written) >= BURST // 2:
                    half.set()

        writing = asyncio.create_task(burst())
        await asyncio.wait({writing, asyncio.create_task(half.wait())}, return_when=asyncio.FIRST_COMPLETED)
        self.killed.append(await nas.kill())
        await asyncio.gather(writing, return_exceptions=True)
        self.screen.say(f"[bold]nas[/bold] is [red]killed[/red] (SIGKILL) while writing, {len(written)} writes in")

    async def _settle(self, what: str) -> None:
        for actor in self.cast:
            result = await actor.node.wait(timeout_s=WAIT_S)
            if not result.complete:
                behind = ", ".join(f"{peer.name} ({peer.reason})" for peer in result.behind) or result.reason
                self.screen.say(f"[red]{actor.name} still waits for {behind}[/red]")
        self.screen.say(what)

    async def _result(self) -> Result:
        nodes = [await self._node_result(actor) for actor in self.cast]
        return Result(
            converged=len({(node.state_digest, node.rows) for node in nodes}) == 1 and nodes[0].rows > 0,
            nodes=nodes,
            rows=nodes[0].rows,
            events=max(node.events for node in nodes),
            seconds=round(time.monotonic() - self.started, 3),
            killed=self.killed,
            cut_seconds=round(self.cut_s, 3),
            discovery=(await self.cast[0].node.status()).discovery,
        )

    async def _node_result(self, actor: Actor) -> NodeResult:
        status = await actor.node.status()
        digests = cast("list[dict[str, object]]", await actor.verb_json("digest", TABLE))
        return NodeResult(
            name=actor.name,
            site=status.site,
            home=str(actor.home),
            state_digest=str(digests[0]["digest"]),
            rows=int(str(digests[0]["rows"])),
            events=status.events,
        )


def _note(row: RowChange, note: str, **columns: str) -> RowChange:
    return RowChange(key=row.key, columns={"note": note, **columns})
