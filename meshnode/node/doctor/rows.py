"""Tables, rows and streams: what is held, withheld or stuck, and what the schema has to do with it (SSP/1 §13.6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from meshnode.limits import SKEW_MS
from meshnode.model.verdict import key_differs
from meshnode.model.wording import counted_text
from meshnode.node.doctor.findings import failed, listed, or_passed, passed, time_of_day, warned
from meshnode.node.doctorviews import FindingView
from meshnode.node.syncviews import SyncStateView
from meshnode.node.views import ConflictCounts, LaggingView, NoticeView, TableView
from meshnode.store.lagging import HELD, REJECTED
from meshnode.store.log import HOW_TO_GO_ON

DRIFT = "schema-drift"  # a notice: columns that others write are not here


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The registered tables, and what waits for others."""

    tables: tuple[TableView, ...] = ()
    drift: tuple[NoticeView, ...] = ()
    unresolved: tuple[NoticeView, ...] = ()
    waiting: Mapping[str, int] = field(default_factory=dict)  # tables that are not here, and events held for each
    lagging: tuple[LaggingView, ...] = ()
    now_ms: int = 0


def judge_schema(facts: TableFacts) -> list[FindingView]:
    """Whether every table can take part, with all of its columns."""
    findings = [
        failed("schema", f"table {each.table} takes no part: {each.unusable}", "change the table as that says")
        for each in facts.tables
        if each.unusable
    ]
    findings += [
        warned(
            "schema",
            f"table {each.table}: {each.sample}",
            "add the columns here (ALTER TABLE): what was written there then appears",
        )
        for each in facts.drift
    ]
    findings += [_unresolved(each) for each in facts.unresolved]
    return or_passed("schema", findings, f"{counted_text(len(facts.tables), 'table')}, and nothing drifts")


def _unresolved(each: NoticeView) -> FindingView:
    found = (
        f"table {each.table}: {counted_text(each.count, 'event')} of {each.site[:8]} with a key that names no row here"
    )
    return warned("schema", found, f"{key_differs(each.table)}; `meshnode verify` names every difference")


def judge_held(facts: TableFacts) -> list[FindingView]:
    """Whether events wait for tables that are not here."""
    unusable = {each.table for each in facts.tables if each.unusable}
    findings = [_held(table, events, table in unusable) for table, events in facts.waiting.items()]
    refused = [each for each in facts.lagging if each.reason == REJECTED]
    findings += [_refused(each, facts.now_ms) for each in refused]
    others = [each for each in facts.lagging if each.reason not in (HELD, REJECTED)]
    if others:
        groups = listed([f"{each.table} of {each.name or each.site[:8]} ({each.reason})" for each in others])
        todo = "`meshnode request-sync` asks for what may be missing; `meshnode status` shows how far behind it is"
        findings.append(warned("held", f"not all is applied here yet: {groups}", todo))
    return or_passed("held", findings, "nothing is held, nothing is known to be missing")


def _refused(each: LaggingView, now_ms: int) -> FindingView:
    whose = f"events of {each.name or each.site[:8]} for table {each.table} are refused, and offered again"
    taken_ms = each.known[0] - SKEW_MS
    if taken_ms > now_ms:
        todo = f"they are dated ahead, and taken from {time_of_day(taken_ms)} on where this device's clock is right"
        return warned("held", whose, f"{todo}: nothing else helps")
    return warned("held", whose, "`meshnode notices` says which bound they are beyond; asking for them does not help")


def _held(table: str, events: int, unusable: bool) -> FindingView:
    found = f"{counted_text(events, 'event')} held for table {table}"
    if unusable:
        return warned("held", f"{found}, which cannot be used", "the check `schema` says why")
    return warned("held", f"{found}, which is not here", f"`meshnode table add {table} …` with its columns")


def judge_withheld(facts: TableFacts) -> list[FindingView]:
    """Whether rows are kept out of their tables (profile §5)."""
    findings = [
        warned(
            "withheld",
            f"{counted_text(each.withheld, 'row')} of table {each.table} withheld, which its constraints do not allow",
            f"`meshnode get {each.table} KEY --explain` tells why; they appear once the missing column is written",
        )
        for each in facts.tables
        if each.withheld
    ]
    return or_passed("withheld", findings, "every row is in its table")


def judge_conflicts(counts: ConflictCounts) -> list[FindingView]:
    """Whether somebody has to say which of two concurrent writes is to show (NEOTH, conflict records)."""
    open_ones = counts.certain + counts.possible
    if not open_ones:
        return passed("conflicts", "none that nobody decided")
    possible = f", {counts.possible} of them only possible" if counts.possible else ""
    found = f"{counted_text(open_ones, 'conflict')} that nobody decided{possible}"
    return [warned("conflicts", found, "`meshnode conflicts` shows them; `resolve ID --prefer SITE` decides one")]


def judge_streams(states: Iterable[SyncStateView]) -> list[FindingView]:
    """Whether delivery moves, as far as what is stored of it can be read (profile §8)."""
    told = list(states)
    findings = [finding for state in told for finding in _stream(state)]
    if not told:
        return passed("streams", "no other member yet")
    return or_passed("streams", findings, f"delivery to and from {counted_text(len(told), 'member')} can go on")


def _stream(state: SyncStateView) -> Iterator[FindingView]:
    who = f"{state.name or 'a member'} ({state.short})"
    if state.stuck:
        todo = "restore database and keys from one backup, or join again in a new home; see `meshnode sync-state`"
        if HOW_TO_GO_ON in f"{state.why} {state.last_error}":
            todo = "run that; it goes on by itself within a minute"
        yield failed("streams", f"delivery with {who} stands still: {state.why or state.last_error}", todo)
    elif state.rejected:
        todo = "it takes them once its clock is right and its bounds allow: `meshnode sync-state` shows how many"
        yield warned("streams", f"{counted_text(state.rejected, 'event')} rejected by {who}, and offered again", todo)
    elif state.last_error:
        todo = "it is tried again by itself; where it stays, `meshnode sync-state` shows more"
        yield warned("streams", f"delivery with {who} met an error: {state.last_error}", todo)


def judge_notices(notices: Iterable[NoticeView]) -> list[FindingView]:
    """Whether there is something that nobody has seen to (profile §6)."""
    kinds: dict[str, int] = {}
    for notice in notices:
        kinds[notice.kind] = kinds.get(notice.kind, 0) + notice.count
    if not kinds:
        return passed("notices", "none")
    found = listed([f"{kind} ×{count}" for kind, count in sorted(kinds.items(), key=lambda each: -each[1])])
    return [warned("notices", found, "`meshnode status` shows each with a sample of what happened")]
