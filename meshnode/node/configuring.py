"""What a node is asked about its settings; over the file alone, where no node runs (NEOTH configuration)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from meshnode.errors import ConfigError, NotFoundError
from meshnode.model.wording import quoted
from meshnode.node.config import POLICY, SETTINGS, Config, PolicyName, PolicyValue
from meshnode.node.configfile import FileChange, change_settings, load_said, replace_settings
from meshnode.node.configviews import BeforeAfter, ConfigReceipt, ConfigView, ReloadView
from meshnode.node.inforce import InForce, digest_of
from meshnode.node.reads import Reading
from meshnode.node.views import PolicyView


class Configuring(Reading):
    """These operations on a node's `config.toml`, for whoever holds its lock; the running node takes over what changes.

    Every change goes this way, whatever verb or call it comes from.
    """

    async def config(self) -> ConfigView:
        """Every setting: what is in force, where that comes from, and what waits."""
        return config_view(str(self.home.config_path), await self._in_force())

    async def set_config(self, values: Mapping[str, Any]) -> ConfigReceipt:
        """Change some settings, all of them or none."""
        return await self._changing(lambda: change_settings(self.home.config_path, values), frozenset(values))

    async def apply_config(self, text: str) -> ConfigReceipt:
        """Put a whole `config.toml` in place: what it does not name is a default again."""
        return await self._changing(lambda: replace_settings(self.home.config_path, text), None)

    async def reload(self) -> ReloadView:
        """Only a running node has taken over settings."""
        raise NotFoundError("no node runs here: what config.toml says is in force from its next start on")

    async def set_policy(self, setting: PolicyName, value: PolicyValue) -> PolicyView:
        """Change one setting of the policy."""
        if setting not in POLICY:
            raise ConfigError(f"there is no policy {quoted(setting)}: it has {', '.join(POLICY)}")
        whole = [*value] if isinstance(value, Sequence) and not isinstance(value, str | bytes) else value
        await self.set_config({setting: whole})
        return await self.policy()

    # --- for the running node to refine

    async def _in_force(self) -> InForce:
        return InForce.begin(await asyncio.to_thread(load_said, self.home.config_path))

    async def _settings_now(self) -> Config:
        return (await self._in_force()).config

    async def _changing(self, change: Callable[[], FileChange], _named: frozenset[str] | None) -> ConfigReceipt:
        """`_named` are the settings that somebody asked for, None for every one that the file names."""
        done = await asyncio.to_thread(change)
        self.home.config = done.after.config
        if self._storage is not None:
            await self._put_in_force(done.after.config)
        return receipt_of(done)

    async def _put_in_force(self, config: Config) -> None:
        """What crosses is kept in the store as well."""


def config_view(file: str, force: InForce, site: str = "") -> ConfigView:
    """`site` is that of the node that runs, if one does."""
    return ConfigView(
        file=file,
        running=bool(site),
        site=site,
        digest=digest_of(force.said.config),
        restart_required=force.pending,
        settings=tuple(force.view(name) for name in SETTINGS),
    )


def receipt_of(done: FileChange, answer: ReloadView | None = None) -> ConfigReceipt:
    """`answer` is the running node's; without one, what is stopped waits for no new start (NEOTH)."""
    before, after, digest = done.before, done.after.config, digest_of(done.after.config)
    return ConfigReceipt(
        changed={
            name: BeforeAfter(before=getattr(before, name), after=getattr(after, name))
            for name in SETTINGS
            if getattr(before, name) != getattr(after, name)
        },
        reloaded=answer is not None and answer.digest == digest,
        restart_required=() if answer is None else answer.restart_required,
        overridden=() if answer is None else answer.overridden,
        digest=digest,
        site="" if answer is None else answer.site,
    )
