"""What the control API takes: one struct of arguments per operation, shared by its client and its server."""

from __future__ import annotations

from typing import Any

import msgspec

from meshnode.node.api import CONFLICTS_PER_PAGE, ROWS_PER_PAGE
from meshnode.node.eventviews import EVENTS_PER_PAGE, EventQuery
from meshnode.node.views import RowChange, Values

API = "/v1"
BODY_BYTES = 64 * 1024 * 1024  # one request; against a mistaken program of the same user
ERROR_BYTES = 64 * 1024  # what a client reads of an answer that is an error
WAIT_SLICE_S = 5.0  # seconds that one `wait` call may last: a client that went away is not waited for longer


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all arguments."""


class NoArguments(Arguments, frozen=True, kw_only=True):
    """For operations that take none."""


class Doctor(Arguments, frozen=True, kw_only=True):
    """`doctor`."""

    checks: list[str] = []


class Check(Arguments, frozen=True, kw_only=True):
    """`check`."""

    repair: bool = False


class AddTable(Arguments, frozen=True, kw_only=True):
    """`add_table`."""

    table: str
    key: dict[str, str]
    columns: dict[str, str]
    own_numbers: bool = False
    table_class: str | None = None


class Classify(Arguments, frozen=True, kw_only=True):
    """`classify`."""

    table: str
    table_class: str


class SetPolicy(Arguments, frozen=True, kw_only=True):
    """`set_policy`."""

    setting: str
    value: Any


class SetConfig(Arguments, frozen=True, kw_only=True):
    """`set_config`."""

    values: dict[str, Any]


class ApplyConfig(Arguments, frozen=True, kw_only=True):
    """`apply_config`."""

    text: str


class Put(Arguments, frozen=True, kw_only=True):
    """`put`."""

    table: str
    key: Values
    columns: Values


class RowKey(Arguments, frozen=True, kw_only=True):
    """`get`, `explain` and `remove`."""

    table: str
    key: Values


class ImportRows(Arguments, frozen=True, kw_only=True):
    """`import_rows`."""

    table: str
    rows: list[RowChange]


class Rows(Arguments, frozen=True, kw_only=True):
    """`rows`."""

    table: str
    limit: int = ROWS_PER_PAGE
    after: Values | None = None


class Evict(Arguments, frozen=True, kw_only=True):
    """`evict`."""

    table: str
    before_ms: int
    everything: bool = False


class TableName(Arguments, frozen=True, kw_only=True):
    """`rehydrate`."""

    table: str


class SomeTable(Arguments, frozen=True, kw_only=True):
    """`compact`: one table, or every one."""

    table: str | None = None


class Forget(Arguments, frozen=True, kw_only=True):
    """`forget`."""

    table: str
    key: Values
    undo: bool = False


class Changes(Arguments, frozen=True, kw_only=True):
    """`changes`."""

    since: int | None = None
    table: str | None = None


class Events(Arguments, frozen=True, kw_only=True):
    """`events`."""

    query: EventQuery = EventQuery()
    after: int = 0
    limit: int = EVENTS_PER_PAGE


class ExportEvents(Arguments, frozen=True, kw_only=True):
    """`export_events`; the file is named by its whole path."""

    file: str
    peer: str | None = None
    force: bool = False


class ImportEvents(Arguments, frozen=True, kw_only=True):
    """`import_events`; likewise."""

    file: str


class Notices(Arguments, frozen=True, kw_only=True):
    """`notices` and `follow_notices`."""

    kind: str | None = None
    everything: bool = False


class Acknowledge(Arguments, frozen=True, kw_only=True):
    """`acknowledge`: these, or all."""

    ids: list[int] | None = None


class Invite(Arguments, frozen=True, kw_only=True):
    """`invite`."""

    ttl_ms: int
    confirm: bool = False


class Invited(Arguments, frozen=True, kw_only=True):
    """`invited`."""

    id: str
    seen: str = "open"
    timeout_s: float = 0.0


class Decide(Arguments, frozen=True, kw_only=True):
    """`decide`."""

    named: str
    approve: bool


class NearbyOpen(Arguments, frozen=True, kw_only=True):
    """`nearby_open`."""

    ttl_ms: int


class Nearby(Arguments, frozen=True, kw_only=True):
    """`nearby`."""

    seen: str = ""
    timeout_s: float = 0.0


class NearbyAnswer(Arguments, frozen=True, kw_only=True):
    """`nearby_answer`."""

    code: str
    yes: bool


class Discover(Arguments, frozen=True, kw_only=True):
    """`discover`."""

    seconds: float


class Wait(Arguments, frozen=True, kw_only=True):
    """`wait`."""

    timeout_s: float
    live_only: bool = False


class SomePeer(Arguments, frozen=True, kw_only=True):
    """`sync_state` and `frontier`: one peer, or every one."""

    peer: str | None = None


class Conflicts(Arguments, frozen=True, kw_only=True):
    """`conflicts`."""

    table: str | None = None
    everything: bool = False
    limit: int = CONFLICTS_PER_PAGE


class ResolveConflict(Arguments, frozen=True, kw_only=True):
    """`resolve_conflict`."""

    id: str
    prefer: str


class OneConflict(Arguments, frozen=True, kw_only=True):
    """`acknowledge_conflict`."""

    id: str


class ConflictChanges(Arguments, frozen=True, kw_only=True):
    """`conflict_changes`."""

    since: int | None = None


class RequestSync(Arguments, frozen=True, kw_only=True):
    """`request_sync`."""

    peer: str | None = None
    table: str | None = None


class Verify(Arguments, frozen=True, kw_only=True):
    """`verify`."""

    peer: str
    table: str | None = None
    repair: bool = False


class Vouch(Arguments, frozen=True, kw_only=True):
    """`vouch`."""

    subject: str
    name: str = ""
    recovery: str | None = None  # the file: a key never crosses this API
    passphrase: str | None = None  # of that file


class SetRole(Arguments, frozen=True, kw_only=True):
    """`set_role`."""

    subject: str
    role: str
    recovery: str | None = None
    passphrase: str | None = None


class Retire(Arguments, frozen=True, kw_only=True):
    """`retire`."""

    subject: str
    at_ms: int | None = None
    alone: bool = True
    recovery: str | None = None
    passphrase: str | None = None


class Leave(Arguments, frozen=True, kw_only=True):
    """`leave`."""

    timeout_s: float


class Digest(Arguments, frozen=True, kw_only=True):
    """`digest`."""

    table: str | None = None


class SetOnline(Arguments, frozen=True, kw_only=True):
    """`set_online`."""

    online: bool


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An error in an answer, or as the last line of a stream: the name of its class and its message."""

    error: str
    message: str
    code: int | None = None


def arguments_builtins(arguments: Arguments) -> Any:
    """Arguments without those that are absent."""
    named = {name: getattr(arguments, name) for name in arguments.__struct_fields__}
    return {name: value for name, value in named.items() if value is not None}
