"""What a full mesh of 8 sends, in virtual time: little more than sending each event once to each node needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.mesh_bytes import NODES, Measured, batches, singles

from meshnode.model.frames import FEATURE_OFFER, FEATURES

BATCHES_AT_MOST = 1.35
SINGLES_AT_MOST = 2.5


def check(measured: Measured, at_most: float) -> None:
    """While it is written, and with all that is left to do afterwards, against the events' own bytes alone."""
    assert measured.over_events(measured.carried) <= at_most
    assert measured.over_events(measured.afterwards) <= at_most


@pytest.mark.parametrize("features", [FEATURES, (FEATURE_OFFER,)], ids=["deflated", "not deflated"])
def test_batches_of_a_hundred(tmp_path: Path, features: tuple[str, ...]) -> None:
    measured = batches(tmp_path, features=features)
    check(measured, BATCHES_AT_MOST)
    assert measured.afterwards.frames["batch"] == len(measured.events) * (NODES - 1), "each went once to each node"


def test_one_write_a_second(tmp_path: Path) -> None:
    measured = singles(tmp_path)
    check(measured, SINGLES_AT_MOST)
    assert measured.afterwards.frames["batch"] == len(measured.events) * (NODES - 1), "each went once to each node"
