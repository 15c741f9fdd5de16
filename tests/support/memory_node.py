"""`Operations` in memory: what the CLI and the control API are tested against where no store is in question."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

from meshnode.errors import NotFoundError, UsageError
from meshnode.node.api import ROWS_PER_PAGE
from meshnode.node.views import (
    BehindView,
    CellView,
    ChangeView,
    CheckReport,
    ClockView,
    ColumnView,
    DifferenceView,
    ForgetReport,
    HistoryRequest,
    ImportReport,
    InviteView,
    PeerView,
    Receipt,
    RetentionReport,
    RowChange,
    RowExplanation,
    RowView,
    Status,
    TableDigest,
    TableView,
    Values,
    WaitResult,
)

SITE = "83561adb398fd87f8e7ed8331bff2fcb"
PEER = PeerView(site="1eed29b1654fbca94617004d7969dfc4", short="1eed29b1", name="nas", role="member", behind=3)


class MemoryNode:
    """Tables of dictionaries; `refuse` makes writes of rows with that text fail as the engine's would."""

    def __init__(self) -> None:
        self.kinds: dict[str, TableView] = {}
        self.stored: dict[str, dict[str, RowView]] = {}
        self.refuse: str | None = None
        self.imports: list[int] = []
        self.complete = True
        self.online = True
        self.failure: Exception | None = None
        self.waits: list[float] = []
        self.complete_after = 0
        self._changes: list[ChangeView] = []
        self._changed = asyncio.Event()

    async def status(self) -> Status:
        if self.failure is not None:
            raise self.failure
        return Status(
            running=True,
            site=SITE,
            short=SITE[:8],
            name="bench\x1b[31m",
            mesh_tag="79861c3394fcfdb9",
            home="/home/x",
            database="/home/x/meshnode.db",
            peers=await self.peers(),
        )

    async def peers(self) -> list[PeerView]:
        return [PEER]

    async def tables(self) -> list[TableView]:
        return list(self.kinds.values())

    async def add_table(
        self, table: str, key: Mapping[str, str], columns: Mapping[str, str], *, own_numbers: bool = False
    ) -> TableView:
        view = TableView(
            table=table,
            key=[ColumnView(name=name, type=kind) for name, kind in key.items()],
            columns=[ColumnView(name=name, type=kind) for name, kind in columns.items()],
        )
        self.kinds[table] = view
        self.stored.setdefault(table, {})
        return view

    async def put(self, table: str, key: Values, columns: Values) -> Receipt:
        self._check(columns)
        before = self.stored[table].get(repr(key))
        merged = {**(before.columns if before else {}), **columns}
        self.stored[table][repr(key)] = RowView(key=key, columns=merged)
        self._note(ChangeView(seq=len(self._changes) + 1, table=table, key=key, exists=True, columns=columns))
        return Receipt(table=table, events=1, hlc=(1_800_000_000_000, 0))

    async def remove(self, table: str, key: Values) -> Receipt:
        if self.stored[table].pop(repr(key), None) is None:
            raise NotFoundError("there is no such row")
        self._note(ChangeView(seq=len(self._changes) + 1, table=table, key=key, exists=False))
        return Receipt(table=table, events=1, hlc=(1_800_000_000_000, 1))

    async def import_rows(self, table: str, rows: Sequence[RowChange]) -> ImportReport:
        for row in rows:
            self._check(row.columns)
        self.imports.append(len(rows))
        for row in rows:
            await self.put(table, row.key, row.columns)
        return ImportReport(rows=len(rows))

    async def get(self, table: str, key: Values) -> RowView | None:
        return self.stored[table].get(repr(key))

    async def explain(self, table: str, key: Values) -> RowExplanation | None:
        """A row that is there has been written whole by the other member, one that is not was never heard of."""
        row = self.stored[table].get(repr(key))
        if row is None:
            return None
        clock = ClockView(site=PEER.site, hlc=(1_800_000_000_000, 0))
        cells = [
            CellView(name=column.name, state="written", value=row.columns[column.name], clock=clock)
            if column.name in row.columns
            else CellView(name=column.name, state="unmaterialized")
            for column in self.kinds[table].columns
        ]
        return RowExplanation(table=table, key=key, exists=True, withheld=False, existence=clock, columns=cells)

    async def rows(self, table: str, *, limit: int = ROWS_PER_PAGE, after: Values | None = None) -> list[RowView]:
        names = sorted(self.stored[table])
        start = 0 if after is None else names.index(repr(after)) + 1
        return [self.stored[table][name] for name in names[start : start + limit]]

    async def changes(self, *, since: int | None = None, table: str | None = None) -> AsyncIterator[ChangeView]:
        at = len(self._changes) if since is None else since
        while True:
            self._changed.clear()
            for change in self._changes[at:]:
                at += 1
                if table in (None, change.table):
                    yield change
            await self._changed.wait()

    async def invite(self, ttl_ms: int = 900_000) -> InviteView:
        return InviteView(invite="meshnode-invite:abc", expires_ms=ttl_ms)

    async def wait(self, *, timeout_s: float, live_only: bool = False) -> WaitResult:
        self.waits.append(timeout_s)
        self.complete = self.complete or len(self.waits) == self.complete_after
        if self.complete:
            return WaitResult(complete=True, members=2)
        await asyncio.sleep(timeout_s)
        behind = BehindView(site=PEER.site, short=PEER.short, name=PEER.name, linked=False, reason="not linked")
        return WaitResult(complete=False, members=2, behind=[behind])

    async def digest(self, table: str | None = None) -> list[TableDigest]:
        names = [table] if table else sorted(self.kinds)
        return [TableDigest(table=name, digest="00" * 32, rows=len(self.stored[name])) for name in names]

    async def check(self) -> CheckReport:
        rows = sum(map(len, self.stored.values()))
        found = [] if self.complete else [DifferenceView(table="t", where="row 1\x1b[0m", what="is another")]
        return CheckReport(events=rows, tables=len(self.kinds), rows=rows, given=2, count=len(found), differences=found)

    async def evict(self, table: str, *, before_ms: int, everything: bool = False) -> RetentionReport:
        return RetentionReport(tables=[table], events=1 + everything, bytes=100, horizon=(before_ms, 0))

    async def rehydrate(self, table: str) -> HistoryRequest:
        return HistoryRequest(table=table, asked=2)

    async def compact(self, table: str | None = None) -> RetentionReport:
        return RetentionReport(tables=[table] if table else sorted(self.kinds), events=3, bytes=300)

    async def forget(self, table: str, key: Values, *, undo: bool = False) -> ForgetReport:
        if not undo:
            self.stored[table].pop(repr(key), None)
        return ForgetReport(table=table, events=0 if undo else 1, undone=undo, asked=int(undo))

    async def set_online(self, online: bool) -> None:
        self.online = online

    def _check(self, columns: Values) -> None:
        if self.refuse is not None and self.refuse in columns.values():
            raise UsageError(f"the engine refuses {self.refuse!r}")

    def _note(self, change: ChangeView) -> None:
        self._changes.append(change)
        self._changed.set()
