"""The settings of one run as a value: what is in force, what the file says by now, and what it said at the start."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from meshnode.codec import cbor
from meshnode.codec.digest import blake3_256
from meshnode.node.config import SETTINGS, Config
from meshnode.node.configtext import Said
from meshnode.node.configviews import SettingView

DEFAULT, FILE, COMMAND_LINE = "default", "file", "command line"


@dataclass(frozen=True, slots=True)
class InForce:
    """One moment of it."""

    config: Config  # in force
    said: Said  # what `config.toml` says, as it was read last
    started: Said  # what it said when this run began

    @classmethod
    def begin(cls, said: Said, given: Config | None = None) -> InForce:
        """`given` is what a node was started with instead of the file's settings."""
        return cls(given or said.config, said, said)

    def taking(self, said: Said, named: Iterable[str] = ()) -> tuple[InForce, list[str]]:
        """With what the file says now, and which settings are another by that.

        What is live follows the file where that changed, or where somebody named it; what this run was started with
        stands otherwise, as it does for all that takes a new start.
        """
        asked = set(named)
        follow = [
            name
            for name, setting in SETTINGS.items()
            if setting.live and (name in asked or getattr(said.config, name) != getattr(self.said.config, name))
        ]
        changed = [name for name in follow if getattr(said.config, name) != getattr(self.config, name)]
        config = msgspec.structs.replace(self.config, **{name: getattr(said.config, name) for name in changed})
        return replace(self, config=config, said=said), changed

    @property
    def pending(self) -> tuple[str, ...]:
        """The settings that wait for the next start."""
        return tuple(
            name
            for name, setting in SETTINGS.items()
            if not setting.live and getattr(self.said.config, name) != getattr(self.started.config, name)
        )

    @property
    def overridden(self) -> tuple[str, ...]:
        """The settings that this run was started with, whatever the file says."""
        return tuple(name for name in SETTINGS if self.source(name) == COMMAND_LINE)

    def source(self, name: str) -> str:
        """Where the value that is in force comes from."""
        said = self.said if SETTINGS[name].live else self.started
        if getattr(self.config, name) != getattr(said.config, name):
            return COMMAND_LINE
        return FILE if name in said.named else DEFAULT

    def view(self, name: str) -> SettingView:
        """One setting as people see it."""
        setting = SETTINGS[name]
        return SettingView(
            setting=name,
            value=getattr(self.config, name),
            default=setting.default,
            source=self.source(name),
            applies="live" if setting.live else "restart",
            pending=getattr(self.said.config, name) if name in self.pending else msgspec.UNSET,
            about=setting.about,
        )


def digest_of(config: Config) -> str:
    """The digest of a snapshot: BLAKE3 of all settings in deterministic CBOR."""
    return blake3_256(cbor.encode(settings_dict(config))).hex()


def settings_dict(config: Config) -> dict[str, Any]:
    """Every setting by its name."""
    return {name: getattr(config, name) for name in SETTINGS}
