"""What can be asked of a node, whether it runs in this process or behind the control socket.

Three things implement it: `node.node.Node` (running), `node.local` (the store alone, when no node runs) and
`control.client.ControlClient`. Every method raises errors of `meshnode.errors` and no others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from meshnode.limits import INVITE_TTL_MS, MIB, NEARBY_TTL_MS
from meshnode.node.bundleviews import ExportView, IntakeView
from meshnode.node.config import PolicyName, PolicyValue
from meshnode.node.configviews import ConfigReceipt, ConfigView, ReloadView
from meshnode.node.conflict_views import ConflictReceipt, ConflictView
from meshnode.node.discoverviews import DiscoverView
from meshnode.node.doctorviews import DoctorView
from meshnode.node.eventviews import EVENTS_PER_PAGE, EventPage, EventQuery
from meshnode.node.memberviews import LeaveView, MemberView, RecordView
from meshnode.node.metricviews import MetricView
from meshnode.node.pairing_views import CandidateView, InvitedView, InviteView, NearbyView, OpenInviteView
from meshnode.node.projectionviews import ProjectionPage, RowWrite, WrittenView
from meshnode.node.syncviews import FrontierView, SyncRequest, SyncStateView
from meshnode.node.verifyviews import VerifyProgress, VerifyReport
from meshnode.node.views import (
    AcknowledgedView,
    ChangeView,
    CheckReport,
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

ALL_EVENTS = EventQuery()
ROWS_PER_PAGE = 1000  # rows that one call of `rows` gives at most
PAGE_BYTES = 1 * MIB  # of keys and values in one page of rows or changes; a larger row is a page of its own
CONFLICTS_PER_PAGE = 1000  # conflicts that one call gives at most
LEAVE_S = 20.0  # seconds that a device which leaves waits for the others to have what it wrote, and to hear of it
ROWS_PER_IMPORT = 500  # rows that one call of `import_rows` takes: one transaction


class Operations(Protocol):
    """The operations of a node. A table is named `name` (schema main) or `schema.name`."""

    async def status(self) -> Status:
        """How the node is."""
        ...

    async def metrics(self) -> list[MetricView]:
        """What is measured of the node; where none runs, what its store says."""
        ...

    async def peers(self) -> list[PeerView]:
        """The other members, linked or not."""
        ...

    async def discover(self, *, seconds: float) -> DiscoverView:
        """Who is in sight after `seconds`, members and strangers apart, and why each is dialed or is not.

        Where no node runs this process looks around by itself, announces nothing, and dials nobody.
        """
        ...

    async def doctor(self, checks: Sequence[str] = ()) -> DoctorView:
        """What is wrong with this node, and what to do about it, by the checks of these names, or all; changes nothing.

        Reads the whole database file, for some seconds at most. UsageError where a name is that of no check.
        """
        ...

    async def tables(self) -> list[TableView]:
        """The registered tables, by name."""
        ...

    async def add_table(
        self,
        table: str,
        key: Mapping[str, str],
        columns: Mapping[str, str],
        *,
        own_numbers: bool = False,
        table_class: str | None = None,
    ) -> TableView:
        """Create (column name to SQLite type) and register a table; with no key named, register one that exists.

        Raises RegistrationError (profile §5); adding the same table again changes nothing but its class, if one is
        named (`classify`).
        """
        ...

    async def classify(self, table: str, table_class: str) -> PolicyView:
        """Say what a table is to the mesh: `shared`, `raw` or `private`; in force at once, on links that are up too."""
        ...

    async def policy(self) -> PolicyView:
        """What of this node may cross the mesh."""
        ...

    async def set_policy(self, setting: PolicyName, value: PolicyValue) -> PolicyView:
        """Change `scope`, `replicate_raw_ingress` or `replay_budget_days`, in `config.toml` and at once."""
        ...

    async def config(self) -> ConfigView:
        """Every setting: what is in force, where that comes from, and what waits for the next start."""
        ...

    async def set_config(self, values: Mapping[str, Any]) -> ConfigReceipt:
        """Change some settings in `config.toml`, all of them or none; what is live is in force when this returns."""
        ...

    async def apply_config(self, text: str) -> ConfigReceipt:
        """Put a whole `config.toml` in place, comments and all: what it does not name is a default again."""
        ...

    async def reload(self) -> ReloadView:
        """Read `config.toml` again and take over what is live; NotFoundError where no node runs.

        ConfigError where it cannot be used as it stands: then what was in force stays so.
        """
        ...

    async def put(self, table: str, key: Values, columns: Values) -> Receipt:
        """Write these columns of one row, signed and on disk when this returns."""
        ...

    async def remove(self, table: str, key: Values) -> Receipt:
        """Delete one row; raises NotFoundError where there is none."""
        ...

    async def import_rows(self, table: str, rows: Sequence[RowChange]) -> ImportReport:
        """Write up to ROWS_PER_IMPORT rows in one transaction: all of them, or none and an error."""
        ...

    async def get(self, table: str, key: Values) -> RowView | None:
        """One live row."""
        ...

    async def explain(self, table: str, key: Values) -> RowExplanation | None:
        """Which write every column of one row comes from, and why the row is there or not; None for one never heard of.

        It tells written, cleared and unmaterialized columns apart, of deleted and withheld rows as well (profile §5).
        """
        ...

    async def rows(
        self,
        table: str,
        *,
        limit: int = ROWS_PER_PAGE,
        after: Values | None = None,
        before: Values | None = None,
    ) -> list[RowView]:
        """Live rows in key-bytes order, at most `limit`, from beyond the key `after` on; none where there is no other.

        With `before` those next below that key instead. A page ends early where its keys and values fill PAGE_BYTES:
        only an empty one says that there is nothing more.
        """
        ...

    async def evict(self, table: str, *, before_ms: int, everything: bool = False) -> RetentionReport:
        """Freeze a table below a time (ms since 1970) and take older events out of its log (profile §5).

        Rows stay as they are, and each row's winning events stay for joiners, unless `everything` is to go.
        """
        ...

    async def rehydrate(self, table: str) -> HistoryRequest:
        """Drop a table's horizon and ask the peers for its history (profile §8)."""
        ...

    async def compact(self, table: str | None = None) -> RetentionReport:
        """Take out of the log of a table, or of all, what no row can need any more; costs its history."""
        ...

    async def forget(self, table: str, key: Values, *, undo: bool = False) -> ForgetReport:
        """Take one row away on this device, erase it from the files, and keep nothing of it that comes later.

        `undo` ends that, and asks the peers for the row.
        """
        ...

    def changes(self, *, since: int | None = None, table: str | None = None) -> AsyncIterator[ChangeView]:
        """Changes beyond `since` as they happen, without gap; with None, those from now on. Ends with the node."""
        ...

    def project(self, schema: str, *, epoch: str = "", since: int = 0) -> AsyncIterator[ProjectionPage]:
        """One schema for an app that keeps a copy: pages of changes beyond a position, each with its row as it is.

        A position is that of a page, with its epoch. Where this database was never there, or is far beyond, every row
        is told first. Ends with the node. UsageError for what can name no schema.
        """
        ...

    async def write_schema(self, schema: str, writes: Sequence[RowWrite]) -> WrittenView:
        """Write rows of one schema, up to WRITES_PER_CALL, in one transaction: all of them, or none and an error."""
        ...

    async def events(
        self, query: EventQuery = ALL_EVENTS, *, after: int = 0, before: int | None = None, limit: int = EVENTS_PER_PAGE
    ) -> EventPage:
        """Retained events beyond a position of the log, own and foreign, at most `limit`; `more` says whether to go on.

        With `before` those below that position instead, the newest first. A page ends early after 1 MiB of events.
        Raises NotFoundError or UsageError for a table, site or verdict that there is none of.
        """
        ...

    async def notices(self, *, kind: str | None = None, everything: bool = False) -> list[NoticeView]:
        """Surfaced conditions, the latest first; acknowledged ones only with `everything`."""
        ...

    def follow_notices(self, *, kind: str | None = None, everything: bool = False) -> AsyncIterator[NoticeView]:
        """Those there are, the latest last, then each as it arises, or arises again. Ends with the node."""
        ...

    async def acknowledge(self, ids: Sequence[int] | None = None) -> AcknowledgedView:
        """Show these notices, or all there are, no more until they arise again; NotFoundError where one is not here."""
        ...

    def export_events(
        self, file: str | Path, *, peer: str | None = None, force: bool = False
    ) -> AsyncIterator[ExportView]:
        """Write a bundle for one member, or for any, with all that it may not have; the last view says that it is done.

        Everything from where the peer is known to stand is in it, until the peer acknowledges by a bundle of its own,
        or on a link. UsageError where the file is there already (unless `force`) or cannot be written.
        """
        ...

    def import_events(self, file: str | Path) -> AsyncIterator[IntakeView]:
        """Take in a bundle that another member wrote; the last view says what became of all of it.

        BundleError where it is damaged, of another mesh or for somebody else; then nothing of it is used.
        """
        ...

    async def invite(self, ttl_ms: int = INVITE_TTL_MS, *, confirm: bool = False) -> InviteView:
        """Open an invite (profile §10); with `confirm` nobody becomes a member by it before `decide` said yes."""
        ...

    async def invited(self, invite_id: str, *, seen: str = "open", timeout_s: float = 0.0) -> InvitedView:
        """What became of the invite of this id, as soon as its state is not `seen`, or after `timeout_s` seconds."""
        ...

    async def invites(self) -> list[OpenInviteView]:
        """The invites that somebody may still come in by, the next to expire first."""
        ...

    async def withdraw_invite(self, invite_id: str) -> OpenInviteView:
        """Take the open invite of this id back: nobody comes in by it, also not who asks by it now.

        Raises NotFoundError where none of this id is open, UsageError for what is no id.
        """
        ...

    async def decide(self, named: str, *, approve: bool) -> CandidateView:
        """Let in the device of this site id, short id or name that holds an invite and asks; no ends the invite.

        Raises NotFoundError where nobody like that asks, UsageError where several of that name do.
        """
        ...

    async def nearby_open(self, ttl_ms: int = NEARBY_TTL_MS) -> NearbyView:
        """Let one nearby device pair without an invite, for a short time; NotFoundError where no node runs."""
        ...

    async def nearby(self, *, seen: str = "", timeout_s: float = 0.0) -> NearbyView:
        """How far that is, as soon as its state is not `seen`, or after `timeout_s` seconds."""
        ...

    async def nearby_answer(self, code: str, *, yes: bool) -> NearbyView:
        """Whether these digits are on the other screen too; NotFoundError where they are not to be compared now."""
        ...

    async def nearby_close(self) -> NearbyView:
        """Let nobody pair without an invite any more."""
        ...

    async def sync_state(self, peer: str | None = None) -> list[SyncStateView]:
        """Both streams to each other member, or to the one of this site id or name."""
        ...

    async def frontier(self, peer: str | None = None) -> list[FrontierView]:
        """The causal frontier in site order, or one member's slot: evidence of order alone."""
        ...

    async def request_sync(self, peer: str | None = None, *, table: str | None = None) -> SyncRequest:
        """Ask every unretired member, or one, for a table or for everything, and start a cycle with them now."""
        ...

    async def conflicts(
        self, table: str | None = None, *, everything: bool = False, limit: int = CONFLICTS_PER_PAGE
    ) -> list[ConflictView]:
        """Concurrent writes of one cell that nobody decided yet, the latest first; `everything`: those that are over.

        At most CONFLICTS_PER_PAGE.
        """
        ...

    async def resolve_conflict(self, conflict_id: str, *, prefer: str) -> ConflictReceipt:
        """Let the value of one of the two sites show, by an ordinary write where it does not show already.

        Raises UsageError where that site has no value in the conflict, or the conflict is over.
        """
        ...

    async def acknowledge_conflict(self, conflict_id: str) -> ConflictReceipt:
        """Leave a conflict as it is: it counts no more, and the same two writes are not brought up again."""
        ...

    def conflict_changes(self, *, since: int | None = None) -> AsyncIterator[ConflictView]:
        """Conflicts as they are recorded and change, beyond the change `since`; with None, from now on."""
        ...

    async def verify(
        self,
        peer: str,
        *,
        table: str | None = None,
        repair: bool = False,
        tell: Callable[[VerifyProgress], None] | None = None,
    ) -> VerifyReport:
        """Compare events and rows with a linked member, all tables or one, and tell what differs and why (profile §15).

        With `repair` each sends the other what it should have and has not, and the two are compared again. `tell` hears
        how far it is. NotFoundError where no node runs, UsageError where the member is not linked; TransportError
        where it gives up.
        """
        ...

    async def resume(self) -> IdentityView:
        """This copy of the database is the device: publish again, and ask for this site's own events (profile §8)."""
        ...

    async def members(self) -> list[MemberView]:
        """Every device that is or was a member, this one included: authorities by seniority first (profile §9)."""
        ...

    async def vouch(
        self, subject: str, *, name: str = "", recovery: str | None = None, passphrase: str | None = None
    ) -> RecordView:
        """Let a device in by its public key (64 hex digits), or by id or name one whose vouch counts no more.

        Here and below `recovery` is the file of the recovery key, which then signs instead of this device, `passphrase`
        what that file is under; a device is named by its site id, long or short, or its name.
        MembershipError where the record would have no effect.
        """
        ...

    async def set_role(
        self, subject: str, role: str, *, recovery: str | None = None, passphrase: str | None = None
    ) -> RecordView:
        """Make a member an `authority`, a `member` or a `reader` from now on."""
        ...

    async def retire(
        self,
        subject: str,
        *,
        at_ms: int | None = None,
        alone: bool = True,
        recovery: str | None = None,
        passphrase: str | None = None,
    ) -> RecordView:
        """End a member at a time that is over, by default now.

        Its links close, what it wrote later is dropped and taken back on every node, and its key is refused for ever.
        MembershipError where others would be out with it, since it alone had let them in after that time: what they
        wrote would be taken back too. `vouch` keeps one in; without `alone` they are ended.
        """
        ...

    async def leave(self, *, timeout_s: float = LEAVE_S) -> LeaveView:
        """Retire this very device, once the linked members have what it wrote; waits until they know, or that long."""
        ...

    async def wait(self, *, timeout_s: float, live_only: bool = False) -> WaitResult:
        """Until every unretired member (or every linked one) has all that this node holds, and it all of theirs."""
        ...

    async def digest(self, table: str | None = None) -> list[TableDigest]:
        """Digest of one table, or of every registered one by name."""
        ...

    async def check(self, *, repair: bool = False) -> CheckReport:
        """Recompute rows and clocks from the log and name what differs; reads everything, so it takes a while.

        `repair`: write rows, clocks and counters that differ as the log says, pass over events that it has lost, and
        ask the other members for these.
        """
        ...

    async def set_online(self, online: bool) -> None:
        """Cut the running node off (links closed, nothing dialed or accepted) or let it talk again.

        Local reads and writes go on either way; raises NotFoundError where no node runs.
        """
        ...
