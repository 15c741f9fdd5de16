"""`service` beside tools that a test put on the PATH: what is called, in which order, and what a failure says."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.command import Result, meshnode

from meshnode.node.home import Home
from meshnode.node.lock import try_lock

# It writes down how it was called, and answers by the first line of `answers` that names a word of the call.
TOOL = r"""#!/bin/sh
here=$(dirname "$0")
printf '%s\n' "${0##*/} $*" >> "$here/calls"
while IFS='|' read -r word code says; do
    case " $* " in
    *" $word "*) [ "$code" -eq 0 ] && echo "$says" | tr ';' '\n' || echo "$says" >&2; exit "$code" ;;
    esac
done < "$here/answers"
exit 0
"""


class Tools:
    """`systemctl`, `launchctl` and `schtasks` of a test, and a person's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.person = folder / "ada"
        self.person.mkdir(parents=True)
        for name in ("systemctl", "launchctl", "schtasks"):
            (folder / name).write_text(TOOL)
            (folder / name).chmod(0o755)
        self.answer()

    def answer(self, *lines: str) -> None:
        """From here on: `WORD|CODE|WHAT IT SAYS`."""
        (self._folder / "answers").write_text("".join(f"{line}\n" for line in lines))

    @property
    def environment(self) -> Mapping[str, str]:
        path = f"{self._folder}:{os.environ['PATH']}"
        return {"PATH": path, "HOME": str(self.person), "XDG_CONFIG_HOME": "", "PYTHONPATH": "", "USERNAME": "ada"}

    def calls(self) -> list[str]:
        """Since the last time."""
        file = self._folder / "calls"
        found = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return found


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    return Tools(tmp_path / "tools")


@pytest.fixture
async def node_home(tmp_path: Path) -> Path:
    assert (await meshnode("init", home=tmp_path / "n")).code == 0
    return tmp_path / "n"


async def service(home: Path, tools: Tools, *arguments: str, manager: str = "systemd") -> Result:
    return await meshnode("service", *arguments, "--manager", manager, home=home, env=tools.environment)


def unit_in(tools: Tools) -> Path:
    (unit,) = (tools.person / ".config" / "systemd" / "user").glob("meshnode*.service")
    return unit


async def test_install_status_change_and_remove(node_home: Path, tools: Tools) -> None:
    before = await service(node_home, tools, "status", "--output", "json")
    assert (before.code, before.json["installed"], tools.calls()) == (4, False, [])
    done = await service(node_home, tools, "install")
    unit = unit_in(tools)
    name = unit.name
    enabling = ["systemctl --user daemon-reload", f"systemctl --user enable {name}"]
    assert (done.code, tools.calls()) == (0, [*enabling, f"systemctl --user restart {name}"])
    assert f"Wrote {unit}." in done.out
    assert "loginctl enable-linger" in done.out
    assert stat.S_IMODE(unit.stat().st_mode) == 0o600
    assert list(unit.parent.iterdir()) == [unit]
    tools.answer("show|3|Failed to connect to bus")
    unknown = await service(node_home, tools, "status", "--output", "json")
    assert (unknown.code, unknown.json["enabled"], unknown.json["running"]) == (3, None, False)
    assert unknown.json["says"] == "Failed to connect to bus"
    tools.calls()
    changed = await service(node_home, tools, "install", "--log-level", "debug", "--no-start")
    assert (changed.code, tools.calls()) == (0, enabling)
    assert '"--log-level" "debug"' in unit.read_text()
    again = await service(node_home, tools, "install", "--log-level", "debug")
    assert f"Nothing to change in {unit}." in again.out
    tools.calls()
    link = unit.parent / "default.target.wants" / name
    link.parent.mkdir()
    link.symlink_to(unit)
    removed = await service(node_home, tools, "remove")
    stopping = [f"systemctl --user {verb} {name}" for verb in ("stop", "disable")]
    forgetting = ["systemctl --user daemon-reload", f"systemctl --user reset-failed {name}"]
    assert (removed.code, tools.calls()) == (0, [*stopping, *forgetting])
    assert not unit.exists()
    assert not link.is_symlink()
    nothing = await service(node_home, tools, "remove")
    assert (nothing.code, tools.calls()) == (0, [])
    assert "no service" in nothing.out


@pytest.mark.parametrize(
    ("active", "result", "code"), [("active", "success", 0), ("inactive", "success", 3), ("failed", "exit-code", 3)]
)
async def test_status_is_what_systemd_says(node_home: Path, tools: Tools, active: str, result: str, code: int) -> None:
    await service(node_home, tools, "install")
    tools.answer(f"show|0|UnitFileState=enabled;ActiveState={active};Result={result}")
    found = await service(node_home, tools, "status", "--output", "json")
    assert found.code == code
    said = found.json
    assert (said["installed"], said["enabled"], said["running"]) == (True, True, code == 0)
    assert (said["home"], said["as_this_version"], said["todo"]) == (str(node_home), True, "")
    assert said["program"] == f"{sys.executable} -P -m meshnode"
    assert ("exit-code" in said["says"]) is (result == "exit-code")


async def test_a_file_that_is_not_as_this_program_writes_it_is_told(node_home: Path, tools: Tools) -> None:
    await service(node_home, tools, "install", "--log-level", "debug")
    unit = unit_in(tools)
    ours = unit.read_text()
    for text, todo in [
        (ours.replace(sys.executable, "/gone/bin/python"), "the program is gone from /gone/bin/python"),
        (ours.replace("RestartSec=10", "RestartSec=1"), "another file"),
        ("[Service]\nExecStart=/bin/true\n", "another hand"),
    ]:
        unit.write_text(text)
        found = (await service(node_home, tools, "status", "--output", "json")).json
        assert found["as_this_version"] is False
        assert todo in found["todo"]
    shown = await service(node_home, tools, "status")
    assert "another hand" in shown.out
    await service(node_home, tools, "install", "--log-level", "debug")
    assert unit.read_text() == ours


@pytest.mark.parametrize(
    ("answer", "says", "left"),
    [
        ("daemon-reload|1|Failed to connect to bus: No medium found", "No medium found", "daemon-reload"),
        ("restart|1|Job failed", "Job failed", "restart"),
    ],
    ids=["no-manager", "does-not-start"],
)
async def test_what_fails_says_what_is_done_and_what_is_left(
    node_home: Path, tools: Tools, answer: str, says: str, left: str
) -> None:
    tools.answer(answer)
    failed = await service(node_home, tools, "install")
    unit = unit_in(tools)
    assert (failed.code, failed.err.count("\n")) == (1, 1)
    assert f"{unit} is written" in failed.err
    assert says in failed.err
    assert f"with `systemctl --user {left}" in failed.err
    assert failed.err.rstrip().endswith(f"systemctl --user restart {unit.name}`")


async def test_what_cannot_be_stopped_does_not_start_again(node_home: Path, tools: Tools) -> None:
    await service(node_home, tools, "install")
    unit = unit_in(tools)
    tools.answer("stop|1|Failed to connect to bus")
    failed = await service(node_home, tools, "remove")
    assert (failed.code, unit.exists()) == (1, False)
    assert f"may still run: `systemctl --user stop {unit.name}` failed" in failed.err


async def test_a_node_that_runs_already_is_not_run_twice(node_home: Path, tools: Tools) -> None:
    lock = try_lock(Home(node_home).lock_path, "up")
    assert lock is not None
    busy = await service(node_home, tools, "install")
    assert (busy.code, "holds the node" in busy.err, "--no-start" in busy.err) == (1, True, True)
    assert not (tools.person / ".config").exists()
    assert (await service(node_home, tools, "install", "--no-start")).code == 0
    tools.answer("show|0|UnitFileState=enabled;ActiveState=active;Result=success")
    assert (await service(node_home, tools, "install")).code == 0, "it is the service that runs"
    tools.answer("show|1|no bus")
    told = await service(node_home, tools, "status", "--output", "json")
    assert (told.code, told.json["running"]) == (0, True)
    lock.release()
    assert (await service(node_home, tools, "status")).code == 3


async def test_without_the_tool_the_message_says_so(node_home: Path, tools: Tools) -> None:
    failed = await meshnode(
        *("service", "install", "--manager", "launchd"), home=node_home, env={**tools.environment, "PATH": "/nowhere"}
    )
    assert failed.code == 1
    assert "there is no `launchctl` here" in failed.err


async def test_launchd_and_windows_are_called_and_called_untested(node_home: Path, tools: Tools) -> None:
    uid = os.getuid()
    done = await service(node_home, tools, "install", manager="launchd")
    (agent,) = (tools.person / "Library" / "LaunchAgents").iterdir()
    assert "untested on macOS" in done.out
    target = f"gui/{uid}/{agent.stem}"
    loading = [f"launchctl enable {target}", f"launchctl bootstrap gui/{uid} {agent}"]
    assert tools.calls() == [f"launchctl bootout {target}", *loading]
    tools.answer("print|0|state = running")
    assert (await service(node_home, tools, "status", manager="launchd")).code == 0
    tools.answer("print|113|Could not find service")
    assert (await service(node_home, tools, "status", manager="launchd")).code == 3
    tools.calls()
    assert (await service(node_home, tools, "remove", manager="launchd")).code == 0
    assert (tools.calls(), agent.exists()) == ([f"launchctl bootout {target}"], False)
    tools.answer()
    done = await service(node_home, tools, "install", manager="windows")
    assert (done.code, "untested on Windows" in done.out) == (0, True)
    task, *rest = tools.calls()
    assert task.endswith(f"/XML {node_home / 'service.xml'} /F")
    assert [call.split()[1] for call in rest] == ["/End", "/Run"]
    assert (await service(node_home, tools, "remove", manager="windows")).code == 0
    assert [call.split()[1] for call in tools.calls()] == ["/End", "/Delete"]
    printed = await service(node_home, tools, "install", "--print", manager="windows")
    assert "untested on Windows" in printed.err
    assert printed.out.startswith('<?xml version="1.0" encoding="UTF-16"?>')


async def test_print_changes_nothing(node_home: Path, tools: Tools) -> None:
    shown = await service(node_home, tools, "install", "--print")
    assert f'"--home" "{node_home}" "up"' in shown.out
    assert (tools.calls(), (tools.person / ".config").exists()) == ([], False)


async def test_what_install_refuses_is_printed_with_the_reason(tmp_path: Path, node_home: Path, tools: Tools) -> None:
    assert "refuses" not in (await service(node_home, tools, "install", "--print")).err
    shown = await service(tmp_path / "nowhere", tools, "install", "--print")
    assert (shown.code, "`install` refuses it: there is no node in" in shown.err) == (0, True)


async def test_a_unit_that_is_a_link_to_nowhere_is_taken_away(tmp_path: Path, node_home: Path, tools: Tools) -> None:
    assert (await service(node_home, tools, "install")).code == 0
    unit = unit_in(tools)
    unit.unlink()
    unit.symlink_to(tmp_path / "gone")
    tools.calls()
    removed = await service(node_home, tools, "remove")
    assert (removed.code, f"Removed {unit}." in removed.out, unit.is_symlink()) == (0, True, False)
    assert any("disable" in call for call in tools.calls())
    assert "There is no service" in (await service(node_home, tools, "remove")).out


async def test_what_would_only_fail_is_not_installed(
    tmp_path: Path, node_home: Path, tools: Tools, cheap_passphrases: None
) -> None:
    nowhere = await service(tmp_path / "nowhere", tools, "install")
    assert (nowhere.code, "meshnode init" in nowhere.err) == (1, True)
    protected = await meshnode(
        *("identity", "protect", "--passphrase-fd", "0"), home=node_home, stdin=b"a passphrase\n"
    )
    assert protected.code == 0
    refused = await service(node_home, tools, "install")
    assert (refused.code, tools.calls()) == (2, [])
    assert "--keyring" in refused.err
    assert "--passphrase-file" in refused.err
    file = tmp_path / "passphrase"
    file.write_text("a passphrase\n")
    file.chmod(0o644)
    assert "can be read by others" in (await service(node_home, tools, "install", "--passphrase-file", str(file))).err
    file.chmod(0o600)
    assert (await service(node_home, tools, "install", "--passphrase-file", str(file))).code == 0
    assert f"StandardInput=file:{file}" in unit_in(tools).read_text()
    key = Home(node_home).site_key_path
    key.write_bytes(b"Passphrase kept by the keyring as: x\n" + key.read_bytes())
    kept = await service(node_home, tools, "install")
    assert (kept.code, "unlocked" in kept.out) == (0, True)
    assert json.loads((await service(node_home, tools, "status", "--output", "json")).out)["as_this_version"]
