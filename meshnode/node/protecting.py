"""The keys of a home go under a passphrase, under another one, or under none; the home is locked and no node runs.

The site key goes last: after a crash before that, the same can be done again.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from meshnode.errors import IdentityError, MeshError
from meshnode.model.site import SiteKey, site_text
from meshnode.node import oskeyring
from meshnode.node.home import Home
from meshnode.node.identity import finish_renewal
from meshnode.node.keyfile import is_protected, kept_as, read_key, write_key
from meshnode.node.passphrase import Passphrase, checked
from meshnode.node.views import KeysView


def protect(home: Home, passphrase: str, *, keyring: bool = False) -> KeysView:
    """Put the keys under this passphrase; with `keyring` the system's keyring has it too, and nobody is asked for it.

    Raises IdentityError where the present passphrase is another, or no keyring can be used; then nothing has changed.
    """
    return _rewrite(home, passphrase, keyring=keyring)


def unprotect(home: Home) -> KeysView:
    """Keep the keys under no passphrase, guarded by the modes of their files alone."""
    return _rewrite(home, None, keyring=False)


def _rewrite(home: Home, passphrase: str | None, *, keyring: bool) -> KeysView:
    secret = None if passphrase is None else checked(passphrase)
    finish_renewal(home)
    key, before = home.site_key(), kept_as(home.site_key_path)
    beside = [path for path in (home.recovery_key_path, home.renewed_key_path) if path.exists()]
    others = [(path, _opened(home, path, passphrase)) for path in beside]
    entry = site_text(key.site) if keyring else None
    if entry is not None and passphrase is not None:
        oskeyring.keep(entry, passphrase)
    for path, each in (*others, (home.site_key_path, key)):
        write_key(path, each.seed, secret, entry)
    if secret is None:
        home.passphrase.forget()
    else:
        home.passphrase.become(secret)
    if before is not None and before != entry:
        with suppress(MeshError):  # what it keeps opens nothing any more
            oskeyring.drop(before)
    files = [str(path) for path in (*beside, home.site_key_path)]
    return KeysView(files=files, protected=secret is not None, keyring=keyring)


def _opened(home: Home, path: Path, passphrase: str | None) -> SiteKey:
    """A key beside the site key, which an attempt that was cut short may have put under the new passphrase already."""
    if passphrase is not None and is_protected(path):
        with suppress(IdentityError):
            return read_key(path, Passphrase(passphrase))
    try:
        return read_key(path, home.passphrase)
    except IdentityError as error:
        raise IdentityError(f"{error}; or move it to a safe place off this device first") from error
