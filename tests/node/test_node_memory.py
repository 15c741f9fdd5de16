"""The receiver's memory does not grow with history: twice the events, the same memory."""

from __future__ import annotations

from pathlib import Path

from support.nodes import PATIENCE_S, TABLE, Process, add_notes, free_port, loopback, note

from meshnode import Node, join

HALF = 5_000  # events
TITLE = "x" * 1_000  # so that keeping even only the bytes of half the events would show
BATCH = 500
GROWTH_BYTES = 4 * 2**20  # below the bytes of half the events; the allocator and SQLite's page cache move within it


def resident_bytes(pid: int) -> int:
    """What a process has in memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


async def test_the_receivers_memory_does_not_grow_with_history(tmp_path: Path) -> None:
    async with Node(tmp_path / "a", config=loopback()) as sender:
        await join(tmp_path / "b", (await sender.invite()).invite, name="b")
        async with Process.on_loopback(tmp_path / "b", free_port(), afresh=True) as receiver:
            await add_notes(sender, receiver.client)
            after = [await _load(sender, receiver, part) for part in range(2)]
            print(f"resident after {HALF} and {2 * HALF} events: {after[0] / 2**20:.1f} and {after[1] / 2**20:.1f} MiB")
            assert (await receiver.client.status()).events == 2 * HALF
            assert after[1] - after[0] < GROWTH_BYTES


async def _load(sender: Node, receiver: Process, part: int) -> int:
    """Write half of the events, wait until they are there, and look at the receiver's memory."""
    for first in range(part * HALF, (part + 1) * HALF, BATCH):
        await sender.import_rows(TABLE, [note(first + each, TITLE) for each in range(BATCH)])
    assert (await sender.wait(timeout_s=PATIENCE_S)).complete
    return resident_bytes(receiver.pid)
