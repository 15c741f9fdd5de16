"""`meshnode config` as a person uses it, with a running node and without: three forms of output, clear errors."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from support.command import meshnode, start
from support.memory_node import SITE, MemoryNode

from meshnode.cli.main import main
from meshnode.control.server import ControlServer
from meshnode.node.config import SETTINGS, Config
from meshnode.node.configfile import load_config
from meshnode.node.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = Home(tmp_path / "n", Config())
    home.prepare()
    home.write_incarnation(bytes(16))
    home.write_config(Config(name="desk", port=4747))
    return home.path


def said(home: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run it in this process: no node is in question."""
    code = main(["--home", str(home), "config", *words])
    return code, *capsys.readouterr()


def test_show_tells_where_each_value_comes_from(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(home, capsys, "show")
    assert (code, out.splitlines()[0].split()) == (0, ["setting", "value", "default", "source", "in", "force"])
    assert [line.split()[0] for line in out.splitlines()[1:]] == list(SETTINGS)
    assert ["port", "4747", "0", "file", "next", "start"] in [line.split() for line in out.splitlines()]
    whole = json.loads(said(home, capsys, "show", "--output", "json")[1])
    assert (whole["running"], len(whole["settings"]), len(whole["digest"])) == (False, len(SETTINGS), 64)
    lines = [json.loads(line) for line in said(home, capsys, "show", "--output", "jsonl")[1].splitlines()]
    assert lines.pop() == {"line": "summary"} | {name: whole[name] for name in whole if name != "settings"}
    assert lines == whole["settings"]
    one = json.loads(said(home, capsys, "show", "port", "--output", "json")[1])
    assert one == lines[1]
    assert "UDP port" in said(home, capsys, "show", "port")[1]


def test_set_says_what_changed_once(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change = ("set", "replay_budget_days", "30", "peers", '["nas:4747"]', "mdns_enabled", "off")
    assert said(home, capsys, *change)[:2] == (
        0,
        'peers: [] -> ["nas:4747"]\nmdns_enabled: true -> false\nreplay_budget_days: 0 -> 30\n',
    )
    assert said(home, capsys, *change)[1] == "nothing changed: config.toml said so before\n"
    assert load_config(home / "config.toml").peers == ["nas:4747"]


def test_a_database_that_is_not_there_is_taken_with_a_warning(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, warning = said(home, capsys, "set", "database", "app.db")
    assert (code, f"there is no {home / 'app.db'}" in warning) == (0, True)
    assert "meshnode config set database ''" in warning
    assert said(home, capsys, "set", "database", "")[0] == 0
    (home / "app.db").touch()
    assert said(home, capsys, "set", "database", "app.db")[2] == ""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["set", "prot", "1"], "did you mean 'port'"),
        (["set", "port"], "no value"),
        (["set", "port", "70000"], "a number from 0 to 65535, not 70000"),
        (["set", "scope", "a..b"], "matches no table"),
        (["set", "name", "a", "port", "x"], "port is a number"),
        (["show", "prot"], "did you mean 'port'"),
        (["apply", "."], "cannot read ."),
        (["check", "."], "cannot read ."),
        ([], "show|set|apply|check"),
    ],
    ids=[str(number) for number in range(9)],
)
def test_what_cannot_be_is_one_line_and_changes_nothing(
    home: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    before = (home / "config.toml").read_bytes()
    code, out, err = said(home, capsys, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err
    assert (home / "config.toml").read_bytes() == before


def test_check_names_every_fault(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(home, capsys, "check")[:2] == (0, f"{home / 'config.toml'} can be used\n")
    file = tmp_path / "new.toml"
    file.write_text("prot = 1\n\nport = 'x'\n")
    code, out, _ = said(home, capsys, "check", str(file))
    assert (code, [line.partition(": line ")[2][:2] for line in out.splitlines()]) == (1, ["1:", "3:"])
    for form in ("json", "jsonl"):
        checked = json.loads(said(home, capsys, "check", str(file), "--output", form)[1])
        assert (checked["valid"], [each["line"] for each in checked["faults"]]) == (False, [1, 3])
    refused = said(home, capsys, "apply", str(file))
    assert (refused[0], refused[2].count(f"{file}: line 1")) == (2, 1)


def test_help_has_every_setting_and_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    for action in ("show", "set", "apply", "check"):
        with pytest.raises(SystemExit):
            main(["config", action, "--help"])
        out = " ".join(capsys.readouterr().out.split())
        assert f"example: meshnode config {action}" in out
        assert [setting.about for setting in SETTINGS.values() if setting.about[1:] not in out] == []


async def test_two_at_once_lose_nothing(home: Path) -> None:
    both = (("replay_budget_days", "30"), ("max_links", "5"), ("trusted_ssids", '["Home"]'))
    done = await asyncio.gather(*(meshnode("config", "set", *each, home=home) for each in both))
    assert [each.code for each in done] == [0, 0, 0]
    assert load_config(home / "config.toml") == Config(
        name="desk", port=4747, replay_budget_days=30, max_links=5, trusted_ssids=["Home"]
    )


async def test_a_receipt_is_believed_only_if_the_node_answers_with_the_digest_of_this_file(home: Path) -> None:
    """The node here takes what it is told and writes no file, as one of another home would."""
    node = MemoryNode()
    async with ControlServer(node, Home(home, Config())):
        changed = await meshnode("config", "set", "port", "9", "--output", "json", home=home)
        assert changed.json["changed"] == {"port": {"before": 0, "after": 9}}
        assert (changed.json["reloaded"], changed.json["site"]) == (False, SITE)
        (home / "config.toml").write_text("port = 9\n")
        confirmed = await meshnode("config", "set", "port", "9", "--output", "json", home=home)
        assert (confirmed.json["reloaded"], confirmed.json["restart_required"]) == (True, ["port"])
        (home / "config.toml").write_text("port = 9\nmax_links = 5\n")
        assert not (await meshnode("config", "set", "port", "9", "--output", "json", home=home)).json["reloaded"]
        apply = await start("config", "apply", "-", home=home)
        out, _ = await apply.communicate(b"# nothing\n")
        assert b"did not confirm" in out
