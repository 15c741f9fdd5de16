"""Runs the `meshnode` program as a person does: in its own process, with its own standard streams.

Most commands are forked from an interpreter that has imported everything (`support.forks`): a new one spends more time
on its imports than on the verb. What a start imports and needs is proven by `start_afresh`, the README and the wheel.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.forks import PIPE, Running, fork

TIMEOUT_S = 60.0  # far beyond any verb; a hang fails instead of hanging the run


@dataclass(frozen=True, slots=True)
class Result:
    """How one command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)


async def start(*arguments: str, home: Path, stdin: int = PIPE, env: Mapping[str, str] | None = None) -> Running:
    """Start a command that goes on; `env` is what its environment has besides this one's."""
    return await fork(["--home", str(home), *arguments], environment(env), stdin=stdin)


async def start_afresh(*arguments: str, home: Path, env: Mapping[str, str] | None = None) -> asyncio.subprocess.Process:
    """Start one in a new interpreter."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "meshnode", "--home", str(home), *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(env),
        start_new_session=True,  # whoever runs the tests at a terminal is asked nothing
    )


def environment(besides: Mapping[str, str] | None = None) -> dict[str, str]:
    """That of a command."""
    common = {name: value for name, value in os.environ.items() if name != "MESHNODE_HOME"}
    common["MESHNODE_DEBUG"] = "1"  # a fault of the program shows where it is
    return common | dict(besides or {})


async def run_code(code: str, *arguments: str) -> Result:
    """Run some code as `python -c` does, in a process that it may end."""
    return await ended(await fork(arguments, environment(), code=code))


async def meshnode(*arguments: str, home: Path, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Result:
    """Run a command to its end."""
    return await ended(await start(*arguments, home=home, env=env), stdin)


async def meshnode_afresh(
    *arguments: str, home: Path, stdin: bytes = b"", env: Mapping[str, str] | None = None
) -> Result:
    """The same in a new interpreter."""
    return await ended(await start_afresh(*arguments, home=home, env=env), stdin)


async def ended(process: Running | asyncio.subprocess.Process, stdin: bytes = b"") -> Result:
    """How it ends."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            out, err = await process.communicate(stdin)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode is not None
    return Result(process.returncode, out.decode(), err.decode())
