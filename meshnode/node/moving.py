"""A device moves: one sealed file takes its keys, settings and database from the old home into a new one.

The database goes along, since there may be no other device that has the rows. Both homes are locked, and no node runs.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import msgspec

from meshnode.codec.cose_key import private_from_cose, private_to_cose
from meshnode.codec.pkcs8 import SALT_BYTES
from meshnode.codec.sealed import CHUNK_BYTES, Opening, seal
from meshnode.engine.publishing import may_publish
from meshnode.errors import CodecError, IdentityError, StoreError, UsageError, reason_of, unreadable_file
from meshnode.model.site import SiteKey, short_text, site_text
from meshnode.node.configfile import load_config
from meshnode.node.databases import database_of, encrypted_file, is_encrypted
from meshnode.node.home import IMPORT, Home, choose_port
from meshnode.node.identity import finish_renewal
from meshnode.node.keyfile import is_protected, write_key
from meshnode.node.moved import COPY, Mark, mark_moved, refuse_moved, take_back
from meshnode.node.passphrase import checked
from meshnode.node.private import sync_folder, write_private
from meshnode.node.views import HOW_TO_CHOOSE, MovedView
from meshnode.store import meta
from meshnode.store.connection import encrypt_into
from meshnode.store.schema import check_readable

_MARK = b"meshnode device 1\n"
_HEAD_BYTES = CHUNK_BYTES // 2  # of the manifest: it is in the first chunk
_LENGTH_BYTES = 4
_SMALL_BYTES = 1024 * 1024  # of anything but the database
SITE_KEY, RECOVERY_KEY, CONFIG, ROWS = "site.key", "recovery.key", "config.toml", "database"


class Part(msgspec.Struct, frozen=True):
    """One file in it."""

    name: str
    bytes: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in front; the parts follow, one behind the other."""

    site: str
    protected: bool  # whether the keys were under a passphrase, and are to be again
    parts: list[Part]


def export_device(home: Home, file: Path, passphrase: str | None) -> MovedView:
    """Move the device into `file`, under its keys' passphrase, or under this one where they are under none.

    Raises UsageError where the file cannot be had, IdentityError where this home is not the device or its key does not
    open. From then on nothing is written or sent here (`node.moved`).
    """
    finish_renewal(home)
    refuse_moved(home)
    file = file.absolute()
    if file.exists():
        raise UsageError(f"{file} is there already: name a new file")
    key, protected = home.site_key(), is_protected(home.site_key_path)
    secret = home.passphrase.said() if protected else checked(passphrase or "")
    assert secret is not None
    copy = home.path / f"{COPY}{os.getpid()}"
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        name = _copy_database(home, key, copy)
        keys = [(SITE_KEY, private_to_cose(key.seed))]
        if home.recovery_key_path.exists():
            keys.append((RECOVERY_KEY, private_to_cose(home.recovery_key().seed)))
        settings = [(CONFIG, home.config_path.read_bytes())] if home.config_path.exists() else []
        size = _write(draft, _pieces(site_text(key.site), protected, [*keys, *settings], copy), secret)
        _rename(home, draft, file)
    except OSError as error:
        raise UsageError(f"cannot write {file}, and the device stays here: {reason_of(error)}") from error
    finally:
        draft.unlink(missing_ok=True)
        copy.unlink(missing_ok=True)
    return MovedView(
        site=site_text(key.site), short=short_text(key.site), name=name, home=str(home.path), file=str(file), bytes=size
    )


def import_device(home: Home, file: Path) -> MovedView:
    """Make this device of a file that `export_device` wrote, in a home where no node lives yet.

    Raises IdentityError for another passphrase or a file that is damaged; then there is no node in the home.
    """
    try:
        with file.open("rb") as stream:
            return _import(home, file.absolute(), stream)
    except OSError as error:
        raise unreadable_file(file, error) from error
    except (CodecError, msgspec.MsgspecError) as error:
        raise IdentityError(
            f"{file} is no device that `meshnode identity export` wrote, or is damaged: {error}"
        ) from error


def _import(home: Home, file: Path, stream: BinaryIO) -> MovedView:
    opening = Opening(_MARK, stream.read)
    bytes_ = _Bytes(home.passphrase.open(file, opening.first, None), opening)
    manifest = msgspec.json.decode(bytes_.small(int.from_bytes(bytes_.small(_LENGTH_BYTES))), type=Manifest)
    if not {SITE_KEY, ROWS} <= {part.name for part in manifest.parts}:
        raise CodecError("it has no key, or no database")
    home.begin(IMPORT)
    if home.database_path.parent != home.path and home.database_path.exists():
        raise UsageError(f"there is a database in {home.database_path} already: settings of a new home name none")
    try:
        key, name = _take(home, manifest, bytes_)
    except BaseException:
        if not home.founded:  # nobody's rows are left where no node is, least of all before they were encrypted
            _remove_database(home)
        raise
    return MovedView(
        site=site_text(key.site),
        short=short_text(key.site),
        name=name,
        home=str(home.path),
        file=str(file),
        bytes=file.stat().st_size,
    )


def _take(home: Home, manifest: Manifest, bytes_: _Bytes) -> tuple[SiteKey, str]:
    """All that is in the file, into the home; the device's key and name."""
    small: dict[str, bytes] = {}
    for part in manifest.parts:
        if part.name == ROWS:
            _take_database(home, bytes_.large(part.bytes))
        else:
            small[part.name] = bytes_.small(part.bytes)
    bytes_.end()
    key = SiteKey.from_seed(private_from_cose(small[SITE_KEY]))
    name = _settle(home, key, small.get(CONFIG))
    secret = home.passphrase.said() if manifest.protected else None
    if RECOVERY_KEY in small:
        write_key(home.recovery_key_path, private_from_cose(small[RECOVERY_KEY]), secret)
    write_key(home.site_key_path, key.seed, secret)
    home.finish()
    return key, name


def _rename(home: Home, draft: Path, file: Path) -> None:
    """The moment in which the device moves: the home is marked first, so that it is never in both."""
    try:
        mark_moved(home, Mark(file=str(file), draft=str(draft), day=f"{datetime.now(UTC).astimezone():%Y-%m-%d %H:%M}"))
        draft.rename(file)
    except BaseException:
        if not file.exists():
            take_back(home)
        raise
    with suppress(OSError):  # should a power cut undo the renaming, the draft says that the device stayed
        sync_folder(file.parent)


def _copy_database(home: Home, key: SiteKey, copy: Path) -> str:
    """A copy of the database for its owner alone, and the device's name."""
    os.close(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    file = database_of(home, key)
    with closing(file.reader()) as reader, reader.snapshot() as tx:
        check_readable(tx)
        if not may_publish(tx, home.incarnation()):
            raise IdentityError(f"this node may be a copy of the device, choose first: {HOW_TO_CHOOSE}")
    with closing(file.writer()) as database:
        database.copy_into(copy)
    return home.config.name


def _pieces(site: str, protected: bool, small: list[tuple[str, bytes]], database: Path) -> Iterator[bytes]:
    parts = [*(Part(name, len(data)) for name, data in small), Part(ROWS, database.stat().st_size)]
    manifest = msgspec.json.encode(Manifest(site=site, protected=protected, parts=parts))
    yield len(manifest).to_bytes(_LENGTH_BYTES) + manifest
    for _, data in small:
        yield data
    with database.open("rb") as file:
        while piece := file.read(CHUNK_BYTES):
            yield piece


def _write(draft: Path, pieces: Iterator[bytes], passphrase: bytes) -> int:
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        for piece in seal(_MARK, pieces, passphrase, salt=secrets.token_bytes(SALT_BYTES)):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
    sync_folder(draft.parent)  # its name too: that it is there says that the device did not move
    return size


def _take_database(home: Home, pieces: Iterator[bytes]) -> None:
    path = home.database_path
    _remove_database(home)  # of an import that was cut short
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StoreError(f"cannot write the database {path}: {error.strerror}") from error


def _remove_database(home: Home) -> None:
    path = home.database_path
    files = [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm", "-journal")]
    for left in (*files, *home.path.glob(f"{COPY}*")):
        left.unlink(missing_ok=True)


def _encrypt(home: Home, key: SiteKey) -> None:
    """Encrypt a database that came as it was."""
    path, plain = home.database_path, home.path / f"{COPY}{os.getpid()}"
    if not is_encrypted(path):
        path.rename(plain)
        file = encrypted_file(path, key)
        assert file.key is not None
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        encrypt_into(file.sqlite, plain, path, file.key)
        for each in home.path.glob(f"{plain.name}*"):
            each.unlink()


def _settle(home: Home, key: SiteKey, settings: bytes | None) -> str:
    """Settings, port and incarnation beside a database that is this device's; the device's name."""
    if home.encrypt:
        _encrypt(home, key)
    with closing(database_of(home, key).reader()) as reader, reader.snapshot() as tx:
        check_readable(tx)
        if meta.read_bytes(tx, meta.SITE) != key.site:
            raise StoreError("the database in it is another device's: nothing was taken")
        incarnation = meta.read_bytes(tx, meta.INCARNATION)
    if settings is not None and not home.config_path.exists():
        write_private(home.config_path, settings)
        if load_config(home.config_path).database:
            home.change_setting("database", "")
        home.config = load_config(home.config_path)
    home.write_port(choose_port())
    home.write_incarnation(incarnation)
    return home.config.name


class _Bytes:
    """The plain bytes of a sealed file, so many at a time."""

    def __init__(self, first: bytes, opening: Opening) -> None:
        self._held, self._rest = first, opening.rest()

    def small(self, count: int) -> bytes:
        """All of a part that has to be small."""
        if count > _SMALL_BYTES:
            raise CodecError(f"a part of {count} bytes where at most {_SMALL_BYTES} belong")
        return b"".join(self.large(count))

    def large(self, count: int) -> Iterator[bytes]:
        """A part of any length, in pieces."""
        while count:
            if not self._held:
                self._held = next(self._rest, b"")
                if not self._held:
                    raise CodecError("it ends too early")
            piece, self._held = self._held[:count], self._held[count:]
            count -= len(piece)
            yield piece

    def end(self) -> None:
        """Nothing is left; only then is it known that nothing is missing."""
        if self._held or next(self._rest, b""):
            raise CodecError("there is more in it than it says")
