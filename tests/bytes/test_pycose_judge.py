"""pycose as an independent judge: it verifies what we seal, and we open what it seals (untagged, in order)."""

from __future__ import annotations

from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pycose.algorithms import EdDSA
from pycose.headers import KID, Algorithm, ContentType
from pycose.keys.cosekey import CoseKey
from pycose.keys.curves import Ed25519
from pycose.keys.okp import OKPKey
from pycose.messages import Sign1Message
from support.laws import columns, hlcs, law, mesh_ids, names, row_keys, site_keys

from meshnode.codec import cose, cose_key
from meshnode.errors import BadSignatureError, CodecError
from meshnode.model import event, record
from meshnode.model.hlc import Hlc
from meshnode.model.site import SiteKey

CONTENT_TYPES = [event.CONTENT_TYPE, *record.TRAVELLING, record.BINDING, record.ENDPOINT]


def judged(data: bytes, public_key: bytes, mesh_id: bytes) -> Any:
    message = Sign1Message.from_cose_obj(list(cbor2.loads(data)), True)
    message.key = OKPKey(crv=Ed25519, x=public_key)
    message.external_aad = mesh_id
    return message


@law
@given(site_keys, mesh_ids, names, row_keys, st.none() | columns, hlcs)
def test_it_verifies_our_events(
    key: SiteKey, mesh_id: bytes, table: str, row_key: dict[str, Any], values: dict[str, Any] | None, hlc: Hlc
) -> None:
    made = event.author_event(key, mesh_id, schema="main", table=table, row_key=row_key, columns=values, hlc=hlc)
    message = judged(made.data, key.public_key, mesh_id)
    assert message.verify_signature()
    assert message.phdr == {Algorithm: EdDSA, ContentType: event.CONTENT_TYPE, KID: key.site}
    assert message.uhdr == {}
    assert cbor2.loads(message.payload)["table_name"] == table
    message.external_aad = bytes(16) if mesh_id != bytes(16) else b"o" * 16
    assert not message.verify_signature()


@law
@given(site_keys, mesh_ids, st.sampled_from(CONTENT_TYPES), st.binary(max_size=300))
def test_we_open_what_it_seals(key: SiteKey, mesh_id: bytes, content_type: str, payload: bytes) -> None:
    message = Sign1Message(
        phdr={Algorithm: EdDSA, ContentType: content_type, KID: key.site}, payload=payload, external_aad=mesh_id
    )
    message.key = OKPKey(crv=Ed25519, x=key.public_key, d=key.seed)
    data = message.encode(tag=False)
    assert data == cose.seal(content_type, key.site, payload, external_aad=mesh_id, sign=key.sign)
    envelope = cose.open_untrusted(data, content_type, external_aad=mesh_id, key_of=lambda kid: key.public_key)
    assert (envelope.kid, envelope.payload) == (key.site, payload)
    assert cose.content_type_of_untrusted(data, CONTENT_TYPES) == content_type
    with pytest.raises(BadSignatureError):
        cose.open_untrusted(data, content_type, external_aad=mesh_id + b"x", key_of=lambda kid: key.public_key)


@law
@given(st.binary(min_size=32, max_size=32))
def test_cose_keys(seed: bytes) -> None:
    key = SiteKey.from_seed(seed)
    public, private = cose_key.public_to_cose(key.public_key), cose_key.private_to_cose(seed)
    assert cose_key.public_from_cose(public) == cose_key.public_from_cose(private) == key.public_key
    assert cose_key.private_from_cose(private) == seed
    assert CoseKey.decode(private).d == seed
    for other in (
        public,
        private[:-1],
        private + b"\x00",
        b"",
        b"\xa0",
        b"\x80",
        b"\xff",
        private.replace(seed, seed[::-1]),
    ):
        if other != private:
            with pytest.raises(CodecError):
                cose_key.private_from_cose(other)


@law
@given(st.binary(max_size=80))
def test_any_bytes_are_a_key_or_the_one_error(data: bytes) -> None:
    with pytest.raises(CodecError):
        cose_key.public_from_cose(data)
