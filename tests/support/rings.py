"""Keyrings for the package `keyring`: one in a file that tests look into, and one that is locked for good."""

from __future__ import annotations

import json
import os
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked, PasswordDeleteError

FILE_VARIABLE = "MESHNODE_TEST_KEYRING"


def ring(name: str, file: Path) -> dict[str, str]:
    """The environment in which a forked command, which has `support` in its path, finds this keyring."""
    return {"PYTHON_KEYRING_BACKEND": f"support.rings.{name}", FILE_VARIABLE: str(file)}


class FileRing(KeyringBackend):
    """Keeps everything in one file of JSON."""

    priority = 1.0

    def get_password(self, service: str, username: str) -> str | None:
        return self._all().get(f"{service}/{username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        self._write({**self._all(), f"{service}/{username}": password})

    def delete_password(self, service: str, username: str) -> None:
        kept = self._all()
        if kept.pop(f"{service}/{username}", None) is None:
            raise PasswordDeleteError("not there")
        self._write(kept)

    def _all(self) -> dict[str, str]:
        path = Path(os.environ[FILE_VARIABLE])
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def _write(self, kept: dict[str, str]) -> None:
        Path(os.environ[FILE_VARIABLE]).write_text(json.dumps(kept))


class LockedRing(KeyringBackend):
    """Refuses everything."""

    priority = 1.0

    def get_password(self, service: str, username: str) -> str | None:
        raise KeyringLocked("the user dismissed the prompt")

    def set_password(self, service: str, username: str, password: str) -> None:
        raise KeyringLocked("the user dismissed the prompt")

    def delete_password(self, service: str, username: str) -> None:
        raise KeyringLocked("the user dismissed the prompt")


class ForgetfulRing(KeyringBackend):
    """Takes everything and keeps nothing."""

    priority = 1.0

    def get_password(self, service: str, username: str) -> str | None:
        return None

    def set_password(self, service: str, username: str, password: str) -> None:
        return None

    def delete_password(self, service: str, username: str) -> None:
        return None
