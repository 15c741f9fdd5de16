"""Several peers in one process, so that a machine of two cores has room for twenty: `python -m meshnode.bench.crowd`.

Each is a whole node with a home, a port and links of its own, that dials one node alone. A line `N` on standard input
lets the first N of them run, which is answered by a line; the end of the input ends them.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from meshnode.bench.homes import founded, joined
from meshnode.bench.nodes import LOOPBACK, PATIENCE_S, NodeProcess, environment, free_port, patience
from meshnode.errors import StoreError
from meshnode.node.config import Config
from meshnode.node.home import Home


@dataclass(slots=True)
class Crowd:
    """The node that is measured, and the process of its peers."""

    node: NodeProcess
    peers: asyncio.subprocess.Process

    async def let_run(self, count: int) -> None:
        """Let so many peers run, and wait until all are linked to the node and it has settled with them."""
        assert self.peers.stdin is not None
        assert self.peers.stdout is not None
        self.peers.stdin.write(b"%d\n" % count)
        async with patience(PATIENCE_S, f"{count} peers did not start"):
            if not await self.peers.stdout.readline():
                raise StoreError("the process of the peers has ended: try with fewer, or more memory")
        await self.node.linked(count)
        await self.node.client.wait(timeout_s=PATIENCE_S, live_only=True)


@asynccontextmanager
async def crowd(folder: Path, count: int) -> AsyncIterator[Crowd]:
    """A node and so many members, none of which runs yet."""
    port = free_port()
    home = await founded(folder / "node")
    address = f"{LOOPBACK}:{port}"
    homes = await joined(home, [folder / f"peer-{number:02}" for number in range(count)], address)
    async with NodeProcess(home, port) as node:
        pipe = asyncio.subprocess.PIPE
        words = [address, *(str(each.path) for each in homes)]
        peers = await asyncio.create_subprocess_exec(
            sys.executable, "-m", __name__, *words, stdin=pipe, stdout=pipe, env=environment(), start_new_session=True
        )
        try:
            yield Crowd(node, peers)
        finally:
            assert peers.stdin is not None
            peers.stdin.close()
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await peers.wait()
            except (TimeoutError, asyncio.CancelledError):
                peers.kill()
                await peers.wait()
                raise


async def _run(address: str, folders: Sequence[str]) -> None:
    from meshnode.node.node import Node

    lines, loop = iter(sys.stdin.readline, ""), asyncio.get_running_loop()
    running = 0
    async with AsyncExitStack() as nodes:
        while (line := await loop.run_in_executor(None, next, lines, "")) != "":
            for folder in folders[running : int(line)]:
                home = Home.load(Path(folder))
                config = Config(
                    name=home.path.name, listen=LOOPBACK, port=free_port(), mdns_enabled=False, peers=[address]
                )
                await nodes.enter_async_context(Node(home, config=config))
            running = max(running, int(line))
            print(running, flush=True)


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1], sys.argv[2:]))
