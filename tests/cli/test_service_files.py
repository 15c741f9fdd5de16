"""The files that `service` writes: exact for a usual node, and read back by other parsers where a path is hostile."""

from __future__ import annotations

import os
import plistlib
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support.service_words import line_of, systemd_words, windows_words

from meshnode.cli.service.description import Service, described, program_of
from meshnode.cli.service.launchd import Launchd
from meshnode.cli.service.manager import Ran
from meshnode.cli.service.steps import inspect
from meshnode.cli.service.systemd import Systemd
from meshnode.cli.service.windows import Windows
from meshnode.errors import ConfigError, UsageError

USUAL = Service(("/opt/venv/bin/python", "-P", "-m", "meshnode"), "/home/ada/.local/share/meshnode", usual=True)
HOSTILE = [
    "a b",
    " a  b ",
    "100%",
    "%h %%n",
    "$HOME ${x} $$",
    "'a' \"b\"",
    "\\",
    "a\\nb\\",
    'a\\"b',
    "ü😀",
    ";",
    "#&<>]]>",
    "-x",
    "=:",
]
UNIT = """\
[Unit]
Description=meshnode (node in /home/ada/.local/share/meshnode)
StartLimitIntervalSec=600
StartLimitBurst=10

[Service]
Type=notify
NotifyAccess=main
ExecStart=":/opt/venv/bin/python" "-P" "-m" "meshnode" "--home" "/home/ada/.local/share/meshnode" "up"
Restart=on-failure
RestartSec=10
RestartPreventExitStatus=2
TimeoutStartSec=900
TimeoutStopSec=30
UMask=0077
NoNewPrivileges=yes
LockPersonality=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native

[Install]
WantedBy=default.target
"""


def systemd() -> Systemd:
    return Systemd({}, Path("/home/ada"))


def windows() -> Windows:
    return Windows({"USERDOMAIN": "DESK", "USERNAME": "ada & co"})


def runnable(word: str) -> str:
    """Without what systemd allows in no program's path."""
    return re.sub(r"[\\'\"]", "_", word)


def test_the_unit_of_a_usual_node_is_this_one() -> None:
    assert systemd().text(USUAL).decode() == UNIT
    assert systemd().path(USUAL) == Path("/home/ada/.config/systemd/user/meshnode.service")
    assert Systemd({"XDG_CONFIG_HOME": "/c"}, Path("/home/ada")).path(USUAL) == Path("/c/systemd/user/meshnode.service")


def test_two_homes_have_two_names() -> None:
    names = {systemd().label(replace(USUAL, home=home, usual=False)) for home in ("/a", "/b", "/a")}
    assert len(names) == 2
    assert all(re.fullmatch(r"meshnode@[0-9a-f]{8}\.service", name) for name in names)


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_a_unit_of_hostile_paths_says_what_was_meant(number: int) -> None:
    word = HOSTILE[number]
    program = (f"/opt/{runnable(word)}/python", *USUAL.program[1:])
    file = None if word[-1] in " \\" else f"/mnt/{word}"
    service = Service(program, f"/home/{word}", False, "debug", file, (("PYTHONPATH", f"/src/{word}"),))
    text = systemd().text(service)
    first, *rest = systemd_words(line_of(text, "ExecStart"))
    assert first[0] == ":", "without it systemd looks for variables"
    assert (first[1:], *rest) == service.command
    assert systemd_words(line_of(text, "Environment")) == [f"PYTHONPATH=/src/{word}"]
    if file is not None:
        assert line_of(text, "StandardInput").replace("%%", "%") == f"file:{file}"
    assert not any(line.endswith("\\") for line in text.decode().splitlines()), "the next line would belong to it"
    assert systemd().read(text, usual=False) == service


@pytest.mark.parametrize(
    "manager", [systemd(), Launchd(Path("/Users/ada"), 501), windows()], ids=lambda each: each.name
)
@pytest.mark.parametrize("word", ["a\nExecStart=/bin/sh", "a\rb", "a\0", "\x1b[2J", "\x85", "\udcff"], ids=ascii)
def test_what_no_line_can_hold_is_refused(manager: Systemd | Launchd | Windows, word: str) -> None:
    for service in (replace(USUAL, home=f"/{word}"), replace(USUAL, program=(f"/{word}", "-P"))):
        with pytest.raises(UsageError, match="service"):
            manager.text(service)


@pytest.mark.parametrize("ending", ["/mnt/a ", "/mnt/a\\"], ids=["space", "backslash"])
def test_a_unit_cannot_name_every_file(ending: str) -> None:
    with pytest.raises(UsageError, match="otherwise"):
        systemd().text(replace(USUAL, passphrase_file=ending))


@pytest.mark.parametrize("path", ["/o'pt/python", '/o"pt/python', "/o\\pt/python"], ids=range(3))
def test_a_program_that_systemd_would_not_run_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match="quotes or backslashes"):
        systemd().text(replace(USUAL, program=(path, *USUAL.program[1:])))


def test_systemd_itself_takes_the_units(tmp_path: Path) -> None:
    """It looks for the program, so it finds a hostile path only if it unquotes it to what was meant."""
    units = []
    for number, word in enumerate(HOSTILE):
        folder = tmp_path / f"{number}{runnable(word)}"
        folder.mkdir()
        (folder / "python").symlink_to(sys.executable)
        file = None if word[-1] in " \\" else f"/mnt/{word}"
        service = Service(
            (str(folder / "python"), "-P"), f"/home/{word}", False, None, file, (("PYTHONPATH", f"/src/{word}"),)
        )
        units.append(tmp_path / f"meshnode@{number}.service")
        units[-1].write_bytes(systemd().text(service))
    assert verified(*units) == ""
    (tmp_path / "0a b" / "python").unlink()
    assert "not executable" in verified(units[0]), "the check can fail"


def verified(*units: Path) -> str:
    """What `systemd-analyze --user verify` says of our units: it looks at what they need of the system as well."""
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(units[0].parent)}
    command = ["systemd-analyze", "--user", "--man=no", "verify", *map(str, units)]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment)
    return "\n".join(line for line in ran.stderr.splitlines() if "meshnode@" in line)


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_an_agent_of_launchd_says_what_was_meant(number: int) -> None:
    launchd = Launchd(Path("/Users/ada"), 501)
    word = HOSTILE[number]
    service = Service((f"/opt/{word}", "-P"), f"/{word}", False, "info", f"/m/{word}", (("PYTHONPATH", word),))
    text = launchd.text(service)
    said = plistlib.loads(text)
    assert tuple(said.pop("ProgramArguments")) == service.command
    assert said == {
        "Label": f"meshnode.{service.instance}",
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 30,
        "ExitTimeOut": 30,
        "ProcessType": "Background",
        "Umask": 0o077,
        "StandardInPath": f"/m/{word}",
        "EnvironmentVariables": {"PYTHONPATH": word},
    }
    assert launchd.read(text, usual=False) == service
    assert launchd.path(USUAL) == Path("/Users/ada/Library/LaunchAgents/meshnode.plist")


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_a_task_of_windows_says_what_was_meant(number: int) -> None:
    word = HOSTILE[number]
    service = Service((f"C:\\{word}\\python.exe", "-P"), f"C:\\{word}", False, "info")
    if re.search("%.+%", word):
        with pytest.raises(UsageError, match="expand"):
            windows().text(service)
        return
    text = windows().text(service)
    assert text[:2] == b"\xff\xfe", "the mark of UTF-16, without which `schtasks` reads bytes"
    task = ElementTree.fromstring(text)
    space = {"": "http://schemas.microsoft.com/windows/2004/02/mit/task"}
    command, arguments = (task.findtext(f"Actions/Exec/{name}", "", space) for name in ("Command", "Arguments"))
    assert (command, *windows_words(arguments)) == service.command
    assert task.findtext("Triggers/LogonTrigger/UserId", "", space) == "DESK\\ada & co"
    assert task.findtext("Settings/ExecutionTimeLimit", "", space) == "PT0S", "or it ends after three days"
    assert windows().read(text, usual=False) == service


def test_a_task_printed_elsewhere_names_nobody() -> None:
    service = Service(("python", "-m", "meshnode"), "C:/home", usual=False)
    assert windows().text(service).decode("utf-16").count("<UserId>DESK\\ada &amp; co</UserId>") == 2
    text = Windows({}).text(service)
    assert "UserId" not in text.decode("utf-16")
    assert Windows({}).read(text, usual=False) == service


def test_windows_says_what_it_cannot_do() -> None:
    for service, says in [
        (replace(USUAL, passphrase_file="C:\\p"), "keyring"),
        (replace(USUAL, environment=(("PYTHONPATH", "x"),)), "PYTHONPATH"),
        (replace(USUAL, home="C:\\$(Arg0)"), "expand"),
    ]:
        with pytest.raises(UsageError, match=says):
            windows().text(service)


@pytest.mark.parametrize(
    "manager", [systemd(), Launchd(Path("/Users/ada"), 501), windows()], ids=lambda each: each.name
)
@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe\xff",
        b"[Service]\nExecStart=/bin/true --home\n",
        b"<plist><dict/></plist>",
        b"\xff\xfe<\0a\0/\0>\0",
    ],
    ids=range(5),
)
def test_a_file_of_another_hand_is_of_no_service(manager: Systemd | Launchd | Windows, text: bytes) -> None:
    assert manager.read(text, usual=True) is None


def test_a_command_is_ours_or_none() -> None:
    command = [*USUAL.command, "--port", "1"]
    assert described(USUAL.command, usual=True, passphrase_file=None, environment=()) == USUAL
    assert described(command, usual=True, passphrase_file=None, environment=()) is None
    assert described(["x", "--home"], usual=True, passphrase_file=None, environment=()) is None


def test_the_program_is_the_interpreter_and_searches_no_folder_that_it_starts_in(tmp_path: Path) -> None:
    (tmp_path / "meshnode").mkdir()
    (tmp_path / "meshnode" / "__main__.py").write_text("print('another one')")
    shown = subprocess.run([*program_of(sys.executable), "--version"], cwd=tmp_path, capture_output=True, text=True)
    assert shown.stdout.startswith("meshnode ")
    with pytest.raises(UsageError, match="interpreter"):
        program_of("")


@pytest.mark.parametrize("words", [["--home", "/h\n", "up"], ["--home", "/h", "up", "--passphrase-fd", "0"]], ids=len)
def test_an_agent_that_another_hand_changed_is_only_compared(tmp_path: Path, words: list[str]) -> None:
    manager = Launchd(tmp_path, 501)
    manager.path(USUAL).parent.mkdir(parents=True)
    text = plistlib.dumps({"ProgramArguments": [*USUAL.program, *words], "StandardInPath": 0})
    manager.path(USUAL).write_bytes(text)
    found = inspect(USUAL, manager, lambda _command: Ran(1))
    assert (found.installed, found.as_this_version) == (True, False)


def test_a_pipe_in_the_place_of_a_unit_keeps_nobody_waiting(tmp_path: Path) -> None:
    manager = Systemd({"XDG_CONFIG_HOME": str(tmp_path)}, tmp_path)
    manager.path(USUAL).parent.mkdir(parents=True)
    os.mkfifo(manager.path(USUAL))
    with pytest.raises(ConfigError, match="it is a pipe"):
        inspect(USUAL, manager, lambda _command: Ran(1))
