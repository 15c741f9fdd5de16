"""The verbs as scripts spell them, against a node behind its control socket: output, exit codes, one clear line."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest
from support.command import Result, meshnode, meshnode_afresh, start
from support.memory_node import PEER, SITE, MemoryNode

from meshnode.cli import main
from meshnode.cli.main import verbs
from meshnode.control.server import ControlServer
from meshnode.errors import MembershipError
from meshnode.node.home import Home
from meshnode.node.keyfile import write_key
from meshnode.node.lock import try_lock


def complains(result: Result, code: int, says: str) -> None:
    assert (result.code, result.out) == (code, "")
    assert says in result.err
    assert result.err.startswith("meshnode: ")
    assert result.err.count("\n") == 1
    assert "Traceback" not in result.err


async def test_put_get_rm(home: Home, node: MemoryNode) -> None:
    assert (await meshnode("put", "notes", "id=n1", "title=Milk", "done:=0", home=home.path)).code == 0
    got = await meshnode("get", "notes", "id=n1", "--output", "json", home=home.path)
    assert (got.code, got.json) == (0, {"id": "n1", "title": "Milk", "done": 0})
    assert (await meshnode("put", "notes", "id=n1", "title:=null", home=home.path)).code == 0
    got = await meshnode("--output", "json", "get", "notes", "id=n1", home=home.path)
    assert got.json["title"] is None
    assert (await meshnode("rm", "notes", "id=n1", home=home.path)).code == 0
    complains(await meshnode("get", "notes", "id=n1", home=home.path), 1, "no row id=n1 in table notes")
    complains(await meshnode("rm", "notes", "id=n1", home=home.path), 1, "no such row")


async def test_table_add_and_list(home: Home, node: MemoryNode) -> None:
    arguments = ["table", "add", "s.t", "--key", "id:TEXT", "--key", "no:INTEGER", "--column", "v:DECIMAL(10,2)"]
    added = await meshnode(*arguments, "--output", "json", home=home.path)
    assert added.json["key"] == {"id": "TEXT", "no": "INTEGER"}
    assert added.json["columns"] == {"v": "DECIMAL(10,2)"}
    listed = await meshnode("table", "list", "--output", "json", home=home.path)
    assert [table["table"] for table in listed.json] == ["notes", "s.t"]
    before = await meshnode("--output", "jsonl", "table", "list", home=home.path)
    assert [json.loads(line)["table"] for line in before.out.splitlines()] == ["notes", "s.t"]


async def test_the_class_of_a_table_and_the_policy(home: Home, node: MemoryNode) -> None:
    added = await meshnode(
        "table", "add", "t", "--key", "id:TEXT", "--class", "raw", "--output", "json", home=home.path
    )
    assert (added.code, added.json["class"]) == (0, "raw")
    changed = await meshnode("table", "class", "t", "private", "--output", "json", home=home.path)
    assert changed.json["classes"] == {"t": "private"}
    for words, setting, value in (
        (["scope", "main.*", "!main.t"], "scope", ["main.*", "!main.t"]),
        (["scope"], "scope", []),
        (["replicate_raw_ingress", "on"], "replicate_raw_ingress", True),
        (["replay_budget_days", "30"], "replay_budget_days", 30),
        (["announce_on_untrusted_wifi", "off"], "announce_on_untrusted_wifi", False),
        (["trusted_ssids", "Home Wi-Fi", "Büro"], "trusted_ssids", ["Home Wi-Fi", "Büro"]),
    ):
        changed = await meshnode("policy", "set", *words, "--output", "json", home=home.path)
        assert (changed.code, changed.json[setting]) == (0, value)
    shown = await meshnode("policy", "show", home=home.path)
    assert shown.out.splitlines()[1].split() == ["replicate_raw_ingress", "true"]
    for words, says in (
        (["table", "class", "t", "secret"], "no class of tables"),
        (["table", "add", "u", "--key", "id:TEXT", "--class", "x"], "no class of tables"),
        (["policy", "set", "prot", "1"], "no policy 'prot'"),
        (["policy", "set", "replicate_raw_ingress", "perhaps"], "true or false"),
        (["policy", "set", "replay_budget_days"], "takes one value"),
        (["policy"], "show|set"),
    ):
        complains(await meshnode(*words, home=home.path), 2, says)


async def test_which_copy_of_a_database_this_is(home: Home, node: MemoryNode) -> None:
    said = await meshnode("identity", "resume", home=home.path)
    assert (said.code, said.out) == (
        0,
        f"This copy goes on as 'bench' (site {SITE[:8]}). It asks 2 other devices for its own events.\n",
    )
    as_json = await meshnode("identity", "resume", "--output", "json", home=home.path)
    assert (as_json.json["publishing"], as_json.json["asked"]) == (True, 2)
    complains(await meshnode("identity", home=home.path), 2, "resume|renew")
    complains(await meshnode("identity", "renew", home=home.path), 2, "INVITE")
    complains(await meshnode("identity", "renew", "nonsense", home=home.path), 1, "invite")
    complains(await meshnode("identity", "renew", "x", "--timeout", "0", home=home.path), 2, "--timeout")


async def test_the_state_of_the_delivery(home: Home, node: MemoryNode) -> None:
    shown = await meshnode("sync-state", home=home.path)
    assert shown.code == 0
    assert "\x1b" not in shown.out
    for line in (
        "frame 7: 2 events, 300 bytes, sent again 1 time",
        "asked it for table *",
        "stands still: unreadable",
    ):
        assert f"{PEER.short} {line}" in shown.out.splitlines()
    as_json = await meshnode("sync-state", "--peer", PEER.name, "--output", "json", home=home.path)
    assert (as_json.json[0]["cursor"], as_json.json[0]["staged"][0]["attempts"]) == (5, 1)
    lines = await meshnode("sync-state", "--output", "jsonl", home=home.path)
    assert json.loads(lines.out)["next_inbound"] == 4
    frontier = await meshnode("frontier", "--output", "json", home=home.path)
    assert [(each["counter"], each["evidence"]) for each in frontier.json] == [(9, "ordering")]
    plain = await meshnode("frontier", "--peer", PEER.site, home=home.path)
    assert "rdering evidence" in plain.err
    receipt = await meshnode("request-sync", PEER.name, "--table", "notes", "--output", "json", home=home.path)
    assert [(each["table"], each["linked"]) for each in receipt.json["asked"]] == [("notes", False)]
    assert (await meshnode("request-sync", home=home.path)).out.splitlines()[0].split() == [
        "short", "name", "table", "linked", "id",
    ]  # fmt: skip
    for verb in (["sync-state", "--peer"], ["frontier", "--peer"], ["request-sync"]):
        complains(await meshnode(*verb, "nobody", home=home.path), 1, "no other member")


async def test_rows_as_table_json_and_jsonl(home: Home, node: MemoryNode) -> None:
    await node.put("notes", {"id": "a"}, {"title": "x\x1b[31m", "raw": b"\x00"})
    await node.put("notes", {"id": "b"}, {})
    table = await meshnode("rows", "notes", home=home.path)
    assert table.out.splitlines()[0].split() == ["id", "title", "done", "raw"]
    assert "\x1b" not in table.out
    as_json = await meshnode("rows", "notes", "--output", "json", home=home.path)
    assert as_json.json == [{"id": "a", "title": "x\x1b[31m", "raw": {"$bytes": "00"}}, {"id": "b"}]
    lines = await meshnode("rows", "notes", "--limit", "1", "--output", "jsonl", home=home.path)
    assert [json.loads(line)["id"] for line in lines.out.splitlines()] == ["a"]
    none = await meshnode("rows", "notes", "--limit", "0", "--output", "json", home=home.path)
    assert none.json == []


async def test_import_writes_the_good_rows_and_names_the_bad(home: Home, node: MemoryNode, tmp_path: Path) -> None:
    file = tmp_path / "notes.csv"
    file.write_text("id,title,done\n" + "".join(f"n{number},t,1\n" for number in range(1200)) + "x,t,many\ny,bad,1\n")
    node.refuse = "bad"
    result = await meshnode("import", "notes", str(file), "--output", "json", home=home.path)
    assert (result.code, result.json) == (1, {"rows": 1200, "refused": 2})
    assert result.err.splitlines() == [
        f"meshnode: {file}:1202: column 'done' takes an integer, not 'many'",
        f"meshnode: {file}:1203: the engine refuses 'bad'",
    ]
    assert node.imports[:2] == [500, 500]
    node.refuse = None
    assert (await meshnode("import", "notes", str(file), home=home.path)).out == "1,201 rows written, 1 refused\n"


async def test_import_from_standard_input(home: Home, node: MemoryNode) -> None:
    result = await meshnode("import", "notes", "-", home=home.path, stdin=b'{"id": "a", "raw": {"$bytes": "ff"}}\n')
    assert (result.code, result.out) == (0, "1 row written\n")
    result = await meshnode("import", "notes", "-", "--format", "tsv", home=home.path, stdin=b"id\ttitle\nb\tx\n")
    assert result.code == 0
    assert [row.flat() for row in await node.rows("notes")] == [{"id": "a", "raw": b"\xff"}, {"id": "b", "title": "x"}]


async def test_watch_prints_changes_as_they_happen(home: Home, node: MemoryNode) -> None:
    await node.put("notes", {"id": "early"}, {})
    process = await start("watch", "notes", "--since", "0", home=home.path)
    assert process.stdout is not None
    assert json.loads(await process.stdout.readline())["key"] == {"id": "early"}
    await node.put("notes", {"id": "late"}, {"title": "x"})
    change = json.loads(await process.stdout.readline())
    assert (change["seq"], change["key"], change["columns"]) == (2, {"id": "late"}, {"title": "x"})
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()
    assert (process.returncode, err) == (130, b"")


async def test_output_into_a_closed_pipe_is_no_traceback(home: Home, node: MemoryNode) -> None:
    for number in range(3000):
        await node.put("notes", {"id": f"n{number}"}, {"title": "x" * 100})
    process = await start("rows", "notes", "--output", "jsonl", home=home.path)
    assert process.stdout is not None
    await process.stdout.readline()
    process.stdout._transport.close()  # type: ignore[attr-defined]
    assert process.stderr is not None
    assert await process.stderr.read() == b""
    assert await process.wait() == 1


async def test_status_peers_digest_invite(home: Home, node: MemoryNode) -> None:
    status = await meshnode("status", "--output", "json", home=home.path)
    assert status.json["running"] is True
    assert status.json["site"] == SITE
    assert status.json["mesh_tag"] == "79861c3394fcfdb9"
    assert [peer["site"] for peer in status.json["peers"]] == [PEER.site]
    shown = await meshnode("status", home=home.path)
    assert shown.code == 0
    assert "\x1b" not in shown.out
    peers = await meshnode("peers", home=home.path)
    assert "nas" in peers.out
    digest = await meshnode("digest", "--output", "json", home=home.path)
    assert digest.json == [{"table": "notes", "digest": "00" * 32, "rows": 0}]
    digest = await meshnode("digest", "notes", "--output", "json", home=home.path)
    assert len(digest.json) == 1
    invite = await meshnode("invite", "--output", "json", home=home.path)
    assert invite.json["invite"] == "meshnode-invite:abc"
    assert (await meshnode("invite", home=home.path)).out == "meshnode-invite:abc\n"


async def test_who_is_in(home: Home, node: MemoryNode) -> None:
    shown = await meshnode("members", home=home.path)
    assert shown.code == 0
    assert "\x1b" not in shown.out
    lines = [line.split() for line in shown.out.splitlines()]
    assert lines[0] == ["site", "name", "role", "by", "last", "seen", "address", "version"]
    assert lines[1][:4] == [SITE[:8], "bench", "authority", "1"]
    assert "2027-01-15 08:00Z" in shown.out
    as_json = await meshnode("members", "--output", "json", home=home.path)
    assert [(each["own"], each["seniority"]) for each in as_json.json] == [(True, 1), (False, None)]
    one_a_line = await meshnode("members", "--output", "jsonl", home=home.path)
    assert [json.loads(line)["by_site"] for line in one_a_line.out.splitlines()] == ["00" * 16, SITE]


async def test_vouch_role_retire_leave(home: Home, node: MemoryNode, tmp_path: Path) -> None:
    vouched = await meshnode("vouch", "nas", "--name", "n", "--output", "json", home=home.path)
    assert (vouched.json["kind"], vouched.json["name"]) == ("vouch", "n")
    assert "is a member" in (await meshnode("vouch", "nas", home=home.path)).out
    write_key(tmp_path / "k", bytes(32), None)
    key = f"{'../' * len(Path.cwd().parts[1:])}{tmp_path / 'k'}".replace("//", "/")
    given = await meshnode("role", PEER.short, "reader", "--recovery", key, "--output", "json", home=home.path)
    assert (given.json["role"], given.json["by"]) == ("reader", str(Path.cwd() / key)), "a node may run elsewhere"
    assert "a reader from now on" in (await meshnode("role", PEER.short, "reader", home=home.path)).out
    complains(await meshnode("role", PEER.short, "owner", home=home.path), 2, "invalid choice")
    for named in ("bench", SITE, SITE[:8].upper()):  # the only one that may say so
        complains(await meshnode("role", named, "reader", home=home.path), 2, "--yes")
    complains(await meshnode("role", "BENCH", "reader", home=home.path), 1, "'bench'?")  # a name is exact
    assert (await meshnode("role", "bench", "member", "--yes", home=home.path)).code == 0
    complains(await meshnode("role", PEER.short, "reader", "--recovery", "nothing", home=home.path), 1, "is missing")
    retired = await meshnode("retire", PEER.short, "--at", "2026-11-30", "--yes", "--output", "json", home=home.path)
    assert (retired.json["name"], retired.json["cutoff"]) == (PEER.site, [1_795_996_800_000, 0])
    said = await meshnode("retire", PEER.site, "--yes", home=home.path)
    assert "is retired" in said.out
    assert "phone (00000000)" in said.out
    complains(await meshnode("retire", PEER.site, home=home.path), 2, "--yes")
    complains(await meshnode("retire", "nobody", "--yes", home=home.path), 1, "meshnode members")
    complains(await meshnode("retire", PEER.site, "--at", "soon", "--yes", home=home.path), 2, "is no time")
    complains(await meshnode("leave", home=home.path), 2, "--yes")
    left = await meshnode("leave", "--yes", home=home.path)
    assert "has left the mesh" in left.out
    assert "Not told yet: nas" in left.out
    assert (await meshnode("leave", "--yes", "--output", "json", home=home.path)).json["untold"] == ["nas"]


async def test_a_device_that_may_not_is_no_fault_of_the_command_line(home: Home, node: MemoryNode) -> None:
    node.failure = MembershipError("this device was retired")
    complains(await meshnode("status", home=home.path), 1, "was retired")


async def test_wait_names_who_is_behind(home: Home, node: MemoryNode) -> None:
    assert (await meshnode("wait", "--all", "--timeout", "0.1", home=home.path)).code == 0
    node.complete = False
    complains(
        await meshnode("wait", "--live", "--timeout", "0.1", home=home.path),
        2,
        "'nas' (1eed29b1, not linked) is behind: not linked",
    )
    result = await meshnode("wait", "--timeout", "0.1", "--output", "json", home=home.path)
    assert (result.code, result.json["complete"]) == (2, False)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["gett"], 2, "did you mean 'get'"),
        ([], 2, "which verb"),
        (["--output", "xml", "status"], 2, "--output"),
        (["status", "--output", "xml"], 2, "--output"),
        (["status", "--zzz"], 2, "--zzz"),
        (["put", "notes"], 2, "required"),
        (["put", "note", "id=a"], 1, "did you mean 'notes'"),
        (["put", "a.b.c", "id=a"], 2, "names no table"),
        (["put", "notes", "title=x"], 2, "key column 'id'"),
        (["put", "notes", "id=a", "done=x"], 2, "takes an integer"),
        (["put", "notes", "id=a", "tilte=x"], 1, "did you mean 'title'"),
        (["get", "notes", "id=a", "title=x"], 2, "title is not part of it"),
        (["rows", "notes", "--limit", "-1"], 2, "--limit"),
        (["rows", "notes", "--limit", "x"], 2, "--limit"),
        (["watch", "--since", "-1"], 2, "--since"),
        (["wait", "--timeout", "nan"], 2, "--timeout"),
        (["wait", "--all", "--live"], 2, "not allowed"),
        (["invite", "--minutes", "0"], 2, "--minutes"),
        (["import", "notes", "/nowhere.csv"], 1, "/nowhere.csv"),
        (["import", "notes", "-", "--encoding", "zzz"], 2, "zzz"),
        (["import", "notes", "-"], 1, "standard input:1: the file is empty"),
        (["table", "add", "t", "--key", "a:TEXT", "--column", "a:TEXT"], 2, "as --key and as --column"),
        (["table", "add", "t", "--key", ":TEXT"], 2, "names no column"),
        (["table", "add", "t", "--column", "a:TEXT"], 2, "which columns are the key"),
        (["table"], 2, "add|list"),
        (["join", "meshnode-invite:zzzz"], 1, "mistyped"),
        (["join", "hello", "--yes"], 1, "begins with"),
        (["conform", "/nowhere"], 1, "/nowhere"),
        (["init"], 2, "already"),
    ],
)
async def test_a_wrong_command_line_is_one_clear_line(
    home: Home, node: MemoryNode, arguments: list[str], code: int, says: str
) -> None:
    result = await meshnode(*arguments, home=home.path)
    if arguments[:1] == ["import"] and code == 1:
        assert (result.code, says in result.err) == (1, True)
    else:
        complains(result, code, says)


async def test_bytes_that_are_no_text_are_one_clear_line(home: Home, node: MemoryNode) -> None:
    complains(await meshnode("put", "notes", "id=a", "title=\udcff", home=home.path), 2, "no UTF-8")
    complains(await meshnode("conflicts", "--table", "\udcff", home=home.path), 2, "not UTF-8")


async def test_a_broken_settings_file_is_one_clear_line(home: Home) -> None:
    home.config_path.write_text("prot = 1\n")
    complains(await meshnode("status", home=home.path), 2, "did you mean 'port'")


async def test_a_home_without_a_node_says_how_to_make_one(tmp_path: Path) -> None:
    complains(await meshnode("status", home=tmp_path / "none"), 1, "meshnode init")


async def test_a_writing_verb_finds_the_node_that_starts_while_it_waits(home: Home) -> None:
    lock = try_lock(home.lock_path, "up")
    assert lock is not None
    process = await start("put", "notes", "id=a", home=home.path)
    node = MemoryNode()
    await node.add_table("notes", {"id": "TEXT"}, {})
    async with ControlServer(node, home):
        _, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert [row.key for row in await node.rows("notes")] == [{"id": "a"}]
    lock.release()


async def test_version_and_help(home: Home) -> None:
    assert (await meshnode_afresh("--version", home=home.path)).out.startswith("meshnode 0.")
    shown = await meshnode("--help", home=home.path)
    assert shown.code == 0
    for verb in ("init", "up", "invite", "join", "table", "put", "get", "rm", "rows", "import", "watch", "peers"):
        assert f"  {verb}" in shown.out
    helps = await asyncio.gather(*(meshnode_afresh(verb, "--help", home=home.path) for verb, _, _ in verbs()))
    assert all(result.code == 0 and "usage: meshnode" in result.out for result in helps)


async def test_a_fault_of_the_program_is_one_line_unless_asked_for_more(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fault(_arguments: list[str]) -> int:
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setattr(main, "_run", fault)
    monkeypatch.delenv("MESHNODE_DEBUG", raising=False)
    assert main.main([]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("meshnode: this is a fault of meshnode itself: ZeroDivisionError: by\\nzero")
    monkeypatch.setenv("MESHNODE_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main.main([])


async def test_evict_rehydrate_compact(home: Home, node: MemoryNode) -> None:
    evicted = await meshnode("evict", "notes", "--before", "2026-11-30T01:00+01:00", "--output", "json", home=home.path)
    assert (evicted.code, evicted.json["horizon"]) == (0, [1_795_996_800_000, 0])
    evicted = await meshnode("evict", "notes", "--before", "1795996800000", "--all", "--output", "json", home=home.path)
    assert (evicted.json["events"], evicted.json["horizon"]) == (2, [1_795_996_800_000, 0])
    for time in ("yesterday", "2026-13-01", "-5"):
        complains(await meshnode("evict", "notes", f"--before={time}", home=home.path), 2, "is no time")
    assert (await meshnode("rehydrate", "notes", "--output", "json", home=home.path)).json["asked"] == 2
    assert (await meshnode("compact", "--output", "json", home=home.path)).json["tables"] == ["notes"]
    assert "300" in (await meshnode("compact", "notes", home=home.path)).out


async def test_forget(home: Home, node: MemoryNode) -> None:
    await node.put("notes", {"id": "n1"}, {"title": "Milk"})
    forgotten = await meshnode("forget", "notes", "id=n1", "--output", "json", home=home.path)
    assert (forgotten.code, forgotten.json["events"]) == (0, 1)
    assert await node.get("notes", {"id": "n1"}) is None
    assert (await meshnode("forget", "notes", "id=n1", "--undo", "--output", "json", home=home.path)).json["undone"]
    complains(await meshnode("forget", "notes", "id=n1", "title=x", home=home.path), 2, "title is not part of it")
    complains(await meshnode("forget", "nowhere", "id=n1", home=home.path), 1, "nowhere")
