"""NEOTH's memory and ground-truth snapshots as ordinary tables, on two devices of which one is cut off for a while.

What a memory or a claim is called follows from what it says, so that two devices which note the same have one row.
Evidence names a memory by that id and may be there before it: it counts once the memory has come, and may then turn
the verdict. Where both devices moved one memory to different tiers, the later move shows and a person decides.
"""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from blake3 import blake3

from meshnode import Node, Table

TIERS = ("working", "short", "long")  # from what is at hand to what is only kept: NEOTH's hot, warm and cold


def content_id(kind: str, **content: str) -> str:
    """BLAKE3 of the canonical content: the same on every device, whoever writes it down first."""
    return blake3(json.dumps([kind, content], sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclass
class Memory:
    """Something that was observed. Text and time make its id, and stay; its tier changes."""

    id: str
    text: str
    observed: datetime
    tier: str = TIERS[0]


@dataclass
class Claim:
    """Something that may be true, and the verdict as the evidence stands."""

    id: str
    statement: str
    state: str = "open"
    confidence: Decimal = Decimal(0)
    unresolved: int = 0  # pieces of evidence whose memory is not here yet


@dataclass
class Evidence:
    """What a memory says about a claim: a weight above zero is for it, below zero against it."""

    claim: str
    memory: str
    weight: Decimal


def memory(text: str, observed: datetime) -> Memory:
    """A memory under the id that its content has."""
    return Memory(content_id("memory", text=text, observed=observed.isoformat()), text, observed)


def told(verdict: Claim) -> str:
    """A verdict in words."""
    return f"{verdict.state}, {verdict.confidence:+}, {verdict.unresolved} unresolved"


class Mind:
    """The three tables of one device."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.memories: Table[Memory] = node.table("memories", Memory)
        self.claims: Table[Claim] = node.table("claims", Claim)
        self.evidence: Table[Evidence] = node.table("evidence", Evidence)

    async def create(self) -> None:
        """The tables are those of the types."""
        await self.memories.create(key="id")
        await self.claims.create(key="id")
        await self.evidence.create(key=["claim", "memory"])

    async def observe(self, seen: Memory, claim: Claim, weight: str) -> None:
        """A memory and what it says about a claim: both, or neither."""
        async with self.node.transaction() as rows:
            rows.upsert(self.memories, seen)
            rows.upsert(self.evidence, Evidence(claim.id, seen.id, Decimal(weight)))

    async def move(self, seen: Memory, *tiers: str) -> None:
        """From tier to tier: one column of the row, so that whatever others write of it stays."""
        for tier in tiers:
            await self.memories.patch(seen.id, tier=tier)

    async def judge(self, claim: Claim) -> Claim:
        """Weigh what has arrived. It follows from the rows alone, so two devices that have the same judge the same."""
        pieces = [piece async for piece in self.evidence.rows({"claim": claim.id})]
        resolved = [piece for piece in pieces if await self.memories.get(piece.memory)]
        confidence = sum((piece.weight for piece in resolved), Decimal(0))
        state = "confirmed" if confidence > 0 else "refuted" if confidence < 0 else "open"
        verdict = Claim(claim.id, claim.statement, state, confidence, len(pieces) - len(resolved))
        await self.claims.upsert(verdict)  # writes the columns that differ, and nothing where none does
        return verdict

    async def judge_as_it_comes(self, claim: Claim) -> Claim:
        """Judge again with each memory from elsewhere, until no evidence waits for one."""
        async for change in self.memories.changes(since=0):
            if not change.local:
                verdict = await self.judge(claim)
                if not verdict.unresolved:
                    return verdict
        raise RuntimeError("the node was closed")

    async def known(self, claim: Claim) -> str:
        """The verdict in the table, as soon as all of its evidence is there."""
        [found] = await self.node.until("SELECT * FROM claims WHERE id = ? AND unresolved = 0", [claim.id], row=Claim)
        return told(found)

    async def everything(self) -> list[list[Any]]:
        """All rows, to be compared."""
        return [[row async for row in table.rows()] for table in (self.memories, self.claims, self.evidence)]


@asynccontextmanager
async def two_minds(folder: str) -> AsyncIterator[tuple[Mind, Mind]]:
    """Two devices of one mesh, with the tables."""
    async with Node.open(f"{folder}/desk", name="desk") as node:
        invite = await node.invite()
        async with Node.open(f"{folder}/robot", name="robot", invite=invite.invite) as other:
            desk, robot = Mind(node), Mind(other)
            await desk.create()
            await robot.create()
            yield desk, robot


async def main(folder: str) -> None:
    """What the two know before, while and after the robot is cut off."""
    evening, morning = datetime(2026, 6, 1, 22, tzinfo=UTC), datetime(2026, 6, 2, 7, tzinfo=UTC)
    door = memory("The door stands open", morning)
    camera = memory("The camera shows the door shut", evening)
    rain = memory("It began to rain", morning)
    statement = "The door was open all night"
    claim = Claim(content_id("claim", statement=statement), statement)
    async with two_minds(folder) as (desk, robot):
        await desk.observe(door, claim, "0.6")
        print("desk:", told(await desk.judge(claim)))
        await desk.node.wait_synced("robot")

        await robot.node.set_online(False)
        await desk.memories.upsert(rain)
        await desk.move(door, "short")
        await desk.evidence.upsert(Evidence(claim.id, camera.id, Decimal("-0.9")))  # told of, and not seen
        print("desk alone:", told(await desk.judge(claim)))
        await robot.memories.upsert(rain)  # the same content is the same row, and no conflict
        await robot.observe(camera, claim, "-0.9")
        await robot.move(door, "short", "long")
        print("robot alone:", told(await robot.judge(claim)))

        await robot.node.set_online(True)
        print("desk, when the memory has come:", told(await desk.judge_as_it_comes(claim)))
        await desk.node.wait_synced("robot")
        print("robot:", await robot.known(claim))
        print("equal:", await desk.everything() == await robot.everything())

        for conflict in await desk.node.conflicts():
            print(f"{conflict.column}: {conflict.ours.value} or {conflict.theirs.value}? It shows {conflict.value}.")
            await desk.node.resolve_conflict(conflict.id, prefer="desk")
        await desk.node.wait_synced("robot")
        for name, mind in (("desk", desk), ("robot", robot)):
            decided = [each.tier async for each in mind.memories.rows({"id": door.id})]
            print(f"{name}: decided for {decided[0]}, conflicts left: {len(await mind.node.conflicts())}")
        print("equal:", await desk.everything() == await robot.everything())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(folder))
