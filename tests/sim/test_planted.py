"""The simulator is tested itself: each fault that is planted in the production code is seen within 200 seeds."""

from __future__ import annotations

from itertools import chain
from typing import Final

import pytest

from sim.checkers import CHECKERS
from sim.faults import FAULTS, FURTHER
from sim.run import Outcome, run_seed

SEEDS: Final = range(1, 201)

# Which checkers may be the first to see it, and seeds that did when this was written: they are tried first.
SEEN_BY: Final[dict[str, tuple[set[str], tuple[int, ...]]]] = {
    "ack before commit": ({"CursorsBehindPeers"}, (2, 3, 4)),
    "cursor before ack": ({"CursorsBehindPeers"}, (1, 2, 3)),
    "rejected lost with a repeated ack": ({"CursorsBehindPeers", "Convergence"}, (11, 8)),
    "log positions reused": ({"PositionsUsedOnce", "WatermarksTrue", "Convergence", "CheckIsClean"}, (62, 65)),
    "no tombstone clock": ({"Convergence", "CheckIsClean"}, (1, 4)),
    "arrival-order tie-break": ({"Convergence"}, (10, 17)),
    "watermark over a hole": ({"WatermarksTrue"}, (7, 6)),
    "re-offer set not durable": ({"CursorsBehindPeers", "Convergence"}, (15, 7)),
    "records after events": ({"RecordsFirst", "CursorsBehindPeers", "WatermarksTrue"}, (12, 13)),
    "decline of a merely offered id": ({"CursorsBehindPeers"}, (1,)),
    "frontier slot merged from a peer": ({"FrontierIsOurs"}, (1, 6)),
    "resume from a pruned frame": ({"CursorsBehindPeers"}, (46, 86)),
    # Further ones: every checker has to see something.
    "clock not kept": ({"ClocksRise", "CheckIsClean"}, (1,)),
    "log cut at a start": ({"NothingAcknowledgedIsLost", "CursorsBehindPeers", "CheckIsClean"}, (10, 19)),
    "acks kept for ever": ({"Bounded"}, (1,)),
    "requests never answered": ({"Settled"}, (1,)),
    "groups stand still": ({"HonestGroupsMove"}, (10, 7)),
    "repeats taken for news": ({"ConflictsTrue"}, (4, 75)),
    "watermark over an unanswered request": ({"WatermarksTrue"}, (138,)),
}


def first_failure(likely: tuple[int, ...]) -> Outcome | None:
    for seed in chain(likely, SEEDS):
        outcome = run_seed(seed)
        if outcome.failure:
            return outcome
    return None


def test_every_fault_is_planted_and_every_checker_sees_one() -> None:
    assert SEEN_BY.keys() == FAULTS.keys() | FURTHER.keys()
    assert {kind.__name__ for kind in CHECKERS} <= {name for names, _ in SEEN_BY.values() for name in names}


@pytest.mark.parametrize("name", SEEN_BY)
def test_a_planted_fault_is_seen(name: str) -> None:
    checkers, likely = SEEN_BY[name]
    with {**FAULTS, **FURTHER}[name]():
        outcome = first_failure(likely)
    assert outcome is not None, f"{len(SEEDS)} seeds did not show it"
    print(outcome.text)
    assert outcome.checker in checkers, outcome.text
    assert not run_seed(outcome.seed).failure  # it was the fault
