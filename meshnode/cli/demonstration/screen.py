"""What a person sees of the demo: a live table of nodes, rows and lag, and what just happened; then a summary."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from meshnode.cli.demonstration.actors import Actor
from meshnode.cli.demonstration.result import Result
from meshnode.node.views import Status

LOOKS_PER_S = 4  # refreshes a second
LINES = 12  # lines of the story kept in view


class Screen:
    """Prints the story; with a terminal also a table that follows the nodes."""

    def __init__(self, console: Console | None) -> None:
        self._console = console
        self._started = time.monotonic()
        self._lines: list[str] = []
        self._states: dict[str, Status | None] = {}

    def say(self, line: str) -> None:
        """Tell what happens now."""
        stamped = f"[dim]{time.monotonic() - self._started:5.1f} s[/dim]  {line}"
        self._lines.append(stamped)
        if self._console is not None and not self._console.is_terminal:
            self._console.print(stamped)

    @contextlib.asynccontextmanager
    async def following(self, actors: list[Actor]) -> AsyncIterator[None]:
        """Keep the table fresh while the story runs."""
        if self._console is None or not self._console.is_terminal:
            yield
            return
        with Live(self._picture(actors), console=self._console, refresh_per_second=LOOKS_PER_S) as live:
            task = asyncio.create_task(self._follow(actors, live))
            try:
                yield
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await self._look(actors)
                live.update(self._picture(actors), refresh=True)

    async def _follow(self, actors: list[Actor], live: Live) -> None:
        while True:
            await self._look(actors)
            live.update(self._picture(actors))
            await asyncio.sleep(1 / LOOKS_PER_S)

    async def _look(self, actors: list[Actor]) -> None:
        for actor in actors:
            self._states[actor.name] = await actor.status()

    def _picture(self, actors: list[Actor]) -> Group:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for heading in ("node", "site", "state", "links", "rows", "events", "lag"):
            table.add_column(heading, justify="right" if heading in ("rows", "events", "lag") else "left")
        for actor in actors:
            table.add_row(*_cells(actor, self._states.get(actor.name)))
        story = [Text.from_markup(line) for line in self._lines[-LINES:]]
        return Group(table, Text(""), *story)


def _cells(actor: Actor, status: Status | None) -> tuple[str, ...]:
    if status is None:
        state = "[yellow]starting[/yellow]" if actor.running else "[red]down[/red]"
        return (actor.name, "", state, "", "", "", "")
    linked = [peer.name for peer in status.peers if peer.linked]
    lag = sum(peer.behind for peer in status.peers if not peer.retired)
    state = "[green]up[/green]" if status.online else "[yellow]cut off[/yellow]"
    return (actor.name, status.short, state, ", ".join(linked), str(status.rows), str(status.events), str(lag))


def summary(console: Console, result: Result, keep: str | None) -> None:
    """What came out of it."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("node", "site", "rows", "events", "state digest"):
        table.add_column(heading)
    for node in result.nodes:
        table.add_row(node.name, node.site[:8], str(node.rows), str(node.events), node.state_digest[:32])
    verdict = "[green]equal[/green]" if result.converged else "[red]NOT equal[/red]"
    console.print()
    console.print(table)
    console.print(
        f"\nAll three nodes are {verdict}: {result.rows} rows from {result.events} events in {result.seconds:.1f} s, "
        f"with one node killed (pid {', '.join(map(str, result.killed))}) and one cut off for "
        f"{result.cut_seconds:.1f} s."
    )
    if keep is not None:
        console.print(f"Look around: meshnode --home {keep}/laptop status")
