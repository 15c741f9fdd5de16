"""The one tree of errors. Each message says what happened, to what, and what to do about it."""

from __future__ import annotations

from enum import IntEnum


class CloseCode(IntEnum):
    """Application close codes of a QUIC connection (profile §7)."""

    DONE = 0
    PROTOCOL_ERROR = 1
    NOT_AUTHENTICATED = 2
    NOT_A_MEMBER = 3
    RETIRED = 4
    RESERVED = 5
    DUPLICATE = 6
    VERSION = 7
    LIMIT = 8
    INTERNAL = 9
    SHUTTING_DOWN = 10
    TWIN = 11


class MeshError(Exception):
    """Base of every error that meshnode raises on purpose."""


class UsageError(MeshError):
    """The caller asked for something that cannot be: wrong flag, name, value or order of calls."""


class ConfigError(UsageError):
    """A configuration file or setting that cannot be used as it stands."""


class ClosedError(UsageError):
    """The node was left, is not entered yet, or belongs to another process."""


class RowError(UsageError):
    """A row that does not fit, on its way in or out; the message names the table and the column."""

    def __init__(self, table: str, column: str, reason: str) -> None:
        super().__init__(f"column {column!r} of table {table!r}: {reason}" if column else f"table {table!r}: {reason}")
        self.table = table
        self.column = column  # empty where no single one is meant


class BehindError(MeshError):
    """Somebody did not have everything in time, or something waited for did not come; the message says who or what."""


class NotFoundError(MeshError):
    """What was named (a table, a row, a site, an invite) is not here."""


def unreadable_file(path: object, error: OSError) -> MeshError:
    """For a file that somebody named: NotFoundError where there is none, UsageError where it cannot be read."""
    if isinstance(error, FileNotFoundError):
        return NotFoundError(f"there is no file {path}")
    return UsageError(f"cannot read {path}: {reason_of(error)}")


def reason_of(error: Exception) -> str:
    """Why, without the number and the path that Python adds: whoever says it has named the path."""
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


class IdentityError(MeshError):
    """A site key, site id or the file that keeps it is unusable."""


class LockedError(IdentityError):
    """A key is under a passphrase that nobody said."""


class MembershipError(UsageError):
    """This device, or the key that was to sign, may not do that: retired, no authority, a junior, a reader (§9)."""


class InviteError(MeshError):
    """An invite string that was mistyped, damaged or has expired."""


class PairingError(MeshError):
    """The pairing ceremony ended without membership."""


class UnansweredError(PairingError):
    """The ceremony is not decided: the link was lost, or a person is asked. The same key may try again."""

    def __init__(self, message: str, *, asked: bool) -> None:
        super().__init__(message)
        self.asked = asked


class BundleError(MeshError):
    """A bundle that cannot be taken in, or not to its end: damaged, cut short, of another mesh, for somebody else."""


class CodecError(MeshError):
    """Bytes that are not the deterministic encoding, or a value that has none (profile §2)."""


class ClockExhaustedError(MeshError):
    """The hybrid logical clock cannot go further: refuse to author (profile §4)."""


class EnvelopeError(MeshError):
    """A signed structure that must not be used; `reason` is its verdict's reason (profile §6)."""

    reason = "malformed"


class MalformedError(EnvelopeError):
    """Bytes that are no event or record of this profile."""


class UnknownSignerError(EnvelopeError):
    """The kid is not in the keyring (SSP/1 §4)."""

    reason = "unknown-signer"


class BadSignatureError(EnvelopeError):
    """The signature does not verify under the signer's key and this mesh (SSP/1 §4)."""

    reason = "bad-signature"


class ProtocolError(MeshError):
    """A peer broke the protocol: the link closes with `code` and nothing it sent is used."""

    def __init__(self, message: str, code: CloseCode = CloseCode.PROTOCOL_ERROR) -> None:
        super().__init__(message)
        self.code = code


class TransportError(MeshError):
    """A link could not be made or was lost; `code` is the close code and `site` the peer, where they are known.

    `ours` says that this side ended it.
    """

    def __init__(
        self, message: str, code: CloseCode | None = None, site: bytes | None = None, *, ours: bool = False
    ) -> None:
        super().__init__(message)
        self.code = code
        self.site = site
        self.ours = ours


class StoreError(MeshError):
    """The database cannot be opened, read or written."""


class NoRoomError(StoreError):
    """The disk that the database is on is full."""


class NotAllowedError(StoreError):
    """This user may not write the database, or the folder that it is in."""


class DamagedError(StoreError):
    """The file is no database, or one with pages that are not what they should be."""


class BusyError(StoreError):
    """Another process holds the node; the message names it."""


class CorruptStateError(StoreError):
    """Stored delivery state that cannot be read: never replaced by an empty one (NEOTH commit contract)."""


class RegistrationError(UsageError):
    """A table that cannot be a destination; the message names the column and the SQL that mends it (profile §5)."""
