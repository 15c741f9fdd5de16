"""`doctor` on real homes, whole and damaged: what is wrong is named, everything else is still looked at, all stays."""

from __future__ import annotations

import asyncio
import codecs
import os
import shutil
import socket
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from support.nodes import COLUMNS, KEY, TABLE, add_notes, free_port, linked, loopback, note, pair_of_homes, until

from meshnode import Home, Node
from meshnode.errors import ConfigError, DamagedError, NotAllowedError, UsageError
from meshnode.node.config import Config
from meshnode.node.databases import database_of
from meshnode.node.doctor import look_database, look_network
from meshnode.node.doctor.checks import CHECKS, Check, diagnose
from meshnode.node.doctor.database import judge_database
from meshnode.node.doctor.examine import examine
from meshnode.node.doctor.look_database import read_through
from meshnode.node.doctor.patient import Patient
from meshnode.node.doctorviews import DoctorView, FindingView, worst
from meshnode.node.founding import found
from meshnode.node.local import LocalNode, open_local
from meshnode.node.moved import Mark, mark_moved
from meshnode.node.passphrase import Passphrase
from meshnode.node.storage import Storage
from meshnode.node.views import Status

NOBODY = 65534  # the user that owns nothing
HEALTHY_S = 2.0  # seconds of processor time, which the other load of a machine does not change much
NAMES = [check.name for check in CHECKS]


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node that was founded on loopback, and put a row into a table of its own; it does not run."""
    path = tmp_path_factory.mktemp("doctor") / "n"

    async def make() -> None:
        home = Home(path, Config(name="desk", listen="127.0.0.1", port=free_port(), mdns_enabled=False))
        home.prepare()
        home.write_config(home.config)
        await found(home, name="desk")
        async with open_local(home, writing=True) as node:
            await add_notes(node)
            await node.import_rows(TABLE, [note(1)])

    asyncio.run(make())
    return path


@pytest.fixture
def path(pristine: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(pristine, tmp_path / "n"))


def contents(path: Path) -> dict[str, bytes]:
    """Every file of a home but those that SQLite keeps for whoever has the database open."""
    return {file.name: file.read_bytes() for file in path.iterdir() if not file.name.endswith(("-shm", "-wal"))}


def of(view: DoctorView, check: str) -> tuple[str, str]:
    """The verdict of a check, and what it said."""
    found = [each for each in view.findings if each.check == check]
    assert found, check
    return worst(found), " | ".join(f"{each.found}: {each.todo}" for each in found)


async def test_a_node_that_does_not_run_and_is_well(path: Path) -> None:
    before = contents(path)
    told: list[str] = []
    started = time.process_time()
    view = await examine(path, tell=told.append)
    assert time.process_time() - started < HEALTHY_S
    assert (view.running, view.verdict, told) == (False, "warn", NAMES)
    amiss = {each.check for each in view.findings if each.verdict != "pass"}
    assert amiss == {"recovery", "node"}
    assert contents(path) == before


def open_to_all(path: Path) -> None:
    path.chmod(0o755)
    (path / "recovery.key").chmod(0o644)


def truncated(path: Path) -> None:
    os.truncate(path / "meshnode.db", 30_000)


def overwritten(path: Path) -> None:
    (path / "meshnode.db").write_bytes(os.urandom(100_000))


def emptied(path: Path) -> None:
    os.truncate(path / "meshnode.db", 0)


def scribbled(path: Path) -> None:
    """The root page of the log; those that are read first are whole."""
    with closing(sqlite3.connect(path / "meshnode.db", isolation_level=None)) as connection:
        root = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'meshnode_log'").fetchone()[0]
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    with (path / "meshnode.db").open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xa5" * size)


def of_the_future(path: Path) -> None:
    with closing(sqlite3.connect(path / "meshnode.db", isolation_level=None)) as connection:
        connection.execute("UPDATE meshnode_meta SET value = 99 WHERE name = 'format'")


def foreign_key(path: Path) -> None:
    (path / "site.key").unlink()
    Home(path, Config()).write_site_key(bytes(32))


def no_more_a_table(path: Path) -> None:
    with closing(sqlite3.connect(path / "meshnode.db", isolation_level=None)) as connection:
        connection.execute("DROP TABLE notes")


def folder_for_config(path: Path) -> None:
    (path / "config.toml").unlink()
    (path / "config.toml").mkdir()


def put(name: str, data: bytes) -> Callable[[Path], None]:
    return lambda path: (path / name).write_bytes(data) and None


def without(name: str) -> Callable[[Path], None]:
    return lambda path: (path / name).unlink()


DAMAGE: dict[str, tuple[Callable[[Path], None], str, str]] = {  # what is done, the check that fails, what it names
    "open to others": (open_to_all, "home", "/recovery.key`, and think"),
    "settings that are no TOML": (put("config.toml", b"port = [\n"), "config", "not TOML"),
    "settings with a wrong name": (put("config.toml", b"prot = 4747\n"), "config", "did you mean 'port'?"),
    "settings that are a folder": (folder_for_config, "config", "cannot read"),
    "a key of another kind": (put("site.key", b"\xa1 no key"), "key", "is not a site key"),
    "a key gone": (without("site.key"), "key", "restore it"),
    "the key of another": (foreign_key, "key", "put the key and the database of one device together"),
    "an incarnation gone": (without("incarnation"), "identity", "missing beside the key"),
    "an incarnation damaged": (put("incarnation", b"zz"), "identity", "cannot read"),
    "a database truncated": (truncated, "database", "backup"),
    "a database overwritten": (overwritten, "database", "does not begin as a database"),
    "a database of another kind": (put("meshnode.db", b"hello"), "database", "is no database"),
    "a database emptied": (emptied, "database", "no tables of a node"),
    "a database scribbled over": (scribbled, "database", "damaged"),
    "a database gone": (without("meshnode.db"), "database", "missing"),
    "a database of the future": (of_the_future, "database", "upgrade"),
    "a table gone": (no_more_a_table, "schema", "notes"),
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_damage_is_named_and_hides_nothing_else(path: Path, damage: str) -> None:
    do, check, named = DAMAGE[damage]
    do(path)
    view = await examine(path)
    verdict, said = of(view, check)
    assert (view.verdict, verdict) == ("fail", "fail"), said
    assert named in said
    assert list(dict.fromkeys(each.check for each in view.findings)) == NAMES
    assert of(view, "disk")[0] == "pass"
    assert not any("failed itself" in each.found for each in view.findings), view.findings


SIGNS: dict[str, tuple[str, str, str, str]] = {  # what is in the database, the check, its verdict, and what it names
    "a twin": ("INSERT INTO meshnode_meta VALUES ('twin', 1)", "identity", "fail", "live twice"),
    "an invite that expired": (
        "INSERT INTO meshnode_invites (invite_id, secret, expires_ms) VALUES (x'01', x'5ec7e7', 5)",
        "membership",
        "warn",
        "1 invite expired",
    ),
    "a notice": (
        "INSERT INTO meshnode_notices (kind, site, table_name, count, first_ms, last_ms, sample)"
        " VALUES ('quota', x'', '', 3, 1, 1, 'full')",
        "notices",
        "warn",
        "quota ×3",
    ),
    "a row that is withheld": (
        "UPDATE meshnode_rows SET reason = 'NOT NULL constraint failed'",
        "withheld",
        "warn",
        "1 row of table notes",
    ),
    "a clock ahead": (
        f"UPDATE meshnode_meta SET value = x'{2**45:016x}{0:016x}' WHERE name = 'clock'",
        "clock",
        "fail",
        "it went back",
    ),
}


@pytest.mark.parametrize("sign", SIGNS)
async def test_what_the_database_says_of_the_node_is_told(path: Path, sign: str) -> None:
    statement, check, verdict, named = SIGNS[sign]
    with closing(sqlite3.connect(path / "meshnode.db", isolation_level=None)) as connection:
        connection.execute(statement)
    view = await examine(path, [check])
    assert of(view, check)[0] == verdict
    assert named in of(view, check)[1]
    assert "5ec7e7" not in repr(view)


async def test_what_needs_the_store_says_so_where_that_does_not_open(path: Path) -> None:
    truncated(path)
    view = await examine(path, ["links", "notices"])
    assert [(each.check, each.verdict) for each in view.findings] == [("links", "warn"), ("notices", "warn")]
    assert all("not looked at" in each.found for each in view.findings)


async def test_damage_that_another_check_meets_is_the_database_s(path: Path) -> None:
    """`quick_check` says of it that it is whole."""

    class Reading(LocalNode):
        async def status(self) -> Status:
            raise DamagedError("database disk image is malformed")

    home = Home(path)
    storage = Storage.open(database_of(home), None)
    try:
        for asked in (["database", "links"], ["links"]):
            view = await diagnose(Patient(home, 0, home.config, Reading(home, storage)), asked)
            assert [(each.check, each.verdict) for each in view.findings] == [("database", "fail"), ("links", "warn")]
            assert "malformed" in of(view, "database")[1]
            assert "`database`" in of(view, "links")[1]
    finally:
        await storage.close()


@contextmanager
def unwritable(pristine: Path) -> Iterator[Path]:
    """A home of mode 500, and this process as a user to whom that says something."""
    user = os.geteuid()
    codecs.lookup("ascii")  # as in `shut`
    with tempfile.TemporaryDirectory() as folder:  # pytest's own is closed to others above it
        Path(folder).chmod(0o755)
        path = Path(shutil.copytree(pristine, Path(folder) / "n"))
        if user == 0:
            for each in (path, *path.iterdir()):
                os.chown(each, NOBODY, NOBODY)
        path.chmod(0o500)
        if user == 0:
            os.setresuid(NOBODY, NOBODY, 0)  # what may be done is asked for the real user
        try:
            yield path
        finally:
            if user == 0:
                os.setresuid(0, 0, 0)
            path.chmod(0o700)


async def test_a_home_that_cannot_be_written_is_read_as_it_stands(pristine: Path) -> None:
    with unwritable(pristine) as path:
        view = await examine(path, ["database", "key", "disk"])
        with pytest.raises(NotAllowedError, match="meshnode doctor home disk"):
            database_of(Home(path)).writer()
    assert [each.verdict for each in view.findings] == ["pass", "pass", "fail"], view.findings
    assert "cannot be written" in of(view, "disk")[1]


async def test_no_home_and_a_file_for_one(tmp_path: Path) -> None:
    nothing = await examine(tmp_path / "none")
    assert "meshnode init" in of(nothing, "home")[1]
    assert {each.check for each in nothing.findings} == {"home", "versions", "interfaces", "mdns"}
    assert not (tmp_path / "none").exists()
    (tmp_path / "file").write_text("")
    (tmp_path / "begun").mkdir(mode=0o700)
    (tmp_path / "begun" / "unfinished").write_text("joining\n")
    assert "go on with `meshnode join INVITE`" in of(await examine(tmp_path / "begun"), "home")[1]
    assert "no folder" in of(await examine(tmp_path / "file"), "home")[1]


@contextmanager
def shut(path: Path) -> Iterator[None]:
    """Whoever runs this cannot look into the folder meanwhile."""
    user = os.geteuid()
    codecs.lookup("ascii")  # looked up first by who may not read Python's own files, it is unknown from then on
    path.chmod(0)
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)
        path.chmod(0o700)


async def test_a_home_that_this_user_cannot_look_into(path: Path) -> None:
    with shut(path):
        view = await examine(path)
        with pytest.raises(ConfigError, match="run meshnode as the user whose home it is"):
            Home(path, Config()).refuse_empty()
    assert "cannot be looked into: Permission denied" in of(view, "home")[1]


async def test_networks_that_are_not_trusted_are_not_used_while_no_node_runs_either(path: Path) -> None:
    home = Home(path, Config())
    config = Config(announce_on_untrusted_wifi=False, announce_on_wired_networks=False)
    view = await diagnose(Patient(home, 0, config), ["interfaces", "mdns"])
    assert [of(view, check)[0] for check in ("interfaces", "mdns")] == ["warn", "warn"]


async def test_a_moved_device_and_one_whose_renewal_was_cut_short(path: Path) -> None:
    home = Home(path)
    mark_moved(home, Mark(file="/usb/desk", draft="", day="1 May"))
    home.write_renewed_key(bytes(32))
    view = await examine(path, ["identity"])
    assert [each.verdict for each in view.findings] == ["fail", "warn"]
    assert "/usb/desk" in of(view, "identity")[1]


async def test_a_full_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_database.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(2**40, 2**40, 0))
    view = await examine(path, ["disk"])
    assert of(view, "disk")[0] == "fail"


async def test_a_database_too_large_for_the_time_is_said_to_be(path: Path) -> None:
    home = Home(path)
    with closing(sqlite3.connect(path / "meshnode.db", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE big AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
                           " LIMIT 20000) SELECT i, hex(randomblob(8)) AS text FROM n")  # fmt: skip
    facts = read_through(Patient(home, 0, home.config), 0.0)
    assert (facts.finished, facts.problems) == (False, ())
    (finding,) = judge_database(facts)
    assert (finding.verdict, "not to its end" in finding.found) == ("warn", True)
    assert read_through(Patient(home, 0, home.config), 60.0).finished


@pytest.mark.usefixtures("cheap_passphrases")
async def test_keys_under_a_passphrase_that_nobody_says(tmp_path: Path) -> None:
    pytest.importorskip("sqlcipher3")
    home = Home(tmp_path / "n", loopback(), passphrase="correct horse", encrypt=True)
    home.prepare()
    await found(home, name="desk")
    asked: list[str] = []

    def typed(question: str) -> str | None:
        asked.append(question)
        return None

    view = await examine(home.path, passphrase=Passphrase(ask=typed))
    assert (of(view, "key")[0], of(view, "database")[0], len(asked)) == ("warn", "warn", 1)
    view = await examine(
        home.path, ["key", "database", "versions", "membership"], passphrase=Passphrase("correct horse")
    )
    assert [each.verdict for each in view.findings] == ["pass"] * 4
    assert "encrypted" in of(view, "database")[1]
    wrong = await examine(home.path, passphrase=Passphrase("wrong horse"))
    assert of(wrong, "key")[0] == "fail"
    assert "horse" not in repr(view) + repr(wrong)


async def test_a_port_that_another_program_has(path: Path) -> None:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as taking:
        taking.bind(("127.0.0.1", Home(path).config.port))
        verdict, said = of(await examine(path, ["port"]), "port")
    assert verdict == "warn"
    if sys.platform.startswith("linux"):
        assert f"process {os.getpid()} (" in said
    assert of(await examine(path, ["port"]), "port")[0] == "pass"


async def test_a_port_of_metrics_that_another_program_has(path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taking:
        config = Config(metrics_port=taking.getsockname()[1], dashboard_port=free_port())
        patient = Patient(Home(path), 0, config)
        said = of(await diagnose(patient, ["port"]), "port")[1]
    assert f"(`metrics_port`) is taken by {'process' if sys.platform.startswith('linux') else ''}" in said
    assert "dashboard_port" not in said
    assert "metrics_port" not in of(await diagnose(patient, ["port"]), "port")[1]


async def test_a_check_that_fails_itself_hides_no_other(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(_patient: Patient) -> None:
        raise ZeroDivisionError("oh")

    def silent(_facts: None) -> list[FindingView]:
        return []

    checks = (Check("disk", broken, silent), *(check for check in CHECKS if check.name != "disk"))
    monkeypatch.setattr("meshnode.node.doctor.checks.CHECKS", checks)
    home = Home(path)
    view = await diagnose(Patient(home, 0, home.config), ["disk", "config"])
    assert [(each.check, each.verdict) for each in view.findings] == [("disk", "fail"), ("config", "pass")]
    assert "ZeroDivisionError" in view.findings[0].found


async def test_a_check_that_is_none_is_refused_with_the_nearest(path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'disk'"):
        await examine(path, ["disc"])


async def test_running_nodes_say_what_only_they_know(tmp_path: Path) -> None:
    """Linked and well; then one of them goes, and its clock is off."""
    ports = free_port(), free_port()
    homes = await pair_of_homes(tmp_path, ports)
    async with Node(homes[0], config=loopback(port=ports[0])) as a:
        async with Node(homes[1], config=loopback(ports[0], port=ports[1])) as b:
            await linked(b, a)
            view = await b.doctor()
            assert view.running
            told = {each.check: each.verdict for each in view.findings if each.check != "recovery"}
            assert told.pop("membership") == "warn"  # one authority
            assert set(told.values()) == {"pass"}, view.findings
            assert str(ports[1]) in of(view, "port")[1]
            b.home.config_path.write_text("port = what")
            assert of(await b.doctor(["config"]), "config")[0] == "fail"
            beside = await examine(homes[0], ["node", "port"])
            assert of(beside, "node")[0] == "pass"
            assert "an embedded Node" in of(beside, "node")[1]
            await b.add_table("plans", KEY, COLUMNS)
            await b.put("plans", {"id": "p1"}, {"done": 1})

            async def held() -> bool:
                return bool((await a.status()).held)

            await until(a, held)
            assert "meshnode table add plans" in of(await a.doctor(["held"]), "held")[1]

        async def gone() -> bool:
            return not a._linked()

        await until(a, gone)
        alone = await a.doctor(["links", "clock"])
        assert of(alone, "links")[0] == "warn"
        with closing(sqlite3.connect(a.home.database_path, isolation_level=None, timeout=10)) as connection:
            connection.execute("UPDATE meshnode_peers SET clock_offset_ms = 400000")
            connection.execute("UPDATE meshnode_outbound SET epoch = 'no epoch'")
        amiss = await a.doctor(["clock", "streams"])
        assert (of(amiss, "clock")[0], of(amiss, "streams")[0]) == ("fail", "fail"), amiss.findings
        assert "stands still" in of(amiss, "streams")[1]
        await a.set_online(False)
        cut = await a.doctor(["links", "port"])
        assert ("on purpose" in of(cut, "links")[1], of(cut, "port")[0]) == (True, "pass")


def test_a_process_is_found_by_its_port() -> None:
    with closing(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)) as taking:
        taking.bind(("::", 0))
        port = taking.getsockname()[1]
        expected = os.getpid() if Path("/proc/net/udp6").exists() else None
        assert look_network.process_at(port) == expected
    assert look_network.process_at(port) is None


def test_who_holds_a_lock_is_read_of_the_kernel_s_list() -> None:
    lines = ["1: FLOCK  ADVISORY  WRITE 3817 08:01:4711 0 EOF", "2: POSIX", ""]
    assert look_network.locks_file(lines, 3817, 4711)
    assert not look_network.locks_file(lines, 3817, 711)
    assert not look_network.locks_file(lines, 817, 4711)
