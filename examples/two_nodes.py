"""Two devices in one program: found a mesh, pair, write at one, read at the other."""

import asyncio
import tempfile

from meshnode import Node, join


async def main(folder: str) -> None:
    async with Node(f"{folder}/desk") as desk:
        invite = await desk.invite()
        await join(f"{folder}/lap", invite.invite, name="lap")
        async with Node(f"{folder}/lap") as lap:
            for node in (desk, lap):
                await node.add_table("notes", key={"id": "TEXT"}, columns={"title": "TEXT"})
            await desk.put("notes", {"id": "n1"}, {"title": "Milk"})
            await desk.wait(timeout_s=30)
            print(await lap.get("notes", {"id": "n1"}))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(folder))
