"""Events: every narrowing of profile §4 by one changed field, the author's side of it, and the byte form."""

from __future__ import annotations

from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.laws import columns as column_maps
from support.laws import hlcs, law, names, row_keys

from meshnode.codec import cbor, cose
from meshnode.errors import BadSignatureError, EnvelopeError, MalformedError, UnknownSignerError, UsageError
from meshnode.limits import EVENT_BYTES, KEY_COLUMNS, NAME_BYTES, PAYLOAD_COLUMNS
from meshnode.model import event
from meshnode.model.hlc import Hlc
from meshnode.model.site import SiteKey

KEY = SiteKey.from_seed(b"\x07" * 32)
MESH = b"m" * 16
GOOD: dict[str, Any] = {
    "table_schema": "main",
    "table_name": "notes",
    "row_key": {"id": "n1"},
    "operation": "upsert",
    "payload": {"title": "Milk", "done": False, "rank": 1.5},
    "hlc_physical_ms": 5,
    "hlc_logical": 6,
}


def opened(data: bytes) -> event.Event:
    return event.open_event_untrusted(data, mesh_id=MESH, key_of={KEY.site: KEY.public_key}.get)


def sealed(payload: bytes) -> bytes:
    return cose.seal(event.CONTENT_TYPE, KEY.site, payload, external_aad=MESH, sign=KEY.sign)


def with_fields(**fields: Any) -> bytes:
    return sealed(cbor2.dumps({**GOOD, **fields}, canonical=True))


@law
@given(names, names, row_keys, st.none() | column_maps, hlcs)
def test_authored_events_open_to_the_same_values(
    schema: str, table: str, key: dict[str, Any], columns: dict[str, Any] | None, hlc: Hlc
) -> None:
    made = event.author_event(KEY, MESH, schema=schema, table=table, row_key=key, columns=columns, hlc=hlc)
    read = opened(made.data)
    assert read == made
    assert (read.schema, read.table, read.key, read.columns, read.hlc) == (schema, table, key, columns, hlc)
    assert read.key_bytes == cbor.encode(key)
    for name, value in (columns or {}).items():
        assert (type(read.columns[name]), repr(read.columns[name])) == (type(value), repr(value))  # type: ignore[index]
    assert len(read.rank) == 64
    payload = cose.split_untrusted(made.data, event.CONTENT_TYPE).payload
    fields = cbor.decode_untrusted(payload)
    assert payload == cbor2.dumps(fields, canonical=True)
    assert fields["operation"] == ("upsert" if columns is not None else "delete")  # type: ignore[index,call-overload]


LONG = "é" * (NAME_BYTES // 2)
BAD_FIELDS: list[dict[str, Any]] = [
    *({name: bad} for name in ("table_schema", "table_name") for bad in ("", LONG + "x", b"main", None, 1, ["main"])),
    *({name: bad} for name in ("hlc_physical_ms", "hlc_logical") for bad in (-1, 1.0, "1", None, True, b"1", [1])),
    *({"operation": bad} for bad in ("", "insert", "purge", "UPSERT", b"upsert", None, 1, True, ["upsert"])),
    {"operation": "upsert", "payload": None},
    {"operation": "delete", "payload": {}},
    {"operation": "delete"},
    *({"payload": bad} for bad in ([], "x", b"", 0, False, {1: 2}, {b"title": 1}, {"": 1}, {LONG + "x": 1})),
    {"payload": {f"c{n}": 0 for n in range(PAYLOAD_COLUMNS + 1)}},
    *({"payload": {"title": bad}} for bad in ([], {}, ["x"], 2**63, -(2**63) - 1, 2**64 - 1, float("nan"))),
    *({"payload": {"title": bad}} for bad in (float("inf"), cbor2.undefined, cbor2.CBORSimpleValue(9))),
    *({"row_key": bad} for bad in ([], "x", b"", 0, False, {1: 2}, {b"id": 1}, {"": 1}, {LONG + "x": 1})),
    {"row_key": {f"k{n}": 0 for n in range(KEY_COLUMNS + 1)}},
    *({"row_key": {"id": bad}} for bad in (None, True, 1.0, [], {}, 2**63, -(2**63) - 1)),
    {"event_id": b"x"},
    {"": 1},
]


@pytest.mark.parametrize("fields", BAD_FIELDS, ids=lambda fields: repr(fields)[:60])
def test_one_bad_field_is_malformed(fields: dict[str, Any]) -> None:
    with pytest.raises(MalformedError):
        opened(with_fields(**fields))


GOOD_FIELDS: list[dict[str, Any]] = [
    {"table_schema": LONG, "table_name": "x" * NAME_BYTES},
    {"hlc_physical_ms": 2**64 - 1, "hlc_logical": 2**64 - 1},
    {"operation": "delete", "payload": None},
    {"payload": {}},
    {"payload": {f"c{n:03}": 0 for n in range(PAYLOAD_COLUMNS)}},
    {"payload": {"a": 2**63 - 1, "b": -(2**63), "c": -0.0, "d": "", "e": b"", "f": None, "g": True, LONG: 1}},
    {"row_key": {f"k{n:02}": n for n in range(KEY_COLUMNS)}},
    {"row_key": None},
    {"row_key": {}},
]


@pytest.mark.parametrize("fields", GOOD_FIELDS, ids=lambda fields: repr(fields)[:60])
def test_the_bounds_are_inclusive(fields: dict[str, Any]) -> None:
    data = with_fields(**fields)
    made = {**GOOD, **fields}
    assert opened(data) == event.author_event(
        KEY,
        MESH,
        schema=made["table_schema"],
        table=made["table_name"],
        row_key=made["row_key"],
        columns=made["payload"],
        hlc=Hlc(made["hlc_physical_ms"], made["hlc_logical"]),
    )


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff",
        b"\xa0",
        cbor2.dumps(GOOD, canonical=True) + b"\x00",
        cbor2.dumps(GOOD),  # fields out of order
        cbor2.dumps({**GOOD, "payload": {"b": 1, "a": 2}}, canonical=True).replace(b"aa\x02ab\x01", b"ab\x01aa\x02"),
        cbor2.dumps({**GOOD, "payload": {"ab": 1}}, canonical=True).replace(b"bab\x01", b"bab\x18\x01"),
        cbor2.dumps({**GOOD, "payload": {"a": 1, "b": 1}}, canonical=True).replace(b"ab\x01", b"aa\x01"),
        cbor2.dumps({**GOOD, "row_key": {"a": 1, "b": 2}}, canonical=True).replace(b"aa\x01ab\x02", b"ab\x02aa\x01"),
        cbor2.dumps({**GOOD, "payload": {"r": 1.5}}, canonical=True).replace(b"\xf9\x3e\x00", b"\xfa\x3f\xc0\x00\x00"),
        cbor2.dumps({**GOOD, "row_key": {"id": "n1"}}, canonical=True).replace(b"bidbn1", b"bidb\xff\xfe"),
        cbor2.dumps({**GOOD, "row_key": cbor2.CBORTag(24, {"id": "n1"})}, canonical=True),
    ],
    ids=range(12),
)
def test_other_bytes_are_malformed(payload: bytes) -> None:
    if payload not in (b"", b"\xff", b"\xa0"):
        assert payload != cbor2.dumps(GOOD, canonical=True)
    with pytest.raises(MalformedError):
        opened(sealed(payload))


@pytest.mark.parametrize("missing", GOOD)
def test_a_missing_field_is_malformed(missing: str) -> None:
    with pytest.raises(MalformedError):
        opened(sealed(cbor2.dumps({name: GOOD[name] for name in GOOD if name != missing}, canonical=True)))


@pytest.mark.parametrize(
    "change",
    [
        {"schema": ""},
        {"table": "x" * (NAME_BYTES + 1)},
        {"table": "\ud800"},
        {"row_key": {"id": 1.0}},
        {"row_key": {"id": True}},
        {"row_key": {"id": None}},
        {"row_key": {1: 1}},
        {"row_key": {1: 1, "a": 2}},
        {"columns": {"a": [1]}},
        {"columns": {"a": 2**63}},
        {"columns": {"a": float("inf")}},
        {"columns": {"a": "\ud800"}},
        {"columns": {"\ud800": 1}},
        {"columns": {"\ud800": 1, "b": 2}},
        {"columns": {"a": object}},
        {"columns": {"a": "x" * EVENT_BYTES}},
        {"hlc": Hlc(-1, 0)},
        {"hlc": Hlc(0, 2**64)},
    ],
    ids=lambda change: repr(change)[:50],
)
def test_the_author_is_refused_what_no_one_would_accept(change: dict[str, Any]) -> None:
    given_values: dict[str, Any] = {
        "schema": "main",
        "table": "notes",
        "row_key": {"id": "n1"},
        "columns": {"a": 1},
        "hlc": Hlc(1, 0),
    }
    event.author_event(KEY, MESH, **given_values)
    with pytest.raises(UsageError):
        event.author_event(KEY, MESH, **{**given_values, **change})


def test_the_order_of_the_first_checks() -> None:
    good = with_fields()
    with pytest.raises(MalformedError):  # before the unknown signer
        event.open_event_untrusted(good + b"\x00", mesh_id=MESH, key_of=lambda site: None)
    with pytest.raises(MalformedError, match="larger"):
        event.open_event_untrusted(b"\x84" * (EVENT_BYTES + 1), mesh_id=MESH, key_of=lambda site: None)
    bad_shape = sealed(b"\xff")
    with pytest.raises(UnknownSignerError):  # before the signature and the shape
        event.open_event_untrusted(bad_shape, mesh_id=MESH, key_of=lambda site: None)
    with pytest.raises(BadSignatureError):  # before the shape
        event.open_event_untrusted(bad_shape, mesh_id=b"o" * 16, key_of=lambda site: KEY.public_key)


@law
@given(st.data())
def test_no_changed_byte_survives(data: st.DataObject) -> None:
    good = bytearray(with_fields())
    good[data.draw(st.integers(0, len(good) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(EnvelopeError):
        opened(bytes(good))


@law
@given(st.binary(max_size=200))
def test_any_payload_ends_in_an_event_or_malformed(payload: bytes) -> None:
    with pytest.raises(MalformedError):
        opened(sealed(payload))


@pytest.mark.parametrize("length", [0, 1, 22, 23, 24, 25, 254, 255, 256, 257, 65534, 65535, 65536, 65537])
def test_the_payloads_length_has_one_head(length: int) -> None:
    data = sealed(b"p" * length)
    assert cose.split_untrusted(data, event.CONTENT_TYPE).payload == b"p" * length
    assert cbor2.loads(data)[2] == b"p" * length
    for other in (data[:-1], data + b"\x00", data[:1] + data[2:], b"\xd2" + data):
        with pytest.raises(MalformedError):
            cose.split_untrusted(other, event.CONTENT_TYPE)


@pytest.mark.parametrize(
    ("schema", "table", "reserved"),
    [
        ("main", "notes", False),
        ("main", "sqlite_master", True),
        ("main", "SQLite_x", True),
        ("MeshNode_", "x", True),
        ("main", "meshnode_events", True),
        ("main", "meshnode", False),
        ("main", "a.b", True),
        ("a.b", "x", True),
        ("main", "xsqlite_", False),
        ("main", "ſqlite_x", False),  # folds to s, but not as an ASCII letter
        ("main", "sqlİte_x", False),
    ],
)
def test_reserved_names(schema: str, table: str, reserved: bool) -> None:
    assert event.is_reserved(schema, table) is reserved
