"""Runs the `meshnode` program as a person does: in its own process, with its own standard streams."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


async def start(
    *arguments: str, home: Path, stdin: int | None = None, env: Mapping[str, str] | None = None
) -> asyncio.subprocess.Process:
    """Start a command that goes on; `env` is what its environment has besides this one's."""
    environment = {name: value for name, value in os.environ.items() if name != "MESHNODE_HOME"}
    environment["MESHNODE_DEBUG"] = "1"  # a fault of the program shows where it is
    environment.update(env or {})
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "meshnode.cli.main",
        "--home",
        str(home),
        *arguments,
        stdin=asyncio.subprocess.PIPE if stdin is None else stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
        start_new_session=True,  # whoever runs the tests at a terminal is asked nothing
    )


async def meshnode(*arguments: str, home: Path, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Result:
    """Run a command to its end."""
    process = await start(*arguments, home=home, env=env)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            out, err = await process.communicate(stdin)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode is not None
    return Result(process.returncode, out.decode(), err.decode())
