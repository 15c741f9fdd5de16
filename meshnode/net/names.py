"""Host names become addresses in threads of their own, in bounded time (profile §11).

A resolver that does not answer holds its thread for half a minute. On the event loop's own threads, of which a small
machine has five or six, a few such names would keep every dial, the store's readers and the end of the process waiting.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from meshnode.errors import TransportError
from meshnode.limits import ADDRESSES_PER_SITE
from meshnode.net.addresses import parse_host

# What `socket.getaddrinfo` answers: family, type, protocol, canonical name, socket address.
Found = tuple[int, int, int, str, tuple[Any, ...]]


class Names:
    """One lookup of a name under way at a time, whoever asks; `look_up` takes the place of the platform's resolver."""

    def __init__(self, look_up: Callable[..., list[Any]] = socket.getaddrinfo) -> None:
        self._look_up = look_up
        self._under_way: dict[tuple[str, int], asyncio.Future[list[Found]]] = {}

    async def resolve(self, host: str, port: int, seconds: float) -> Sequence[Found]:
        """The addresses of a host, as many as are tried of one site; a numeric one has itself, and nobody is asked."""
        try:
            if parse_host(host) is not None:
                return socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST)
            async with asyncio.timeout(seconds):
                found = await asyncio.shield(self._asked(host, port))
        except TimeoutError:
            raise TransportError(f"{named_host(host, port)}: the name was not resolved within {seconds:g} s") from None
        except OSError as error:
            raise TransportError(f"{named_host(host, port)}: {_unresolved(error)}") from error
        return found[:ADDRESSES_PER_SITE]

    def _asked(self, host: str, port: int) -> asyncio.Future[list[Found]]:
        name = (host, port)
        answer = self._under_way.get(name)
        if answer is None:
            loop = asyncio.get_running_loop()
            answer = self._under_way[name] = loop.create_future()
            answer.add_done_callback(lambda done: self._over(name, done))
            # A daemon, since the end of the process does not wait for those.
            threading.Thread(target=self._ask, args=(name, answer, loop), name="resolver", daemon=True).start()
        return answer

    def _over(self, name: tuple[str, int], done: asyncio.Future[list[Found]]) -> None:
        self._under_way.pop(name, None)
        if not done.cancelled():
            done.exception()  # whoever asked may be gone by now

    def _ask(self, name: tuple[str, int], answer: asyncio.Future[list[Found]], loop: asyncio.AbstractEventLoop) -> None:
        found: list[Found] | OSError
        try:
            found = self._look_up(*name, type=socket.SOCK_DGRAM)
        except OSError as error:
            found = error
        except UnicodeError as error:  # of what is no name at all
            found = OSError(socket.EAI_NONAME, str(error))
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_answer, answer, found)


def _answer(answer: asyncio.Future[list[Found]], found: list[Found] | OSError) -> None:
    if answer.done():
        return
    if isinstance(found, OSError):
        answer.set_exception(found)
    else:
        answer.set_result(found)


def named_host(host: str, port: int) -> str:
    """As a person writes it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _unresolved(error: OSError) -> str:
    """Whether the name is wrong, or nobody could be asked."""
    if error.errno == socket.EAI_AGAIN:
        return "the name could not be looked up, no name server answers at the moment: is there a network?"
    if error.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)):
        return "there is no host of that name: is it written right?"
    return f"the name could not be looked up ({error.strerror or error})"
