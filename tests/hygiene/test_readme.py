"""What the README says is so: its commands run, its program runs, its modules and sections exist."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command import Result, meshnode, meshnode_afresh, start_afresh

from meshnode.cli.main import _VERBS
from meshnode.node.config import SETTINGS, Config
from meshnode.node.configtext import value_text

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SAID = {
    "two_nodes.py": "[Note(id='n1', title='Milk', done=False)]\n",
    "sensor_log.py": """\
01 June: 96 readings, mean 15.0 °C, highest 20.0 °C
02 June: 96 readings, mean 15.5 °C, highest 20.5 °C
readings at the sensor: 192 at the display: 0
once both take part in raw tables, at the display: 192
after a third day, at the sensor: 288 at the display: 192
192 rows and 192 events dropped, at the sensor: 96
""",
    "memory_tiers.py": """\
desk: confirmed, +0.6, 0 unresolved
desk alone: confirmed, +0.6, 1 unresolved
robot alone: refuted, -0.3, 0 unresolved
desk, when the memory has come: refuted, -0.3, 0 unresolved
robot: refuted, -0.3, 0 unresolved
equal: True
tier: short or long? It shows long.
desk: decided for short, conflicts left: 0
robot: decided for short, conflicts left: 0
equal: True
""",
}
"""All that an example prints, of those whose output is the same each time; the others name Milk."""
ENDLESS = {ROOT / "examples" / f"{name}.py" for name in ("notes_tk", "todo_web")}  # driven by tests of their own


def blocks(kind: str) -> list[str]:
    """The fenced blocks of one kind."""
    return re.findall(rf"```{kind}\n(.*?)```", README, re.DOTALL)


def commands(block: str) -> Iterator[tuple[list[str], str]]:
    """Each command of a console block with the output that is shown under it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, _, shown = part.partition("\n")
        yield shlex.split(line), shown


async def run_block(block: str, home: Path, running: list[asyncio.subprocess.Process], **said: str) -> str:
    """Run a block's commands as written, but for words in capitals; `&` starts one that goes on.

    Returns what the last one printed.
    """
    result = Result(0, "", "")
    for words, shown in commands(block):
        assert words[0] == "meshnode"
        arguments = [said.get(word, word) for word in words[1:]]
        if arguments[-1] == "&":
            process = await start_afresh(*arguments[:-1], home=home)
            running.append(process)
            assert process.stderr is not None
            while b"is up on" not in (line := await process.stderr.readline()):
                assert line, "the node ended while it was starting"
            continue
        result = await meshnode_afresh(*arguments, home=home)
        assert result.code == 0, (words, result)
        assert shown in ("", result.out)
    return result.out


async def test_the_quick_start_and_the_end_of_a_device_run_as_written(tmp_path: Path) -> None:
    first, second, theft, give, take = (block for block in blocks("console") if "meshnode" in block)
    running: list[asyncio.subprocess.Process] = []
    try:
        invite = (await run_block(first, tmp_path / "a", running)).strip()
        assert invite.startswith("meshnode-invite:")
        await run_block(second, tmp_path / "b", running, INVITE=invite)
        bundles = {name: str(tmp_path / name) for name in ("STICK", "BACK")}
        await run_block(give, tmp_path / "a", running, **bundles)
        await run_block(take, tmp_path / "b", running, **bundles)
        members = await run_block(theft, tmp_path / "b", running, FILE=str(tmp_path / "a" / "recovery.key"))
        assert "retired by the recovery key" in members
    finally:
        for process in running:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
        logs = [(await process.communicate())[1].decode() for process in running]
        print(*logs, sep="\n")  # shown where the test fails
    codes = [process.returncode for process in running]
    assert codes == [0] * len(running)


async def test_pairing_nearby_looks_as_shown(tmp_path: Path) -> None:
    """By the address, since a test has no network; ids and digits are others each time."""
    (block,) = [each for each in blocks("text") if "nearby --open" in each]
    opening, opened, pairing, looking, question = [line.partition("#")[0].strip() for line in block.splitlines()]
    desk = ["--name", "desk", "--listen", "127.0.0.1", "--no-mdns"]
    node = await start_afresh("up", *desk, home=tmp_path / "a")
    programs = [node]
    try:
        assert node.stderr is not None
        await node.stderr.readuntil(b"is up on")
        programs.append(host := await start_afresh(*shlex.split(opening)[2:], home=tmp_path / "a"))
        assert host.stdout is not None
        assert _masked((await host.stdout.readline()).decode()) == _masked(opened)
        await host.stdout.readline()
        address = (await host.stdout.readline()).decode().split("`")[3].split()[-1]
        assert shlex.split(pairing)[2:] == ["pair", "desk"]
        programs.append(guest := await start_afresh("pair", address, home=tmp_path / "b"))
        assert guest.stderr is not None
        assert (await guest.stderr.readline()).decode().strip() == looking.replace("desk", address)
        assert _masked((await guest.stderr.readuntil(b"[y/N]")).decode()) == _masked(question)
    finally:
        for program in programs[::-1]:
            program.send_signal(signal.SIGTERM)
            await program.communicate()


def test_adopting_a_database_works_as_shown(tmp_path: Path) -> None:
    (block,) = [each for each in blocks("text") if "meshnode adopt" in each]
    program = f"{shlex.quote(sys.executable)} -m meshnode --home home"
    script = block.replace("$ meshnode up &", "").replace("$ meshnode", program).replace("$ ", "")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(["sh", "-ec", script], cwd=tmp_path, env=environment, check=True, capture_output=True)
    done = "SELECT done, (SELECT count(*) FROM meshnode_captured), (SELECT count(*) FROM meshnode_log) FROM tasks"
    shown = subprocess.run(["sqlite3", "app.db", done], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert shown.stdout == "1|1|1\n"


def _masked(line: str) -> str:
    return re.sub(r"[0-9a-f]{8}|\d{3} \d{3}", "…", line.strip())


async def test_the_embedding_program_runs_as_written(tmp_path: Path) -> None:
    assert (await meshnode_afresh("init", home=tmp_path / "n")).code == 0
    program, _ = blocks("python")
    environment = {**os.environ, "MESHNODE_HOME": str(tmp_path / "n")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, env=environment, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    assert b"Bread" in out


async def test_the_control_api_answers_as_shown(tmp_path: Path) -> None:
    home = tmp_path / "n"
    node = await start_afresh("up", "--listen", "127.0.0.1", "--no-mdns", home=home)
    try:
        assert node.stderr is not None
        await node.stderr.readuntil(b"is up on")
        assert (
            await meshnode("table", "add", "notes", "--key", "id:TEXT", "--column", "title:TEXT", home=home)
        ).code == 0
        _, asking = blocks("python")
        assert await _output(sys.executable, "-c", _here(asking, home)) == b"Eggs\n"
        (shown,) = [block for block in blocks("sh") if "curl" in block]
        document, peers, rows = [await _output("bash", "-c", _here(line, home)) for line in shown.splitlines()]
        assert json.loads(document) == json.loads((ROOT / "meshnode/control/openapi.json").read_bytes())
        assert json.loads(peers) == []
        assert [row["columns"] for row in json.loads(rows)] == [{"title": "Eggs"}]
    finally:
        node.send_signal(signal.SIGTERM)
        await node.communicate()


def _here(program: str, home: Path) -> str:
    """The program for this home in place of the platform's."""
    assert "~/.local/share/meshnode/" in program
    return program.replace("~/.local/share/meshnode/", f"{home}/")


async def _output(*command: str) -> bytes:
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out


@pytest.mark.parametrize("example", sorted(set((ROOT / "examples").glob("*.py")) - ENDLESS), ids=lambda path: path.name)
def test_every_example_runs(example: Path) -> None:
    found = subprocess.run([sys.executable, str(example)], check=True, capture_output=True, text=True, timeout=120)
    assert found.stderr == ""
    if example.name in SAID:
        assert found.stdout == SAID[example.name]
    else:
        assert "Milk" in found.stdout


def test_every_example_is_in_the_list() -> None:
    names = sorted(path.name for path in (ROOT / "examples").glob("*.py"))
    assert [name for name in names if f"\n- [{name}](examples/{name}): " not in README] == []


def test_every_link_within_it_leads_to_a_heading() -> None:
    headings = re.findall(r"^#+ (.*)$", README, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
    assert len(anchors) == len(headings)
    assert set(re.findall(r"\]\(#([^)]*)\)", README)) - anchors == set()
    assert [path for path in re.findall(r"\]\(([\w./]+)\)", README) if not (ROOT / path).is_file()] == []


def test_the_two_commands_are_there_and_only_differ_in_what_they_run() -> None:
    lines = [line.strip() for line in README.splitlines() if "pip install" in line]
    assert lines == [
        "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/meshnode demo",
        "python3 -m venv .venv && .venv/bin/pip install '.[test]' && .venv/bin/pytest",
    ]


def test_the_named_modules_exist() -> None:
    named = set(re.findall(r"`((?:cli|codec|control|engine|merge|model|net|node|store|sync)/[\w/.]*)`", README))
    assert len(named) > 20
    assert [name for name in sorted(named) if not (ROOT / "meshnode" / name).exists()] == []


def test_the_settings_it_shows_are_settings() -> None:
    shown = [name for name in re.findall(r"`([a-z_]+)\s=\s", README) if name != "node"]
    assert len(shown) > 5
    assert [name for name in shown if name not in Config.__struct_fields__] == []


def test_the_table_of_settings_is_that_of_the_program() -> None:
    table = README.split("## Settings")[1].split("## Policy")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert rows == [
        f"| `{name}` | `{value_text(each.default)}` | {'at once' if each.live else 'next start'} | {each.about} |"
        for name, each in SETTINGS.items()
    ]


def test_every_verb_is_in_the_table() -> None:
    table = README.split("## Verbs")[1].split("## Letting")[0]
    assert [verb for verb, _, _ in _VERBS if not re.search(rf"`{verb}\b", table)] == []


def test_the_script_of_the_checks_is_executable_and_sound() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True)
