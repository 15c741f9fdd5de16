"""`Node.open`: settings by name, a mesh to join, a database to live in; made true of the home before it is opened."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import msgspec

from meshnode.errors import ConfigError, StoreError, UsageError
from meshnode.model.invite import parse_invite_untrusted
from meshnode.node.config import Config, checked, with_settings
from meshnode.node.configfile import change_settings
from meshnode.node.databases import is_encrypted
from meshnode.node.home import Home


class Settings(TypedDict, total=False):
    """The settings of `config.toml` by name, for one run; what is not named is as the file says, or its default."""

    name: str
    port: int
    listen: str
    peers: list[str]
    mdns_enabled: bool
    allow_interfaces: list[str]
    deny_interfaces: list[str]
    announce_on_untrusted_wifi: bool
    trusted_ssids: list[str]
    announce_on_unknown_networks: bool
    announce_on_wired_networks: bool
    max_links: int
    metrics_port: int
    dashboard_port: int
    scope: list[str]
    replicate_raw_ingress: bool
    replay_budget_days: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a program opens its node with."""

    config: Config | None = None  # instead of the file
    settings: Mapping[str, Any] = field(default_factory=dict)  # besides it
    database: Path | None = None
    invite: str = ""

    def refused(self) -> Wanted:
        """This, if it can be at all: ConfigError for a setting that is none, or cannot have that value."""
        with_settings(Config(), self.settings)
        if self.config is not None and self.settings:
            raise UsageError("give a whole `config` or single settings, not both")
        if not isinstance(self.invite, str):
            raise UsageError(f"an invite is text, as `(await node.invite()).invite` has it, not {self.invite!r}")
        return self

    def settings_of(self, home: Home) -> Config | None:
        """What stands for the file's settings in this run; None where nothing does."""
        if not self.settings:
            return self.config
        return checked(msgspec.structs.replace(home.config, **self.settings), "Node.open")


def database_path(database: str | os.PathLike[str] | None) -> Path | None:
    """Where an application's database is, whatever folder is the current one later."""
    return None if database is None else path_of(database, "database").expanduser().absolute()


def path_of(given: str | os.PathLike[str], what: str) -> Path:
    """UsageError for what is no path."""
    try:
        return Path(given)
    except TypeError as error:
        raise UsageError(f"`{what}` is a path, not {given!r}") from error


def take_database(home: Home, database: Path | None) -> None:
    """Let the node of this home live in that file; of one that is founded only see that it does. Touches the disk.

    ConfigError where it lives in another, StoreError where it cannot in this one.
    """
    if database is None:
        return
    if not home.founded:
        _refuse_useless(home, database)
        home.config = change_settings(home.config_path, {"database": str(database)}).after.config
    elif home.database_path.resolve() != database.resolve():
        raise ConfigError(
            f"the node in {home.path} keeps its tables in {home.database_path}, not in {database}: open it with that "
            "database, or give this one a home of its own"
        )


def _refuse_useless(home: Home, database: Path) -> None:
    """Before anything is made of a file that no node can live in."""
    if not database.parent.is_dir():
        raise StoreError(f"there is no folder {database.parent} to keep the database {database.name} in: make it first")
    if not home.encrypt and is_encrypted(database):
        raise StoreError(
            f"{database} is no SQLite database, or an encrypted one, in which no node can keep its tables: name "
            "another `database`, or none, and the node has one in its home"
        )


def refuse_other_mesh(invite: str, mesh_id: bytes) -> None:
    """UsageError for an invite to another mesh than the one that this node is in."""
    if parse_invite_untrusted(invite).mesh_id != mesh_id:
        raise UsageError("this device is in another mesh than that of the invite: give a new `home` to join that one")
