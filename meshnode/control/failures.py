"""Errors across the control API: the same class and message on both sides, never a traceback."""

from __future__ import annotations

from meshnode import errors
from meshnode.control.requests import Failure
from meshnode.errors import (
    BusyError,
    CloseCode,
    InviteError,
    MeshError,
    NotFoundError,
    ProtocolError,
    TransportError,
    UsageError,
)


def failure_of(error: MeshError) -> Failure:
    """What the server sends."""
    code = getattr(error, "code", None)
    return Failure(error=type(error).__name__, message=str(error), code=None if code is None else int(code))


def error_of(failure: Failure) -> MeshError:
    """What the client raises: a class that it does not know becomes its base."""
    kind = getattr(errors, failure.error, None)
    if not (isinstance(kind, type) and issubclass(kind, MeshError)):
        return MeshError(failure.message)
    if issubclass(kind, ProtocolError | TransportError):
        code = CloseCode(failure.code) if failure.code in set(CloseCode) else None
        return kind(failure.message) if code is None else kind(failure.message, code)
    return kind(failure.message)


def http_status_of(error: MeshError) -> int:
    """The nearest HTTP status, for people with curl."""
    if isinstance(error, NotFoundError):
        return 404
    if isinstance(error, BusyError):
        return 409
    return 400 if isinstance(error, UsageError | InviteError) else 500
