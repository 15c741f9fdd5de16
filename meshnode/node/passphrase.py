"""The passphrase of a home: said beforehand, kept by the system's keyring, or asked of whoever sits at the terminal.

It is never in a command line, a setting, a log line or an error, and no file holds it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from pathlib import Path

from meshnode.errors import IdentityError, LockedError, MeshError, UsageError
from meshnode.node import oskeyring

Ask = Callable[[str], str | None]
"""Asks a person a question and returns the answer; None where nobody can be asked."""
Unseal = Callable[[bytes], bytes | None]
"""What a passphrase opens; None where it is another one."""

_BYTES = 1024  # of a passphrase: what is read of a descriptor, and far more than anybody types


def nobody(_question: str) -> None:
    """Asks nobody."""


class Passphrase:
    """`said` is the passphrase, or gives it once it is needed; without it the keyring and then `ask` are asked."""

    __slots__ = ("_ask", "_known", "_say")

    def __init__(self, say: str | Callable[[], str] | None = None, ask: Ask = nobody) -> None:
        self._say = say
        self._ask = ask
        self._known: bytes | None = None  # what opened a key, or what one was put under, in this process

    def __repr__(self) -> str:
        return "Passphrase(…)"

    @property
    def may_ask(self) -> bool:
        """Whether a person may have to answer, on the thread that has the terminal."""
        return self._known is None and (self._ask is not nobody or callable(self._say))

    def said(self) -> bytes | None:
        """What a new key goes under; None where it goes under nothing."""
        if self._known is None and self._say is not None:
            self._known = checked(self._say if isinstance(self._say, str) else self._say())
        return self._known

    def forget(self) -> None:
        """New keys go under nothing from here on."""
        self._known = self._say = None

    def become(self, passphrase: bytes) -> None:
        """New keys go under this one from here on."""
        self._known = passphrase

    def open(self, path: Path, unseal: Unseal, entry: str | None) -> bytes:
        """What `unseal` makes of the passphrase of `path`; IdentityError where there is none, or it is another.

        `entry` is the name under which the keyring may have it.
        """
        said = self.said()
        if said is not None:
            found = unseal(said)
            if found is not None or self._say is not None:
                return self._opened(path, found, said)
        kept, trouble = _from_keyring(entry) if entry is not None else (None, "")
        found = None if kept is None else unseal(kept)
        if kept is not None and found is not None:
            return self._opened(path, found, kept)
        answer = self._ask(f"Passphrase of {path}: ")
        if answer is None:
            raise unasked(path, trouble, "--passphrase-fd", " (in Python, `Home(folder, passphrase=…)`)")
        passphrase = checked(answer)
        return self._opened(path, unseal(passphrase), passphrase)

    def _opened(self, path: Path, found: bytes | None, passphrase: bytes) -> bytes:
        if found is None:
            raise IdentityError(f"{path} is under another passphrase: nothing was opened, try again")
        self._known = passphrase
        return found


def unasked(path: Path, trouble: str, flag: str, otherwise: str = "") -> LockedError:
    """What to tell where nobody is there to be asked for the passphrase of a file."""
    return LockedError(
        f"{path} is under a passphrase{trouble}: run this at a terminal, or let `{flag} N` name an open descriptor "
        f"that it can be read from{otherwise}"
    )


def checked(text: str) -> bytes:
    """A passphrase as bytes: one that was typed elsewhere in other combining characters is the same."""
    data = unicodedata.normalize("NFC", text).encode("utf-8", "surrogateescape")
    if not 0 < len(data) <= _BYTES:
        raise UsageError(f"a passphrase has 1 to {_BYTES} bytes, and this one has {len(data)}")
    return data


def _from_keyring(entry: str) -> tuple[bytes | None, str]:
    """What the keyring has, else why not: the passphrase can still be typed."""
    try:
        kept = oskeyring.find(entry)
    except MeshError as error:
        return None, f" ({error})"
    if kept is None:
        return None, " that the keyring of this system no longer has"
    return checked(kept), ""
