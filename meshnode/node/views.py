"""What a node shows of itself: frozen values shared by the in-process node, the control API and the CLI.

Site ids, mesh tags and digests are their text forms (profile §3). Values of rows are the profile's own (§4); how they
look in JSON is said in `node.jsonvalues`, and nowhere else.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec

from meshnode.errors import UsageError
from meshnode.limits import NAME_BYTES
from meshnode.model.policy import TableClass
from meshnode.model.wording import quoted
from meshnode.node.pairing_views import CandidateView

Value: TypeAlias = Annotated[Any, msgspec.Meta(extra_json_schema={"$ref": "#/components/schemas/Value"})]
"""Null, bool, integer, float, text or byte string (profile §4); what it refers to is said in `control/schemas.py`."""

Values: TypeAlias = dict[str, Value]
"""Column name to value."""

_SHOWN = 40  # characters of a text that names no table
HOW_TO_CHOOSE = (
    "on the copy that goes on as this device run `meshnode identity resume`; on the other one `meshnode identity renew "
    "INVITE`, with an invite that `meshnode invite` makes on a device which may let others in"
)
"""What to do where two copies of one device run (profile §8)."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all views: what a reader does not know it ignores, so that versions can differ."""


class NoticeView(View, frozen=True, kw_only=True):
    """A surfaced condition, aggregated (profile §6)."""

    id: int = 0
    kind: str
    site: str = ""
    table: str = ""
    count: int
    first_ms: int
    last_ms: int
    sample: str = ""
    acknowledged: bool = False  # its owner has seen it, and it has not arisen since


class AcknowledgedView(View, frozen=True, kw_only=True):
    """Notices whose owner has seen them: they are shown no more until they arise again."""

    acknowledged: int


class GroupView(View, frozen=True, kw_only=True):
    """One group in which a peer's watermark is not ours (SSP/1 §14.2)."""

    site: str  # the author
    name: str
    table: str
    side: str  # "behind": the peer is behind this node, "ahead": this node is behind the peer
    applied: tuple[int, int] | None = None  # our watermark, None where nothing is applied here
    told: tuple[int, int] | None = None  # the peer's, None where it told nothing: not applied there, as far as is known
    gap_ms: int | None = None  # between the physical clocks, None where one of the two is None
    told_ms: int | None = None  # when the peer told it


class ConflictCounts(View, frozen=True, kw_only=True):
    """How many conflicts nobody has decided yet."""

    certain: int = 0
    possible: int = 0  # no ack tells whether they are any


class LaggingView(View, frozen=True, kw_only=True):
    """One group of which this node has not applied all that it knows of."""

    site: str  # the author
    name: str
    table: str  # "*.*" stands for all groups of the site past the bound on unknown tables
    reason: str  # "held", "rejected", "hole": later events are here, earlier ones may not be, "missing": a peer told it
    applied: tuple[int, int] | None = None  # our watermark, None where nothing is applied
    known: tuple[int, int]
    gap_ms: int | None = None  # between the physical clocks, None where nothing is applied
    events: int = 0  # held
    told_by: str = ""  # of what is missing: the peer that told of the latest


class PeerView(View, frozen=True, kw_only=True):
    """Another member of the mesh, as this node knows it."""

    site: str
    short: str
    name: str
    role: str  # authority, member or reader
    retired: bool = False
    linked: bool = False
    address: str | None = None  # of the link, else the last one that worked
    opened_by_us: bool | None = None
    software: str = ""
    last_seen_ms: int | None = None
    clock_offset_ms: int | None = None
    behind: int = 0  # events that this node holds and the peer has not acknowledged
    unconfirmed: int = 0  # further ones that wait to be offered: the peer gets them from their authors
    ahead: int = 0  # groups of which the peer told newer events than are here, and unanswered requests
    in_flight: int = 0  # frames staged and not settled
    stuck: bool = False  # stored delivery state cannot be read: nothing moves until its owner acts
    note: str = ""  # why nothing moves, where that is known
    told_ms: int | None = None  # when it last told how far it is; kept over restarts
    groups_behind: int = 0  # in which it is behind this node, by its watermarks against ours
    groups_ahead: int = 0  # in which this node is behind it
    groups: list[GroupView] = []  # the largest gaps of both, those of unknown size first
    groups_more: int = 0  # beyond those


class StagedView(View, frozen=True, kw_only=True):
    """One frame in flight to a peer."""

    no: int
    kind: str  # events, records, events again, records again, answered
    items: int
    bytes: int
    attempts: int  # how often it was sent again


class RequestView(View, frozen=True, kw_only=True):
    """Something that one node asks of another until it is answered (profile §8)."""

    id: str
    what: str  # as `table main.notes` or `site 1eed29b1`


class SyncStateView(View, frozen=True, kw_only=True):
    """Both delivery streams between this node and one peer (NEOTH operations)."""

    site: str
    short: str
    name: str
    linked: bool = False
    path: str
    cursor: int  # log position up to which the peer acknowledged everything; where others' are offered, all of ours
    offer_cursor: int | None = None  # likewise of events by others, where they are offered before they are sent
    record_cursor: int
    settled_no: int  # the last frame that it acknowledged
    staged: list[StagedView] = []
    next_inbound: int = 0  # number of the peer's next frame, 0 before it opened a stream
    lag_events: int = 0  # events that the peer should get and has not acknowledged
    unconfirmed: int = 0  # events of others that it is expected to have from them, and is offered if not
    lag_records: int = 0
    lag_ms: int = 0  # how long ago the first of those events was written, by its own clock
    reoffers: int = 0  # events and records that are offered again: rejected, or asked for
    rejected: int = 0  # of them, those that wait for the next cycle
    backfills: list[str] = []  # tables of which more is to be offered again
    asked: list[RequestView] = []  # of ours, not answered
    unanswered: list[str] = []  # ids of the peer's requests that are not marked answered
    last_error: str = ""
    stuck: bool = False  # something cannot be read: that stream stands still, its cursor unmoved
    why: str = ""


class FrontierView(View, frozen=True, kw_only=True):
    """One slot of the causal frontier: evidence of order, and of nothing else (NEOTH)."""

    site: str
    short: str
    name: str
    counter: int
    local: bool = False  # this node's own slot
    evidence: str = "ordering"


class AskedView(View, frozen=True, kw_only=True):
    """What one peer was asked for."""

    site: str
    short: str
    name: str
    linked: bool  # the request is on its way; otherwise it waits for the next link
    id: str
    table: str  # its name, or * for every one


class SyncRequest(View, frozen=True, kw_only=True):
    """The receipt of a request: durable until each peer has answered."""

    asked: list[AskedView]


class Status(View, frozen=True, kw_only=True):
    """One node at one moment."""

    running: bool
    online: bool = True  # False while its owner cut it off
    site: str
    short: str
    name: str
    mesh_tag: str
    home: str
    database: str
    encrypted: bool = False  # the database file
    peers: list[PeerView]
    role: str = "member"
    retired: bool = False
    software: str = ""
    pid: int | None = None
    port: int | None = None
    addresses: list[str] = []
    hlc: tuple[int, int] = (0, 0)
    started_ms: int | None = None
    tables: int = 0
    rows: int = 0
    rows_more: bool = False  # counting stopped there: there are at least so many
    events: int = 0
    held: int = 0
    waiting: dict[str, int] = {}  # tables that are not here, and how many events wait for each
    unusable: dict[str, str] = {}  # registered tables that take no part as they stand, and why (profile §5)
    open_invites: int = 0
    expired_invites: int = 0  # that nobody used; the next invite takes them away
    asking: list[CandidateView] = []  # who holds an invite and waits until somebody here says yes
    conflicts: ConflictCounts = ConflictCounts()
    publishing: bool = True
    moved: str = ""  # where the device was moved to, and what its owner can do here
    discovery: str = "off"  # "on", "off", or the reason why it degraded (profile §11)
    discovery_off: str = ""  # what turned it off, where it is
    skipped_interfaces: dict[str, str] = {}  # interfaces on which nothing is announced or looked for, and why
    restart_required: list[str] = []  # settings of which config.toml says something else than is in force
    notices: list[NoticeView] = []
    warnings: list[str] = []  # what its owner should do about who is in (profile §9)
    lagging: list[LaggingView] = []  # groups that this node is behind in, and why; the largest gaps
    lagging_more: int = 0  # beyond those


class ColumnView(View, frozen=True, kw_only=True):
    """One column of a registered table; `type` is as SQLite declares it."""

    name: str
    type: str = ""
    not_null: bool = False


class TableView(View, frozen=True, kw_only=True):
    """One table that takes part in the mesh; `table` is its text form, `name` or `schema.name`."""

    table: str
    key: list[ColumnView]
    columns: list[ColumnView]
    rows: int = 0
    rows_more: bool = False  # counting stopped there: it has at least so many
    withheld: int = 0
    horizon: tuple[int, int] | None = None
    table_class: str = "shared"  # shared, raw or private (NEOTH)
    unusable: str = ""  # why it takes no part as it stands, and the SQL that mends it (profile §5)


class PolicyView(View, frozen=True, kw_only=True):
    """What of this node may cross the mesh (NEOTH, content and privacy), and on which networks it shows itself."""

    scope: list[str]  # what it takes; empty is everything
    replicate_raw_ingress: bool
    replay_budget_days: int  # 0: no bound
    classes: dict[str, str] = {}  # tables that are not simply shared
    announce_on_untrusted_wifi: bool = True
    trusted_ssids: list[str] = []
    announce_on_unknown_networks: bool = False
    announce_on_wired_networks: bool = True


class RowView(View, frozen=True, kw_only=True, repr_omit_defaults=True):
    """One live row: unmaterialized columns are absent, cleared ones are null (profile §5)."""

    key: Values
    columns: Values
    cleared: list[str] = []  # of `columns`, those that a delete cleared: no upsert wrote their null
    unmaterialized: list[str] = []  # columns of the table that no write ever reached, whatever SQL shows for them

    def flat(self) -> Values:
        """Key and other columns side by side; their names never collide (profile §5)."""
        return {**self.key, **self.columns}


class RowChange(View, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row to write: the columns named get these values, the others stay."""

    key: Values
    columns: Values


class ChangeView(View, frozen=True, kw_only=True):
    """One entry of the durable change sequence; `seq` is where to go on from.

    A row that readers did not see before is told whole; of one that they do not see any more, only that.
    """

    seq: int
    table: str
    key: Values
    exists: bool  # whether readers see the row now
    op: str = "upsert"  # upsert, delete, resurrect, withhold, show (profile §5), taken-back (§9), forget
    columns: Values = {}  # new values of the columns that changed, null for a cleared one
    old: Values = {}  # what they held before, of a row that went away all it held; nothing of more than 4 KiB
    cleared: list[str] = []  # of `columns`, those that a delete cleared: no upsert wrote their null
    unmaterialized: list[str] = []  # columns that are as if nobody had ever written them: their value was taken back
    partial: bool = False  # possibly without values from below the horizon (SSP/1 §13.4)
    local: bool = False  # this node wrote it
    site: str | None = None  # whose write it was
    hlc: tuple[int, int] | None = None


class ClockView(View, frozen=True, kw_only=True):
    """Who wrote something, and when by the hybrid clock."""

    site: str
    hlc: tuple[int, int]
    event: str = ""  # the id of the event


class CellView(View, frozen=True, kw_only=True):
    """One column of one row: what it holds, and which write that comes from."""

    name: str
    state: str  # written, cleared or unmaterialized (profile §5)
    value: Value | msgspec.UnsetType = msgspec.UNSET  # absent where there is none, or where its event was evicted
    clock: ClockView | None = None  # of the upsert that wrote it, of the delete that cleared it


class RowExplanation(View, frozen=True, kw_only=True):
    """Why one row is as it is, whether readers see it or not."""

    table: str
    key: Values
    exists: bool  # whether readers see it
    withheld: bool  # it exists by its clocks, and its table does not allow it (profile §5)
    reason: str = ""  # why it is not what its clocks say
    existence: ClockView | None = None  # of the write that decides whether it exists (SSP/1 §13.2)
    tombstone: ClockView | None = None  # of its newest delete, whether or not that decides (SSP/1 §13.3)
    horizon: tuple[int, int] | None = None  # of its table: nothing below is rebuilt
    columns: list[CellView] = []


class Receipt(View, frozen=True, kw_only=True):
    """A local write that is signed and on disk."""

    table: str
    events: int
    hlc: tuple[int, int]
    event_ids: list[str] = []
    seq: int = 0  # how far the change sequence was with it: `changes(since=…)` tells what came after


class ImportReport(View, frozen=True, kw_only=True):
    """What one batch of imported rows did."""

    rows: int


class RetentionReport(View, frozen=True, kw_only=True):
    """What was taken out of the logs of some tables; no row and no clock changed."""

    tables: list[str]
    events: int
    bytes: int
    horizon: tuple[int, int] | None = None  # of the table that was evicted


class HistoryRequest(View, frozen=True, kw_only=True):
    """A table's history was asked for; the requests last until they are answered (profile §8)."""

    table: str
    asked: int  # peers


class ForgetReport(View, frozen=True, kw_only=True):
    """A row that is forgotten on this device, or, with `undone`, taken again."""

    table: str
    events: int = 0  # whose bytes were erased
    undone: bool = False
    asked: int = 0  # peers asked for what was not kept


class BehindView(View, frozen=True, kw_only=True):
    """A member that `wait` still waits for, and why."""

    site: str
    short: str
    name: str
    linked: bool
    behind: int = 0  # events of ours that it has not acknowledged
    ahead: int = 0  # groups of which it told newer events than we hold
    reason: str = ""


class WaitResult(View, frozen=True, kw_only=True):
    """Whether everybody has everything, and if not, who is behind."""

    complete: bool
    members: int
    behind: list[BehindView] = []
    reason: str = ""  # where no member is behind and it is not complete: nobody is linked, for instance


class TableDigest(View, frozen=True, kw_only=True):
    """BLAKE3-256 of the deterministic CBOR array of a table's live rows in key-bytes order."""

    table: str
    digest: str
    rows: int


class IdentityView(View, frozen=True, kw_only=True):
    """Which site this home is, after its owner chose (profile §8)."""

    site: str
    short: str
    name: str
    publishing: bool
    asked: int = 0  # peers asked for this site's own events
    former: str = ""  # the site that this home was before, where that is a member still


class KeysView(View, frozen=True, kw_only=True):
    """How the keys of this home are kept."""

    files: list[str]
    protected: bool  # under a passphrase
    keyring: bool = False  # which the system's keyring keeps as well


class MovedView(View, frozen=True, kw_only=True):
    """A device that was put into a file, or made of one."""

    site: str
    short: str
    name: str
    home: str
    file: str
    bytes: int


class DifferenceView(View, frozen=True, kw_only=True):
    """One thing that is not what the log says."""

    table: str = ""  # empty where no table is meant
    where: str
    what: str


class CheckReport(View, frozen=True, kw_only=True):
    """The store recomputed from its log."""

    events: int
    tables: int
    rows: int
    given: int  # clocks, values and watermarks whose evidence is below a horizon or not kept: taken as they are
    count: int  # differences; the first ones are named
    differences: list[DifferenceView] = []
    mendable: bool = False  # whether `--repair` would mend any of it
    mended: int = 0  # by `--repair`; the first ones are named
    mendings: list[DifferenceView] = []


class FoundView(View, frozen=True, kw_only=True):
    """A mesh that was just founded."""

    site: str
    short: str
    name: str
    mesh_tag: str
    home: str
    recovery_key: str  # the file to move away (profile §9)
    port: int


def parse_table(text: str) -> tuple[str, str]:
    """`name` or `schema.name` to (schema, table); schema `main` is the one left out (profile §5)."""
    if not isinstance(text, str):
        raise UsageError(f"{text!r} names no table: write NAME, or SCHEMA.NAME")
    schema, dot, name = text.partition(".")
    if not dot:
        schema, name = "main", text
    if not schema or not name or "." in name:
        raise UsageError(f"{text[:_SHOWN]!r} names no table: write NAME, or SCHEMA.NAME")
    if max(len(part.encode("utf-8", "replace")) for part in (schema, name)) > NAME_BYTES:  # no frame could carry it
        raise UsageError(f"{text[:_SHOWN]!r} names no table: a name has at most {NAME_BYTES} bytes")
    return schema, name


def parse_class(text: str) -> TableClass:
    """The class of a table by its name."""
    try:
        return TableClass(text)
    except ValueError:
        raise UsageError(f"{quoted(text)} is no class of tables: there are {', '.join(TableClass)}") from None


def table_text(schema: str, name: str) -> str:
    """The text form of a table."""
    return name if schema == "main" else f"{schema}.{name}"
