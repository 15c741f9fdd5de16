"""How a running node takes over its settings: when it is told to, and when the file was saved (NEOTH configuration)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from meshnode.engine.engine import Engine
from meshnode.errors import ConfigError, MeshError
from meshnode.model.logevent import LogEvent, log_event
from meshnode.model.site import site_text
from meshnode.node.config import Config
from meshnode.node.configfile import FileChange, load_said, read_text
from meshnode.node.configtext import Said, said_in
from meshnode.node.configuring import Configuring, config_view, receipt_of
from meshnode.node.configviews import ConfigReceipt, ConfigView, ReloadView
from meshnode.node.home import Home
from meshnode.node.inforce import InForce, digest_of
from meshnode.node.storage import Storage
from meshnode.node.watching import watch_file
from meshnode.store import notices
from meshnode.store.database import Tx

LOG = logging.getLogger("meshnode.config")
REFUSED = "config-refused"  # the notice that stands while the file cannot be used


class Reloading(Configuring):
    """These operations over the settings of a run, which `_begin` starts with."""

    def __init__(self, home: Home, storage: Storage | None) -> None:
        super().__init__(home, storage)
        self._force: InForce | None = None
        self._refused: str | None = None  # why the file is not taken, as it was said last; None: an earlier run knows
        self._trouble = ""  # why what it says is not in force, likewise
        self._switching = asyncio.Lock()

    async def config(self) -> ConfigView:
        """Every setting of this run."""
        return config_view(str(self.home.config_path), await self._in_force(), self._site())

    async def reload(self) -> ReloadView:
        """Read `config.toml` again, and take over what is live; what was started with stands where that is no other."""
        async with self._switching:
            return await self._reload(())

    async def watch_settings(self) -> None:
        """Until it is cancelled: take over the file whenever it was saved. One that cannot be used is a notice."""
        await watch_file(self.home.config_path, self._saved)

    # --- for the node

    async def _follow(self, config: Config, changed: Sequence[str]) -> None:
        """These settings are in force from now on; those named were other ones."""
        raise NotImplementedError

    def _site(self) -> str:
        return site_text(self.storage.engine.context.site)

    # --- how

    async def _begin(self, given: Config | None) -> Config:
        self._force = InForce.begin(await asyncio.to_thread(load_said, self.home.config_path), given)
        return self._force.config

    async def _in_force(self) -> InForce:
        self.refuse_ended()
        assert self._force is not None
        return self._force

    async def _changing(self, change: Callable[[], FileChange], named: frozenset[str] | None) -> ConfigReceipt:
        async with self._switching:
            done = await asyncio.to_thread(change)
            try:
                answer = await self._reload(done.after.named if named is None else named)
            except MeshError as error:  # the file is as it was asked for: the receipt says that no more is
                log_event(LOG, logging.ERROR, LogEvent.CONFIG_REFUSED, reason=f"not in force yet: {error}")
                answer = ReloadView(site=self._site(), digest="")
            else:
                say_reloaded(answer)
            return receipt_of(done, answer)

    async def _reload(self, named: Iterable[str]) -> ReloadView:
        """The file as it is on the disk, so that the answer is about that and nothing else."""
        try:
            said = await asyncio.to_thread(self._read)
        except ConfigError as error:
            await self._refuse(str(error))
            raise
        force, changed = (await self._in_force()).taking(said, named)
        if changed:
            await self._follow(force.config, changed)
        self._force = force  # the home keeps what it began with: where the database is, for one
        await self._accept()
        return ReloadView(
            site=self._site(),
            digest=digest_of(said.config),
            changed=tuple(changed),
            restart_required=force.pending,
            overridden=force.overridden,
        )

    def _read(self) -> Said:
        path = self.home.config_path
        text = read_text(path)
        if text is None:
            raise ConfigError(f"{path} is missing: write it again, or the next start has the default of every setting")
        return said_in(text, str(path))

    async def _saved(self) -> bool:
        before = self._force
        try:
            answer = await self.reload()
        except ConfigError:
            return True  # the notice says why
        except MeshError as error:
            if self._trouble != str(error):
                log_event(LOG, logging.ERROR, LogEvent.CONFIG_REFUSED, reason=f"not in force yet: {error}")
            self._trouble = str(error)
            return False
        self._trouble = ""
        if self._force == before:
            return True
        say_reloaded(answer)
        return True

    # --- the notice

    async def _refuse(self, why: str) -> None:
        if self._refused == why:
            return
        text = f"{why}; what was in force before stays so"
        await self._transact(lambda tx, engine: engine.context.surface(tx, REFUSED, None, text))
        self._refused = why

    async def _accept(self) -> None:
        """An earlier run may have left the notice, and its owner mended the file before this one."""
        stands = self._refused != ""
        if self._refused is None:
            stands = await self.storage.read(lambda tx: notices.stands(tx, REFUSED))
        if stands:
            await self._transact(lambda tx, _engine: notices.end(tx, REFUSED))
        self._refused = ""

    async def _transact(self, job: Callable[[Tx, Engine], None]) -> None:
        await self.storage.write(lambda engine: engine.context.transact(lambda tx: job(tx, engine)))


def say_reloaded(answer: ReloadView) -> None:
    """One line of the log, whatever it was that had the file read again."""
    changed, waiting = ",".join(answer.changed), ",".join(answer.restart_required)
    log_event(LOG, logging.INFO, LogEvent.CONFIG_RELOADED, changed=changed, restart_required=waiting)
