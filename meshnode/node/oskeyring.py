"""The keyring of the operating system, through the package `keyring`, which is imported where it is asked for.

An entry is named by the site: its text form is no secret, and two homes never have the same.
"""

from __future__ import annotations

from typing import Any

from meshnode.errors import IdentityError, UsageError

SERVICE = "meshnode"


def keep(entry: str, passphrase: str) -> None:
    """Keep a passphrase. UsageError where the package is missing, IdentityError where no keyring keeps it."""
    keyring = _keyring()
    try:
        keyring.set_password(SERVICE, entry, passphrase)
        kept = keyring.get_password(SERVICE, entry) == passphrase
    except Exception as error:  # a backend raises what its system does
        raise _unusable(error) from error
    if not kept:
        raise _unusable("what was put there does not come back")


def find(entry: str) -> str | None:
    """The passphrase under this name; None where there is none."""
    keyring = _keyring()
    try:
        kept: str | None = keyring.get_password(SERVICE, entry)
    except Exception as error:  # a backend raises what its system does
        raise _unusable(error) from error
    return kept


def drop(entry: str) -> None:
    """Keep it no longer."""
    keyring = _keyring()
    try:
        if keyring.get_password(SERVICE, entry) is not None:
            keyring.delete_password(SERVICE, entry)
    except Exception as error:  # a backend raises what its system does
        raise _unusable(error) from error


def _keyring() -> Any:
    try:
        import keyring
    except ImportError as error:
        raise UsageError(
            "the package that reaches this system's keyring is not here: `pip install 'meshnode[keyring]'`"
        ) from error
    return keyring


def _unusable(why: object) -> IdentityError:
    reason = " ".join(str(why).split()) or type(why).__name__
    return IdentityError(
        f"no keyring of this system can be used ({reason}): unlock or install one, or do without --keyring"
    )
