"""What a new session is told of the store, and what this node asks of its peers (profile §8)."""

from __future__ import annotations

from meshnode.engine.asking import ask_everything, ask_site
from meshnode.engine.claims import own_newest
from meshnode.engine.context import Context
from meshnode.engine.identity import ask_if_resumed
from meshnode.engine.outbox import reopen, stream_of
from meshnode.errors import CloseCode, CorruptStateError, ProtocolError
from meshnode.limits import FRONTIER_SITES
from meshnode.model.delivery import LinkState, OutboundStream
from meshnode.model.hlc import ZERO, Hlc
from meshnode.store import bundles, delivery, frontier, inbound, log, meta
from meshnode.store.database import Tx
from meshnode.store.delivery import Stream
from meshnode.store.watermarks import all_watermarks

MAX_HLC_SITES = 1024  # sites named in our hello, newest first; the frame stays well below its bound
_LINKS = "links"  # how many links there were


def open_link(context: Context, peer: bytes, path: str) -> LinkState:
    """Read what a session with an authenticated peer starts from, and give the peer its frontier slot.

    Raises ProtocolError (limit) where the frontier is full, CorruptStateError where the peer's stream cannot be read;
    both are surfaced, and the link closes. An unreadable stream of ours only stops that stream.
    """
    with context.transaction() as tx:
        stream = stream_of(context, tx, peer, path)
        context.forget_known(stream.key)
        link = meta.read_counter(tx, _LINKS)
        meta.write(tx, _LINKS, link + 1)
        admitted = frontier.admit(tx, context.site, peer)
        if not admitted:
            context.surface(tx, "frontier-full", peer, f"a mesh has at most {FRONTIER_SITES} nodes that ever linked")
        fault: CorruptStateError | None = None
        state: LinkState | None = None
        try:
            ask_if_resumed(context, tx, stream.no, met=inbound.is_met(tx, stream))
            state = _read(context, tx, stream, link)
        except CorruptStateError as error:
            fault = error
            context.surface(tx, "unreadable-state", peer, str(error))
    if not admitted:
        raise ProtocolError("the causal frontier is full", CloseCode.LIMIT)
    if fault is not None:
        raise fault
    assert state is not None
    return state


def outstanding_requests(context: Context, peer: bytes, path: str) -> tuple[bytes, ...]:
    """CBOR of everything this node still asks of a peer."""
    with context.transaction() as tx:
        return inbound.requests(tx, stream_of(context, tx, peer, path))


def ask_own_history(context: Context, peer: bytes, path: str, *, everything: bool = False) -> tuple[bytes, ...]:
    """This node was restored from an old copy: ask the peer for our own events; returns all that is asked of it.

    For `everything` where the peer does not offer what our lost stream told it that we had (profile §14).
    """
    with context.transaction() as tx:
        stream = stream_of(context, tx, peer, path)
        ask_site(context, tx, stream.no, context.site)
        if everything:
            ask_everything(context, tx, stream.no)
        bundles.may_be_out(tx, context.next_position - 1)
        context.surface(tx, "rolled-back", peer, "it knows later events of this device than are here: asked for them")
        return inbound.requests(tx, stream)


def _read(context: Context, tx: Tx, stream: Stream, link: int) -> LinkState:
    outbound: OutboundStream | None = None
    outbound_fault: str | None = None
    past: dict[bytes, int] = {}
    try:
        past = delivery.past_epochs(tx, stream)
        if delivery.has_older_frames(tx, stream):
            reopen(context, tx, stream)  # after an upgrade: staged again from the settled cursor
        row = delivery.read_outbound(tx, stream)
        if row is not None:
            staged = delivery.read_staged(tx, stream, row)
            delivery.read_frames(tx, stream, staged)  # bytes that cannot be read stop the stream here, not later
            outbound = delivery.stream_view(row, staged)
    except CorruptStateError as error:
        outbound_fault = str(error)
    return LinkState(
        outbound=outbound,
        inbound=inbound.read_checked(tx, stream),
        past_epochs=past,
        requests=inbound.requests(tx, stream),
        incarnation=context.incarnation,
        hlc=context.clock,
        max_hlc=_newest_per_site(context, tx, stream.peer),
        own_newest=own_newest(context, tx),
        link=link,
        outbound_fault=outbound_fault,
    )


def _newest_per_site(context: Context, tx: Tx, peer: bytes) -> tuple[tuple[bytes, Hlc], ...]:
    """The highest HLC known of each site, in the log or claimed by a watermark: a hint for the peer.

    Without the tables that do not cross: nobody can have, or ask for, what is hinted at there. Of more than fit those
    of the two sides stay: a peer that was restored learns from it what it lost (profile §8).
    """
    kept = [each for each in context.tables.known(tx) if not context.policy.days(each.table_class)]
    numbers, names = {each.no for each in kept}, {(each.schema, each.name) for each in kept}
    newest: dict[bytes, Hlc] = {}
    for number, site in tx.execute("SELECT no, site FROM meshnode_sites").fetchall():
        found = log.newest_outside(tx, number, numbers) if numbers else log.newest(tx, number)
        if found is not None:
            newest[site] = found
    for claimed in all_watermarks(tx):
        if (claimed.schema, claimed.table) not in names:
            newest[claimed.site] = max(newest.get(claimed.site, ZERO), claimed.hlc)
    ours = (context.site, peer)
    first = sorted(newest.items(), key=lambda item: (item[0] not in ours, [-part for part in item[1]]))
    return tuple(first[:MAX_HLC_SITES])
