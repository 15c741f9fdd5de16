"""`meshnode doctor` as a person runs it: output, exit codes, a node behind its socket, none, and a broken home."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.command import meshnode, meshnode_afresh
from support.memory_node import MemoryNode

from meshnode.errors import NotFoundError
from meshnode.node.home import Home


async def test_a_running_node_is_asked_whatever_its_settings_have_become(home: Home, node: MemoryNode) -> None:
    home.config_path.write_text("no TOML")
    shown = await meshnode("doctor", "disk", "links", home=home.path)
    assert (shown.code, shown.err, node.looked_at) == (3, "", [["disk", "links"]])
    assert [line.split()[:2] for line in shown.out.splitlines()[:2]] == [["pass", "disk"], ["warn", "links"]]
    assert shown.out.splitlines()[2].strip() == "is it on?"
    assert shown.out.splitlines()[3] == "2 checks: 1 pass, 1 warn, 0 fail"
    assert "\x1b" not in shown.out


async def test_json_is_one_object_and_jsonl_one_finding_a_line(home: Home, node: MemoryNode) -> None:
    whole = await meshnode("doctor", "--output", "json", home=home.path)
    assert (whole.json["verdict"], whole.json["running"], len(whole.json["findings"])) == ("warn", True, 2)
    lines = await meshnode("doctor", "--output", "jsonl", home=home.path)
    *found, last = map(json.loads, lines.out.splitlines())
    assert [each["check"] for each in found] == ["disk", "links"]
    assert (last["line"], last["verdict"], last["software"]) == ("summary", "warn", node.software)


async def test_a_node_of_another_version_is_told_apart(home: Home, node: MemoryNode) -> None:
    node.software = "meshnode/0.0.1"
    shown = await meshnode("doctor", home=home.path)
    assert "the node runs meshnode/0.0.1" in shown.out


async def test_a_node_that_cannot_be_asked_is_a_failure_and_the_rest_is_looked_at_beside_it(
    home: Home, node: MemoryNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def older(_checks: object) -> None:
        raise NotFoundError("this node has no such operation: is its meshnode older?")

    monkeypatch.setattr(node, "doctor", older)
    shown = await meshnode("doctor", "node", "disk", home=home.path)
    assert (shown.code, shown.err) == (1, "")
    assert "is its meshnode older?" in shown.out
    assert "pass  disk" in shown.out


async def test_a_check_that_is_none_is_a_misuse(home: Home) -> None:
    refused = await meshnode("doctor", "disc", home=home.path)
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert "did you mean 'disk'" in refused.err


async def test_help_names_the_checks_and_the_exit_codes() -> None:
    shown = await meshnode("doctor", "--help", home=Path("/nowhere"))
    words = " ".join(shown.out.split())
    assert all(each in words for each in ("Exit codes: 0", "withheld,", "meshnode doctor database disk"))


async def test_no_home_a_whole_one_and_a_broken_one(tmp_path: Path) -> None:
    """Never a traceback, no secret, and each has its exit code."""
    path = tmp_path / "n"
    nothing = await meshnode("doctor", home=path)
    assert (nothing.code, nothing.err) == (1, "")
    assert "meshnode init" in nothing.out
    assert (await meshnode("init", "--name", "desk", home=path)).code == 0
    resting = await meshnode_afresh("doctor", home=path)
    assert (resting.code, resting.err) == (3, "")
    assert "no node runs here" in resting.out
    (path / "recovery.key").unlink()
    assert (await meshnode("doctor", "database", "disk", "recovery", "key", home=path)).code == 0
    keys = (path / "site.key").read_bytes()
    (path / "config.toml").write_bytes(b"\xff\xfe")
    (path / "meshnode.db").write_bytes(b"")
    (path / "site.key").write_bytes(keys[:40])
    broken = await meshnode("doctor", home=path)
    assert (broken.code, broken.err) == (1, "")
    failing = {line.split()[1] for line in broken.out.splitlines() if line.startswith("fail")}
    assert {"config", "key", "database"} <= failing
    assert keys[-32:].hex() not in nothing.out + resting.out + broken.out
    assert "Traceback" not in broken.out
