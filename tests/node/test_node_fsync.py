"""Durable means fsync: no ack leaves before the WAL with its frame is on disk (NEOTH commit contract, profile §8).

The receiver runs under strace and is otherwise idle; the sender gives it one frame at a time. Clocks of the trace and
of this process are the same, so the calls of each frame are those between its write and its settlement.
"""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from secrets import token_hex

from support import trace
from support.nodes import PATIENCE_S, TABLE, Process, add_notes, changes_until, free_port, loopback
from support.trace import Call

from meshnode import Node, join

FRAMES = 12
ROW_CHARACTERS = 8000  # several datagrams of a frame
FRAME_WRITES = 2 * ROW_CHARACTERS  # bytes at least that it adds to the WAL: the log has the event, the table the row
FULL_DATAGRAM = 1000  # bytes from which a received datagram is part of such a frame
ACK_DATAGRAM = 100  # an ack holds a digest and more; what QUIC itself sends between frames is smaller


async def test_each_ack_leaves_after_an_fdatasync_of_the_wal_that_follows_the_frames_last_write(tmp_path: Path) -> None:
    output = tmp_path / "trace"
    moments: list[float] = []
    async with Node(tmp_path / "a", config=loopback()) as sender:
        await join(tmp_path / "b", (await sender.invite()).invite, name="b")
        before = trace.command(output)
        # The receiver alone knows where the other is, so there is one link and nothing to decide between two.
        async with Process.on_loopback(tmp_path / "b", free_port(), before=before) as receiver:
            await add_notes(sender, receiver.client)
            assert (await sender.wait(timeout_s=PATIENCE_S)).complete
            await sender.put(TABLE, {"id": "first"}, {})
            assert (await sender.wait(timeout_s=PATIENCE_S)).complete
            for number in range(FRAMES):
                moments.append(time.time())
                title = token_hex(ROW_CHARACTERS // 2)  # which deflates to half at best
                await sender.put(TABLE, {"id": f"f{number}"}, {"title": title})
                assert (await sender.wait(timeout_s=PATIENCE_S)).complete
                await changes_until(receiver.client, f"f{number}")
            moments.append(time.time())
            await receiver.stop()
    with output.open() as lines:
        seen = list(trace.calls(lines))
    for begin, end in pairwise(moments):
        check_frame([call for call in seen if begin <= call.at < end])


def check_frame(calls: list[Call]) -> None:
    """The frame came, was written, was synced; and only then did anything of an ack's size leave."""
    datagrams = [call for call in calls if call.path.startswith("UDP")]
    came = [call for call in datagrams if call.name in ("recvfrom", "recvmsg") and call.result >= FULL_DATAGRAM]
    sent = [call for call in datagrams if call.name in ("sendto", "sendmsg") and call.result >= ACK_DATAGRAM]
    assert came
    assert sent
    synced = sync_of_frame([call for call in calls if call.path.endswith("-wal") and call.began > came[0].ended])
    assert synced.result == 0
    assert synced.ended < min(call.began for call in sent), "an ack left before its frame was on disk"


def sync_of_frame(calls: list[Call]) -> Call:
    """The sync of the transaction that wrote the frame: the one that is large. Small ones may surround it."""
    size, last = 0, -1
    for call in calls:
        if call.name in ("pwrite64", "write"):
            size, last = size + call.result, max(last, call.ended)
        elif size < FRAME_WRITES:
            size = 0
        else:
            assert call.began > last
            return call
    raise AssertionError("the WAL was never synced after the frame was written")
