"""Events that a process beside the node verifies: the same is found as here, whatever becomes of the process."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from support.engines import members
from support.records import MESH_ID, site_key

from meshnode.engine.verify import Checked, verify_untrusted
from meshnode.model.event import author_event
from meshnode.model.hlc import Hlc
from meshnode.node import verifier, verifiers
from meshnode.node.verifier import VerifierProcess, command
from meshnode.node.verifierprocess import PASSED, REFUSED, Asked
from meshnode.node.verifiers import MANY_EVENTS, SOME_EVENTS, Door, Verifiers

AUTHOR, STRANGER = site_key(1), site_key(9)
DOOR = Door(MESH_ID, members([AUTHOR.public_key]), 7)


def signed(number: int, key: object = None, mesh_id: bytes = MESH_ID) -> bytes:
    """One event by a member."""
    return author_event(
        AUTHOR if key is None else STRANGER,
        mesh_id,
        schema="main",
        table="notes",
        row_key={"id": f"{number}"},
        columns={"n": number, "x": 0.5, "blob": b"\x00", "title": None},
        hlc=Hlc(1_000, number),
    ).data


def all_sorts() -> list[bytes]:
    """More than a process is asked for, every tenth of another kind that is refused."""
    events = [signed(number) for number in range(2 * SOME_EVENTS)]
    events[3], events[13], events[23] = b"", b"\x84" * 300, signed(23, STRANGER)
    events[33], events[43] = signed(33, mesh_id=bytes(16)), events[43][:-1] + bytes([events[43][-1] ^ 1])
    events[53] = events[53] + b"\x00"
    return events


def here(events: Sequence[bytes]) -> list[Checked]:
    """What is found without a process."""
    return verify_untrusted(events, mesh_id=MESH_ID, keyring=DOOR.keyring, generation=DOOR.generation)


def ordinary() -> VerifierProcess:
    """The process as a node starts it."""
    line = command()
    assert line is not None
    return VerifierProcess(line)


def saying(program: str, answer_s: float = verifier.ANSWER_S) -> VerifierProcess:
    """A process that runs another program."""
    return VerifierProcess([sys.executable, "-I", "-S", "-c", program], answer_s=answer_s)


@pytest.fixture
def rush() -> list[bytes]:
    """As many events as make a process worth while; none of them is worth verifying."""
    return [b""] * MANY_EVENTS


def test_a_process_says_which_events_pass() -> None:
    events = all_sorts()
    keys = [(AUTHOR.site, AUTHOR.public_key)]
    with closing(ordinary()) as process:
        answer = process.passed(Asked(MESH_ID, keys, events))
        assert [at for at, each in enumerate(answer) if each == REFUSED] == [3, 13, 23, 33, 43, 53]
        assert set(answer) == {PASSED, REFUSED}
        assert process.passed(Asked(MESH_ID, [], events[:1])) == bytes([REFUSED])


def test_what_a_process_finds_is_what_is_found_here(rush: list[bytes]) -> None:
    events = all_sorts()
    with closing(Verifiers(ordinary)) as pool:
        assert pool.verify(events, DOOR).result() == here(events)
        assert pool.pid is None  # few events are no reason to start one
        pool.verify(rush, DOOR).result()
        assert pool.pid is not None
        assert pool.verify(events, DOOR).result() == here(events)
        assert pool.verify(events[:3], DOOR).result() == here(events[:3])


def test_a_trickle_starts_no_process(rush: list[bytes]) -> None:
    """What comes in the course of minutes is no rush, however much it is in the end."""
    seconds = iter(range(0, 10_000, 2))
    with closing(Verifiers(ordinary, now=lambda: float(next(seconds)))) as pool:
        for _ in range(4):
            pool.verify(rush[: MANY_EVENTS // 2], DOOR).result()
        assert pool.pid is None


@pytest.mark.parametrize(
    "program",
    [
        "",  # ends at once
        "import sys; sys.stdin.buffer.read(9)",  # dies at work
        "import sys; sys.stdin.buffer.read(9); sys.stdout.write('garbage' * 99)",
        "import sys; sys.stdin.buffer.read(9); sys.stdout.write('\\1')",  # answers one event
    ],
)
def test_a_process_of_no_use_is_done_without(program: str, rush: list[bytes], caplog: pytest.LogCaptureFixture) -> None:
    events, begun = all_sorts(), []

    def start() -> VerifierProcess:
        begun.append(saying(program))
        return begun[-1]

    with closing(Verifiers(start)) as pool, caplog.at_level(logging.WARNING):
        pool.verify(rush, DOOR).result()
        for _ in range(3):
            assert pool.verify(events, DOOR).result() == here(events)
            pool.verify(rush, DOOR).result()
        assert pool.pid is None
    assert len(begun) == 1
    assert [record.getMessage().split()[0] for record in caplog.records] == ["work-waits"]


def test_a_process_that_hangs_is_killed(rush: list[bytes]) -> None:
    events = all_sorts()
    with closing(Verifiers(lambda: saying("import time; time.sleep(3600)", answer_s=0.05))) as pool:
        pool.verify(rush, DOOR).result()
        assert pool.verify(events, DOOR).result() == here(events)
        assert pool.pid is None


def test_a_process_that_cannot_start_is_done_without(rush: list[bytes], tmp_path: Path) -> None:
    events = all_sorts()
    with closing(Verifiers(lambda: VerifierProcess([str(tmp_path / "none")]))) as pool:
        pool.verify(rush, DOOR).result()
        assert pool.verify(events, DOOR).result() == here(events)


@pytest.mark.parametrize(("name", "value"), [("frozen", True), ("executable", ""), ("executable", "/usr/bin/blender")])
def test_a_program_that_is_no_python_starts_none(
    name: str, value: object, rush: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, name, value, raising=False)
    assert command() is None
    with closing(Verifiers(verifiers.start)) as pool:
        pool.verify(rush, DOOR).result()
        assert pool.pid is None


def test_a_process_that_nobody_asks_ends(rush: list[bytes]) -> None:
    """And the next rush has another."""
    line = command()
    assert line is not None
    with closing(Verifiers(lambda: VerifierProcess(line, idle_s=0.01))) as pool:
        pool.verify(rush, DOOR).result()
        first = pool._process
        assert first is not None
        first._process.wait()
        first._over.wait()
        pool.verify(rush, DOOR).result()
        assert pool._process is not first


def test_a_process_is_given_no_secret_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHNODE_PASSPHRASE", "a secret")
    with closing(saying("import os, sys; sys.stdout.write(chr('MESHNODE_PASSPHRASE' in os.environ))")) as process:
        assert process.passed(Asked(MESH_ID, [], [b""])) == bytes([False])


def test_a_process_ends_with_the_node_that_was_killed() -> None:
    """Nobody is left to end it: its input ends."""
    program = (
        "import sys\n"
        "from meshnode.node.verifier import VerifierProcess, command\n"
        "from meshnode.node.verifierprocess import Asked\n"
        "process = VerifierProcess(command())\n"
        "process.passed(Asked(b'', [], [b'']))\n"
        "print(process.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as node:
        assert node.stdout is not None
        pid = int(node.stdout.readline())
        node.kill()
    while _runs(pid):
        pass


def _runs(pid: int) -> bool:
    """Whether it runs: one that ended and that nobody waits for is still listed."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
