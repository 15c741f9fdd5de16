"""The change event: authored, sealed, and parsed with every narrowing of the profile (SSP/1 §1, §3, §4, profile §4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from meshnode.codec import cbor, cose
from meshnode.codec.digest import blake3_256
from meshnode.errors import CodecError, MalformedError, UsageError
from meshnode.limits import EVENT_BYTES, KEY_COLUMNS, NAME_BYTES, PAYLOAD_COLUMNS
from meshnode.model.hlc import U64_MAX, Hlc, Rank, rank_bytes
from meshnode.model.site import SiteKey

CONTENT_TYPE: Final = "sovm/ssp-event-v1"
UPSERT: Final = "upsert"
DELETE: Final = "delete"

Scalar: TypeAlias = "bool | int | float | str | bytes | None"
KeyValue: TypeAlias = "int | str | bytes"

# The payload's fields in the order in which deterministic CBOR has them.
_FIELDS: Final = (
    "payload",
    "row_key",
    "operation",
    "table_name",
    "hlc_logical",
    "table_schema",
    "hlc_physical_ms",
)
_OPENING: Final = cbor.head(0xA0, len(_FIELDS)) + cbor.encode(_FIELDS[0])
_PLAIN: Final = frozenset({str, type(None), bool, bytes})
_INT_MIN: Final = -(2**63)
_INT_MAX: Final = 2**63 - 1
_RESERVED_STARTS: Final = (b"sqlite_", b"meshnode_")


class Event(msgspec.Struct, frozen=True, gc=False):
    """One change event and the exact bytes it came in (SSP/1 §2, byte stability)."""

    site: bytes
    event_id: bytes
    data: bytes
    schema: str
    table: str
    key: dict[str, KeyValue] | None  # None or empty: dropped as `empty-key` (SSP/1 §13.6)
    key_bytes: bytes  # deterministic CBOR of the row key
    columns: dict[str, Scalar] | None  # None deletes the row
    hlc: Hlc

    @property
    def rank(self) -> Rank:
        """clock ‖ event id (profile §1)."""
        return rank_bytes(self.hlc, self.site, self.event_id)


def is_reserved(schema: str, table: str) -> bool:
    """Whether either name is kept for SQLite or the node itself (profile §4)."""
    # Bytes fold ASCII letters only, as the profile says.
    return any("." in name or name[:9].encode().lower().startswith(_RESERVED_STARTS) for name in (schema, table))


def signers_untrusted(events: Iterable[bytes]) -> set[bytes]:
    """The sites that events claim to be signed by; where one is no event, anything."""
    return {cose.kid_at(data, CONTENT_TYPE) for data in events}


def split_event_untrusted(data: bytes) -> cose.Envelope:
    """Size and envelope, the first checks of profile §6; MalformedError."""
    if len(data) > EVENT_BYTES:
        raise MalformedError(f"an event of {len(data)} bytes is larger than {EVENT_BYTES}")
    return cose.split_untrusted(data, CONTENT_TYPE)


def parse_event_untrusted(envelope: cose.Envelope, data: bytes) -> Event:
    """Read the payload of an event whose signature verified; MalformedError unless every narrowing holds."""
    try:
        value = cbor.load_untrusted(envelope.payload)
        if type(value) is not dict or tuple(value) != _FIELDS:
            raise MalformedError(f"an event's payload is a map of {', '.join(_FIELDS)}, in this order")
        columns, key, _, table, logical, schema, physical = fields = tuple(value.values())
        if _encode(value, floats=_check(*fields)) != envelope.payload:
            raise MalformedError("the payload is not deterministic CBOR")
        key_bytes = cbor.dump(key, floats=False)
    except CodecError as error:
        raise MalformedError(str(error)) from None
    hlc = Hlc(physical, logical)
    return Event(envelope.kid, blake3_256(data), data, schema, table, key, key_bytes, columns, hlc)


def open_event_untrusted(data: bytes, *, mesh_id: bytes, key_of: Callable[[bytes], bytes | None]) -> Event:
    """Size, envelope, signer, signature, shape: the first that fails raises its EnvelopeError (profile §6)."""
    envelope = split_event_untrusted(data)
    cose.check_envelope(envelope, external_aad=mesh_id, key_of=key_of)
    return parse_event_untrusted(envelope, data)


def reopen_event(data: bytes) -> Event:
    """The event of bytes that passed `open_event_untrusted` before, with none of its checks."""
    envelope = split_event_untrusted(data)
    columns, key, _, table, logical, schema, physical = cbor.load_untrusted(envelope.payload).values()
    key_bytes = cbor.dump(key, floats=False)
    return Event(envelope.kid, blake3_256(data), data, schema, table, key, key_bytes, columns, Hlc(physical, logical))


def author_event(
    key: SiteKey,
    mesh_id: bytes,
    *,
    schema: str,
    table: str,
    row_key: Mapping[str, KeyValue] | None,
    columns: Mapping[str, Scalar] | None,
    hlc: Hlc,
) -> Event:
    """Sign an upsert of `columns`, or a delete where they are None; UsageError for what the profile has no form of."""
    try:
        ordered_key = None if row_key is None else _ordered(row_key)
        ordered = None if columns is None else _ordered(columns)
        operation = DELETE if ordered is None else UPSERT
        fields = (ordered, ordered_key, operation, table, hlc.logical, schema, hlc.physical)
        payload = _encode(dict(zip(_FIELDS, fields, strict=True)), floats=_check(*fields))
        key_bytes = cbor.dump(ordered_key, floats=False)
    except (MalformedError, CodecError) as error:
        raise UsageError(str(error)) from None
    data = cose.seal(CONTENT_TYPE, key.site, payload, external_aad=mesh_id, sign=key.sign)
    if len(data) > EVENT_BYTES:
        raise UsageError(f"this write makes an event of {len(data)} bytes; the limit is {EVENT_BYTES}")
    return Event(key.site, blake3_256(data), data, schema, table, ordered_key, key_bytes, ordered, hlc)


def _encode(payload: dict[str, Any], *, floats: bool) -> bytes:
    """The deterministic bytes of a checked payload; only columns hold floats, which need the shortest form."""
    if not floats:
        return cbor.dump(payload, floats=False)
    rest = dict(payload)
    columns = rest.pop("payload")
    return _OPENING + cbor.dump_flat(columns) + cbor.dump(rest, floats=False)[1:]


def _ordered(given: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with its names in deterministic order; names that are no text are left for `_check` to refuse."""
    if len(given) < 2 or not all(type(name) is str for name in given):
        return dict(given)
    try:
        return {name: given[name] for name in sorted(given, key=cbor.text_order)}
    except UnicodeEncodeError:
        raise MalformedError("a column name is not well-formed text") from None


def _check(columns: Any, key: Any, operation: Any, table: Any, logical: Any, schema: Any, physical: Any) -> bool:
    """Raise MalformedError unless one event has the profile's shape; True where a column holds a float."""
    _check_name(schema, "table_schema")
    _check_name(table, "table_name")
    if type(physical) is not int or not 0 <= physical <= U64_MAX:
        raise MalformedError("hlc_physical_ms is an unsigned 64-bit integer")
    if type(logical) is not int or not 0 <= logical <= U64_MAX:
        raise MalformedError("hlc_logical is an unsigned 64-bit integer")
    if key is not None:
        _check_key(key)
    if columns is None:
        if operation != DELETE:
            raise MalformedError("an event without a payload map is a delete")
        return False
    if type(columns) is not dict or operation != UPSERT:
        raise MalformedError("the operation is upsert with a payload map or delete with null")
    return _check_columns(columns)


def _check_name(name: Any, what: str) -> None:
    """Text of 1 to 128 bytes; bytes count, not letters."""
    if type(name) is not str or not 0 < len(name) <= NAME_BYTES:
        raise MalformedError(f"{what} is text of 1 to {NAME_BYTES} bytes")
    if not name.isascii():
        try:
            size = len(name.encode())
        except UnicodeEncodeError:  # only a local author can hold a lone surrogate
            raise MalformedError(f"{what} is not well-formed text") from None
        if size > NAME_BYTES:
            raise MalformedError(f"{what} is text of 1 to {NAME_BYTES} bytes")


def _check_key(key: Any) -> None:
    """A row key: few columns, and no value that SQLite would alias with another (profile §4)."""
    if type(key) is not dict or len(key) > KEY_COLUMNS:
        raise MalformedError(f"row_key is null or a map of at most {KEY_COLUMNS} columns")
    before = (0, "")
    for name, value in key.items():
        _check_name(name, "a key column's name")
        order = cbor.text_order(name)
        if order <= before:
            raise MalformedError("row_key is not in deterministic order")
        before = order
        kind = type(value)
        if kind is int:
            if not _INT_MIN <= value <= _INT_MAX:
                raise MalformedError(f"key column {name!r}: an integer is signed 64-bit")
        elif kind is not str and kind is not bytes:
            raise MalformedError(f"key column {name!r}: a key is an integer, text or a byte string")


def _check_columns(columns: dict[Any, Any]) -> bool:
    """Column names and values of an upsert; True where one is a float."""
    if len(columns) > PAYLOAD_COLUMNS:
        raise MalformedError(f"a payload has at most {PAYLOAD_COLUMNS} columns")
    floats = False
    length_before, before = 0, ""
    for name, value in columns.items():
        if type(name) is not str or not 0 < len(name) <= NAME_BYTES or not name.isascii():
            _check_name(name, "a column name")
            length = len(name.encode())
        else:
            length = len(name)
        if length < length_before or (length == length_before and name <= before):
            raise MalformedError("the payload is not in deterministic order")
        length_before, before = length, name
        kind = type(value)
        if kind in _PLAIN:
            continue
        if kind is int:
            if not _INT_MIN <= value <= _INT_MAX:
                raise MalformedError(f"column {name!r}: an integer is signed 64-bit")
        elif kind is float and math.isfinite(value):
            floats = True
        else:
            raise MalformedError(f"column {name!r}: a value is null, bool, integer, finite float, text or bytes")
    return floats
