"""A node in a process of its own, with `notes`, whose writer stands still between two lines on standard input.

    python tests/support/standing_node.py HOME

Says `PORT INVITE` when it is up, and a word after each line that it reads.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from meshnode import Node
from support.nodes import add_notes, free_port, loopback


async def main(home: Path) -> None:
    """Run until standard input ends."""
    port, go = free_port(), threading.Event()
    async with Node(home, config=loopback(port=port)) as node:
        await add_notes(node)
        print(port, (await node.invite()).invite, flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            go.clear()
            standing = asyncio.create_task(node.storage.write(lambda _engine: go.wait()))
            await asyncio.sleep(0)  # it is queued
            print("stands", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            go.set()
            await standing
            print("goes", flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
