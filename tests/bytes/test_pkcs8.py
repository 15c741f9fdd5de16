"""A key under a passphrase: standard PKCS#8, which another implementation opens, and nothing else is taken for one."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from meshnode.codec.pkcs8 import is_sealed, open_seed, seal_seed
from meshnode.errors import CodecError

SEED = bytes(range(32))
SALT, IV = b"s" * 16, b"i" * 16
SEALED = seal_seed(SEED, b"open", salt=SALT, iv=IV)


def test_openssl_opens_what_is_written() -> None:
    key = serialization.load_pem_private_key(SEALED, b"open")
    assert isinstance(key, Ed25519PrivateKey)
    assert key.private_bytes_raw() == SEED
    with pytest.raises(ValueError, match=r".*"):
        serialization.load_pem_private_key(SEALED, b"shut")


def test_a_guess_costs_16_mib_eight_times_over() -> None:
    der = base64.b64decode(b"".join(SEALED.splitlines()[1:-1]))
    assert bytes.fromhex("02024000 020108 020108") in der  # scrypt's N, r and p


def test_only_the_passphrase_opens_it() -> None:
    assert is_sealed(SEALED)
    assert open_seed(SEALED, b"open") == SEED
    assert open_seed(b"a line in front\n" + SEALED, b"open") == SEED
    assert open_seed(SEALED, b"shut") is None
    assert open_seed(SEALED, b"open ") is None


def test_the_seed_cannot_be_read_and_salt_and_vector_decide_what_can() -> None:
    others = {seal_seed(SEED, b"open", salt=salt, iv=iv) for salt in (SALT, b"t" * 16) for iv in (IV, b"j" * 16)}
    assert len(others) == 4
    assert not any(SEED[:8] in each for each in others)


def test_a_key_of_another_cost_is_not_taken() -> None:
    """Whoever can write the file cannot make the node spend gigabytes on opening it."""
    theirs = Ed25519PrivateKey.from_private_bytes(SEED).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"open")
    )
    assert is_sealed(theirs)
    with pytest.raises(CodecError, match="in the form"):
        open_seed(theirs, b"open")


@settings(max_examples=15, deadline=None)  # slow on purpose
@given(st.integers(0, len(SEALED) - 1), st.binary(max_size=3))
def test_damage_is_an_error_or_a_wrong_passphrase_and_never_another_key(at: int, instead: bytes) -> None:
    try:
        found = open_seed(SEALED[:at] + instead + SEALED[at + len(instead) :], b"open")
    except CodecError:
        return
    assert found in (None, SEED)


@pytest.mark.parametrize("lengths", [(31, 16, 16), (32, 15, 16), (32, 16, 17)])
def test_parts_of_other_lengths_are_refused(lengths: tuple[int, int, int]) -> None:
    seed, salt, iv = map(bytes, lengths)
    with pytest.raises(CodecError, match="16"):
        seal_seed(seed, b"open", salt=salt, iv=iv)
