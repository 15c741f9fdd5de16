"""A receiver whose scope narrows and widens at random: no watermark passes what it skipped, and at rest all is claimed.

Fail-closed and still alive (SSP/1 §14.2, profile §8, "Requests").
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from support.pair import Wire, mesh, settle

from meshnode.model.frames import FEATURE_LIVE
from meshnode.model.hlc import Hlc
from meshnode.model.scope import Scope
from meshnode.store.watermarks import all_watermarks
from meshnode.sync.sender import WATERMARKS_MS

SCOPES = (Scope(), Scope(("*.*", "!main.notes")))
MEMORY = Path("/dev/shm")  # where there is one: each case makes databases
STEPS = st.one_of(st.integers(0, 30), st.just(1_000))
ROUNDS = st.tuples(st.integers(0, 1), st.integers(0, 2), STEPS, st.integers(0, 3_000))


class Pair:
    """One node that writes, and one that wants to hear of it or not."""

    def __init__(self, folder: Path) -> None:
        self.author, self.receiver = mesh(folder, 2)
        self.receiver.features = (FEATURE_LIVE,)  # a covering set leaves out what a later write of the row replaces
        self.written: dict[Hlc, bytes] = {}
        self.wire = Wire(self.author, self.receiver)

    def go_round(self, scope: int, writes: int, steps: int, ms: int) -> None:
        for _ in range(writes):
            event = self.author.write("row", f"value {len(self.written)}")
            self.written[event.hlc] = event.data
        self.set_scope(SCOPES[scope])
        self.take_steps(steps)
        self.pass_time(ms)

    def set_scope(self, scope: Scope) -> None:
        self.receiver.crash()  # a scope that changes takes a new link
        self.receiver.scope = scope
        self.wire = Wire(self.author, self.receiver)

    def take_steps(self, count: int) -> None:
        for turn in range(count):
            possible = self.wire.steps()
            if not possible:
                return
            possible[turn * count % len(possible)]()
            self.nothing_is_claimed_that_is_not_there()

    def pass_time(self, ms: int) -> None:
        self.author.time.now_ms += ms
        for end in (self.wire.left, self.wire.right):
            end.timer()

    def come_to_rest(self) -> None:
        self.set_scope(SCOPES[0])
        for _ in range(3):
            settle([self.wire])
            self.pass_time(WATERMARKS_MS)
        settle([self.wire])

    def claimed(self) -> Hlc | None:
        with self.receiver.context.transaction() as tx:
            return {each.site: each.hlc for each in all_watermarks(tx)}.get(self.author.site)

    def nothing_is_claimed_that_is_not_there(self) -> None:
        claimed = self.claimed()
        if claimed is not None:
            due = {data for hlc, data in self.written.items() if hlc <= claimed}
            assert due <= self.receiver.events()


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(ROUNDS, min_size=2, max_size=6))
def test_no_watermark_passes_what_a_narrower_scope_skipped(rounds: list[tuple[int, int, int, int]]) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        pair = Pair(Path(folder))
        for each in rounds:
            pair.go_round(*each)
            pair.nothing_is_claimed_that_is_not_there()
        pair.come_to_rest()
        pair.nothing_is_claimed_that_is_not_there()
        assert pair.claimed() == max(pair.written, default=None)
        for node in (pair.author, pair.receiver):
            node.context.db.close()
