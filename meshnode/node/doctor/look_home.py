"""Looks at the folder of a node and its files; reads no key."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

from meshnode.errors import ConfigError
from meshnode.node.configfile import load_config
from meshnode.node.doctor.home import ConfigFacts, FileFacts, HomeFacts
from meshnode.node.doctor.patient import Patient
from meshnode.node.home import IMPORT, JOINING, Home


async def look_at_home(patient: Patient) -> HomeFacts:
    """Modes and owners."""
    return await asyncio.to_thread(_home, patient.home)


def _home(home: Home) -> HomeFacts:
    path = str(home.path)
    try:
        os.listdir(home.path)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        return HomeFacts(path, None, error=error.strerror or str(error))
    folder = _file(home.path)
    if folder is None:
        return HomeFacts(path, None)
    if not home.path.is_dir():
        return HomeFacts(path, folder, is_folder=False)
    keys = (home.site_key_path, home.recovery_key_path, home.renewed_key_path)
    others = (home.config_path, home.incarnation_path, home.token_path, *_of_the_database(home))
    files = [_file(each, key=True) for each in keys] + [_file(each) for each in others]
    return HomeFacts(
        path,
        folder,
        founded=home.founded,
        begun=_begun(home),
        user=os.geteuid() if os.name == "posix" else 0,
        modes=os.name == "posix",
        files=tuple(file for file in files if file is not None),
    )


def _of_the_database(home: Home) -> tuple[Path, ...]:
    """One that is the application's own has the mode that the application chose."""
    if home.config.database:
        return ()
    path = home.database_path
    return (path, path.with_name(path.name + "-wal"))


def _begun(home: Home) -> str:
    try:
        making = home.unfinished_path.read_bytes()
    except OSError:
        return ""
    return "joining" if making == JOINING else "import" if making == IMPORT else "founding"


def _file(path: Path, *, key: bool = False) -> FileFacts | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return FileFacts(str(path), stat.S_IMODE(found.st_mode), found.st_uid, os.access(path, os.R_OK), key)


def closed(path: Path) -> bool:
    """Whether a file is there, and this user may not read it."""
    return path.exists() and not os.access(path, os.R_OK)


async def look_at_config(patient: Patient) -> ConfigFacts:
    """The file as it is now, whatever a running node was started with."""
    path = patient.home.config_path
    try:
        await asyncio.to_thread(load_config, path)
    except ConfigError as error:
        return ConfigFacts(str(path), error=str(error), closed=closed(path))
    return ConfigFacts(str(path), there=path.exists(), running=patient.running)
