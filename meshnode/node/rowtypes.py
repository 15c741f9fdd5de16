"""What a row of a table is in a program: a dataclass, a msgspec.Struct, or a plain dict (SSP/1 §2, profile §5).

A field is a column of its name. What a column has that no value of the field can be (null, or nothing because nobody
ever wrote it) is the field's default; where it has none, the row does not fit.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from meshnode.errors import RowError, UsageError
from meshnode.model.event import Scalar
from meshnode.node.fieldtypes import ANYTHING, KINDS, NAMES, Kind, kept
from meshnode.node.views import RowView
from meshnode.store.tables import Destination, quote

T = TypeVar("T")

_NO_DEFAULT: Final = object()


@dataclass(frozen=True, slots=True)
class Field:
    """One column as a row has it."""

    name: str  # of the attribute
    column: str
    kind: Kind
    optional: bool  # None is a value of it
    default: Callable[[], Any] | None  # None: it has none


class RowType(Generic[T]):
    """How rows of one table are made of values and taken apart; `fields` is empty for plain dicts."""

    def __init__(self, table: str, python: type[T], fields: tuple[Field, ...]) -> None:
        self.table = table
        self.python = python
        self.fields = fields
        self._by_column = {field.column: field for field in fields}

    @classmethod
    def of(cls, table: str, python: type[T]) -> RowType[T]:
        """UsageError where the type has a field that no column can hold."""
        if not isinstance(python, type):
            raise UsageError(f"rows of table {table!r} are a dataclass or a msgspec.Struct, not {python!r}")
        if issubclass(python, dict):
            return cls(table, python, ())
        if not (issubclass(python, msgspec.Struct) or dataclasses.is_dataclass(python)):
            raise UsageError(
                f"rows of table {table!r} are a dataclass, a msgspec.Struct or a dict, not {python.__name__}"
            )
        return cls(table, python, tuple(_fields(python)))

    # --- on the way in

    def values(self, row: T) -> dict[str, Scalar]:
        """A whole row as its columns are kept; RowError names the one that cannot be."""
        if not isinstance(row, self.python):
            raise RowError(self.table, "", f"a row is a {self.python.__name__}, not a {type(row).__name__}")
        if isinstance(row, dict):
            return self.columns(row)
        found = ((field.column, getattr(row, field.name)) for field in self.fields)
        return self.columns({column: value for column, value in found if value is not msgspec.UNSET})

    def columns(self, values: Mapping[str, Any]) -> dict[str, Scalar]:
        """Some columns of a row as they are kept."""
        return {name: self.value(name, value) for name, value in values.items()}

    def value(self, column: str, value: Any) -> Scalar:
        """One value as its column keeps it."""
        if not isinstance(column, str):
            raise RowError(self.table, "", f"a column has a name, and {column!r} is none")
        field = self._by_column.get(column)
        if field is None:
            if self.fields:
                raise RowError(self.table, column, f"{self.python.__name__} has no such field")
            return self._written(column, kept, value)
        if value is None:
            if not field.optional:
                raise RowError(self.table, column, f"it is {field.kind.name}, and None is no value of that")
            return None
        return self._written(column, field.kind.write, value)

    # --- on the way out

    def row(self, view: RowView) -> T:
        """A row as the program has it; RowError where the type has no place for what is there."""
        values = view.flat()
        if not self.fields:
            return cast(T, values if self.python is dict else cast(Any, self.python)(values))
        given = {field.name: self._read(field, values) for field in self.fields}
        try:
            return self.python(**given)
        except (TypeError, ValueError) as error:  # of a __post_init__ that has its own mind
            raise RowError(self.table, "", f"row {view.key} makes no {self.python.__name__}: {error}") from error

    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Some columns as the program has them; one that fits no field is told as it is."""
        return {name: self._as_told(name, value) for name, value in values.items()}

    def _as_told(self, column: str, value: Any) -> Any:
        field = self._by_column.get(column)
        if field is None or value is None:
            return value
        try:
            return field.kind.read(value)
        except ValueError:
            return value

    def _read(self, field: Field, values: Mapping[str, Any]) -> Any:
        value = values.get(field.column)
        if value is not None:
            try:
                return field.kind.read(value)
            except ValueError as error:
                raise RowError(self.table, field.column, str(error)) from error
        if field.optional and (field.column in values or field.default is None):
            return None
        if field.default is not None:
            return field.default()
        what = "null" if field.column in values else "nothing that anybody wrote"
        raise RowError(
            self.table, field.column, f"it holds {what}: give the field a default, or let it be None as well"
        )

    def _written(self, column: str, convert: Callable[[Any], Scalar], value: Any) -> Scalar:
        try:
            return convert(value)
        except ValueError as error:
            raise RowError(self.table, column, str(error)) from error

    # --- and the table

    def check(self, destination: Destination) -> None:
        """RowError where the table cannot keep such rows: a column is missing, or changes what is put into it."""
        columns = {**{column.name: column for column in destination.key}, **destination.columns}
        for field in self.fields:
            column = columns.get(field.column)
            if column is None:
                add = f"ALTER TABLE {destination.quoted} ADD COLUMN {quote(field.column)} {field.kind.sql}"
                raise RowError(self.table, field.column, f"the table has none, and {self.python.__name__} does: {add}")
            if column.affinity not in field.kind.keeps:
                raise RowError(
                    self.table,
                    field.column,
                    f"it is declared {column.declared}, which does not keep a {field.kind.name} as it is: declare it "
                    f"{field.kind.sql}, or let the field be another type",
                )
        missing = [column.name for column in destination.key if self.fields and column.name not in self._by_column]
        if missing:
            what = f"it is part of the key, and {self.python.__name__} has no such field"
            raise RowError(self.table, missing[0], what)


def _fields(python: Any) -> Iterator[Field]:
    try:
        hints = typing.get_type_hints(python)
    except NameError as error:
        raise UsageError(f"the types of the fields of {python.__name__} cannot be found: {error}") from error
    if issubclass(python, msgspec.Struct):
        for each in msgspec.structs.fields(python):
            default = _default(each.default, each.default_factory, msgspec.NODEFAULT)
            yield _field(python, each.name, each.encode_name, hints[each.name], default)
        return
    for entry in dataclasses.fields(python):
        if entry.init:
            default = _default(entry.default, entry.default_factory, dataclasses.MISSING)
            yield _field(python, entry.name, entry.name, hints[entry.name], default)


def _default(value: Any, factory: Any, none: Any) -> Callable[[], Any] | None:
    if factory is not none:
        return cast("Callable[[], Any]", factory)
    return None if value is none else lambda: value


def _field(python: type, name: str, column: str, hint: Any, default: Callable[[], Any] | None) -> Field:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        parts = [each for each in typing.get_args(hint) if each not in (type(None), msgspec.UnsetType)]
        optional = type(None) in typing.get_args(hint)
    else:
        parts, optional = [hint], hint is Any
    kind = ANYTHING if parts == [Any] else KINDS.get(parts[0]) if len(parts) == 1 else None
    if kind is None:
        shown = getattr(hint, "__name__", None) or str(hint)
        raise UsageError(f"field {name!r} of {python.__name__} is {shown}, and a column holds {NAMES} (SSP/1 §2)")
    return Field(name, column, kind, optional, default)
