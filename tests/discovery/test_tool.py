"""A tool of the platform that hangs, floods, fails or is not there costs a bounded time and a sentence."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path

import pytest

from meshnode.errors import TransportError
from meshnode.net.tool import run_tool


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tool on PATH that says what it was asked, and in which locale."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    return write(tmp_path / "stub", 'printf "%s|" "$LC_ALL" "$@"; cat; echo trouble >&2')


def write(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def alive(stub: Path) -> list[str]:
    """What runs of the stub and its children: those that ended and wait to be reaped do not count."""
    pid = Path(f"{stub}.pid")
    group, stats = int(pid.read_text() or 0) if pid.exists() else 0, []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            stats.append(stat.read_text())
    fields = [(stat, stat.rpartition(")")[2].split()) for stat in stats]
    return [stat for stat, (state, _, pgrp, *_) in fields if int(pgrp) == group and state != "Z"]


async def nothing_left(stub: Path) -> None:
    async with asyncio.timeout(60):
        while alive(stub):  # noqa: ASYNC110 - a killed process ends when it is its turn
            await asyncio.sleep(0.01)


async def test_its_answer_is_taken_as_it_is(stub: Path) -> None:
    assert await run_tool(["stub", "a b", "$HOME; exit 3"]) == b"C|a b|$HOME; exit 3|"
    write(stub, r"printf 'a\377\000b\n'")
    assert await run_tool(["stub"]) == b"a\xff\0b\n"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo half; exit 1", "stub ended with code 1"),
        ("echo >&2; echo 'no \033[31mbus' >&2; echo more >&2; exit 8", "stub ended with code 8: no ?[31mbus"),
        (f"echo {'x' * 300} >&2; exit 1", f"stub ended with code 1: {'x' * 200}"),
        ("kill -9 $$", "stub ended with code -9"),
        ("sleep 60", "stub did not answer within 0.3 s"),
        ("sleep 60 & exit 0", "stub did not answer within 0.3 s"),
        ("exec yes", "stub said more than 100000 bytes"),
        ("exec >&-; sleep 60", "stub did not answer within 0.3 s"),
    ],
    ids=[
        "fails",
        "complains",
        "complains at length",
        "killed",
        "hangs",
        "leaves a child",
        "floods",
        "closes and stays",
    ],
)
async def test_trouble_is_a_sentence(stub: Path, script: str, reason: str) -> None:
    write(stub, f"echo $$ >{stub}.pid; {script}")
    turns = 0

    async def turning() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.01)
            turns += 1

    other = asyncio.create_task(turning())
    started = time.monotonic()
    with pytest.raises(TransportError) as raised:
        await run_tool(["stub"], timeout_s=0.3 if "answer" in reason else 30, most_bytes=100_000)
    other.cancel()
    assert (str(raised.value), time.monotonic() - started < 20) == (reason, True)
    if "answer" in reason:
        assert turns > 1, "the loop went on meanwhile"
    await nothing_left(stub)


async def test_a_tool_that_is_not_there_or_cannot_be_run_is_told_apart(stub: Path) -> None:
    with pytest.raises(TransportError, match="stub2 is not installed"):
        await run_tool(["stub2"])
    os.chmod(stub, 0o644)
    with pytest.raises(TransportError, match="stub cannot be run: "):
        await run_tool(["stub"])


@pytest.mark.parametrize("starting", [False, True])
async def test_a_run_that_is_given_up_leaves_nothing(stub: Path, starting: bool) -> None:
    pipe = f"{stub}.pipe"
    os.mkfifo(pipe)
    write(stub, f"echo $$ >{stub}.pid; echo ready >{pipe}; sleep 60")
    run = asyncio.create_task(run_tool(["stub"]))
    if starting:
        for _ in range(2):  # until there is a process that nobody has been told of yet
            await asyncio.sleep(0)
        assert Path(pipe).read_text() == "ready\n"  # noqa: ASYNC240 - the loop is to stand still
    else:
        await asyncio.to_thread(Path(pipe).read_text)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await nothing_left(stub)
