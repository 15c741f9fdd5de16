"""What a node shows of itself: frozen values shared by the in-process node, the control API and the CLI.

Site ids, mesh tags and digests are their text forms (profile §3). Values of rows are the profile's own (§4); how they
look in JSON is said in `node.jsonvalues`, and nowhere else.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from meshnode.errors import UsageError

Values: TypeAlias = dict[str, Any]
"""Column name to null, bool, integer, float, text or byte string (profile §4)."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all views: what a reader does not know it ignores, so that versions can differ."""


class NoticeView(View, frozen=True, kw_only=True):
    """A surfaced condition, aggregated (profile §6)."""

    kind: str
    site: str = ""
    table: str = ""
    count: int
    first_ms: int
    last_ms: int
    sample: str = ""


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
    events: int = 0
    held: int = 0
    waiting: dict[str, int] = {}  # tables that are not here, and how many events wait for each
    open_invites: int = 0
    publishing: bool = True
    discovery: str = "off"  # "on", "off", or the reason why it degraded (profile §11)
    notices: list[NoticeView] = []


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
    withheld: int = 0
    horizon: tuple[int, int] | None = None


class RowView(View, frozen=True, kw_only=True):
    """One live row: unmaterialized columns are absent, cleared ones are null (profile §5)."""

    key: Values
    columns: Values

    def flat(self) -> Values:
        """Key and other columns side by side; their names never collide (profile §5)."""
        return {**self.key, **self.columns}


class RowChange(View, frozen=True, kw_only=True):
    """One row to write: the columns named get these values, the others stay."""

    key: Values
    columns: Values


class ChangeView(View, frozen=True, kw_only=True):
    """One entry of the durable change sequence; `seq` is where to go on from."""

    seq: int
    table: str
    key: Values
    exists: bool
    op: str = "upsert"  # upsert, delete, resurrect, withhold (profile §5)
    columns: Values = {}  # new values of the columns that changed
    site: str | None = None  # whose write it was
    hlc: tuple[int, int] | None = None


class Receipt(View, frozen=True, kw_only=True):
    """A local write that is signed and on disk."""

    table: str
    events: int
    hlc: tuple[int, int]
    event_ids: list[str] = []


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


class InviteView(View, frozen=True, kw_only=True):
    """An open invite. `invite` holds a secret: it is shown to the person who asked and goes nowhere else."""

    invite: str
    expires_ms: int
    addresses: list[str] = []

    def __repr__(self) -> str:
        return f"InviteView(invite=…, expires_ms={self.expires_ms}, addresses={self.addresses})"


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
    given: int  # clocks and values whose evidence is below a horizon or not kept: taken as they are
    count: int  # differences; the first ones are named
    differences: list[DifferenceView] = []


class FoundView(View, frozen=True, kw_only=True):
    """A mesh that was just founded."""

    site: str
    short: str
    name: str
    mesh_tag: str
    home: str
    recovery_key: str  # the file to move away (profile §9)
    port: int


class JoinView(View, frozen=True, kw_only=True):
    """A mesh that this device just became a member of."""

    site: str
    short: str
    name: str
    mesh_tag: str
    home: str
    inviter: str
    inviter_name: str


def parse_table(text: str) -> tuple[str, str]:
    """`name` or `schema.name` to (schema, table); schema `main` is the one left out (profile §5)."""
    schema, dot, name = text.partition(".")
    if not dot:
        schema, name = "main", text
    if not schema or not name or "." in name:
        raise UsageError(f"{text!r} names no table: write NAME, or SCHEMA.NAME")
    return schema, name


def table_text(schema: str, name: str) -> str:
    """The text form of a table."""
    return name if schema == "main" else f"{schema}.{name}"
