"""The node's home: keys, configuration, incarnation, lock and control socket (profile §3, §8, §9).

The database may live elsewhere (inside an application's own file), these stay here. While a home is being made it holds
the file `unfinished`: a crash then leaves something that founding or joining can do again, and a home without that file
is never made anew over what it holds.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshnode.errors import ConfigError, IdentityError, NotFoundError, UsageError, reason_of
from meshnode.limits import DEFAULT_PORT
from meshnode.node.cipher import sqlcipher
from meshnode.node.config import Config
from meshnode.node.configfile import change_settings, load_config
from meshnode.node.configtext import config_text
from meshnode.node.homepath import DATABASE
from meshnode.node.keyfile import is_protected, kept_as, read_key, write_key
from meshnode.node.passphrase import Passphrase
from meshnode.node.private import drafts_of, refuse_open_file, refuse_open_folder, sync_folder, write_private

if TYPE_CHECKING:  # libsodium is on no reading verb's start-up path
    from meshnode.model.site import SiteKey

INCARNATION_BYTES = 16  # profile §8
# What `unfinished` says: a mesh is being joined, a device is being moved here; else one is being founded.
JOINING = b"joining\n"
IMPORT = b"import\n"


class Home:
    """Paths of one node's home and what is read from and written to them.

    `passphrase` opens the keys where they are under one, and is what they are put under where a node is made here;
    `encrypt` says whether its database will be encrypted then.
    """

    __slots__ = ("config", "encrypt", "passphrase", "path")

    def __init__(
        self,
        path: str | os.PathLike[str],
        config: Config | None = None,
        *,
        passphrase: Passphrase | str | None = None,
        encrypt: bool = False,
    ) -> None:
        self.encrypt = encrypt
        self.path = Path(path).absolute()
        self.config = load_config(self.config_path) if config is None else config
        self.passphrase = passphrase if isinstance(passphrase, Passphrase) else Passphrase(passphrase)

    @classmethod
    def load(cls, path: Path, *, passphrase: Passphrase | None = None) -> Home:
        """An existing node's home; raises NotFoundError that says how to make one."""
        return cls(path, passphrase=passphrase).reloaded()

    def reloaded(self) -> Home:
        """This home with its settings as they are now; NotFoundError where no node lives here."""
        self.refuse_empty()
        return Home(self.path, passphrase=self.passphrase, encrypt=self.encrypt)

    @property
    def founded(self) -> bool:
        """Whether a mesh was founded or joined here, to the end; files that were lost since do not undo that."""
        traces = (self.incarnation_path, self.site_key_path, self.path / DATABASE)
        try:
            return not self.unfinished_path.exists() and any(path.exists() for path in traces)
        except OSError as error:
            raise ConfigError(
                f"{self.path} cannot be looked into: {error.strerror}; run meshnode as the user whose home it is, or "
                "name another --home"
            ) from error

    @property
    def unfinished_path(self) -> Path:
        """There from the first to the last step of making the home."""
        return self.path / "unfinished"

    @property
    def site_key_path(self) -> Path:
        """The site key, a COSE_Key, or PKCS#8 under a passphrase."""
        return self.path / "site.key"

    @property
    def recovery_key_path(self) -> Path:
        """The recovery key, until its owner moves it away (profile §9)."""
        return self.path / "recovery.key"

    @property
    def config_path(self) -> Path:
        """Settings, written once at founding and the owner's from then on."""
        return self.path / "config.toml"

    @property
    def port_path(self) -> Path:
        """The chosen port, where the settings name none."""
        return self.path / "port"

    @property
    def dashboard_port_path(self) -> Path:
        """The port of loopback that the dashboard had last."""
        return self.path / "dashboard-port"

    @property
    def incarnation_path(self) -> Path:
        """The second copy of the database's incarnation, in hex (profile §8)."""
        return self.path / "incarnation"

    @property
    def database_path(self) -> Path:
        """The SQLite file: `meshnode.db` here, or what the settings name (relative to the home)."""
        if not self.config.database:
            return self.path / DATABASE
        return (self.path / Path(self.config.database).expanduser()).absolute()

    @property
    def socket_path(self) -> Path:
        """The control socket of a running node."""
        return self.path / "control.sock"

    @property
    def token_path(self) -> Path:
        """Port and token of a running node where there is no Unix socket."""
        return self.path / "control.token"

    @property
    def lock_path(self) -> Path:
        """The lock of whoever writes: a running node, or one verb."""
        return self.path / "lock"

    def prepare(self) -> None:
        """Make the folder, for its owner alone; one of no other use that stands open is closed to others."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.name == "posix" and all(each == self.config_path for each in self.path.iterdir()):
                with suppress(PermissionError):  # another's folder: what can be read there is refused below
                    self.path.chmod(0o700)
        except OSError as error:
            raise ConfigError(f"cannot make the node's home {self.path}: {reason_of(error)}") from error
        refuse_open_folder(self.path)

    def refuse_empty(self) -> None:
        """Raise NotFoundError where no node lives yet, UsageError where none can."""
        founded = self.founded
        if self.path.exists() and not self.path.is_dir():
            raise UsageError(f"{self.path} is no folder, so no node lives there: name another --home")
        if not founded:
            raise NotFoundError(f"there is no node in {self.path}: found a mesh with `meshnode init`, or `join` one")

    def refuse_founded(self) -> None:
        """Raise UsageError where a node lives already."""
        if self.founded:
            raise UsageError(f"there is a node in {self.path} already: choose another --home, or use this one")

    def site_key(self) -> SiteKey:
        """Read the site key; refused as well where others can read the one that stands above it."""
        refuse_open_file(self.recovery_key_path)
        return self._read_key(self.site_key_path)

    def recovery_key(self) -> SiteKey:
        """Read the recovery key, if its owner left it here."""
        return self._read_key(self.recovery_key_path)

    def write_site_key(self, seed: bytes) -> SiteKey:
        """Keep a new site key; an unfinished founding's key, where there is one, is kept and returned instead."""
        return self._write_key(self.site_key_path, seed)

    def write_recovery_key(self, seed: bytes) -> SiteKey:
        """Keep a new recovery key, or return the unfinished founding's."""
        return self._write_key(self.recovery_key_path, seed)

    def incarnation(self) -> bytes | None:
        """The incarnation beside the key; None where the file is absent. Raises IdentityError when it is damaged."""
        try:
            text = self.incarnation_path.read_text(encoding="ascii").strip()
            incarnation = bytes.fromhex(text)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise IdentityError(f"cannot read {self.incarnation_path}: {reason_of(error)}") from error
        if len(incarnation) != INCARNATION_BYTES:
            raise IdentityError(f"{self.incarnation_path} is damaged: {INCARNATION_BYTES} bytes in hex belong there")
        return incarnation

    def write_incarnation(self, incarnation: bytes) -> None:
        """Follow a new or renewed database."""
        write_private(self.incarnation_path, incarnation.hex().encode() + b"\n")

    def refuse_joining(self) -> None:
        """Raise UsageError where joining was begun: a mesh is founded there only by somebody who says so."""
        try:
            begun = self.unfinished_path.read_bytes()
        except OSError:
            return
        if begun == JOINING:
            raise UsageError(
                f"joining a mesh was begun in {self.path} and not finished: go on with `meshnode join INVITE`, "
                "with the same invite or another one, or found a mesh of its own with `meshnode init`"
            )

    def begin(self, making: bytes = b"") -> None:
        """From here on the home is being made: of nothing, by joining (`JOINING`) or of a device's file (`IMPORT`).

        Keys that an import had brought before it was cut short are of no mesh that is made here otherwise.
        """
        self.refuse_founded()
        if self.encrypt:
            sqlcipher()  # where it is missing that is said before anything is made
        unfinished = self.unfinished_path.read_bytes() if self.unfinished_path.exists() else b""
        if IMPORT in (making, unfinished):
            self.site_key_path.unlink(missing_ok=True)
            self.recovery_key_path.unlink(missing_ok=True)
        self.sweep()
        write_private(self.unfinished_path, making)

    def sweep(self) -> None:
        """Remove drafts of what was being written when a process was killed, which may hold a key; under the lock."""
        whole = (self.site_key_path, self.recovery_key_path, self.renewed_key_path, self.config_path, self.moved_path)
        for path in (*whole, self.unfinished_path, self.incarnation_path, self.port_path):
            for draft in drafts_of(path):
                draft.unlink(missing_ok=True)

    def finish(self) -> None:
        """The home is whole: from here on it counts as founded."""
        self.unfinished_path.unlink()
        sync_folder(self.path)

    @property
    def moved_path(self) -> Path:
        """There once this device was moved elsewhere (`identity export`)."""
        return self.path / "moved"

    @property
    def port(self) -> int:
        """The UDP port of this node: what the settings say, else what was chosen when it was founded (profile §11)."""
        if self.config.port:
            return self.config.port
        try:
            return int(self.port_path.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return 0

    def write_port(self, port: int) -> None:
        """Keep a chosen port beside settings that their owner wrote without one."""
        if not self.config.port:
            write_private(self.port_path, f"{port}\n".encode())

    @property
    def renewed_key_path(self) -> Path:
        """The key of the site that this home is about to become (`identity renew`)."""
        return self.path / "site.key.new"

    def renewed_key(self) -> SiteKey:
        """Read it."""
        return self._read_key(self.renewed_key_path)

    def write_renewed_key(self, seed: bytes) -> SiteKey:
        """Keep it, as the site key is kept; one that is there is returned instead."""
        if not self.renewed_key_path.exists():
            self.site_key()  # its passphrase, where it is under one, is known from here on
            protected, entry = is_protected(self.site_key_path), kept_as(self.site_key_path)
            write_key(self.renewed_key_path, seed, self.passphrase.said() if protected else None, entry)
        return self.renewed_key()

    def _read_key(self, path: Path) -> SiteKey:
        refuse_open_folder(self.path)
        return read_key(path, self.passphrase)

    def _write_key(self, path: Path, seed: bytes) -> SiteKey:
        if not path.exists():
            write_key(path, seed, self.passphrase.said())
        key = self._read_key(path)
        if self.passphrase.said() is not None and not is_protected(path):  # an earlier attempt's
            write_key(path, key.seed, self.passphrase.said())
        return key

    def change_setting(self, setting: str, value: Any) -> Config:
        """Say one setting otherwise, in the file too; ConfigError for what it cannot be."""
        self.config = change_settings(self.config_path, {setting: value}).after.config
        return self.config

    def write_config(self, config: Config) -> None:
        """Keep the settings of a new node; a file that its owner wrote before is left alone."""
        if not self.config_path.exists():
            self.config = config
            write_private(self.config_path, config_text(config).encode())


def choose_port() -> int:
    """The UDP port of a new node: 4747 if free, else one that the system picks (profile §11)."""
    for port in (DEFAULT_PORT, 0):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise ConfigError("no UDP port is free on this device")
