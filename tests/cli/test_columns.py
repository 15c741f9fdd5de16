"""Fields of a command line as values: `=` takes text as the column's type, `:=` takes JSON."""

from __future__ import annotations

import pytest

from meshnode.cli.columns import affinity, parse_fields, split_key
from meshnode.errors import NotFoundError, UsageError
from meshnode.node.views import ColumnView, TableView

TABLE = TableView(
    table="t",
    key=[ColumnView(name="id", type="TEXT"), ColumnView(name="no", type="INTEGER")],
    columns=[
        ColumnView(name="text", type="VARCHAR(10)"),
        ColumnView(name="real", type="double precision"),
        ColumnView(name="day", type="DATE"),
        ColumnView(name="flag", type="BOOLEAN"),
        ColumnView(name="raw", type="BLOB"),
        ColumnView(name="any"),
        ColumnView(name="odd:", type="TEXT"),
    ],
)


@pytest.mark.parametrize(
    ("field", "name", "value"),
    [
        ("text=Milk", "text", "Milk"),
        ("text=", "text", ""),
        ("text=a=b:=c", "text", "a=b:=c"),
        ("text=0", "text", "0"),
        ("no=-5", "no", -5),
        ("no=+5", "no", 5),
        ("real=1", "real", 1.0),
        ("real=.5e-3", "real", 0.0005),
        ("day=2026-11-30", "day", "2026-11-30"),
        ("day=20", "day", 20),
        ("flag=true", "flag", True),
        ("raw=00fF", "raw", b"\x00\xff"),
        ("any=1", "any", "1"),
        ("any:=1", "any", 1),
        ("any:=1.0", "any", 1.0),
        ("any:=null", "any", None),
        ('any:="x"', "any", "x"),
        ('any:={"$bytes": "0a"}', "any", b"\n"),
        ("flag:=false", "flag", False),
        ("odd:=x", "odd:", "x"),
        ("odd::=null", "odd:", None),
    ],
)
def test_a_field_is_a_value(field: str, name: str, value: object) -> None:
    found = parse_fields([field], TABLE)
    assert found == {name: value}
    assert type(found[name]) is type(value)


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ("text", "no field"),
        ("=x", "no field"),
        (":=1", "no field"),
        ("no=1.0", "takes an integer"),
        ("no=", "takes an integer"),
        ("no=٣", "takes an integer"),
        ("no=9223372036854775808", "64-bit"),
        ("real=nan", "finite number"),
        ("real=1e999", "finite number"),
        ("real=1_0", "finite number"),
        ("raw=0", "hex"),
        ("any:=x", "column 'any': not JSON"),
        ("any:=[1]", "column 'any'"),
        ("any:=1e999", "too large"),
        ("text=\udcff", "Unicode"),
    ],
)
def test_a_bad_field_is_one_clear_error(field: str, says: str) -> None:
    with pytest.raises(UsageError, match=says.replace("(", r"\(")):
        parse_fields([field], TABLE)


def test_a_column_that_is_not_there_is_named_with_the_nearest() -> None:
    with pytest.raises(NotFoundError, match="did you mean 'text'"):
        parse_fields(["txt=x"], TABLE)


def test_a_column_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="twice"):
        parse_fields(["text=a", "text:=null"], TABLE)


def test_values_are_split_into_key_and_columns() -> None:
    assert split_key(TABLE, {"text": "a", "no": 1, "id": "x"}) == ({"id": "x", "no": 1}, {"text": "a"})
    with pytest.raises(UsageError, match="key column 'no'"):
        split_key(TABLE, {"id": "x"})


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("INT", "integer"),
        ("POINT", "integer"),
        ("CHARINT", "integer"),
        ("varchar", "text"),
        ("BLOB", "blob"),
        ("", "any"),
        ("FLOAT", "real"),
        ("DECIMAL(10,5)", "numeric"),
    ],
)
def test_affinities_are_those_of_sqlite(declared: str, kind: str) -> None:
    assert affinity(declared) == kind
