"""The links of an endpoint: who is let in, how many, and which of two to one site stays (profile §7, §8).

A link becomes *live* when its peer is a member; there is one live link per site. Further ones are decided upon at once,
or stand by: crossed ones until a PING is answered, a second one of our own dialing until the acceptor closed one of the
two, since handshakes can finish in another order at each end and both would close the other's choice. None stands by
for longer than it takes to see that the older one is dead: how long it acknowledged nothing before counts. A
replaced link is over for the node at once, but its connection stays for the moment it takes to see whether two
processes answer for one site (a twin).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from meshnode.errors import CloseCode
from meshnode.net.duplicates import Keep, decide
from meshnode.net.endpoint_config import EndpointConfig
from meshnode.net.endpoint_connection import Connection
from meshnode.net.endpoint_notices import NoticeBoard
from meshnode.net.endpoint_ports import TOO_MANY_PEERS, Ending
from meshnode.net.link import Link
from meshnode.net.neighbours import surplus, too_many

_REPLACED = "replaced by another link to the same site"
_LEAST_S = 0.25  # seconds an older link always gets: its answers may wait here, where this process stood still


class LinkRegistry:
    """Live links by site, links that wait for a decision, and replaced ones that are still listened to."""

    def __init__(
        self, own_site: bytes, config: EndpointConfig, notices: NoticeBoard, hand_over: Callable[[Link], None]
    ) -> None:
        self._own_site = own_site
        self._config = config
        self._most = config.live_links
        self._notices = notices
        self._hand_over = hand_over
        self._live: dict[bytes, Link] = {}
        self._standby: dict[bytes, list[Link]] = {}
        self._replaced: dict[bytes, Connection] = {}
        self._boots: dict[Link, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = False

    def live(self) -> list[Link]:
        """Every live link."""
        return list(self._live.values())

    def link_to(self, site: bytes) -> Link | None:
        """The live link to a site."""
        return self._live.get(site)

    def allow(self, most: int) -> None:
        """So many live links from now on."""
        self._most = most
        for site in too_many(self._own_site, self._live, most):
            self._give_way(site, "this node has fewer links now")

    def stop(self) -> None:
        """No more decisions, and no more live links."""
        self._stopped = True
        for task in self._tasks:
            task.cancel()

    def enter(self, link: Link) -> None:
        """A member's link wants to be live."""
        older = self._live.get(link.site)
        if older is None:
            self._make_live(link)
            return
        keep = decide(
            self._own_site,
            link.site,
            older_opened_by_us=older.opened_by_us,
            newer_opened_by_us=link.opened_by_us,
            overlapping=link.connection.begun < older.begun,
        )
        if keep is Keep.NEWER:
            self._replace(older, link)
            return
        self._standby.setdefault(link.site, []).append(link)
        self._spawn(self._decide(older, link, keep))

    def boot_known(self, link: Link) -> None:
        """The node read the boot id of a link."""
        event = self._boots.get(link)
        if event is not None:
            event.set()

    def ended(self, link: Link) -> None:
        """A link is over, for whatever reason."""
        waiting = self._standby.get(link.site, [])
        if link in waiting:
            waiting.remove(link)
        if self._live.get(link.site) is link:
            del self._live[link.site]
            self._enter_again(link.site)

    def _enter_again(self, site: bytes) -> None:
        """The live link is another or gone: ask anew about those that stand by."""
        for waiting in self._standby.pop(site, []):
            if not self._stopped and not waiting.closed:
                self.enter(waiting)

    def _make_live(self, link: Link) -> None:
        if not self._has_place(link):
            return
        self._live[link.site] = link
        link.live = True
        self._hand_over(link)

    def _has_place(self, link: Link) -> bool:
        """Whether a link may be live beside the others, one of which may have to go for it."""
        most = self._most
        goes = surplus(self._own_site, self._live, link.site, most)
        if goes is None:
            return True
        if not self._config.yields or goes == link.site:
            if not self._config.yields:
                self._notices.post("too-many-peers", link.site, f"{most} links are live; one more was refused")
            link.close(CloseCode.LIMIT, TOO_MANY_PEERS)
            return False
        self._give_way(goes, "nearer members need the place")
        return True

    def _give_way(self, site: bytes, why: str) -> None:
        farther = self._live.pop(site)
        farther.live = False
        farther.close(CloseCode.LIMIT, why)

    async def _decide(self, older: Link, newer: Link, keep: Keep) -> None:
        """A dead older link gives way whatever the rule says, which is about living ones that are no twins' (§7)."""
        loop, ping_s = asyncio.get_running_loop(), self._config.duplicate_ping_s
        due = loop.time() + ping_s
        one_start = older.spki == newer.spki  # a start has one TLS key
        if keep is Keep.NEWER_IF_ALIVE and one_start:
            alive = await newer.ping(ping_s)
            self._settle(newer if alive else older, older if alive else newer)
            return
        if not await older.ping(max(min(_LEAST_S, ping_s), ping_s - older.unanswered_s)):
            self._settle(newer, older)
            return
        if keep is not Keep.OLDER_IF_ALIVE or not one_start:
            await asyncio.sleep(due - loop.time())  # for the acceptor of both to close one, for the boot ids of two
        if not one_start and await self._are_twins(older, newer):
            return
        if keep is Keep.OLDER_IF_ALIVE:
            self._settle(older, newer)
        else:
            self._settle(newer, older)

    async def _are_twins(self, one: Link, other: Link) -> bool:
        """Two boot ids of one site on links that both answer after a while: both processes are told (profile §8)."""
        boots = {one.said_boot, other.said_boot}
        if None in boots or len(boots) == 1:
            return False
        alive = await asyncio.gather(*(link.ping(self._config.duplicate_ping_s) for link in (one, other)))
        if not all(alive):
            return False
        self._notices.post("twin", one.site, "two running processes answer for this site")
        for link in (one, other):
            link.close(CloseCode.TWIN, "another process answers for this site")
        return True

    def _settle(self, kept: Link, ended: Link) -> None:
        """Keep one of two links, unless one of them is over or the question was asked anew about others."""
        live, waiting = self._live.get(kept.site), self._standby.get(kept.site, [])
        if live is ended and kept in waiting:
            waiting.remove(kept)
            self._replace(ended, kept)
        elif live is kept and ended in waiting:
            waiting.remove(ended)
            ended.close(CloseCode.DUPLICATE, _REPLACED)

    def _replace(self, older: Link, newer: Link) -> None:
        """The node has done with `older` now; its connection ends when the twin question is answered."""
        connection = older.connection
        previous = self._replaced.pop(older.site, None)
        if previous is not None:
            previous.close(CloseCode.DUPLICATE, _REPLACED)
        self._live.pop(older.site, None)
        older.live = False
        connection.sink = None
        older.ended(Ending(CloseCode.DUPLICATE, _REPLACED, local=True))
        if older.boot is None:
            connection.close(CloseCode.DUPLICATE, _REPLACED)
        else:
            self._replaced[older.site] = connection
            self._spawn(self._look_for_twin(connection, older.boot, newer))
        self._make_live(newer)
        self._enter_again(newer.site)

    async def _look_for_twin(self, connection: Connection, boot: bytes, newer: Link) -> None:
        """Two boot ids of one site, and the older still answers a PING 2 s after the newer came: twins (profile §8)."""
        known = self._boots[newer] = asyncio.Event()
        loop = asyncio.get_running_loop()
        due = loop.time() + self._config.duplicate_ping_s
        code = CloseCode.DUPLICATE
        try:
            async with asyncio.timeout_at(due):
                await known.wait()
        except TimeoutError:
            pass
        finally:
            self._boots.pop(newer, None)
        if newer.boot is not None and newer.boot != boot:
            await asyncio.sleep(due - loop.time())
            if await connection.pulse.ping(self._config.duplicate_ping_s):
                code = CloseCode.TWIN
                self._notices.post("twin", newer.site, "two running processes answer for this site")
                newer.close(code, "another process answers for this site")
        connection.close(code, _REPLACED if code is CloseCode.DUPLICATE else "another process answers for this site")
        if self._replaced.get(newer.site) is connection:
            del self._replaced[newer.site]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
