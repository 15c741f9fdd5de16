"""Errors across the control API: the same class and message on both sides, never a traceback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from meshnode import errors
from meshnode.control.requests import Failure
from meshnode.errors import (
    BundleError,
    BusyError,
    CloseCode,
    IdentityError,
    InviteError,
    MeshError,
    NotFoundError,
    ProtocolError,
    TransportError,
    UsageError,
)

STATUSES: Final[Mapping[type[MeshError], int]] = {
    NotFoundError: 404,
    UsageError: 400,
    InviteError: 400,
    BundleError: 400,
    IdentityError: 400,  # a key file that the request names
    BusyError: 409,
    TransportError: 503,
    MeshError: 500,
}
"""The HTTP status of an error and of those derived from it, unless they have one of their own."""


AT_THE_DOOR: Final[Mapping[int, type[MeshError]]] = {
    401: UsageError,  # no token, or a wrong one
    408: UsageError,  # the request took too long to arrive
    413: UsageError,  # it is too large
    415: UsageError,  # its body is not said to be JSON
    503: BusyError,  # too much is asked at once
}
"""Why a request for an operation is turned away before it reaches it."""


class RefusedError(Exception):
    """A request that is turned away before it reaches its operation: HTTP has a status of its own for why."""

    def __init__(self, status: int, error: MeshError, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(str(error))
        self.status = status
        self.error = error
        self.headers = headers or {}


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


def status_of(kind: type[MeshError]) -> int:
    """The HTTP status of an error, for people with curl: programs look at its name."""
    return next(STATUSES[base] for base in kind.__mro__ if base in STATUSES)


def error_kinds() -> list[type[MeshError]]:
    """Every error that there is, in the order of the module that has them."""
    return [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, MeshError)]
