"""Show how this node is: whether it runs, who it is, who it is linked to, who is behind, and what one should know.

Where no node runs it says what the database has, and of others how far they were when they told it last.
"""

from __future__ import annotations

import argparse

from meshnode.cli import connect, lag
from meshnode.cli.output import cell, print_one, print_table, printable
from meshnode.model.wording import counted_text
from meshnode.node.views import HOW_TO_CHOOSE, Status


def configure(parser: argparse.ArgumentParser) -> None:
    """No flags of its own."""


def run(options: argparse.Namespace) -> int:
    """Show it."""
    status = connect.run(_status(options))
    if options.output in ("json", "jsonl"):
        print_one(status, options.output)
        return 0
    _print(status)
    return 0


async def _status(options: argparse.Namespace) -> Status:
    async with connect.reading(options) as operations:
        return await operations.status()


def _discovery(status: Status) -> str:
    # What the line has said already is not said again.
    others = (name for name in status.skipped_interfaces if f"{name}: " not in status.discovery)
    skipped = ", ".join(map(printable, others))
    without = f"; not on {skipped}: `meshnode discover` says why" if skipped else ""
    off = f" ({printable(status.discovery_off)})" if status.discovery_off else ""
    return f"discovery: {printable(status.discovery)}{off}{without}"


def _print(status: Status) -> None:
    running = f"running, process {status.pid}, UDP port {status.port}" if status.running else "not running"
    role = "retired from" if status.retired else f"{status.role} of"
    print(f"{printable(status.name)!r} ({status.short}), {role} mesh {status.mesh_tag}: {running}")
    print(f"home {status.home}, database {status.database}{' (encrypted)' if status.encrypted else ''}")
    shown = f"{'at least ' if status.rows_more else ''}{counted_text(status.rows, 'row')}"
    events = counted_text(status.events, "event")
    print(f"{counted_text(status.tables, 'table')}, {shown}, {events}, {status.held} held")
    for table, why in status.unusable.items():
        print(f"table {cell(table)} takes no part as it stands: {cell(why)}")
    for table, waiting in status.waiting.items():
        until = "is mended" if table in status.unusable else f"is added: `meshnode table add {cell(table)} …`"
        print(f"events that wait until table {cell(table)} {until}: {waiting}")
    conflicts = status.conflicts.certain + status.conflicts.possible
    if conflicts:
        possible = f", {status.conflicts.possible} of them only possible" if status.conflicts.possible else ""
        print(f"{counted_text(conflicts, 'conflict')} that nobody decided{possible}: `meshnode conflicts`")
    if status.running:
        print(_discovery(status) if status.online else "cut off: it has no links on purpose")
    if status.restart_required:
        print(f"at the next start config.toml changes: {', '.join(status.restart_required)}")
    if status.moved:
        print(f"Nothing is written or sent here: {printable(status.moved)}.")
    elif not status.publishing:
        print(f"This node publishes nothing, since another copy of it may run: {HOW_TO_CHOOSE}.")
    for warning in status.warnings:
        print(f"Warning: {printable(warning)}.")
    for who in status.asking:
        print(
            f"{printable(repr(who.name))} (site {who.short}) has an invite and wants to join: "
            f"`meshnode invite approve {who.short}` lets it in, `deny` does not"
        )
    if status.peers:
        print()
        print_table(
            [
                {"peer": peer.short, "name": peer.name, "linked": peer.linked, "behind": peer.behind, "note": peer.note}
                for peer in status.peers
            ]
        )
    for line in (*lag.peer_lines(status.peers), *lag.own_lines(status)):
        print(line)
    for notice in status.notices:
        of = " ".join(("notice", notice.kind, *filter(None, (notice.site[:8], notice.table))))
        often = f" ×{notice.count}" if notice.count > 1 else ""
        print(f"{cell(of)}{often}, {lag.ago(notice.last_ms)}: {cell(notice.sample)}")
    if status.notices:
        print("`meshnode notices acknowledge --all` hides them until they arise again.")
