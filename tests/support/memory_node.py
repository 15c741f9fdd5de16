"""`Operations` in memory: what the CLI and the control API are tested against where no store is in question."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import msgspec

from meshnode.errors import NotFoundError, UsageError
from meshnode.node.api import CONFLICTS_PER_PAGE, LEAVE_S, ROWS_PER_PAGE
from meshnode.node.config import Config, PolicyName, PolicyValue, with_settings
from meshnode.node.configfile import FileChange
from meshnode.node.configtext import Said, parse_config
from meshnode.node.configuring import config_view, receipt_of
from meshnode.node.configviews import ConfigReceipt, ConfigView, ReloadView
from meshnode.node.conflict_views import ConflictReceipt, ConflictView, SideView
from meshnode.node.discoverviews import (
    AnnouncementView,
    DialView,
    DiscoverView,
    FoundMemberView,
    InterfaceView,
    PeerAddressView,
)
from meshnode.node.doctorviews import DoctorView, FindingView
from meshnode.node.inforce import InForce, digest_of
from meshnode.node.memberviews import LeaveView, MemberView, RecordView
from meshnode.node.metricviews import MetricView, single
from meshnode.node.overview import SOFTWARE
from meshnode.node.pairing_views import CandidateView, InvitedView, InviteView, NearbyView, OpenInviteView
from meshnode.node.projectionviews import ProjectionPage, RowWrite, WrittenView
from meshnode.node.syncviews import AskedView, FrontierView, RequestView, StagedView, SyncRequest, SyncStateView
from meshnode.node.verifyviews import ComparedEvent, ComparedRowView, ComparedTableView, VerifyProgress, VerifyReport
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
    IdentityView,
    ImportReport,
    NoticeView,
    PeerView,
    PolicyView,
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


DELETED = SideView(site=SITE, name="bench", value=None, hlc=(5, 0), event="ab" * 32)
CONFLICT = ConflictView(
    id="0123456789abcdef" * 2,
    table="notes",
    key={"id": "n1"},
    column="raw",
    ours=SideView(site=SITE, name="bench", value=b"\x01", hlc=(5, 0), event="ab" * 32),
    theirs=SideView(site=PEER.site, name=PEER.name, value="Milk\x1b", hlc=(6, 0), event="cd" * 32),
    shown="theirs",
    certainty="possible",
    status="open",
    recorded_ms=7,
    change=3,
)


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
        shown = msgspec.structs.asdict(PolicyView(scope=[], replicate_raw_ingress=False, replay_budget_days=0))
        self.settings: dict[str, Any] = {name: value for name, value in shown.items() if name != "classes"}
        self.force = InForce.begin(Said(Config()))
        self.waits: list[float] = []
        self.looked_at: list[list[str]] = []
        self.software = SOFTWARE
        self.complete_after = 0
        self.becomes: list[InvitedView] = []  # what `invited` tells of every invite
        self.open_invites: list[OpenInviteView] = []
        self.near = NearbyView(state="closed")
        self.guest = CandidateView(site="ab" * 16, short="ab" * 4, name="lap")
        self.asked_of: list[tuple[str, str]] = []
        self._changes: list[ChangeView] = []
        self._changed = asyncio.Event()

    async def metrics(self) -> list[MetricView]:
        if self.failure is not None:
            raise self.failure
        return [single("meshnode_up", "gauge", "1 while the node runs.", 1)]

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
            skipped_interfaces={"docker0": "of a container network"},
            asking=[state.who for state in self.becomes if state.state == "asks" and state.who is not None],
        )

    async def peers(self) -> list[PeerView]:
        return [PEER]

    async def discover(self, *, seconds: float) -> DiscoverView:
        self.waits.append(seconds)
        at = "10.0.0.2:4747"
        theirs = AnnouncementView(instance="nas-1eed29b1", standing="verified", site=PEER.site, addresses=(at,))
        linked = DialView(state="linked", why=f"linked at {at}", addresses=(at,))
        short, name = PEER.short, PEER.name
        member = FoundMemberView(
            site=PEER.site, short=short, name=name, retired=False, linked=True, seen=(theirs,), dial=linked
        )
        own = AnnouncementView(instance="desk-0a0b0c0d", standing="own", reason="this very node")
        lie = AnnouncementView(instance="\x1b[31m\x9b", standing="wrong-port", reason="another port", site="ab" * 16)
        return DiscoverView(
            running=True,
            discovery="on",
            interfaces=(InterfaceView(name="docker0", used=False, reason="allow_interfaces can name it"),),
            members=(member,),
            peers=(PeerAddressView(address="10.0.0.9:4747", dial=DialView(state="dialing", why="is being dialed")),),
            strangers=(lie,),
            own=(own,),
        )

    async def doctor(self, checks: Sequence[str] = ()) -> DoctorView:
        self.looked_at.append(list(checks))
        findings = (
            FindingView(check="disk", verdict="pass", found="enough"),
            FindingView(check="links", verdict="warn", found="no link to \x1b[31m", todo="is it on?"),
        )
        return DoctorView(home="/home/x", running=True, software=self.software, verdict="warn", findings=findings)

    async def tables(self) -> list[TableView]:
        return list(self.kinds.values())

    async def add_table(
        self,
        table: str,
        key: Mapping[str, str],
        columns: Mapping[str, str],
        *,
        own_numbers: bool = False,
        table_class: str | None = None,
    ) -> TableView:
        view = TableView(
            table=table,
            table_class=table_class or "shared",
            key=[ColumnView(name=name, type=kind) for name, kind in key.items()],
            columns=[ColumnView(name=name, type=kind) for name, kind in columns.items()],
        )
        self.kinds[table] = view
        self.stored.setdefault(table, {})
        return view

    async def classify(self, table: str, table_class: str) -> PolicyView:
        self.kinds[table] = msgspec.structs.replace(self.kinds[table], table_class=table_class)
        return await self.policy()

    async def policy(self) -> PolicyView:
        classes = {view.table: view.table_class for view in self.kinds.values() if view.table_class != "shared"}
        return PolicyView(**self.settings, classes=classes)

    async def set_policy(self, setting: PolicyName, value: PolicyValue) -> PolicyView:
        if setting not in self.settings:
            raise UsageError(f"there is no policy {setting!r}")
        self.settings[setting] = value
        return await self.policy()

    async def config(self) -> ConfigView:
        return config_view("config.toml", self.force, SITE)

    async def set_config(self, values: Mapping[str, Any]) -> ConfigReceipt:
        return await self._say(with_settings(self.force.said.config, values))

    async def apply_config(self, text: str) -> ConfigReceipt:
        return await self._say(parse_config(text))

    async def reload(self) -> ReloadView:
        return ReloadView(site=SITE, digest=digest_of(self.force.said.config), restart_required=self.force.pending)

    async def _say(self, config: Config) -> ConfigReceipt:
        done = FileChange(self.force.said.config, Said(config))
        self.force, _ = self.force.taking(done.after)
        return receipt_of(done, await self.reload())

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

    async def rows(
        self,
        table: str,
        *,
        limit: int = ROWS_PER_PAGE,
        after: Values | None = None,
        before: Values | None = None,
    ) -> list[RowView]:
        names = sorted(self.stored[table])
        if before is not None:
            return [self.stored[table][name] for name in names if name < repr(before)][-limit:]
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

    async def project(self, schema: str, *, epoch: str = "", since: int = 0) -> AsyncIterator[ProjectionPage]:
        yield ProjectionPage(mesh="00" * 16, site="00" * 16, epoch="00" * 8, seq=since, rows="all", current=True)
        await asyncio.Event().wait()

    async def write_schema(self, schema: str, writes: Sequence[RowWrite]) -> WrittenView:
        receipt = Receipt(table=schema, events=len(writes), hlc=(1, 0))
        return WrittenView(receipt=receipt, epoch="00" * 8)

    async def invite(self, ttl_ms: int = 900_000, *, confirm: bool = False) -> InviteView:
        return InviteView(invite="meshnode-invite:abc", expires_ms=ttl_ms, id="00" * 8, confirm=confirm)

    async def invited(self, invite_id: str, *, seen: str = "open", timeout_s: float = 0.0) -> InvitedView:
        self.asked_of.append((invite_id, seen))
        states = [state for state in self.becomes if state.state != seen]
        return states[0] if states else InvitedView(state=seen)

    async def invites(self) -> list[OpenInviteView]:
        return list(self.open_invites)

    async def withdraw_invite(self, invite_id: str) -> OpenInviteView:
        found = next((each for each in self.open_invites if each.id == invite_id), None)
        if found is None:
            raise NotFoundError(f"no invite {invite_id} is open here")
        self.open_invites.remove(found)
        self.becomes = [InvitedView(state="withdrawn", who=found.who)]
        return found

    async def decide(self, named: str, *, approve: bool) -> CandidateView:
        (who,) = [state.who for state in self.becomes if state.who is not None and state.state == "asks"]
        if named not in (who.site, who.short, who.name):
            raise NotFoundError(f"nobody called {named!r} waits")
        self.becomes = [InvitedView(state="joined" if approve else "denied", who=who)]
        return who

    async def nearby_open(self, ttl_ms: int = 120_000) -> NearbyView:
        self.near = NearbyView(state="open", until_ms=ttl_ms, addresses=["192.0.2.1:4748"], announced="off")
        return self.near

    async def nearby(self, *, seen: str = "", timeout_s: float = 0.0) -> NearbyView:
        if self.near.state == seen == "open":
            self.near = msgspec.structs.replace(self.near, state="asks", code="012345", who=self.guest)
        return self.near

    async def nearby_answer(self, code: str, *, yes: bool) -> NearbyView:
        if code != self.near.code:
            raise NotFoundError("these digits are not to be compared")
        state, reason = ("joined", "") if yes else ("closed", "declined here")
        self.near = msgspec.structs.replace(self.near, state=state, reason=reason, code="")
        return self.near

    async def nearby_close(self) -> NearbyView:
        self.near = msgspec.structs.replace(self.near, state="closed")
        return self.near

    async def notices(self, *, kind: str | None = None, everything: bool = False) -> list[NoticeView]:
        return []

    async def conflicts(
        self, table: str | None = None, *, everything: bool = False, limit: int = CONFLICTS_PER_PAGE
    ) -> list[ConflictView]:
        if table not in (None, CONFLICT.table):
            raise NotFoundError(f"no table is called {table!r} here")
        over = [msgspec.structs.replace(CONFLICT, column=None, status="resolved", ours=DELETED)] if everything else []
        return [CONFLICT, *over][:limit]

    async def resolve_conflict(self, conflict_id: str, *, prefer: str) -> ConflictReceipt:
        if prefer != "nas":
            raise UsageError(f"site {prefer} has no value in this conflict")
        return ConflictReceipt(id=conflict_id, status="resolved", preferred=PEER.site, event="ef" * 32, shown="neither")

    async def acknowledge_conflict(self, conflict_id: str) -> ConflictReceipt:
        return ConflictReceipt(id=conflict_id, status="acknowledged", shown="ours")

    async def conflict_changes(self, *, since: int | None = None) -> AsyncIterator[ConflictView]:
        if since is None or since < CONFLICT.change:
            yield CONFLICT

    async def sync_state(self, peer: str | None = None) -> list[SyncStateView]:
        self._known(peer)
        staged = [StagedView(no=7, kind="events", items=2, bytes=300, attempts=1)]
        asked = [RequestView(id="00" * 8, what="table *")]
        view = SyncStateView(
            site=PEER.site, short=PEER.short, name="nas\x1b[0m", path="quic", cursor=5, record_cursor=3, settled_no=6,
            staged=staged, next_inbound=4, lag_events=2, lag_ms=1500, asked=asked, stuck=True, why="unreadable",
        )  # fmt: skip
        return [view]

    async def frontier(self, peer: str | None = None) -> list[FrontierView]:
        self._known(peer)
        return [FrontierView(site=PEER.site, short=PEER.short, name=PEER.name, counter=9)]

    async def request_sync(self, peer: str | None = None, *, table: str | None = None) -> SyncRequest:
        self._known(peer)
        asked = AskedView(
            site=PEER.site, short=PEER.short, name=PEER.name, linked=False, id="00" * 8, table=table or "*"
        )
        return SyncRequest(asked=[asked])

    def _known(self, peer: str | None) -> None:
        if peer not in (None, PEER.name, PEER.site):
            raise NotFoundError(f"no other member is called {peer!r}")

    async def verify(
        self,
        peer: str,
        *,
        table: str | None = None,
        repair: bool = False,
        tell: Callable[[VerifyProgress], None] | None = None,
    ) -> VerifyReport:
        self._known(peer)
        if not self.online:
            raise UsageError(f"{peer} is not linked")
        if tell is not None:
            tell(VerifyProgress(state="reading", items=7))
            await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        kinds = [] if self.complete else ["horizon"] if repair else ["fault", "horizon"]
        event = ComparedEvent(id="ee" * 32, site=SITE, short=SITE[:8], hlc=(5, 6), where="there", columns=["ti\x1btle"])
        return VerifyReport(
            site=PEER.site, short=PEER.short, name=PEER.name, up_to=(9, 0),
            equal=not kinds, fault="fault" in kinds, counts=dict.fromkeys(kinds, 1),
            exchanges=3, asked_again=int(repair),
            rows=[
                ComparedRowView(table=table or "t", key={"id": "n\x1b"}, kind=kind, what="an event", events=[event])
                for kind in kinds
            ] + [
                ComparedRowView(table="t", key={"id": "m"}, kind="fault", what="made otherwise")
                for _ in kinds[: int(table is not None)]
            ],
            tables=[ComparedTableView(table=table or "t", compared=True, equal=not kinds, events_here=1200)],
        )  # fmt: skip

    async def resume(self) -> IdentityView:
        return IdentityView(site=SITE, short=SITE[:8], name="bench", publishing=True, asked=2)

    async def members(self) -> list[MemberView]:
        own = MemberView(
            site=SITE, short=SITE[:8], name="bench", role="authority", own=True, seniority=1,
            by="the recovery key", by_site="00" * 16, since_ms=1_800_000_000_000,
        )  # fmt: skip
        nas = MemberView(
            site=PEER.site, short=PEER.short, name="nas\x1b[0m", role="member", by="bench", by_site=SITE,
            since_ms=2**63, last_seen_ms=1_800_000_000_000, address="192.0.2.1:4747", software="meshnode/1",
        )  # fmt: skip
        return [own, nas]

    async def vouch(
        self, subject: str, *, name: str = "", recovery: str | None = None, passphrase: str | None = None
    ) -> RecordView:
        return self._record("vouch", name or subject, recovery)

    async def set_role(
        self, subject: str, role: str, *, recovery: str | None = None, passphrase: str | None = None
    ) -> RecordView:
        return msgspec.structs.replace(self._record("role", subject, recovery), role=role)

    async def retire(
        self,
        subject: str,
        *,
        at_ms: int | None = None,
        alone: bool = True,
        recovery: str | None = None,
        passphrase: str | None = None,
    ) -> RecordView:
        view = self._record("retirement", subject, recovery)
        return msgspec.structs.replace(view, cutoff=(at_ms or 1_800_000_000_000, 0), lost=("phone (00000000)",))

    async def leave(self, *, timeout_s: float = LEAVE_S) -> LeaveView:
        self.waits.append(timeout_s)
        return LeaveView(site=SITE, short=SITE[:8], name="bench", cutoff=(1_800_000_000_000, 0), untold=("nas",))

    def _record(self, kind: str, name: str, recovery: str | None) -> RecordView:
        return RecordView(
            record="00" * 32, kind=kind, site=PEER.site, short=PEER.short, name=name, by=recovery or "bench",
            by_site=SITE, issued=(1_800_000_000_000, 0),
        )  # fmt: skip

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

    async def check(self, *, repair: bool = False) -> CheckReport:
        rows = sum(map(len, self.stored.values()))
        self.complete = self.complete or repair
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
