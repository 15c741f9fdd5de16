"""A site key under a passphrase: encrypted PKCS#8 (RFC 5958) by PBES2 with scrypt (RFC 7914) and AES-256-CBC, as PEM.

`cryptography` reads this form but writes one of 2,048 rounds of PBKDF2, with which a thousand guesses take half a
second; so the few bytes of DER around the ciphertext are written here. What is read is exactly what is written, with
the one cost: no file makes this node spend more. `cryptography` is imported where a key is under a passphrase, and
nowhere else.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from meshnode.errors import CodecError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import Cipher, modes

SEED_BYTES, SALT_BYTES, IV_BYTES = 32, 16, 16
_COST, _BLOCK, _PARALLEL = 1 << 14, 8, 8  # 16 MiB and some 0.3 s a guess; more memory OpenSSL does not open
_KEY_BYTES = 32
_CIPHERTEXT_BYTES = 64  # 48 bytes of PrivateKeyInfo, padded
_FIRST, _LAST = b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"-----END ENCRYPTED PRIVATE KEY-----"
_LINE = 64  # characters of base64 (RFC 7468)

_SEQUENCE, _INTEGER, _OCTETS, _OID = 0x30, 0x02, 0x04, 0x06
_PBES2 = bytes.fromhex("2a864886f70d01050d")
_SCRYPT = bytes.fromhex("2b06010401da47040b")
_AES_256_CBC = bytes.fromhex("60864801650304012a")
_PRIVATE_KEY_INFO = bytes.fromhex("302e020100300506032b657004220420")  # of an Ed25519 seed, which follows


def is_sealed(data: bytes) -> bool:
    """Whether a key file holds a key under a passphrase."""
    return _FIRST in data


def seal_seed(seed: bytes, passphrase: bytes, *, salt: bytes, iv: bytes) -> bytes:
    """The PEM of a seed under a passphrase; `salt` and `iv` are random and never used again."""
    if (len(seed), len(salt), len(iv)) != (SEED_BYTES, SALT_BYTES, IV_BYTES):
        raise CodecError(f"a seed has {SEED_BYTES} bytes, its salt {SALT_BYTES}, its initialisation vector {IV_BYTES}")
    padding = _CIPHERTEXT_BYTES - len(_PRIVATE_KEY_INFO) - SEED_BYTES
    encryptor = _cipher(passphrase, salt, iv).encryptor()
    ciphertext = encryptor.update(_PRIVATE_KEY_INFO + seed + bytes([padding]) * padding) + encryptor.finalize()
    text = base64.b64encode(_der(salt, iv, ciphertext))
    lines = [text[at : at + _LINE] for at in range(0, len(text), _LINE)]
    return b"\n".join([_FIRST, *lines, _LAST, b""])


def open_seed(data: bytes, passphrase: bytes) -> bytes | None:
    """The seed in what `seal_seed` wrote; None under another passphrase. CodecError for anything else."""
    body = data.partition(_FIRST)[2].partition(_LAST)[0]
    try:
        der = base64.b64decode(b"".join(body.split()), validate=True)
    except binascii.Error as error:
        raise CodecError(f"not a key under a passphrase: {error}") from error
    salt, iv, ciphertext = _parts(der)
    if _der(salt, iv, ciphertext) != der:
        raise CodecError("not a key under a passphrase in the form that this node writes")
    decryptor = _cipher(passphrase, salt, iv).decryptor()
    plain = decryptor.update(ciphertext) + decryptor.finalize()
    seed = plain[len(_PRIVATE_KEY_INFO) :][:SEED_BYTES]
    padding = len(plain) - len(_PRIVATE_KEY_INFO) - SEED_BYTES
    return seed if plain == _PRIVATE_KEY_INFO + seed + bytes([padding]) * padding else None


def passphrase_key(passphrase: bytes, salt: bytes) -> bytes:
    """The key of 32 bytes that a passphrase is worth; slow on purpose."""
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    return Scrypt(salt=salt, length=_KEY_BYTES, n=_COST, r=_BLOCK, p=_PARALLEL).derive(passphrase)


def _cipher(passphrase: bytes, salt: bytes, iv: bytes) -> Cipher[modes.CBC]:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    key = passphrase_key(passphrase, salt)
    return Cipher(algorithms.AES(key), modes.CBC(iv))


def _parts(der: bytes) -> tuple[bytes, bytes, bytes]:
    """Salt, initialisation vector and ciphertext from their places, whatever stands around them."""
    blank = _der(b"\x01" * SALT_BYTES, b"\x02" * IV_BYTES, b"\x03" * _CIPHERTEXT_BYTES)
    at = [blank.find(bytes([mark]) * length) for mark, length in ((1, SALT_BYTES), (2, IV_BYTES))]
    return der[at[0] :][:SALT_BYTES], der[at[1] :][:IV_BYTES], der[-_CIPHERTEXT_BYTES:]


def _der(salt: bytes, iv: bytes, ciphertext: bytes) -> bytes:
    costs = b"".join(_tagged(_INTEGER, _integer(each)) for each in (_COST, _BLOCK, _PARALLEL))
    derivation = _tagged(_OID, _SCRYPT) + _tagged(_SEQUENCE, _tagged(_OCTETS, salt) + costs)
    encryption = _tagged(_OID, _AES_256_CBC) + _tagged(_OCTETS, iv)
    parameters = _tagged(_SEQUENCE, derivation) + _tagged(_SEQUENCE, encryption)
    algorithm = _tagged(_OID, _PBES2) + _tagged(_SEQUENCE, parameters)
    return _tagged(_SEQUENCE, _tagged(_SEQUENCE, algorithm) + _tagged(_OCTETS, ciphertext))


def _tagged(tag: int, content: bytes) -> bytes:
    length = bytes([len(content)]) if len(content) < 0x80 else bytes([0x81, len(content)])
    return bytes([tag]) + length + content


def _integer(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "big")
