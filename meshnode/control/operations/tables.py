"""Tables and rows: registering, reading, writing, what changes, and what is kept of the past."""

from __future__ import annotations

from typing import Final

from meshnode.control import requests as asked
from meshnode.control.operation import Call, Stream, or_none
from meshnode.errors import (
    ClockExhaustedError,
    IdentityError,
    MembershipError,
    NotFoundError,
    RegistrationError,
    UsageError,
)
from meshnode.node.api import ROWS_PER_IMPORT, ROWS_PER_PAGE, Operations
from meshnode.node.views import (
    ChangeView,
    ForgetReport,
    HistoryRequest,
    ImportReport,
    PolicyView,
    Receipt,
    RetentionReport,
    RowExplanation,
    RowView,
    TableDigest,
    TableView,
)

_WRITING: Final = (NotFoundError, RegistrationError, MembershipError, IdentityError, ClockExhaustedError)


async def _import_rows(node: Operations, arguments: asked.ImportRows) -> ImportReport:
    if len(arguments.rows) > ROWS_PER_IMPORT:
        raise UsageError(f"at most {ROWS_PER_IMPORT} rows fit one import call")
    return await node.import_rows(arguments.table, arguments.rows)


async def _rows(node: Operations, arguments: asked.Rows) -> list[RowView]:
    limit = max(1, min(arguments.limit, ROWS_PER_PAGE))
    return await node.rows(arguments.table, limit=limit, after=arguments.after, before=arguments.before)


TABLES: Final = Call("tables", asked.NoArguments, list[TableView], lambda node, _: node.tables(), reads=True)
ADD_TABLE: Final = Call(
    "add-table",
    asked.AddTable,
    TableView,
    lambda node, a: node.add_table(a.table, a.key, a.columns, own_numbers=a.own_numbers, table_class=a.table_class),
    raises=(NotFoundError, RegistrationError),
)
CLASSIFY: Final = Call(
    "classify",
    asked.Classify,
    PolicyView,
    lambda node, a: node.classify(a.table, a.table_class),
    raises=(NotFoundError,),
)
DIGEST: Final = Call(
    "digest",
    asked.SomeTable,
    list[TableDigest],
    lambda node, a: node.digest(a.table),
    raises=(NotFoundError, RegistrationError),
    reads=True,
)

GET: Final = Call(
    "get",
    asked.RowKey,
    or_none(RowView),
    lambda node, a: node.get(a.table, a.key),
    raises=(NotFoundError, RegistrationError),
)
EXPLAIN: Final = Call(
    "explain",
    asked.RowKey,
    or_none(RowExplanation),
    lambda node, a: node.explain(a.table, a.key),
    raises=(NotFoundError, RegistrationError),
)
ROWS: Final = Call("rows", asked.Rows, list[RowView], _rows, raises=(NotFoundError, RegistrationError))
CHANGES: Final = Stream(
    "changes",
    asked.Changes,
    ChangeView,
    lambda node, a: node.changes(since=a.since, table=a.table),
    raises=(NotFoundError,),
    reads=True,
)

PUT: Final = Call("put", asked.Put, Receipt, lambda node, a: node.put(a.table, a.key, a.columns), raises=_WRITING)
REMOVE: Final = Call("remove", asked.RowKey, Receipt, lambda node, a: node.remove(a.table, a.key), raises=_WRITING)
IMPORT_ROWS: Final = Call("import-rows", asked.ImportRows, ImportReport, _import_rows, raises=_WRITING)

EVICT: Final = Call(
    "evict",
    asked.Evict,
    RetentionReport,
    lambda node, a: node.evict(a.table, before_ms=a.before_ms, everything=a.everything),
    raises=(NotFoundError,),
)
REHYDRATE: Final = Call(
    "rehydrate",
    asked.TableName,
    HistoryRequest,
    lambda node, a: node.rehydrate(a.table),
    raises=(NotFoundError,),
)
COMPACT: Final = Call(
    "compact", asked.SomeTable, RetentionReport, lambda node, a: node.compact(a.table), raises=(NotFoundError,)
)
FORGET: Final = Call(
    "forget",
    asked.Forget,
    ForgetReport,
    lambda node, a: node.forget(a.table, a.key, undo=a.undo),
    raises=(NotFoundError, RegistrationError),
)
