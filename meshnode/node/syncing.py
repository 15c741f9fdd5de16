"""Delivery as a person sees it: `sync-state`, `frontier`, and what `request-sync` asks of whom (NEOTH operations)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from meshnode.engine.syncstate import SyncState, sync_state
from meshnode.errors import NotFoundError, UsageError
from meshnode.model.bundle import BUNDLE_PATH
from meshnode.model.delivery import PATH
from meshnode.model.frames import WHAT_SITE, Request, encode_frame
from meshnode.model.member import Member
from meshnode.model.membership import Membership
from meshnode.model.scope import WILDCARD
from meshnode.model.site import short_text, site_text
from meshnode.node.naming import known_of, site_called
from meshnode.node.peering import Heard, offered_to
from meshnode.node.syncviews import AskedView, FrontierView, RequestView, StagedView, SyncStateView
from meshnode.node.views import table_text
from meshnode.store import delivery, frontier, history, notices, peers
from meshnode.store.backfills import Wanted
from meshnode.store.database import Tx

if TYPE_CHECKING:  # of no use to who only reads
    from meshnode.engine.context import Context

_KINDS: Final = {
    delivery.EVENTS: "events",
    delivery.RECORDS: "records",
    delivery.EVENTS_AGAIN: "events again",
    delivery.RECORDS_AGAIN: "records again",
    delivery.ANSWERED: "answered",
    delivery.LIVE: "live events",
    delivery.OFFERED: "offered",
}
_ERRORS: Final = ("unreadable-state", "request-limit", "frontier-full")  # notices about the delivery to one peer


def others_named(tx: Tx, membership: Membership, own: bytes, named: str | None) -> list[Member]:
    """The other members, or the one of this site id (short or long) or name; an error where none or several are."""
    members = [member for member in membership.members() if member.site != own]
    if named is None:
        return members
    wanted = site_called(named, known_of(tx, members), "other member")
    return [member for member in members if member.site == wanted]


def sync_states(tx: Tx, members: Sequence[Member], heard: Mapping[bytes, Heard], now_ms: int) -> list[SyncStateView]:
    """The streams to and from each member, in site order: those of links, and of bundles where there were any."""
    rows = peers.all_heard(tx)
    tables = ("meshnode_outbound", "meshnode_inbound")
    bundled = {each.peer for name in tables for each in delivery.streams(tx, name) if each.path == BUNDLE_PATH}
    views = []
    for each in members:
        name, told = rows[each.site].name if each.site in rows else each.name, heard.get(each.site, Heard())
        views += [
            _view(tx, each, path, name, told, now_ms)
            for path in (PATH, BUNDLE_PATH)
            if path == PATH or each.site in bundled
        ]
    return views


def frontier_views(tx: Tx, membership: Membership, own: bytes, wanted: Sequence[Member] | None) -> list[FrontierView]:
    """Every slot by its site, or those of some members."""
    slots, names = frontier.read(tx), {member.site: member.name for member in membership.members()}
    sites = sorted({own, *slots}) if wanted is None else [each.site for each in wanted]
    return [
        FrontierView(
            site=site_text(site),
            short=short_text(site),
            name=names.get(site, ""),
            counter=slots.get(site, 0),
            local=site == own,
        )
        for site in sites
    ]


def ask_members(
    context: Context, members: Sequence[Member], table: tuple[str, str] | None, linked: frozenset[bytes]
) -> list[AskedView]:
    """Ask these members for a table, or for everything: durable until each has answered."""
    from meshnode.engine.asking import table_request, withdraw_from  # of no use to who only reads

    schema, name = table or (WILDCARD, WILDCARD)
    asked = []
    with context.transaction() as tx:
        entry = None if table is None else context.tables.entry(tx, *table)
        if entry is not None and entry.no is None:
            raise NotFoundError(f"nothing is known of a table {entry.text!r}: add it first")
        if entry is not None and not context.policy.takes(entry.schema, entry.name, entry.table_class):
            raise UsageError(f"table {entry.text!r} does not come in here: its class or the scope keeps it out")
        for member in members:
            number = context.sites.number(tx, member.site)
            withdraw_from(tx, number, schema, name)
            request = table_request(context, schema, name, covering=True)
            history.add_request(tx, request.id, number, encode_frame(request))
            asked.append(_asked(member, request, member.site in linked))
    return asked


def _asked(member: Member, request: Request, linked: bool) -> AskedView:
    return AskedView(
        site=site_text(member.site),
        short=short_text(member.site),
        name=member.name,
        linked=linked,
        id=request.id.hex(),
        table=_table(request.schema, request.table),
    )


def _view(tx: Tx, member: Member, path: str, name: str, heard: Heard, now_ms: int) -> SyncStateView:
    state = sync_state(tx, member.site, path, offered_to(tx, member.site, heard), now_ms, heard.links)
    if path == PATH and heard.stopped and heard.stopped not in state.faults:
        state.faults.append(heard.stopped)
    outbound = state.outbound
    return SyncStateView(
        site=site_text(member.site),
        short=short_text(member.site),
        name=name,
        linked=heard.linked and path == PATH,
        path=path,
        cursor=outbound.cursor if outbound else 0,
        offer_cursor=outbound.offer_cursor if outbound else None,
        record_cursor=outbound.record_cursor if outbound else 0,
        settled_no=outbound.settled_no if outbound else 0,
        staged=[
            StagedView(no=each.no, kind=_KINDS[each.kind], items=each.items, bytes=each.bytes, attempts=each.attempts)
            for each in state.staged
        ],
        next_inbound=state.inbound.next if state.inbound else 0,
        lag_events=state.events_behind,
        unconfirmed=state.unconfirmed,
        lag_records=state.records_behind,
        lag_ms=0 if state.oldest_ms is None else max(now_ms - state.oldest_ms, 0),
        reoffers=state.reoffers,
        rejected=state.rejected,
        backfills=[_wanted(each) for each in state.backfills],
        asked=[RequestView(id=each.id.hex(), what=_what(each)) for each in state.asked],
        unanswered=[each.hex() for each in state.unanswered],
        last_error=_last_error(tx, member, heard, state),
        stuck=bool(state.faults),
        why="; ".join(state.faults),
    )


def _last_error(tx: Tx, member: Member, heard: Heard, state: SyncState) -> str:
    return state.faults[-1] if state.faults else heard.note or notices.latest_of(tx, member.site, _ERRORS)


def _what(request: Request) -> str:
    if request.what == WHAT_SITE:
        return f"site {short_text(request.site or b'')}"
    return f"table {_table(request.schema, request.table)}"


def _wanted(wanted: Wanted) -> str:
    return f"site {short_text(wanted.author)}" if wanted.author else f"table {_table(wanted.schema, wanted.name)}"


def _table(schema: str | None, name: str | None) -> str:
    """A table's text form; with wildcards as a scope writes them."""
    if WILDCARD in (schema, name):
        return WILDCARD if schema == name else f"{schema}.{name}"
    return table_text(schema or "", name or "")
