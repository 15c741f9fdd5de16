"""What `sync-state`, `frontier` and `sync-request` tell of the streams to other members (NEOTH, operator commands)."""

from __future__ import annotations

from msgspec import Struct


class StagedView(Struct, frozen=True, kw_only=True):
    """One frame in flight to a peer."""

    no: int
    kind: str  # events, records, events again, records again, answered
    items: int
    bytes: int
    attempts: int  # how often it was sent again


class RequestView(Struct, frozen=True, kw_only=True):
    """Something that one node asks of another until it is answered (profile §8)."""

    id: str
    what: str  # as `table main.notes` or `site 1eed29b1`


class SyncStateView(Struct, frozen=True, kw_only=True):
    """Both delivery streams between this node and one peer (NEOTH operations)."""

    site: str
    short: str
    name: str
    linked: bool = False
    path: str
    cursor: int  # log position up to which the peer acknowledged everything; where others' are offered, all of ours
    offer_cursor: int | None = None  # likewise of events by others, where they are offered before they are sent
    record_cursor: int
    settled_no: int  # the last frame that it acknowledged
    staged: list[StagedView] = []
    next_inbound: int = 0  # number of the peer's next frame, 0 before it opened a stream
    lag_events: int = 0  # events that the peer should get and has not acknowledged
    unconfirmed: int = 0  # events of others that it is expected to have from them, and is offered if not
    lag_records: int = 0
    lag_ms: int = 0  # how long ago the first of those events was written, by its own clock
    reoffers: int = 0  # events and records that are offered again: rejected, or asked for
    rejected: int = 0  # of them, those that wait for the next cycle
    backfills: list[str] = []  # tables of which more is to be offered again
    asked: list[RequestView] = []  # of ours, not answered
    unanswered: list[str] = []  # ids of the peer's requests that are not marked answered
    last_error: str = ""
    stuck: bool = False  # something cannot be read: that stream stands still, its cursor unmoved
    why: str = ""


class FrontierView(Struct, frozen=True, kw_only=True):
    """One slot of the causal frontier: evidence of order, and of nothing else (NEOTH)."""

    site: str
    short: str
    name: str
    counter: int
    local: bool = False  # this node's own slot
    evidence: str = "ordering"


class AskedView(Struct, frozen=True, kw_only=True):
    """What one peer was asked for."""

    site: str
    short: str
    name: str
    linked: bool  # the request is on its way; otherwise it waits for the next link
    id: str
    table: str  # its name, or * for every one


class SyncRequest(Struct, frozen=True, kw_only=True):
    """The receipt of a request: durable until each peer has answered."""

    asked: list[AskedView]
