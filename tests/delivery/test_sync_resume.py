"""The resume decision as a table, and how long a peer that keeps forgetting waits (profile §8, "Resuming")."""

from __future__ import annotations

import pytest

from meshnode.limits import GENESIS_REWIND_MS
from meshnode.model.delivery import Replaced, Staged
from meshnode.model.frames import Inbound
from meshnode.sync.resume import rewind_wait_ms, same_stream

EPOCH, OTHER = b"e" * 8, b"o" * 8
SETTLED, ONE, TWO = b"s" * 32, b"1" * 32, b"2" * 32
STAGED = (Staged(5, ONE, 1), Staged(6, TWO, 1))


@pytest.mark.parametrize(
    ("inbound", "resumes"),
    [
        (None, False),
        (Inbound(OTHER, 5, SETTLED), False),
        (Inbound(EPOCH, 5, SETTLED), True),  # holds what is settled
        (Inbound(EPOCH, 6, ONE), True),  # holds a staged frame whose ack was lost
        (Inbound(EPOCH, 7, TWO), True),
        (Inbound(EPOCH, 5, ONE), False),  # another digest
        (Inbound(EPOCH, 6, TWO), False),
        (Inbound(EPOCH, 4, ONE), False),  # an earlier number: a restored copy
        (Inbound(EPOCH, 8, TWO), False),  # a later number than was ever staged
        (Inbound(EPOCH, 1, b""), False),  # nothing, though frames are settled
    ],
)
def test_goes_on_only_where_the_peer_holds_the_last_settled_or_a_staged_frame(
    inbound: Inbound | None, resumes: bool
) -> None:
    assert same_stream(inbound, EPOCH, 4, SETTLED, STAGED) is resumes


def test_an_epoch_of_which_nothing_is_settled_goes_on_with_nothing_received() -> None:
    assert same_stream(Inbound(EPOCH, 1, b""), EPOCH, 0, b"", (Staged(1, ONE, 1),))
    assert same_stream(Inbound(EPOCH, 2, ONE), EPOCH, 0, b"", (Staged(1, ONE, 1),))
    assert not same_stream(Inbound(EPOCH, 1, ONE), EPOCH, 0, b"", (Staged(1, ONE, 1),))


def test_an_epoch_begun_at_the_settled_cursor_goes_on_wherever_the_one_before_stood() -> None:
    replaces = (Replaced(OTHER, 4, SETTLED), Replaced(OTHER, 5, ONE))
    for inbound, resumes in (
        (Inbound(OTHER, 5, SETTLED), True),  # what was settled
        (Inbound(OTHER, 6, ONE), True),  # a frame that was discarded meanwhile, whose ack was lost
        (Inbound(OTHER, 5, ONE), False),
        (Inbound(OTHER, 4, TWO), False),  # an earlier number: a restored copy
        (Inbound(b"x" * 8, 5, SETTLED), False),
        (Inbound(EPOCH, 1, b""), True),
        (None, False),
    ):
        assert same_stream(inbound, EPOCH, 0, b"", (), replaces) is resumes
    assert not same_stream(Inbound(OTHER, 5, SETTLED), EPOCH, 1, TWO, (), replaces), "the peer has settled newer frames"


@pytest.mark.parametrize(
    ("rewound", "now", "wait"),
    [
        (0, 5, 0),
        (1_000_000, 1_000_000, GENESIS_REWIND_MS),
        (1_000_000, 1_000_000 + GENESIS_REWIND_MS - 1, 1),
        (1_000_000, 1_000_000 + GENESIS_REWIND_MS, 0),
        (9_000_000, 1_000_000, GENESIS_REWIND_MS),  # the wall clock stepped back
    ],
)
def test_rewinds_once_a_minute(rewound: int, now: int, wait: int) -> None:
    assert rewind_wait_ms(rewound, now) == wait
