"""What the control API can be asked, as values: the server, the client and the document of the API read the same ones.

An operation is declared once, in a module of `control/operations/`; nothing here or there knows of a web framework,
since the client of every verb loads it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from meshnode.control.requests import API, Arguments
from meshnode.errors import MeshError
from meshnode.node.api import Operations

A = TypeVar("A", bound=Arguments)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TextForm(Generic[T]):
    """What a GET of an operation is answered with instead of JSON."""

    content_type: str
    write: Callable[[T], str]


@dataclass(frozen=True, slots=True)
class Operation(Generic[A, T]):
    """One operation: a POST to `path` with its arguments in JSON; one that `reads` is a GET as well."""

    name: str
    takes: type[A]
    gives: type[T]  # the answer's type, of a stream that of each line
    raises: tuple[type[MeshError], ...] = field(default=(), kw_only=True)  # besides UsageError and faults of the node
    reads: bool = field(default=False, kw_only=True)  # changes nothing, and all of its arguments fit a query string
    about: str = field(default="", kw_only=True)  # where it is not the docstring of the method of `Operations`

    @property
    def path(self) -> str:
        """Where it is asked for."""
        return f"{API}/{self.name}"

    def explained(self) -> str:
        """What it does, in the words of the method that does it."""
        method = getattr(Operations, self.name.replace("-", "_"), None)
        return self.about or (method.__doc__ or "" if method is not None else "")


@dataclass(frozen=True, slots=True)
class Call(Operation[A, T]):
    """Answered once."""

    answer: Callable[[Operations, A], Awaitable[T]]
    waits: bool = field(default=False, kw_only=True)  # long, by intention: given up when the node stops
    text: TextForm[T] | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Stream(Operation[A, T]):
    """Answered with a line of JSON for each thing that is told, until either side ends it."""

    answer: Callable[[Operations, A], AsyncIterator[T]]


def or_none(kind: type[T]) -> type[T | None]:
    """The type of an answer that may be null: `kind | None` is no type to a type checker."""
    return cast("type[T | None]", cast(Any, kind) | None)


def nothing() -> type[None]:
    """The type of an answer that says nothing."""
    return cast("type[None]", cast(Any, None))
