"""What a new session is told of the store, and what this node asks of its peers (profile §8)."""

from __future__ import annotations

from collections.abc import Iterable

from meshnode.engine.context import Context
from meshnode.engine.outbox import stream_of
from meshnode.errors import CloseCode, CorruptStateError, ProtocolError
from meshnode.limits import FRONTIER_SITES
from meshnode.model.delivery import LinkState, OutboundStream
from meshnode.model.frames import REQUEST_ID_BYTES, WHAT_SITE, WHAT_TABLE, Request, encode_frame
from meshnode.model.frames_untrusted import decode_control_untrusted
from meshnode.model.hlc import ZERO, Hlc
from meshnode.model.scope import WILDCARD, Scope
from meshnode.store import delivery, frontier, history, inbound, log, meta
from meshnode.store.database import Tx
from meshnode.store.delivery import Stream
from meshnode.store.watermarks import all_watermarks

MAX_HLC_SITES = 1024  # sites named in our hello, newest first; the frame stays well below its bound
_SCOPE = "scope"
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
        asked = inbound.requests(tx, stream)
        own = Request(id=context.env.random_bytes(REQUEST_ID_BYTES), what=WHAT_SITE, site=context.site)
        if not any(context.site in body for body in asked):
            history.add_request(tx, own.id, stream.no, encode_frame(own))
        if everything and not any(_asks_for_all(body) for body in asked):
            ask_table(context, tx, WILDCARD, WILDCARD, [stream.no])
        context.surface(tx, "rolled-back", peer, "it knows later events of this device than are here: asked for them")
        return inbound.requests(tx, stream)


def note_scope(context: Context, scope: Scope) -> bool:
    """Remember our own scope; where it changed, ask every peer for what was dropped before. True where it asked."""
    with context.transaction() as tx:
        before, text = meta.read(tx, _SCOPE), repr(list(scope.patterns))
        if before == text:
            return False
        meta.write(tx, _SCOPE, text)
        if before is None:
            return False
        ask_table(context, tx, WILDCARD, WILDCARD, history.peers_that_sent(tx))
        return True


def ask_table(context: Context, tx: Tx, schema: str, table: str, peers: Iterable[int]) -> None:
    """Ask these peers, by number, for the whole of a table (profile §8, "Requests")."""
    for peer_no in peers:
        request = Request(id=context.env.random_bytes(REQUEST_ID_BYTES), what=WHAT_TABLE, schema=schema, table=table)
        history.add_request(tx, request.id, peer_no, encode_frame(request))


def _asks_for_all(body: bytes) -> bool:
    request = decode_control_untrusted(body)
    return isinstance(request, Request) and request.schema == request.table == WILDCARD


def _read(context: Context, tx: Tx, stream: Stream, link: int) -> LinkState:
    outbound: OutboundStream | None = None
    outbound_fault: str | None = None
    try:
        row = delivery.read_outbound(tx, stream)
        if row is not None:
            staged = delivery.read_staged(tx, stream, row)
            delivery.read_frames(tx, stream, staged)  # bytes that cannot be read stop the stream here, not later
            outbound = delivery.stream_view(row, staged)
    except CorruptStateError as error:
        outbound_fault = str(error)
    return LinkState(
        outbound=outbound,
        inbound=inbound.read_inbound(tx, stream),
        past_epochs=delivery.past_epochs(tx, stream),
        requests=inbound.requests(tx, stream),
        incarnation=context.incarnation,
        hlc=context.clock,
        max_hlc=_newest_per_site(context, tx),
        link=link,
        outbound_fault=outbound_fault,
    )


def _newest_per_site(context: Context, tx: Tx) -> tuple[tuple[bytes, Hlc], ...]:
    """The highest HLC known of each site, in the log or claimed by a watermark: a hint for the peer."""
    newest: dict[bytes, Hlc] = {}
    for number, site in tx.execute("SELECT no, site FROM meshnode_sites").fetchall():
        found = log.newest(tx, number)
        if found is not None:
            newest[site] = found
    for claimed in all_watermarks(tx):
        newest[claimed.site] = max(newest.get(claimed.site, ZERO), claimed.hlc)
    first = sorted(newest.items(), key=lambda item: (item[0] != context.site, [-part for part in item[1]]))
    return tuple(first[:MAX_HLC_SITES])
