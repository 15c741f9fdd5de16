"""The body of `meshnode demo`: a folder for three homes, the story in it, and what is printed of it."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

import msgspec
from rich.console import Console

from meshnode.cli.demonstration.screen import Screen, summary
from meshnode.cli.demonstration.story import Story
from meshnode.errors import UsageError


def demonstrate(*, keep: str | None, as_json: bool) -> int:
    """Run the demo; returns 0 only if all nodes end with equal rows."""
    console = None if as_json else Console()
    folder = _folder(keep)
    try:
        result = asyncio.run(Story(folder, Screen(console)).run())
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    if console is None:
        print(msgspec.json.encode(result).decode())
    else:
        summary(console, result, keep)
    return 0 if result.converged else 1


def _folder(keep: str | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="meshnode-demo-"))
    folder = Path(keep).absolute()
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty: name a new folder to keep the demo's homes in")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
