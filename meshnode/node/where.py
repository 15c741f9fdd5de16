"""Which rows of a table somebody wants: equal columns, or a condition in SQL with parameters; read a page at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from meshnode.errors import RowError, UsageError
from meshnode.model.event import Scalar
from meshnode.node.fieldtypes import kept
from meshnode.node.reading import row_view
from meshnode.node.rowtypes import RowType
from meshnode.node.views import RowView
from meshnode.store import queries
from meshnode.store.database import Tx
from meshnode.store.tables import Destination, quote

_ERROR, _RANGE, _MISUSE = 1, 25, 21  # what SQLite says of a statement, and not of the database
_PAGE: Final = 256  # rows read at a time


class Where:
    """A condition on the columns of a table, as SQLite reads it: `Where("due < ? AND NOT done", now)`.

    Values belong into parameters, which are kept as columns keep them; text that is put into the SQL instead is run.
    It sees what the SQL table shows, where a column that nobody wrote is null or its default.
    """

    __slots__ = ("parameters", "sql")

    def __init__(self, sql: str, *parameters: Any) -> None:
        if not isinstance(sql, str):
            raise UsageError(f'a condition is SQL with its parameters, as Where("due < ?", now), not {sql!r}')
        try:
            self.parameters: tuple[Scalar, ...] = tuple(map(kept, parameters))
        except ValueError as error:
            raise UsageError(f"a parameter of the condition {sql!r}: {error}") from error
        self.sql = sql

    def __repr__(self) -> str:
        return f"Where({', '.join(map(repr, (self.sql, *self.parameters)))})"


class Condition(NamedTuple):
    """One as it is run; an empty one is true of every row."""

    sql: str = ""
    parameters: Sequence[Scalar] = ()
    columns: Sequence[str] = ()  # that the table has to have


EVERY_ROW: Final = Condition()


class RowPage(NamedTuple):
    """Some rows in the order of the primary key, and the key to go on from; None where there are no more."""

    rows: list[RowView]
    after: tuple[Scalar, ...] | None


def condition_of(where: Where | Mapping[str, Any] | None, row_type: RowType[Any]) -> Condition:
    """RowError names a column whose value cannot be."""
    if where is None:
        return EVERY_ROW
    if isinstance(where, Where):
        return Condition(where.sql, where.parameters)
    if not isinstance(where, Mapping):
        raise UsageError(f"rows are chosen by a mapping of columns to values or by Where(…), not by {where!r}")
    values = {name: None if value is None else row_type.value(name, value) for name, value in where.items()}
    return Condition(" AND ".join(f"{quote(name)} IS ?" for name in values), tuple(values.values()), tuple(values))


def check_columns(destination: Destination, condition: Condition) -> None:
    """RowError for a column that the table does not have."""
    unknown = [each for each in condition.columns if each not in destination.columns.keys() | destination.key_names]
    if unknown:
        raise RowError(destination.text, unknown[0], "the table has no such column")


def matching_keys(tx: Tx, destination: Destination, condition: Condition) -> list[dict[str, Any]]:
    """The keys of all that the SQL table shows and the condition is true of. UsageError where SQLite refuses it."""
    check_columns(destination, condition)
    names = [column.name for column in destination.key]
    return [dict(zip(names, values, strict=True)) for values in _keys(tx, destination, condition, None, most=-1)]


def row_count(tx: Tx, row_type: RowType[Any], name: tuple[str, str], condition: Condition) -> int:
    """How many rows the SQL table shows that the condition is true of. UsageError where SQLite refuses it."""
    destination = queries.Table(tx, *name).destination
    row_type.check(destination)
    check_columns(destination, condition)
    where = f" WHERE ({condition.sql}\n)" if condition.sql else ""  # it may end in a comment
    sql = f"SELECT count(*) FROM {destination.quoted}{where}"  # noqa: S608
    ((count,),) = _selected(tx, destination, condition, sql, condition.parameters)
    return int(count)


def row_page(
    tx: Tx, row_type: RowType[Any], name: tuple[str, str], condition: Condition, after: tuple[Scalar, ...] | None
) -> RowPage:
    """The next live rows that the condition is true of, from beyond `after` on. UsageError where SQLite refuses it."""
    table = queries.Table(tx, *name)
    destination = table.destination
    row_type.check(destination)
    check_columns(destination, condition)
    names = [column.name for column in destination.key]
    found = _keys(tx, destination, condition, after)
    rows = []
    for values in found:
        key: dict[str, Any] = dict(zip(names, values, strict=True))
        row = table.get(key) if destination.resolves(key) else None  # what plain SQL put there is no row of the mesh
        if row is not None:
            rows.append(row_view(row))
    return RowPage(rows, found[-1] if len(found) == _PAGE else None)


def _keys(
    tx: Tx, destination: Destination, condition: Condition, after: tuple[Scalar, ...] | None, *, most: int = _PAGE
) -> list[tuple[Scalar, ...]]:
    key = ", ".join(quote(column.name) for column in destination.key)
    # The condition may end in a comment.
    terms = [f"({condition.sql}\n)"] if condition.sql else []
    if after is not None:
        terms.append(f"({key}) > ({', '.join('?' * len(after))})")
    where = f" WHERE {' AND '.join(terms)}" if terms else ""
    sql = f"SELECT {key} FROM {destination.quoted}{where} ORDER BY {key} LIMIT {most}"  # noqa: S608
    return _selected(tx, destination, condition, sql, (*condition.parameters, *(after or ())))


def _selected(
    tx: Tx, destination: Destination, condition: Condition, sql: str, parameters: Sequence[Scalar]
) -> list[tuple[Any, ...]]:
    try:
        return list(tx.execute(sql, parameters).fetchall())
    except Exception as error:
        if not condition.sql or not _is_ours(error):
            raise
        raise UsageError(f"the condition {condition.sql!r} on table {destination.text!r}: {error}") from error


def _is_ours(error: Exception) -> bool:
    """Whether the statement is wrong, rather than the database."""
    code = getattr(error, "sqlite_errorcode", None)
    return type(error).__name__ == "ProgrammingError" or (code is not None and code & 0xFF in (_ERROR, _RANGE, _MISUSE))
