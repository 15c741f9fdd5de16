"""Records: exact shapes, the size bound, the order of checks, and a binding that certifies itself (profile §7, §9)."""

from __future__ import annotations

from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.laws import hlcs, law

from meshnode.codec import cose
from meshnode.errors import BadSignatureError, EnvelopeError, MalformedError, UnknownSignerError, UsageError
from meshnode.limits import RECORD_BYTES
from meshnode.model import event, record
from meshnode.model.hlc import Hlc
from meshnode.model.site import SiteKey

KEY, OTHER = SiteKey.from_seed(b"\x07" * 32), SiteKey.from_seed(b"\x08" * 32)
MESH = b"m" * 16
KEYS = {KEY.site: KEY.public_key}
VOUCH = record.Vouch(OTHER.site, OTHER.public_key, "laptop", Hlc(1, 2))
BODIES: list[record.Body] = [
    VOUCH,
    record.Role(OTHER.site, "reader", Hlc(2**64 - 1, 0)),
    record.Retirement(OTHER.site, Hlc(3, 4), (b"a" * 32, b"b" * 32), Hlc(5, 6)),
    record.TransportBinding("quic", b"s" * 32, KEY.public_key, 7),
    record.EndpointAttestation(65535, b"b" * 8, 8),
]
TYPES = [record.VOUCH, record.ROLE, record.RETIREMENT, record.BINDING, record.ENDPOINT]


def opened(data: bytes, content_type: str | None = None) -> record.Record:
    return record.open_record_untrusted(data, mesh_id=MESH, key_of=KEYS.get, content_type=content_type)


def sealed(content_type: str, fields: Any) -> bytes:
    payload = fields if isinstance(fields, bytes) else cbor2.dumps(fields, canonical=True)
    return cose.seal(content_type, KEY.site, payload, external_aad=MESH, sign=KEY.sign)


def fields_of(body: record.Body, content_type: str) -> dict[str, Any]:
    fields = cbor2.loads(cose.split_untrusted(record.seal_record(KEY, MESH, body), content_type).payload)
    assert isinstance(fields, dict)
    return fields


@pytest.mark.parametrize(("body", "content_type"), list(zip(BODIES, TYPES, strict=True)), ids=TYPES)
def test_round_trip_and_every_wrong_field(body: record.Body, content_type: str) -> None:
    made = opened(record.seal_record(KEY, MESH, body), content_type)
    assert (made.body, made.signer, made.content_type) == (body, KEY.site, content_type)
    assert made.issued.physical == (body.issued.physical if isinstance(body.issued, Hlc) else body.issued)
    fields = fields_of(body, content_type)
    for name in fields:
        wrong: list[Any] = [None, True, -1, 1.0, "wrong", b"wrong", [], {}, [1], [1, -1], [1, True], [1, 2, 3], 2**64]
        for value in wrong:
            if (name, value) in (("name", "wrong"), ("honours", [])):
                continue
            with pytest.raises(MalformedError):
                opened(sealed(content_type, {**fields, name: value}), content_type)
        with pytest.raises(MalformedError):
            opened(sealed(content_type, {key: fields[key] for key in fields if key != name}), content_type)
    for payload in ({**fields, "extra": 1}, [], b"\xff", cbor2.dumps(fields, canonical=True) + b"\x00", b""):
        with pytest.raises(MalformedError):
            opened(sealed(content_type, payload), content_type)


def test_only_three_types_travel() -> None:
    for body, content_type in zip(BODIES, TYPES, strict=True):
        data = record.seal_record(KEY, MESH, body)
        if content_type in record.TRAVELLING:
            assert opened(data).body == body
            assert record.split_record_untrusted(data).content_type == content_type
        else:
            with pytest.raises(MalformedError):
                opened(data)
        with pytest.raises(MalformedError):
            opened(data, next(other for other in TYPES if other != content_type))
    with pytest.raises(MalformedError):
        opened(sealed(event.CONTENT_TYPE, {}))
    with pytest.raises(MalformedError):
        record.parse_record_untrusted(cose.split_untrusted(sealed(event.CONTENT_TYPE, {}), event.CONTENT_TYPE), b"")


def test_order_of_checks() -> None:
    data = record.seal_record(KEY, MESH, VOUCH)
    with pytest.raises(MalformedError):
        record.open_record_untrusted(data + b"\x00", mesh_id=MESH, key_of=lambda site: None)
    with pytest.raises(UnknownSignerError):
        record.open_record_untrusted(sealed(record.VOUCH, b"\xff"), mesh_id=MESH, key_of=lambda site: None)
    with pytest.raises(BadSignatureError):
        record.open_record_untrusted(sealed(record.VOUCH, b"\xff"), mesh_id=b"o" * 16, key_of=KEYS.get)


def test_the_size_is_inclusive() -> None:
    def retirement(name_bytes: int) -> bytes:
        fields = {**fields_of(VOUCH, record.VOUCH), "name": "x" * name_bytes}
        return sealed(record.VOUCH, fields)

    room = RECORD_BYTES - (len(retirement(1000)) - 1000)
    assert len(retirement(room)) == RECORD_BYTES
    opened(retirement(room))
    with pytest.raises(MalformedError, match="larger"):
        opened(retirement(room + 1))


@pytest.mark.parametrize(
    "body",
    [
        record.Vouch(OTHER.site[:15], OTHER.public_key, "x", Hlc(1, 1)),
        record.Vouch(OTHER.site, OTHER.public_key, "\ud800", Hlc(1, 1)),
        record.Vouch(OTHER.site, OTHER.public_key, "x" * 129, Hlc(1, 1)),
        record.Vouch(OTHER.site, OTHER.public_key, "x" * RECORD_BYTES, Hlc(1, 1)),
        record.Role(OTHER.site, "king", Hlc(1, 1)),
        record.Role(OTHER.site, "member", Hlc(2**64, 1)),
        record.EndpointAttestation(0, b"b" * 8, 1),
        record.EndpointAttestation(65536, b"b" * 8, 1),
    ],
    ids=lambda body: repr(body)[:40],
)
def test_the_issuer_is_refused_what_no_one_would_accept(body: record.Body) -> None:
    with pytest.raises(UsageError):
        record.seal_record(KEY, MESH, body)


@law
@given(hlcs, st.binary(min_size=32, max_size=32))
def test_a_vouch_may_name_a_key_that_is_not_the_sites(issued: Hlc, public_key: bytes) -> None:
    # Whether the two match decides if it counts, not whether it is a record (profile §9).
    body = record.Vouch(OTHER.site, public_key, "", issued)
    assert opened(record.seal_record(KEY, MESH, body)).body == body


def test_a_binding_certifies_itself() -> None:
    data = record.seal_binding(KEY, MESH, b"s" * 32, 9)
    binding, site = record.open_binding_untrusted(data, MESH)
    assert (site, binding.spki, binding.public_key, binding.issued) == (KEY.site, b"s" * 32, KEY.public_key, 9)
    with pytest.raises(BadSignatureError):
        record.open_binding_untrusted(data, b"o" * 16)
    lifted = {**fields_of(binding, record.BINDING), "public_key": OTHER.public_key}
    with pytest.raises(MalformedError):
        record.open_binding_untrusted(sealed(record.BINDING, lifted), MESH)
    for other in (b"", data[:-1], data + b"\x00", record.seal_record(KEY, MESH, VOUCH)):
        with pytest.raises(MalformedError):
            record.open_binding_untrusted(other, MESH)


@law
@given(st.data())
def test_no_changed_byte_of_a_binding_survives(data: st.DataObject) -> None:
    good = bytearray(record.seal_binding(KEY, MESH, b"s" * 32, 9))
    good[data.draw(st.integers(0, len(good) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(EnvelopeError):
        record.open_binding_untrusted(bytes(good), MESH)
