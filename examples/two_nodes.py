"""Two devices in one program: found a mesh, pair, write at one, read at the other."""

import asyncio
import tempfile
from dataclasses import dataclass

from meshnode import Node


@dataclass
class Note:
    """A row of the table `notes`: fields are columns."""

    id: str
    title: str = ""
    done: bool = False


async def main(folder: str) -> None:
    """Both devices, until they have the same."""
    async with Node.open(f"{folder}/desk", name="desk") as desk:
        invite = await desk.invite()
        async with Node.open(f"{folder}/lap", name="lap", invite=invite.invite) as lap:
            here = await desk.table("notes", Note).create(key="id")
            there = await lap.table("notes", Note).create(key="id")
            await here.upsert(Note("n1", "Milk"), Note("n2", "Bread"))
            await here.patch("n2", done=True)
            await desk.wait_synced("lap")
            print([note async for note in there.rows({"done": False})])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(folder))
