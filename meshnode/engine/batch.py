"""What one batch knows of the sites that signed its events and of the tables that they name (profile §6)."""

from __future__ import annotations

from dataclasses import dataclass, field

from meshnode.model.hlc import Hlc
from meshnode.store.names import TableEntry
from meshnode.store.tables import Destination
from meshnode.store.watermarks import Group


@dataclass(slots=True)
class Signer:
    """One authoring site."""

    site: bytes
    no: int
    own: bool  # this node itself
    streams: bool  # this batch is the site's own stream, so its watermarks may advance
    retired: bool
    newest: Hlc | None  # highest clock in the log, this batch included
    pending: dict[Hlc, tuple[bytes, ...]] = field(default_factory=dict)  # ids appended by this batch, by clock
    held_bytes: int = -1  # -1: not looked up yet
    unknown_groups: int = -1
    unkept: Group | None = None  # what was rejected of groups that are not remembered


@dataclass(slots=True)
class Target:
    """One table, and the progress of each site in it."""

    entry: TableEntry
    oldest_ms: int  # HLC below which its events do not come in (scope, class and replay budget)
    destination: Destination | None
    groups: dict[int, Group | None] = field(default_factory=dict)  # by site number; None: nothing stored
    whole: dict[int, bool] = field(default_factory=dict)  # by site number: whether nothing of the group is missing
