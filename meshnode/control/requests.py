"""What the control API takes: one struct of arguments per operation, shared by its client and its server."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec

from meshnode.node.api import CONFLICTS_PER_PAGE, ROWS_PER_PAGE
from meshnode.node.eventviews import EVENTS_PER_PAGE, EventQuery
from meshnode.node.projectionviews import RowWrite
from meshnode.node.views import RowChange, Values

API = "/v1"
BODY_BYTES = 64 * 1024 * 1024  # one request; against a mistaken program of the same user
WAIT_SLICE_S = 5.0  # seconds that one `wait` call may last: a client that went away is not waited for longer

Whole: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A whole number that SQLite can keep."""

Span: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""Milliseconds from now on, to a time that SQLite can keep."""

FileName: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[^\u0000]+$", max_length=4096)]
"""A path that a system can be asked for."""


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all arguments."""


class NoArguments(Arguments, frozen=True, kw_only=True):
    """Of operations that take none."""


class Doctor(Arguments, frozen=True, kw_only=True):
    """Of `doctor`."""

    checks: list[str] = []


class Check(Arguments, frozen=True, kw_only=True):
    """`check`."""

    repair: bool = False


class AddTable(Arguments, frozen=True, kw_only=True):
    """Of `add-table`."""

    table: str
    key: dict[str, str]
    columns: dict[str, str]
    own_numbers: bool = False
    table_class: str | None = None


class Classify(Arguments, frozen=True, kw_only=True):
    """Of `classify`."""

    table: str
    table_class: str


class SetPolicy(Arguments, frozen=True, kw_only=True):
    """Of `set-policy`."""

    setting: str
    value: Any


class SetConfig(Arguments, frozen=True, kw_only=True):
    """Of `set-config`."""

    values: dict[str, Any]


class ApplyConfig(Arguments, frozen=True, kw_only=True):
    """Of `apply-config`."""

    text: str


class Put(Arguments, frozen=True, kw_only=True):
    """Of `put`."""

    table: str
    key: Values
    columns: Values


class RowKey(Arguments, frozen=True, kw_only=True):
    """Of `get`, `explain` and `remove`."""

    table: str
    key: Values


class ImportRows(Arguments, frozen=True, kw_only=True):
    """Of `import-rows`."""

    table: str
    rows: list[RowChange]


class Rows(Arguments, frozen=True, kw_only=True):
    """Of `rows`."""

    table: str
    limit: int = ROWS_PER_PAGE
    after: Values | None = None
    before: Values | None = None


class Evict(Arguments, frozen=True, kw_only=True):
    """Of `evict`."""

    table: str
    before_ms: Whole
    everything: bool = False


class TableName(Arguments, frozen=True, kw_only=True):
    """Of `rehydrate`."""

    table: str


class SomeTable(Arguments, frozen=True, kw_only=True):
    """Of `compact` and `digest`: one table, or every one."""

    table: str | None = None


class Forget(Arguments, frozen=True, kw_only=True):
    """Of `forget`."""

    table: str
    key: Values
    undo: bool = False


class Changes(Arguments, frozen=True, kw_only=True):
    """Of `changes`."""

    since: Whole | None = None
    table: str | None = None


class Project(Arguments, frozen=True, kw_only=True):
    """Of `project`."""

    schema: str
    epoch: str = ""
    since: Whole = 0


class WriteSchema(Arguments, frozen=True, kw_only=True):
    """Of `write-schema`."""

    schema: str
    writes: list[RowWrite]


class Events(Arguments, frozen=True, kw_only=True):
    """Of `events`."""

    query: EventQuery = EventQuery()
    after: Whole = 0
    before: Whole | None = None
    limit: int = EVENTS_PER_PAGE


class ExportEvents(Arguments, frozen=True, kw_only=True):
    """Of `export-events`; the file is named by its whole path."""

    file: FileName
    peer: str | None = None
    force: bool = False


class ImportEvents(Arguments, frozen=True, kw_only=True):
    """Of `import-events`; likewise."""

    file: FileName


class Notices(Arguments, frozen=True, kw_only=True):
    """Of `notices` and `follow-notices`."""

    kind: str | None = None
    everything: bool = False


class Acknowledge(Arguments, frozen=True, kw_only=True):
    """Of `acknowledge`: these, or all."""

    ids: list[Whole] | None = None


class Invite(Arguments, frozen=True, kw_only=True):
    """Of `invite`."""

    ttl_ms: Span
    confirm: bool = False


class Invited(Arguments, frozen=True, kw_only=True):
    """Of `invited`."""

    id: str
    seen: str = "open"
    timeout_s: float = 0.0


class WithdrawInvite(Arguments, frozen=True, kw_only=True):
    """Of `withdraw-invite`."""

    id: str


class Decide(Arguments, frozen=True, kw_only=True):
    """Of `decide`."""

    named: str
    approve: bool


class NearbyOpen(Arguments, frozen=True, kw_only=True):
    """Of `nearby-open`."""

    ttl_ms: Span


class Nearby(Arguments, frozen=True, kw_only=True):
    """Of `nearby`."""

    seen: str = ""
    timeout_s: float = 0.0


class NearbyAnswer(Arguments, frozen=True, kw_only=True):
    """Of `nearby-answer`."""

    code: str
    yes: bool


class Discover(Arguments, frozen=True, kw_only=True):
    """Of `discover`."""

    seconds: float


class Wait(Arguments, frozen=True, kw_only=True):
    """Of `wait`."""

    timeout_s: float
    live_only: bool = False


class SomePeer(Arguments, frozen=True, kw_only=True):
    """Of `sync-state` and `frontier`: one peer, or every one."""

    peer: str | None = None


class Conflicts(Arguments, frozen=True, kw_only=True):
    """Of `conflicts`."""

    table: str | None = None
    everything: bool = False
    limit: int = CONFLICTS_PER_PAGE


class ResolveConflict(Arguments, frozen=True, kw_only=True):
    """Of `resolve-conflict`."""

    id: str
    prefer: str


class OneConflict(Arguments, frozen=True, kw_only=True):
    """Of `acknowledge-conflict`."""

    id: str


class ConflictChanges(Arguments, frozen=True, kw_only=True):
    """Of `conflict-changes`."""

    since: Whole | None = None


class RequestSync(Arguments, frozen=True, kw_only=True):
    """Of `request-sync`."""

    peer: str | None = None
    table: str | None = None


class Verify(Arguments, frozen=True, kw_only=True):
    """Of `verify`."""

    peer: str
    table: str | None = None
    repair: bool = False


class Vouch(Arguments, frozen=True, kw_only=True):
    """Of `vouch`."""

    subject: str
    name: str = ""
    recovery: FileName | None = None  # the file: a key never crosses this API
    passphrase: str | None = None  # of that file


class SetRole(Arguments, frozen=True, kw_only=True):
    """Of `set-role`."""

    subject: str
    role: str
    recovery: FileName | None = None
    passphrase: str | None = None


class Retire(Arguments, frozen=True, kw_only=True):
    """Of `retire`."""

    subject: str
    at_ms: Whole | None = None
    alone: bool = True
    recovery: FileName | None = None
    passphrase: str | None = None


class Leave(Arguments, frozen=True, kw_only=True):
    """Of `leave`."""

    timeout_s: float


class SetOnline(Arguments, frozen=True, kw_only=True):
    """Of `set-online`."""

    online: bool


class Pong(msgspec.Struct, frozen=True, kw_only=True):
    """What `ping` is answered with: nothing."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An error in an answer, or as the last line of a stream: the name of its class and its message."""

    error: str  # one of the names of `errors.py`
    message: str  # what happened, to what, and what to do about it: for people, and not stable
    code: int | None = None  # the close code of the link that it is about (profile §7)


def arguments_builtins(arguments: Arguments) -> Any:
    """Arguments without those that are absent."""
    named = {name: getattr(arguments, name) for name in arguments.__struct_fields__}
    return {name: value for name, value in named.items() if value is not None}
