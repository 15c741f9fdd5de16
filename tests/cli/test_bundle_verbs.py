"""`export-events` and `import-events` as two people with a stick use them: two homes and no network."""

from __future__ import annotations

import asyncio
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from support.command import meshnode, start
from support.nodes import free_port, loopback, pair_of_homes
from support.verbs import call, done

from meshnode import Node
from meshnode.control.client import ControlClient
from meshnode.control.server import ControlServer
from meshnode.errors import BundleError, NotFoundError, UsageError
from meshnode.node.home import Home
from meshnode.node.network import Network


@pytest.fixture(scope="module")
def paired(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Homes `a`, the founder, and `b`, that met once, while they paired."""
    folder = tmp_path_factory.mktemp("paired")
    asyncio.run(pair_of_homes(folder, (free_port(), free_port())))
    return folder


@pytest.fixture
def homes(paired: Path, tmp_path: Path) -> tuple[Path, Path]:
    shutil.copytree(paired, tmp_path, dirs_exist_ok=True)
    return tmp_path / "a", tmp_path / "b"


def digest(home: Path) -> str:
    return str(done(home, "digest", "--output", "json").json[0]["digest"])


def states(home: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = done(home, "sync-state", "--output", "json").json
    return found


def names(folder: Path) -> list[str]:
    """Every bundle there, whole or not."""
    return [each.name for each in folder.iterdir() if "bundle" in each.name]


def test_to_and_fro_on_a_stick_until_both_are_equal(homes: tuple[Path, Path], tmp_path: Path) -> None:
    a, b = homes
    stick, back = str(tmp_path / "stick.bundle"), str(tmp_path / "back.bundle")
    done(a, "put", "notes", "id=n1", "title=Milk")
    done(b, "put", "notes", "id=n1", "done:=1")
    done(b, "put", "notes", "id=n2", "title=Bread")
    said = done(a, "export-events", stick, "--for", "b").out
    assert said.startswith(f"{stick}: 1 event and ")
    assert " for 'b', " in said
    assert stat.S_IMODE(Path(stick).stat().st_mode) == 0o600
    assert done(b, "import-events", stick).out.startswith("From 'a' (")
    assert done(b, "export-events", back, "--output", "json").json["events"] >= 2
    taken = done(a, "import-events", back, "--output", "json").json
    assert (taken["verdicts"]["applied"], taken["done"], taken["settled"]) == (2, True, True)
    assert digest(a) == digest(b)
    again = done(a, "import-events", back, "--output", "jsonl").json
    assert set(again["verdicts"]) == {"duplicate"}
    assert done(a, "export-events", stick, "--for", "b", "--force", "--output", "json").json["events"] == 0
    peer, links, bundles = done(a, "status", "--output", "json").json["peers"][0], *states(a)
    assert (peer["behind"], links["path"], bundles["path"]) == (0, "quic", "bundle")
    assert (bundles["cursor"] > links["cursor"], bundles["lag_events"], bundles["stuck"]) == (True, 0, False)
    assert done(a, "check").out.startswith("clean")
    assert done(b, "check").out.startswith("clean")


def test_what_cannot_be_done_is_one_line_and_changes_nothing(homes: tuple[Path, Path], tmp_path: Path) -> None:
    a, b = homes
    stick = tmp_path / "stick.bundle"
    done(a, "put", "notes", "id=n1", "title=Milk")
    done(a, "export-events", str(stick), "--for", "b")
    whole = stick.read_bytes()
    refusals = [
        (2, call(a, "export-events", str(stick))),
        (1, call(a, "export-events", str(tmp_path / "x"), "--for", "nobody")),
        (2, call(a, "export-events", str(tmp_path / "x"), "--for", "b", "--all")),
        (2, call(a, "export-events", str(tmp_path / "no" / "such"))),
        (1, call(a, "import-events", str(stick))),
        (1, call(b, "import-events", str(tmp_path / "nothing"))),
    ]
    stick.write_bytes(whole[:-5])
    refusals.append((1, call(b, "import-events", str(stick))))
    assert [result.code for _, result in refusals] == [code for code, _ in refusals]
    assert all(result.err.count("\n") == 1 and not result.out for _, result in refusals)
    assert "cut short" in refusals[-1][1].err
    assert done(b, "rows", "notes", "--output", "json").json == []
    assert names(tmp_path) == ["stick.bundle"]


def test_a_rejected_event_is_an_exit_code(
    homes: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = homes
    stick = str(tmp_path / "stick.bundle")
    done(a, "put", "notes", "id=n1", "title=Milk")
    done(a, "export-events", stick, "--for", "b")
    monkeypatch.setattr("meshnode.node.storage.time.time_ns", lambda: 10**18)
    result = call(b, "import-events", stick)
    assert (result.code, "rejected:skew" in result.out) == (1, True)


async def test_through_standard_output_and_input(homes: tuple[Path, Path]) -> None:
    a, b = homes
    await asyncio.to_thread(done, a, "put", "notes", "id=n1", "title=Milk")
    process = await start("export-events", "-", "--for", "b", home=a)
    bundle, said = await process.communicate()
    assert said.decode().startswith("standard output: 1 event and ")
    taken = await meshnode("import-events", "-", home=b, stdin=bundle)
    assert (taken.code, "1 applied" in taken.out) == (0, True)


async def test_through_nodes_that_run(
    homes: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is named to the node, which reads and writes it; its links hear of what came in."""
    a, b = homes
    file = tmp_path / "stick.bundle"
    async with Node(a, config=loopback(name="a")) as left, Node(b, config=loopback(name="b")) as right:
        await left.put("notes", {"id": "n1"}, {"title": "Milk"})
        async with ControlServer(left, Home.load(a)), ControlServer(right, Home.load(b)):
            giver, taker = [await ControlClient.connect(Home.load(home)) for home in (a, b)]
            assert giver is not None
            assert taker is not None
            views = [view async for view in giver.export_events(file, peer="b")]
            assert (views[-1].done, views[-1].events, views[-1].bytes) == (True, 1, file.stat().st_size)
            with pytest.raises(UsageError, match="--force"):
                await anext(giver.export_events(file, peer="b"))
            told: list[Network] = []
            monkeypatch.setattr(Network, "log_grew", lambda network: told.append(network))
            taken = [view async for view in taker.import_events(file)]
            assert (taken[-1].done, taken[-1].verdicts) == (True, {"applied": 1})
            assert told
            with pytest.raises(NotFoundError):
                await anext(taker.import_events(tmp_path / "nothing"))
            file.write_bytes(b"meshnode bundle\n")
            with pytest.raises(BundleError):
                await anext(taker.import_events(file))
        assert await right.digest() == await left.digest()


async def test_who_hangs_up_leaves_no_half_of_a_bundle(
    homes: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("meshnode.node.bundling.TOLD_S", 0.0)
    async with Node(homes[0], config=loopback(name="a")) as node:
        await node.put("notes", {"id": "n1"}, {"title": "Milk"})
        writing = node.export_events(tmp_path / "stick.bundle")
        assert not (await anext(writing)).done
        await writing.aclose()  # type: ignore[attr-defined]
    assert names(tmp_path) == []


async def test_a_copy_that_may_not_publish_writes_none(homes: tuple[Path, Path], tmp_path: Path) -> None:
    (homes[0] / "incarnation").unlink()
    result = await asyncio.to_thread(call, homes[0], "export-events", str(tmp_path / "x"))
    assert (result.code, "identity resume" in result.err) == (2, True)
