"""Invite text and pairing proofs: the vectors, and every way of mistyping (profile §10)."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshnode.codec import cbor
from meshnode.codec.digest import blake3_256
from meshnode.errors import InviteError
from meshnode.model.invite import PREFIX, Invite, invite_id, parse_invite_untrusted
from meshnode.model.pairing import (
    Ends,
    Proof,
    inviter_mac,
    inviter_proof_holds,
    joiner_mac,
    joiner_signature,
    transcript,
)
from meshnode.model.site import SiteKey

VECTOR = json.loads((Path(__file__).parents[1] / "vectors" / "pairing.json").read_text())
INVITER = SiteKey.from_seed(bytes.fromhex(VECTOR["inviter"]))
JOINER = SiteKey.from_seed(bytes.fromhex(VECTOR["joiner"]))
SECRET = bytes.fromhex(VECTOR["secret"])
ENDS = Ends(
    bytes.fromhex(VECTOR["mesh_id"]),
    INVITER.site,
    bytes.fromhex(VECTOR["inviter_spki"]),
    JOINER.public_key,
    bytes.fromhex(VECTOR["joiner_spki"]),
)
NONCE_I, NONCE_J = bytes.fromhex(VECTOR["nonce_i"]), bytes.fromhex(VECTOR["nonce_j"])


def test_vector_proofs() -> None:
    t = transcript(ENDS, NONCE_I, NONCE_J)
    assert t.hex() == VECTOR["transcript"]
    assert invite_id(SECRET).hex() == VECTOR["invite_id"]
    assert joiner_mac(SECRET, t).hex() == VECTOR["mac_joiner"]
    assert inviter_mac(SECRET, t).hex() == VECTOR["mac_inviter"]
    assert joiner_signature(JOINER, t).hex() == VECTOR["sig"]
    assert inviter_proof_holds(SECRET, t, inviter_mac(SECRET, t))
    assert not inviter_proof_holds(SECRET, t, joiner_mac(SECRET, t))


def test_proof_needs_every_part() -> None:
    t = transcript(ENDS, NONCE_I, NONCE_J)
    right = Proof(ENDS, t, JOINER.public_key, joiner_mac(SECRET, t), joiner_signature(JOINER, t))
    assert right.holds(SECRET)
    assert not right.holds(bytes(16))
    assert not replace(right, public_key=INVITER.public_key).holds(SECRET)
    assert not replace(right, mac=inviter_mac(SECRET, t)).holds(SECRET)
    assert not replace(right, signature=joiner_signature(INVITER, t)).holds(SECRET)
    swapped = transcript(ENDS, NONCE_J, NONCE_I)
    assert not replace(right, transcript=swapped).holds(SECRET)


def test_vector_invite_reads_and_writes_back() -> None:
    invite = parse_invite_untrusted(VECTOR["invite"])
    assert invite.text() == VECTOR["invite"]
    assert (invite.mesh_id, invite.site, invite.secret) == (ENDS.mesh_id, INVITER.site, SECRET)
    assert invite.founder.hex() == VECTOR["founder_public_key"]
    assert invite.invite_id.hex() == VECTOR["invite_id"]
    assert SECRET.hex() not in repr(invite)
    assert repr(SECRET) not in repr(invite)


def test_case_spaces_and_line_breaks_do_not_matter() -> None:
    text = VECTOR["invite"]
    wrapped = "\n  ".join(text[start : start + 40] for start in range(0, len(text), 40))
    assert parse_invite_untrusted(f"  {wrapped.upper()}\r\n") == parse_invite_untrusted(text)


def test_expiry_is_inclusive() -> None:
    invite = parse_invite_untrusted(VECTOR["invite"])
    assert not invite.expired(invite.expires_ms)
    assert invite.expired(invite.expires_ms + 1)


@settings(deadline=None, derandomize=True)
@given(st.integers(0, len(VECTOR["invite"]) - 1), st.sampled_from("abcdefghijklmnopqrstuvwxyz234567018-"))
def test_one_wrong_character_is_noticed(index: int, character: str) -> None:
    text = VECTOR["invite"]
    mistyped = text[:index] + character + text[index + 1 :]
    if mistyped == text:
        return
    with pytest.raises(InviteError):
        parse_invite_untrusted(mistyped)


@pytest.mark.parametrize("address", ["h:1", "hh:1", "hhh:1", "hhhh:1", "hhhhh:1"])
def test_no_other_last_character_stands_for_the_same_invite(address: str) -> None:
    # One of these has each count of unused bits in its last character that base32 can have.
    invite = replace(parse_invite_untrusted(VECTOR["invite"]), addrs=(address,))
    text = invite.text()
    assert parse_invite_untrusted(text) == invite
    for last in "abcdefghijklmnopqrstuvwxyz234567".replace(text[-1], ""):
        with pytest.raises(InviteError, match="mistyped"):
            parse_invite_untrusted(text[:-1] + last)


@settings(deadline=None, derandomize=True)
@given(st.text(max_size=200))
def test_any_text_is_an_invite_or_an_invite_error(text: str) -> None:
    for candidate in (text, PREFIX + text):
        with pytest.raises(InviteError):
            parse_invite_untrusted(candidate)


def encoded(fields: dict[str, object]) -> str:
    body = cbor.encode(fields)
    return PREFIX + base64.b32encode(body + blake3_256(body)[:4]).decode().rstrip("=").lower()


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"v": True},
        {"mesh": bytes(15)},
        {"founder": "text"},
        {"secret": bytes(17)},
        {"addrs": "host:1"},
        {"addrs": [b"host:1"]},
        {"addrs": [""]},
        {"addrs": ["x" * 301]},
        {"expires": -1},
        {"expires": 1.5},
        {"more": 1},
    ],
    ids=str,
)
def test_wrong_fields_are_refused(change: dict[str, object]) -> None:
    fields: dict[str, object] = {
        "v": 1,
        "mesh": bytes(16),
        "site": bytes(16),
        "founder": bytes(32),
        "secret": bytes(16),
        "addrs": ["host:1"],
        "expires": 5,
    }
    assert parse_invite_untrusted(encoded(fields)) == Invite(bytes(16), bytes(16), bytes(32), bytes(16), ("host:1",), 5)
    with pytest.raises(InviteError):
        parse_invite_untrusted(encoded(fields | change))


def test_at_most_sixteen_addresses_are_kept() -> None:
    invite = Invite(bytes(16), bytes(16), bytes(32), bytes(16), tuple(f"h:{n}" for n in range(20)), 5)
    assert parse_invite_untrusted(invite.text()).addrs == invite.addrs[:16]
