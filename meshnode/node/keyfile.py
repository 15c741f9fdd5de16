"""One key in one file of mode 0600: a COSE_Key, or encrypted PKCS#8 where it is under a passphrase (profile §3).

In front of the latter a line names the entry of the system's keyring that may have the passphrase.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from meshnode.codec import pkcs8
from meshnode.errors import CodecError, IdentityError, NotFoundError
from meshnode.node.passphrase import Passphrase
from meshnode.node.private import read_private, write_private

if TYPE_CHECKING:  # libsodium is on no reading verb's start-up path
    from meshnode.model.site import SiteKey

_KEY_FILE_BYTES = 4096  # far more than a key is; against a device file or a wrong path
_KEPT = b"Passphrase kept by the keyring as: "


def read_key(path: Path, passphrase: Passphrase) -> SiteKey:
    """Read a key file; raises IdentityError that names the file and never its content."""
    from meshnode.codec.cose_key import private_from_cose  # pycose is slow to import
    from meshnode.model.site import SiteKey

    data = _read(path)
    try:
        if not pkcs8.is_sealed(data):
            return SiteKey.from_seed(private_from_cose(data))
        return SiteKey.from_seed(passphrase.open(path, lambda said: pkcs8.open_seed(data, said), _entry(data)))
    except CodecError as error:
        raise IdentityError(f"{path} is not a site key: restore it from a backup") from error


def write_key(path: Path, seed: bytes, passphrase: bytes | None, entry: str | None = None) -> None:
    """Write a key file, under a passphrase where there is one; `entry` is what the keyring has it as."""
    from meshnode.codec.cose_key import private_to_cose  # pycose is slow to import

    if passphrase is None:
        write_private(path, private_to_cose(seed))
        return
    salt, iv = secrets.token_bytes(pkcs8.SALT_BYTES), secrets.token_bytes(pkcs8.IV_BYTES)
    kept = b"" if entry is None else _KEPT + entry.encode() + b"\n"
    write_private(path, kept + pkcs8.seal_seed(seed, passphrase, salt=salt, iv=iv))


def text_in(path: Path) -> str | None:
    """What a file says that holds text, and no key: a person may have written it."""
    data = _read(path)
    return data.decode("ascii") if data.isascii() and not pkcs8.is_sealed(data) else None


def is_protected(path: Path) -> bool:
    """Whether a key file is under a passphrase."""
    return pkcs8.is_sealed(_read(path))


def kept_as(path: Path) -> str | None:
    """The entry of the keyring that a key file names."""
    return _entry(_read(path))


def _entry(data: bytes) -> str | None:
    first, _, _ = data.partition(b"\n")
    return first[len(_KEPT) :].decode("ascii", "replace") if first.startswith(_KEPT) else None


def _read(path: Path) -> bytes:
    try:
        return read_private(path, _KEY_FILE_BYTES)
    except NotFoundError as error:
        raise IdentityError(f"the key file {path} is missing: restore it from a backup") from error
