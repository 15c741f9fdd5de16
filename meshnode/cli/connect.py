"""Reaches a node for one verb: the running one through its control socket, else its store directly."""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from meshnode.cli.passphrase import passphrase_of
from meshnode.control.address import control_address
from meshnode.errors import UsageError
from meshnode.node.api import Operations
from meshnode.node.config import Config
from meshnode.node.home import Home
from meshnode.node.homepath import default_home
from meshnode.node.lock import lock_alone, lock_or

if TYPE_CHECKING:
    from meshnode.control.client import ControlClient
    from meshnode.node.reads import Reading

T = TypeVar("T")


def home_path(options: argparse.Namespace) -> Path:
    """`--home`, else the default."""
    if options.home == "":
        raise UsageError("--home is empty: name a folder, or leave it out")
    return Path(options.home) if options.home else default_home()


def home_of(options: argparse.Namespace) -> Home:
    """That home, whether or not a node lives there."""
    return Home(home_path(options), passphrase=passphrase_of(options), encrypt=getattr(options, "encrypt", False))


def loaded_home(options: argparse.Namespace) -> Home:
    """That home, with a node."""
    return Home.load(home_path(options), passphrase=passphrase_of(options))


def _unread_home(options: argparse.Namespace) -> Home:
    """That home, with a node, whatever its settings say: a running one answers though they cannot be used any more."""
    home = Home(home_path(options), Config())
    home.refuse_empty()
    return home


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a verb's coroutine to its end; what the package warns of meanwhile goes to standard error."""
    with _warnings_on_stderr():
        return asyncio.run(work)


@contextmanager
def _warnings_on_stderr() -> Iterator[None]:
    """As Python does it where nobody says otherwise; `up` says otherwise."""
    logger, handler = logging.getLogger("meshnode"), logging.lastResort
    if handler is None or logging.getLogger().handlers:
        yield
        return
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@asynccontextmanager
async def reading(options: argparse.Namespace) -> AsyncIterator[ControlClient | Reading]:
    """A node to read from: takes no lock."""
    running = await _running(_unread_home(options))
    if running is not None:
        yield running
        return
    from meshnode.node.reads import open_reading

    async with open_reading(loaded_home(options)) as operations:
        yield operations


@asynccontextmanager
async def looking(options: argparse.Namespace) -> AsyncIterator[Operations]:
    """The same, where more than the store is read."""
    running = await _running(_unread_home(options))
    if running is not None:
        yield running
        return
    from meshnode.node.local import open_local

    async with open_local(loaded_home(options), writing=False) as operations:
        yield operations


@asynccontextmanager
async def writing(options: argparse.Namespace, verb: str, *, taking_back: bool = False) -> AsyncIterator[Operations]:
    """A node to write to: waits for the home's lock, looking for the control socket of a starting node meanwhile."""
    from meshnode.control.client import ControlClient

    home = _unread_home(options)
    found = await lock_or(home.lock_path, verb, lambda: ControlClient.connect(home))
    if isinstance(found, ControlClient):
        yield found
        return
    from meshnode.node.local import open_local

    with found:
        async with open_local(loaded_home(options), writing=True, taking_back=taking_back) as operations:
            yield operations


async def _running(home: Home) -> ControlClient | None:
    """The node that runs here; nothing is loaded for asking where none left an address."""
    if control_address(home) is None:
        return None
    from meshnode.control.client import ControlClient

    return await ControlClient.connect(home)


@asynccontextmanager
async def configuring(options: argparse.Namespace, verb: str | None) -> AsyncIterator[tuple[Home, Operations | None]]:
    """A home for its settings, which may be what has to be mended, and its node if one runs.

    With a verb, whoever else changes something here is waited for.
    """
    from meshnode.control.client import ControlClient

    home = _unread_home(options)
    found = await _running(home)
    if verb is None or found is not None:
        yield home, found
        return
    taken = await lock_or(home.lock_path, verb, lambda: ControlClient.connect(home))
    if isinstance(taken, ControlClient):
        yield home, taken
        return
    with taken:
        yield home, None


@asynccontextmanager
async def resting(options: argparse.Namespace, verb: str) -> AsyncIterator[Home]:
    """A home, locked: no node runs there, and none starts meanwhile."""
    home = loaded_home(options)
    with await lock_alone(home.lock_path, verb):
        yield home


@asynccontextmanager
async def new_home(options: argparse.Namespace, verb: str) -> AsyncIterator[Home]:
    """A home in which no node lives yet, locked while a mesh is founded or joined in it."""
    home = home_of(options)
    home.refuse_founded()
    home.prepare()
    with await lock_alone(home.lock_path, verb):
        home.refuse_founded()  # somebody else may have been faster
        yield home
