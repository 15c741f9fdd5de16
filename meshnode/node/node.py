"""Node: one device of the mesh as an async context manager, the thing that people embed and that `meshnode up` runs."""

from __future__ import annotations

import asyncio
import gc
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self, TypeVar, Unpack

import msgspec

from meshnode.engine.authority import refuse_leaving
from meshnode.engine.engine import Engine
from meshnode.engine.policy import PolicyChange
from meshnode.engine.publishing import may_publish
from meshnode.errors import BusyError, CloseCode, ClosedError, NotFoundError, UsageError
from meshnode.limits import INVITE_TTL_MS, NEARBY_LONGEST_MS, NEARBY_TTL_MS
from meshnode.model.membership import Membership
from meshnode.model.site import SiteKey, site_text
from meshnode.node import admitting, members
from meshnode.node.api import LEAVE_S
from meshnode.node.background import to_the_end
from meshnode.node.bell import Bell
from meshnode.node.capturing import sign_captured
from meshnode.node.config import Config
from meshnode.node.databases import database_of
from meshnode.node.discovering import CUT_OFF
from meshnode.node.doctor.patient import Patient
from meshnode.node.embedding import WAIT_LOOK_S, Embedding
from meshnode.node.founding import found
from meshnode.node.home import Home
from meshnode.node.homepath import default_home
from meshnode.node.identity import finish_renewal
from meshnode.node.interfaces import addresses_of, selection_of
from meshnode.node.keeping import keep_house
from meshnode.node.local import LocalNode
from meshnode.node.lock import LOCK_WAIT_S, HomeLock, lock_alone
from meshnode.node.memberviews import LeaveView
from meshnode.node.metrics import Now, kept, link_numbers, metrics_of
from meshnode.node.metricviews import MetricView
from meshnode.node.moved import refuse_moved
from meshnode.node.nearby_mode import PairingMode
from meshnode.node.network import Network
from meshnode.node.opening import Settings, Wanted, database_path, path_of, refuse_other_mesh, take_database
from meshnode.node.overview import SOFTWARE
from meshnode.node.pairing_views import InviteView, NearbyView
from meshnode.node.peering import Heard
from meshnode.node.reloading import Reloading
from meshnode.node.settings import NetworkSettings
from meshnode.node.storage import Storage, wall_ms
from meshnode.node.surroundings import MDNS_OFF, TOLD_OFF, Surroundings
from meshnode.node.verifying import Verification, named_peer
from meshnode.node.verifyviews import VerifyProgress, VerifyReport
from meshnode.node.views import HOW_TO_CHOOSE, Status, parse_table
from meshnode.store.database import Tx

T = TypeVar("T")


class Node(Embedding, Reloading, LocalNode):
    """A running node: `async with Node.open(folder) as node:`. One event loop only; see `BlockingNode` for threads.

    `config` stands for all that `config.toml` says, and `lock` is the home's lock where the caller took it already; the
    rest is said of `open`. Every method raises errors of `meshnode.errors` and no others: ClosedError before the node
    was entered, after it was left, and in a forked process.
    """

    def __init__(
        self,
        home: Home | str | os.PathLike[str] | None = None,
        *,
        config: Config | None = None,
        lock: HomeLock | None = None,
        patience_s: float = LOCK_WAIT_S,
        freeze: bool = False,
        wanted: Wanted | None = None,
    ) -> None:
        if not isinstance(home, Home):
            home = Home(default_home() if home is None else path_of(home, "home"))
        super().__init__(home, None)
        self._wanted = wanted or Wanted(config)
        self._entered = False
        self._freeze = freeze
        self._patience_s = patience_s
        self._lock = lock
        self._network: Network | None = None
        self._started_ms = 0
        self._closed = asyncio.Event()
        self._last_heard: Mapping[bytes, Heard] = {}
        self._chores: list[asyncio.Task[None]] = []
        self._nearby: PairingMode | None = None

    # --- life

    @classmethod
    def open(
        cls,
        home: Home | str | os.PathLike[str] | None = None,
        *,
        database: str | os.PathLike[str] | None = None,
        invite: str = "",
        patience_s: float = LOCK_WAIT_S,
        freeze: bool = True,
        **settings: Unpack[Settings],
    ) -> Self:
        """A node of this device, to be entered: `async with Node.open(name="desk") as node:`.

        `home` is the folder of its keys and settings (default: `MESHNODE_HOME`, else the platform's data folder).
        `database` is the program's own SQLite file, for the node to keep its tables in; one in the home otherwise.
        Where no node lives yet, entering joins the mesh of `invite`, or without one founds a mesh; where one does, an
        invite to another mesh is a UsageError. `settings` are those of `config.toml`, for this run. `freeze` calls
        `gc.freeze()` once in a process, when the first node is open: what is loaded by then is not looked through by
        every full garbage collection any more, which would hold all threads up for 40 ms and more while much comes in.

        Entering raises BusyError where another process, or another Node, has the home and keeps it for `patience_s`
        seconds, ConfigError for settings that cannot be, InviteError and PairingError for an invite that leads
        nowhere, StoreError or TransportError where the database or the UDP port cannot be used.
        """
        wanted = Wanted(None, settings, database_path(database), invite)
        return cls(home, patience_s=patience_s, freeze=freeze, wanted=wanted.refused())

    async def __aenter__(self) -> Self:
        if self._entered:
            raise ClosedError("a Node is entered once: open its home again by another one")
        self._entered, self._loop = True, asyncio.get_running_loop()
        if self._wanted.invite and not self.home.founded:
            await self._join()
        await asyncio.to_thread(self.home.prepare)
        self._lock = self._lock or await lock_alone(self.home.lock_path, "an embedded Node", wait_s=self._patience_s)
        try:
            await self._open()
        except BaseException:
            await self._shut()
            raise
        if self._freeze and not gc.get_freeze_count():  # again would keep what earlier nodes left
            gc.freeze()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._shut()

    async def close(self) -> None:
        """Leave the node: say goodbye to its links, finish what is being written. Again is nothing more."""
        self._entered = True
        await self._shut()

    async def wait_closed(self) -> None:
        """Until the node has been left."""
        await self._closed.wait()

    async def _join(self) -> None:
        from meshnode.node.joining import join  # of no use to most nodes

        await asyncio.to_thread(self.home.prepare)
        await to_the_end(lambda: take_database(self.home, self._wanted.database))
        name = self._wanted.settings.get("name", self.home.config.name)
        await join(self.home, self._wanted.invite, name=name)

    async def _found(self) -> None:
        self.home.refuse_joining()
        await to_the_end(lambda: take_database(self.home, self._wanted.database))
        given = self._wanted.settings_of(self.home)
        await found(self.home, name=(given and given.name) or self.home.config.name or platform.node() or "meshnode")

    def _ready(self) -> SiteKey:
        take_database(self.home, self._wanted.database)
        self.home = self.home.reloaded()
        finish_renewal(self.home)
        refuse_moved(self.home)
        return self.home.site_key()

    async def _open(self) -> None:
        if not self.home.founded:
            await self._found()
        key = self._ready() if self.home.passphrase.may_ask else await to_the_end(self._ready)
        config = await self._begin(self._wanted.settings_of(self.home))
        self._storage = await asyncio.to_thread(lambda: Storage.open(database_of(self.home, key), key))
        engine = self.storage.engine
        if self._wanted.invite:
            refuse_other_mesh(self._wanted.invite, engine.context.mesh_id)
        self._settings = NetworkSettings(
            key=key,
            mesh_id=engine.context.mesh_id,
            name=config.name or self.home.config.name or platform.node(),
            software=SOFTWARE,
            config=msgspec.structs.replace(config, port=config.port or self.home.port),
            port_asked=config.port not in (0, self.home.port),
            publishing=await self._may_publish(),
        )
        await self._put_in_force(config)
        self._started_ms = wall_ms()
        await self._connect()
        engine.context.silent = self._recovering
        self._chores = [
            asyncio.create_task(keep_house(self.storage), name="meshnode-house"),
            asyncio.create_task(sign_captured(self.storage, self._log_grew), name="meshnode-capture"),
            asyncio.create_task(self.watch_settings(), name="meshnode-settings"),
        ]
        if not self._settings.publishing:
            await self._warn_of_copy()

    async def _shut(self) -> None:
        self._closed.set()
        for chore in self._chores:
            chore.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)
        await self._disconnect()
        if self._storage is not None:
            self._storage.changed.ring()
            await self._storage.close()
        if self._lock is not None:
            self._lock.release()

    async def _connect(self) -> None:
        self._settings = replace(self._settings, publishing=await self._may_publish())
        network = Network(self._settings, self.storage)
        await network.start()
        self._network = network

    async def _disconnect(self) -> None:
        await self._close_nearby("the node stopped")
        network, self._network = self._network, None
        if network is not None:
            self._last_heard = {site: replace(each, linked=False) for site, each in network.heard.items()}
            await network.stop(CloseCode.SHUTTING_DOWN, "shutting down")

    async def _warn_of_copy(self) -> None:
        """The database was copied or restored alone (profile §8): say so, and offer nothing until somebody chose."""
        assert self._network is not None
        text = f"the database may be a copy, so nothing is offered to others until its owner chose: {HOW_TO_CHOOSE}"
        await self._network.jobs.surface("incarnation", None, text)

    # --- what a running node does otherwise

    async def status(self) -> Status:
        """How the node is."""
        status = await super().status()
        network = self._network
        return msgspec.structs.replace(
            status,
            running=True,
            online=network is not None,
            name=self._settings.name,
            pid=os.getpid(),
            port=network.port if network else self._settings.config.port,
            addresses=self._invite_addresses(),
            started_ms=self._started_ms,
            publishing=network.publishing if network else self._settings.publishing,
            discovery=network.finder.state if network else "off",
            discovery_off=await self._what_turned_mdns_off() if network else "",
            skipped_interfaces=dict(network.finder.selection.skipped) if network else {},
            restart_required=list((await self._in_force()).pending),
        )

    async def metrics(self) -> list[MetricView]:
        """What is measured of the node; whoever scrapes keeps no other reader waiting."""
        network, heard = self._network, self._heard()
        links = {driver.peer: link_numbers(driver) for driver in network.live()} if network is not None else {}
        now = Now(links, network.handshaking if network is not None else 0, self.storage.jobs_waiting())
        stored = await self.storage.read_apart(lambda tx: kept(self._mesh(tx, heard)))
        return metrics_of(stored, self.home.database_path, self.storage.meter, now)

    async def invite(self, ttl_ms: int = INVITE_TTL_MS, *, confirm: bool = False) -> InviteView:
        """Open an invite and answer whoever comes with it."""
        self.refuse_ended()
        view = await super().invite(ttl_ms, confirm=confirm)
        if self._network is not None:
            self._network.invite_opened(view.expires_ms)
        return view

    async def nearby_open(self, ttl_ms: int = NEARBY_TTL_MS) -> NearbyView:
        """Let nearby devices pair, for a short time; opened again, what was under way ends."""
        self.refuse_ended()
        if not 0 < ttl_ms <= NEARBY_LONGEST_MS:
            raise UsageError(f"it can be open for at most {NEARBY_LONGEST_MS // 60_000} minutes")
        founder = await self.storage.write(admitting.founder_of_mine)
        async with self._switching:
            await self._close_nearby("it was opened again")
            if self._network is None:
                raise UsageError("this node is cut off from others on purpose: let it talk again first")
            self._nearby = PairingMode(self._settings, founder, self._network, self.storage.changed.ring)
            await self._nearby.open(ttl_ms)
            return self._nearby.view

    async def nearby(self, *, seen: str = "", timeout_s: float = 0.0) -> NearbyView:
        """How far that is, as soon as it is not `seen`."""
        _ = self.storage
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while True:
            rung = self.storage.changed.listen()
            view = NearbyView(state="closed") if self._nearby is None else self._nearby.view
            left = end - loop.time()
            if view.state != seen or left <= 0 or self._ended():
                return view
            await Bell.wait(rung, left)

    async def nearby_answer(self, code: str, *, yes: bool) -> NearbyView:
        """The word of the person here on the digits."""
        self.refuse_ended()
        if self._nearby is None:
            raise NotFoundError("this device was not opened to nearby ones: `meshnode nearby --open`")
        return self._nearby.answer(code, yes)

    async def nearby_close(self) -> NearbyView:
        """Let nobody pair any more."""
        self.refuse_ended()
        await self._close_nearby("closed here")
        return await self.nearby()

    async def _close_nearby(self, reason: str) -> None:
        if self._nearby is not None:
            await self._nearby.close(reason)

    async def leave(self, *, timeout_s: float = LEAVE_S) -> LeaveView:
        """Retire this device once the linked members have what it wrote, and wait until they have turned it away."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        await self.storage.write(lambda engine: refuse_leaving(engine.context))
        if self._linked():
            await self.wait(timeout_s=timeout_s, live_only=True)
        left = await self._sign(members.leave)
        while True:
            rung = self.storage.changed.listen()
            told = self._network.turned_away_by if self._network is not None else frozenset()
            patience = end - loop.time()
            if self._linked() <= told or patience <= 0 or self._ended():
                return msgspec.structs.replace(left, untold=await self._untold(set(map(site_text, told))))
            await Bell.wait(rung, min(patience, WAIT_LOOK_S))

    async def verify(
        self,
        peer: str,
        *,
        table: str | None = None,
        repair: bool = False,
        tell: Callable[[VerifyProgress], None] | None = None,
    ) -> VerifyReport:
        """Compare with a linked member, over the link that stands."""
        only = None if table is None else parse_table(table)
        site, name = await self.storage.read(lambda tx: named_peer(tx, self._others(tx, peer)))
        if self._network is None:
            raise UsageError("this node is cut off from others on purpose: let it talk again first")
        comparing = Verification(self._network, self.storage, site, name, only, tell or (lambda _progress: None))
        return await comparing.run(repair=repair)

    async def set_online(self, online: bool) -> None:
        """Cut this node off, or let it talk again; local reads and writes go on."""
        self.refuse_ended()
        async with self._switching:
            if online and self._network is None:
                await self._connect()
            elif not online:
                await self._disconnect()

    # --- what LocalNode leaves open

    async def _patient(self) -> Patient:
        return replace(await super()._patient(), running=True)

    def _linked(self) -> frozenset[bytes]:
        return self._network.linked if self._network is not None else frozenset()

    def _own_name(self) -> str:
        return self._settings.name

    async def _took_in(self, *, membership_changed: bool, answered: bool = False) -> None:
        if self._network is not None:
            if answered:
                self._network.answered()
            if membership_changed:
                await self._network.membership_changed()
            self._network.log_grew()

    async def _follow(self, config: Config, changed: Sequence[str]) -> None:
        others = {name: getattr(config, name) for name in changed}
        await self._put_in_force(config)
        self._settings = replace(self._settings, config=msgspec.structs.replace(self._settings.config, **others))
        if self._network is not None:
            await self._network.follow(self._settings.config)

    async def _policy_changed(self, change: PolicyChange) -> None:
        if self._network is not None and change.any:
            await self._network.policy_changed(change)

    def _membership(self, _tx: Tx) -> Membership:
        return self.storage.engine.context.membership

    def _heard(self) -> Mapping[bytes, Heard]:
        return self._network.heard if self._network is not None else self._last_heard

    def _hurry(self) -> None:
        if self._network is not None:
            self._network.hurry()

    def _poll_s(self) -> float | None:
        return None

    def _ended(self) -> bool:
        return self._closed.is_set()

    def _invite_addresses(self) -> list[str]:
        port = self._network.port if self._network is not None else self._settings.config.port
        return addresses_of(self._settings.config, port)

    async def _look_around(self, seconds: float) -> tuple[Surroundings, str]:
        if self._network is None:
            return Surroundings(CUT_OFF, selection_of(self._settings.config), deaf=CUT_OFF), CUT_OFF
        around = await self._network.finder.look(seconds)
        off = await self._what_turned_mdns_off()
        return replace(around, deaf=off or around.deaf), ""

    async def _what_turned_mdns_off(self) -> str:
        """The settings, or whoever started the node; nothing while it is on."""
        force = await self._in_force()
        if force.config.mdns_enabled:
            return ""
        return TOLD_OFF if "mdns_enabled" in force.overridden else MDNS_OFF

    async def _wake(self, sites: Sequence[bytes]) -> None:
        if self._network is not None:
            await self._network.wake(sites)

    async def _may_publish(self) -> bool:
        beside = self.home.incarnation()
        return await self.storage.read(lambda tx: may_publish(tx, beside))

    async def _resumed(self) -> None:
        self._settings = replace(self._settings, publishing=True)
        if self._network is not None:
            await self._network.resumed()

    async def _sign(self, job: Callable[[Engine], T]) -> T:
        result = await self._write(job)
        if self._network is not None:
            await self._network.membership_changed()
            self._network.log_grew()
        return result

    async def _let_in(self) -> None:
        if self._network is not None:
            await self._network.joined()

    async def _ask(self) -> None:
        if self._network is not None:
            await self._network.ask()

    def _recovering(self) -> bool:
        return self._network is not None and self._network.recovering

    def _log_grew(self) -> None:
        if self._network is not None:
            self._network.log_grew()

    async def _write(self, job: Callable[[Engine], T]) -> T:
        if self._recovering():
            raise BusyError(
                "this node was restored from an older copy and waits for its own history from a peer, half a minute at "
                "most: try again"
            )
        result = await self.storage.write(job)
        self._log_grew()
        await asyncio.sleep(0)  # links ask the writer for what is new before the caller goes on, and builds an answer
        return result
