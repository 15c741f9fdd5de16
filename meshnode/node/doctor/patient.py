"""Whom the checks look at: a home, and what answers for its store and its network, as far as there is any."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

from meshnode.errors import ConfigError, StoreError
from meshnode.node.config import Config
from meshnode.node.databases import DatabaseFile, database_of
from meshnode.node.discoverviews import DiscoverView
from meshnode.node.home import Home
from meshnode.node.memberviews import MemberView
from meshnode.node.syncviews import SyncStateView
from meshnode.node.views import Status, TableView

T = TypeVar("T")


class Answering(Protocol):
    """What the checks ask of a node that runs, or of its store where none does."""

    async def status(self) -> Status:
        """How it is."""
        ...

    async def sync_state(self, peer: str | None = None) -> list[SyncStateView]:
        """Both streams to each other member."""
        ...

    async def members(self) -> list[MemberView]:
        """Who is in."""
        ...

    async def tables(self) -> list[TableView]:
        """The registered tables."""
        ...

    async def discover(self, *, seconds: float) -> DiscoverView:
        """Who is around, and why each is dialed or is not."""
        ...


@dataclass(frozen=True, slots=True)
class Patient:
    """`config` is of the home, or what a running node was told instead; the defaults where it cannot be read."""

    home: Home
    now_ms: int
    config: Config = field(default_factory=Config)
    node: Answering | None = None  # None where the store does not open
    file: DatabaseFile | None = None  # as the node has it open
    settings_readable: bool = True
    running: bool = False  # `node` has a network
    unanswered: str = ""  # why a node that holds the home does not answer

    @property
    def founded(self) -> bool:
        """Whether a node lives in the home, as far as this user can see."""
        try:
            return self.home.founded
        except ConfigError:
            return False

    @property
    def answering(self) -> Answering:
        """Whom to ask; StoreError where nobody can be."""
        if self.node is None:
            raise NotLookedAtError("the store does not open: see `database` and `key`")
        return self.node

    def database(self) -> DatabaseFile:
        """The database; IdentityError, StoreError where the key or the file is in the way."""
        return database_of(self.home) if self.file is None else self.file


class NotLookedAtError(StoreError):
    """A check has nothing to look at, since what another one looks at is wrong."""


class AskedOnce:
    """Asks each thing once, however many checks want to know it; one that fails, fails for each of them."""

    def __init__(self, node: Answering) -> None:
        self._node = node
        self._answers: dict[str, Any] = {}

    async def status(self) -> Status:
        """How it is."""
        return await self._once("status", self._node.status)

    async def sync_state(self, peer: str | None = None) -> list[SyncStateView]:
        """Both streams to each other member."""
        return await self._once("sync-state", lambda: self._node.sync_state(peer))

    async def members(self) -> list[MemberView]:
        """Who is in."""
        return await self._once("members", self._node.members)

    async def tables(self) -> list[TableView]:
        """The registered tables."""
        return await self._once("tables", self._node.tables)

    async def discover(self, *, seconds: float) -> DiscoverView:
        """Who is around."""
        return await self._once("discover", lambda: self._node.discover(seconds=seconds))

    async def _once(self, name: str, ask: Callable[[], Awaitable[T]]) -> T:
        if name not in self._answers:
            try:
                self._answers[name] = await ask()
            except Exception as error:
                self._answers[name] = error
        answer = self._answers[name]
        if isinstance(answer, Exception):
            raise answer
        return cast(T, answer)
