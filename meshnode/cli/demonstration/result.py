"""What `meshnode demo --json` prints."""

from __future__ import annotations

import msgspec


class NodeResult(msgspec.Struct, frozen=True):
    """One node at the end."""

    name: str
    site: str
    home: str
    state_digest: str
    rows: int
    events: int


class Result(msgspec.Struct, frozen=True):
    """What `demo --json` prints."""

    converged: bool
    nodes: list[NodeResult]
    rows: int
    events: int
    seconds: float
    killed: list[int]
    cut_seconds: float
    discovery: str
