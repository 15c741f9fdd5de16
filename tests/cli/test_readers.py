"""Files of rows: what the formats mean, and that one bad row costs itself alone."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.cli import readers
from meshnode.cli.readers import Read, UnreadableError, check_mark, format_of, read_rows
from meshnode.errors import UsageError
from meshnode.node.views import ColumnView, TableView

TABLE = TableView(
    table="notes",
    key=[ColumnView(name="id", type="TEXT")],
    columns=[
        ColumnView(name="title", type="TEXT"),
        ColumnView(name="n", type="INTEGER"),
        ColumnView(name="x", type="REAL"),
        ColumnView(name="raw", type="BLOB"),
    ],
)


def read(data: bytes, kind: str = "csv", encoding: str = "utf-8") -> list[Read]:
    return list(read_rows(io.BytesIO(data), kind, encoding, TABLE))


def values(data: bytes, kind: str = "csv", encoding: str = "utf-8") -> list[dict[str, object]]:
    found = read(data, kind, encoding)
    assert all(each.row is not None for each in found), found
    return [{**each.row.key, **each.row.columns} for each in found if each.row is not None]


def test_header_names_the_columns_in_any_order() -> None:
    assert values(b"n,id,title\n7,a,Milk\n") == [{"n": 7, "id": "a", "title": "Milk"}]


def test_tsv_is_tabs() -> None:
    assert values(b"id\ttitle\na\tb,c\n", "tsv") == [{"id": "a", "title": "b,c"}]


def test_a_byte_order_mark_is_no_part_of_the_first_name() -> None:
    assert values(b'\xef\xbb\xbf"id",title\na,b\n') == [{"id": "a", "title": "b"}]
    assert values(b'\xef\xbb\xbf{"id": "a"}\n', "jsonl") == [{"id": "a"}]


def test_quoting_keeps_delimiters_quotes_and_line_breaks_and_lines_are_counted() -> None:
    data = b'id,title\r\na,"x, ""y""\nz"\r\nb,\r\nc,1,2\r\n'
    found = read(data)
    assert [each.line for each in found] == [2, 4, 5]
    assert found[0].row is not None
    assert found[0].row.columns == {"title": 'x, "y"\nz'}
    assert found[2].problem == "3 fields where the header names 2"


def test_empty_cells_are_empty_text_or_null_and_blank_lines_nothing() -> None:
    assert values(b"id,title,n,x,raw\n\na,,,,\n\n") == [{"id": "a", "title": "", "n": None, "x": None, "raw": None}]


def test_cells_take_the_type_of_their_column() -> None:
    assert values(b"id,title,n,x,raw\n1,007,-5,1e3,00ff\n") == [
        {"id": "1", "title": "007", "n": -5, "x": 1000.0, "raw": b"\x00\xff"}
    ]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (b"a,t,1.5", "takes an integer"),
        (b"a,t,9223372036854775808", "64-bit"),
        (b"a,t,1_000", "takes an integer"),
        (b"a,t", "2 fields where the header names 3"),
        (b'a,"t" x,1', "quoted wrongly"),
        (b"a,\xff,1", "byte 0xff in column 'title'"),
    ],
)
def test_a_bad_row_is_named_with_its_line_and_the_next_is_read(row: bytes, says: str) -> None:
    found = read(b"id,title,n\nfirst,t,1\n" + row + b"\nlast,t,2\n")
    assert [each.row is None for each in found] == [False, True, False]
    assert says in found[1].problem
    assert found[1].line == 3


def test_an_endless_quote_names_the_row_that_opened_it() -> None:
    found = read(b'id,title\na,b\nc,"d\ne,f\n')
    assert [(each.line, each.problem) for each in found[1:]] == [(3, "a quoted field begins here and never ends")]


@pytest.mark.parametrize(
    ("data", "line", "says"),
    [
        (b"", 1, "empty"),
        (b"id,titel\n", 1, "'titel', no column of notes"),
        (b"title\n", 1, "key column 'id'"),
        (b"id,id\n", 1, "twice"),
        (b'"id\n', 1, "no header"),
        (b"\xff\xfei\x00d\x00", 1, "no column"),
    ],
)
def test_a_file_without_a_usable_header_is_one_error(data: bytes, line: int, says: str) -> None:
    with pytest.raises(UnreadableError, match=says) as caught:
        read(data)
    assert caught.value.line == line


def test_utf16_is_named_and_read_when_told() -> None:
    data = "\ufeffid,title\na,ü\n".encode("utf-16-le")
    with pytest.raises(UsageError, match="UTF-16"):
        check_mark(data, "utf-8")
    check_mark(data, "utf-16")
    assert values("id,title\na,ü\n".encode("utf-16"), encoding="utf-16") == [{"id": "a", "title": "ü"}]


def test_other_encodings_are_read_when_told() -> None:
    assert values("id,title\na,ü\n".encode("latin-1"), encoding="latin-1") == [{"id": "a", "title": "ü"}]


def test_huge_fields_are_read_up_to_the_bound_and_cost_only_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    big = b"x" * 1_000_000
    assert values(b"id,title\na," + big + b"\n")[0]["title"] == big.decode()
    monkeypatch.setattr(readers, "LINE_CHARACTERS", 1000)
    found = read(b"id,title\na," + b"x" * 5000 + b"\nb,y\n")
    assert [each.row is None for each in found] == [True, False]
    found = read(b'{"id": "' + b"x" * 5000 + b'"}\n{"id": "b"}\n', "jsonl")
    assert [each.row is None for each in found] == [True, False]


def test_jsonl_keys_name_the_columns_and_null_clears() -> None:
    data = b'{"id": "a", "n": null, "raw": {"$bytes": "00ff"}, "title": "\\u00fc"}\n\n{"id": "b", "x": 1.0}\n'
    assert values(data, "jsonl") == [
        {"id": "a", "n": None, "raw": b"\x00\xff", "title": "ü"},
        {"id": "b", "x": 1.0},
    ]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"{", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"id": "a", "id": "b"}', "twice"),
        (b'{"id": "a", "titel": 1}', "did you mean 'title'"),
        (b'{"title": "a"}', "key column 'id'"),
        (b'{"id": null}', "key column 'id'"),
        (b'{"id": true}', "alias"),
        (b'{"id": 1.5}', "alias"),
        (b'{"id": "a", "n": 9223372036854775808}', "64-bit"),
        (b'{"id": "a", "x": 1e999}', "too large"),
        (b'{"id": "a", "x": NaN}', "NaN"),
        (b'{"id": "a", "title": [1]}', "array"),
        (b'{"id": "a", "title": {"b": 1}}', "object"),
        (b'{"id": "a", "title": "\\ud800"}', "Unicode"),
        (b'{"id": "a", "title": {"$bytes": "0"}}', "hex"),
        (b'{"id": "a", "title": "\xff"}', "byte 0xff"),
        (b"[" * 100_000, "nested"),
        (b'{"id": "a", "n": ' + b"1" * 5000 + b"}", "not JSON"),
    ],
)
def test_a_bad_object_is_named_with_its_line_and_the_next_is_read(line: bytes, says: str) -> None:
    found = read(b'{"id": "first"}\n' + line + b'\n{"id": "last"}\n', "jsonl")
    assert [each.row is None for each in found] == [False, True, False]
    assert says in found[1].problem
    assert found[1].line == 2


@pytest.mark.parametrize(
    ("name", "first", "kind"),
    [
        ("a.csv", b"{", "csv"),
        ("a.TSV", b"", "tsv"),
        ("zone1970.tab", b"", "tsv"),
        ("a.jsonl", b"", "jsonl"),
        ("-", b'\xef\xbb\xbf\n {"id"', "jsonl"),
        ("-", b"id,title", "csv"),
    ],
)
def test_the_format_is_told_by_name_or_by_the_first_character(name: str, first: bytes, kind: str) -> None:
    assert format_of(name, first) == kind


@given(st.binary(max_size=300), st.sampled_from(["csv", "tsv", "jsonl"]))
def test_no_bytes_raise_anything_but_the_one_error(data: bytes, kind: str) -> None:
    try:
        found = read((b"" if kind == "jsonl" else b"id\n") + data, kind)
    except UnreadableError:
        return
    assert all((each.row is None) == bool(each.problem) for each in found)
