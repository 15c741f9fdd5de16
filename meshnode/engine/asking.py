"""What this node asks of its peers: durable until it is answered (profile §8, "Requests")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from meshnode.limits import REQUESTS_PER_PEER
from meshnode.model.frames import REQUEST_ID_BYTES, WHAT_SITE, WHAT_TABLE, Request, encode_frame
from meshnode.model.scope import WILDCARD
from meshnode.store import history, watermarks
from meshnode.store.database import Tx
from meshnode.store.inbound import read_request

if TYPE_CHECKING:  # of no use to who only reads
    from meshnode.engine.context import Context


def ask_anew(context: Context, tx: Tx, tables: Sequence[tuple[str, str]], *, covering: bool) -> int:
    """Ask whoever ever sent anything for these tables, whatever was asked before; returns how many are asked.

    `covering`: what the rows' states need is enough, their history is not wanted; what was rejected before comes only
    if it is needed, so it is not waited for any more. An earlier request for the same table may be half answered with
    what was passed over here, so it is replaced. A peer that never sent anything starts at genesis anyway. For more
    tables than one peer need remember, one for everything.
    """
    peers = history.peers_that_sent(tx) if tables else []
    if len(tables) > REQUESTS_PER_PEER // 2:
        tables = [(WILDCARD, WILDCARD)]
    for schema, table in tables:
        withdraw(tx, schema, table)
        if covering:
            watermarks.begin_anew(tx, schema, table)
        for peer_no in peers:
            request = table_request(context, schema, table, covering=covering)
            history.add_request(tx, request.id, peer_no, encode_frame(request))
    return len(peers)


def table_request(context: Context, schema: str, table: str, *, covering: bool) -> Request:
    """A request for a table, with an id of its own."""
    return Request(
        id=context.env.random_bytes(REQUEST_ID_BYTES),
        what=WHAT_TABLE,
        schema=schema,
        table=table,
        covering=covering or None,
    )


def site_request(context: Context, site: bytes) -> Request:
    """A request for the events of a site, with an id of its own."""
    return Request(id=context.env.random_bytes(REQUEST_ID_BYTES), what=WHAT_SITE, site=site)


def ask_site(context: Context, tx: Tx, peer_no: int, site: bytes) -> None:
    """Ask one peer for a site's events, unless it is asked for them already."""
    _ask_once(tx, peer_no, site_request(context, site))


def ask_everything(context: Context, tx: Tx, peer_no: int) -> None:
    """This copy was restored: ask one peer for all that it holds, unless it is asked for that already."""
    _ask_once(tx, peer_no, table_request(context, WILDCARD, WILDCARD, covering=False), restored=True)


def ask_history(context: Context, tx: Tx, peer_no: int) -> None:
    """A stream goes on from what is not here: ask its peer for all that it holds, its own events included."""
    _ask_once(tx, peer_no, table_request(context, WILDCARD, WILDCARD, covering=False))


def _ask_once(tx: Tx, peer_no: int, wanted: Request, *, restored: bool = False) -> None:
    """One that a restored copy made already serves, and is doubted as well where more may be missing."""
    for request_id, number, body in history.requests(tx):
        request = read_request(body) if number == peer_no else None
        if request is not None and replace(request, id=wanted.id) == wanted:
            if not restored:
                history.doubt_peer(tx, request_id)
            return
    history.add_request(tx, wanted.id, peer_no, encode_frame(wanted), restored=restored)


def withdraw(tx: Tx, schema: str, table: str) -> None:
    """Ask nobody for exactly this table any more."""
    withdraw_from(tx, None, schema, table)


def withdraw_from(tx: Tx, peer_no: int | None, schema: str, table: str) -> None:
    """Ask one peer, by number, for exactly this table no more; None is every peer."""
    for request_id, number, body in history.requests(tx):
        request = read_request(body) if peer_no in (None, number) else None
        if request is not None and (request.what, request.schema, request.table) == (WHAT_TABLE, schema, table):
            history.remove_request(tx, request_id)


def covers(request: Request | None, site: bytes, schema: str, table: str) -> bool:
    """Whether events of this group are among what a request asks for."""
    if request is None:
        return True
    if request.what == WHAT_SITE:
        return request.site == site
    return request.schema in (WILDCARD, schema) and request.table in (WILDCARD, table)
