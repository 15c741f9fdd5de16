"""Whether what is written to adopted tables by SQL is noted, and signed."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from meshnode.model.wording import counted_text
from meshnode.node.doctor.findings import or_passed, warned
from meshnode.node.doctor.patient import NotLookedAtError, Patient
from meshnode.node.doctorviews import FindingView
from meshnode.store import capture, queries, schema
from meshnode.store.tables import Destination

MOST: Final = 10_000  # writes that are counted


@dataclass(frozen=True, slots=True)
class AdoptedFacts:
    """The adopted tables, and what waits."""

    tables: int = 0
    unwatched: tuple[str, ...] = ()  # of those that are there
    looking: int = 0  # tables whose rows are not all compared with what was signed
    waiting: int = 0  # writes that are not signed, up to `MOST`
    running: bool = False


async def look_at_adopted(patient: Patient) -> AdoptedFacts:
    """Triggers and what they noted."""
    return await asyncio.to_thread(_look, patient)


def _look(patient: Patient) -> AdoptedFacts:
    if not patient.home.database_path.exists():
        raise NotLookedAtError("there is no database: see `database`")
    with closing(patient.database().reader()) as reader, reader.snapshot() as tx:
        if schema.format_of(tx) != schema.FORMAT:
            raise NotLookedAtError("the database is of another version: see `database`")
        places = capture.adopted(tx)
        found = [
            destination for _, destination in queries.registered_tables(tx) if isinstance(destination, Destination)
        ]
        return AdoptedFacts(
            len(places),
            tuple(each.text for each in found if each.no in places and not capture.is_watched(tx, each)),
            sum(place is not None for place in places.values()),
            capture.count_pending(tx, MOST),
            patient.running,
        )


def judge_adopted(facts: AdoptedFacts) -> list[FindingView]:
    """Whether triggers are whole, and somebody signs."""
    todo = "`meshnode up` goes on" if not facts.running else "it goes on by itself; where it does not, see `notices`"
    findings = [
        warned(
            "adopted",
            f"triggers of table {table} are gone: what is written to it by SQL is not noted",
            "they are made again, and its rows compared, within 2 s"
            if facts.running
            else "`meshnode up` makes them again",
        )
        for table in facts.unwatched
    ]
    if facts.waiting and (not facts.running or facts.waiting >= MOST):
        more = "at least " if facts.waiting >= MOST else ""
        findings.append(warned("adopted", f"{more}{counted_text(facts.waiting, 'write')} by SQL not signed yet", todo))
    if facts.looking and not facts.running:
        found = f"rows of {counted_text(facts.looking, 'table')} not compared yet with what was signed"
        findings.append(warned("adopted", found, todo))
    tables = f"{counted_text(facts.tables, 'table')} watched" if facts.tables else "no table is adopted"
    return or_passed("adopted", findings, tables)
