"""What a reader runs first runs: the demo, as a script sees it."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from support.command import meshnode
from support.nodes import PATIENCE_S

KEPT = ("laptop", "phone", "nas")


async def run(*command: str) -> tuple[int | None, str, str]:
    """A program to its end: exit code, standard output, standard error."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(2 * PATIENCE_S):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode, out.decode(), err.decode()


async def test_the_demo_converges_and_says_so_in_one_line(tmp_path: Path) -> None:
    code, out, err = await run("-m", "meshnode", "demo", "--json", "--keep", str(tmp_path / "kept"))
    assert (code, err) == (0, "")
    assert out.count("\n") == 1
    result = json.loads(out)
    assert result["converged"] is True
    assert len(result["nodes"]) == len(KEPT)
    assert len({node["state_digest"] for node in result["nodes"]}) == 1
    assert result["rows"] > 300  # the whole zone table but for what the story deletes
    assert result["events"] > result["rows"]
    assert (len(result["killed"]), result["seconds"] > result["cut_seconds"] > 0) == (1, True)
    for name in KEPT:  # the homes are nodes like any other
        status = (await meshnode("status", "--output", "json", home=tmp_path / "kept" / name)).json
        assert (status["running"], status["name"], status["rows"]) == (False, name, result["rows"])
    again = await meshnode("demo", "--keep", str(tmp_path / "kept"), home=tmp_path)
    assert (again.code, again.err.count("\n")) == (2, 1)
    assert "is not empty" in again.err
