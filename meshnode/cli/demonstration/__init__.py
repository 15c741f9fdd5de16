"""The body of `meshnode demo`: a folder for three homes, the story in it, and what is printed of it."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path

import msgspec
from rich.console import Console

from meshnode.cli.demonstration.result import Result
from meshnode.cli.demonstration.screen import Screen, summary
from meshnode.cli.demonstration.story import Story
from meshnode.errors import UsageError


def demonstrate(*, keep: str | None, as_json: bool) -> int:
    """Run the demo; returns 0 only if all nodes end with equal rows."""
    console = None if as_json else Console()
    folder = _folder(keep)
    try:
        result = asyncio.run(_played(Story(folder, Screen(console))))
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    if console is None:
        print(msgspec.json.encode(result).decode())
    else:
        summary(console, result, keep)
    return 0 if result.converged else 1


async def _played(story: Story) -> Result:
    """Play it; when this process is told to end, end the node processes with it."""
    task = asyncio.ensure_future(story.run())
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            with suppress(NotImplementedError):  # Windows has no signals to end a loop by
                asyncio.get_running_loop().add_signal_handler(getattr(signal, name), task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def _folder(keep: str | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="meshnode-demo-"))
    folder = Path(keep).absolute()
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty: name a new folder to keep the demo's homes in")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make {folder}: {error.strerror}") from error
    return folder
