"""What gathered facts mean: each check of `doctor` passes on good ones, and warns or fails on each kind of bad ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as changed

from meshnode.limits import CLOCK_OFFSET_NOTICE_MS, SKEW_MS
from meshnode.node.doctor import adopted, database, home, keys, mesh, network, rows, software
from meshnode.node.doctorviews import FindingView, worst
from meshnode.node.memberviews import MemberView
from meshnode.node.syncviews import SyncStateView
from meshnode.node.views import ConflictCounts, LaggingView, NoticeView, PeerView, TableView
from meshnode.store.log import HOW_TO_GO_ON

Judge = Callable[[Any], Sequence[FindingView]]
NOW = 1_800_000_000_000
A, B = "aa" * 16, "bb" * 16

FOLDER = home.FileFacts("/h", 0o700, 1000)
KEY_FILE = home.FileFacts("/h/site.key", 0o600, 1000, key=True)
CONFIG_FILE = home.FileFacts("/h/config.toml", 0o600, 1000)
HOME = home.HomeFacts("/h", FOLDER, user=1000, files=(KEY_FILE, CONFIG_FILE))
KEY = keys.KeyFacts("/h/site.key", A, stored_site=A)
IDENTITY = keys.IdentityFacts("01", stored="01")
DATABASE = database.DatabaseFacts("/h/meshnode.db", format=3, known_format=3)
PLACE = database.PlaceFacts("/h", free=2**40)
WAL = database.WalFacts("/h/meshnode.db-wal", 0, running=True)
VERSIONS = software.VersionFacts((3, 13, 1), (3, 51, 3), "0.1.0", (("aioquic", "1.7.2"),))
NODE = network.NodeFacts(True, 7, "meshnode/0.1.0")
ETH = network.InterfaceFacts("eth0", mtu=1500)
DOCKER = network.InterfaceFacts("docker0", reason="of a container network")
LOOPBACK = network.InterfaceFacts("lo", mtu=65536, loopback=True)
PORT = network.PortFacts(4747, running=True, bound=4747)
FREE = network.PortFacts(4747)
MDNS = network.MdnsFacts(True, True)
PEER = PeerView(site=A, short=A[:8], name="nas", role="member", clock_offset_ms=900, last_seen_ms=NOW - 1000)
CLOCK = mesh.ClockFacts(NOW, NOW - 5, (PEER,))
LINKED = mesh.Reach("nas (aaaaaaaa)", True, "linked")
LINKS = mesh.LinkFacts(True, members=(LINKED,))
OWN = MemberView(
    site=A, short=A[:8], name="desk", role="authority", own=True, seniority=1, by="", by_site="", since_ms=1
)
OTHER = MemberView(site=B, short=B[:8], name="nas", role="authority", seniority=2, by="desk", by_site=A, since_ms=2)
MEMBERS = mesh.MembershipFacts((OWN, OTHER))
TABLE = TableView(table="notes", key=[], columns=[], rows=3)
TABLES = rows.TableFacts((TABLE,))
LAGGING = LaggingView(site=B, name="nas", table="notes", reason="hole", known=(5, 0))
DRIFT = NoticeView(kind="schema-drift", table="notes", count=1, first_ms=1, last_ms=1, sample="column due is not here")
STREAM = SyncStateView(site=A, short=A[:8], name="nas", path="quic", cursor=3, record_cursor=1, settled_no=2)


def off(offset_ms: int, peer: PeerView = PEER, **otherwise: Any) -> PeerView:
    return changed(peer, clock_offset_ms=offset_ms, **otherwise)


GOOD: dict[str, tuple[Judge, Any]] = {
    "home": (home.judge_home, HOME),
    "home without modes": (home.judge_home, replace(HOME, modes=False, folder=replace(FOLDER, mode=0o777))),
    "config": (home.judge_config, home.ConfigFacts("/h/config.toml")),
    "key": (keys.judge_key, KEY),
    "key alone": (keys.judge_key, replace(KEY, stored_site="")),
    "recovery": (keys.judge_recovery, keys.RecoveryFacts("/h/recovery.key", False)),
    "identity": (keys.judge_identity, IDENTITY),
    "identity of what does not open": (keys.judge_identity, replace(IDENTITY, stored=None)),
    "database": (database.judge_database, DATABASE),
    "disk": (database.judge_disk, database.DiskFacts((PLACE,))),
    "wal": (database.judge_wal, replace(WAL, bytes=database.WAL_LONG_BYTES)),
    "versions": (software.judge_versions, VERSIONS),
    "old SQLite of one program": (software.judge_versions, replace(VERSIONS, sqlite=(3, 40, 1))),
    "fixed SQLite 3.44": (software.judge_versions, replace(VERSIONS, sqlite=(3, 44, 6), shared=True)),
    "fixed SQLite 3.50": (software.judge_versions, replace(VERSIONS, sqlite=(3, 50, 7), shared=True)),
    "node": (network.judge_node, NODE),
    "embedded node": (network.judge_node, network.NodeFacts(False, holder_pid=7, holder="an embedded Node")),
    "interfaces": (network.judge_interfaces, network.InterfacesFacts((ETH,))),
    "loopback on purpose": (network.judge_interfaces, network.InterfacesFacts((LOOPBACK,), private=True)),
    "port": (network.judge_port, PORT),
    "port while cut off": (network.judge_port, replace(PORT, online=False, bound=None)),
    "free port": (network.judge_port, FREE),
    "port of the holder": (network.judge_port, replace(FREE, taken=True, by_holder=True)),
    "mdns": (network.judge_mdns, MDNS),
    "mdns at rest": (network.judge_mdns, replace(MDNS, running=False)),
    "mdns turned off": (network.judge_mdns, network.MdnsFacts(False, True, "off")),
    "clock": (mesh.judge_clock, CLOCK),
    "clock of old": (mesh.judge_clock, replace(CLOCK, peers=(off(10**9, last_seen_ms=NOW - mesh.FRESH_MS - 1),))),
    "clock of a retired one": (mesh.judge_clock, replace(CLOCK, peers=(off(10**9, retired=True),))),
    "a clock within the bound of what was written": (
        mesh.judge_clock,
        replace(CLOCK, hlc_ms=NOW + SKEW_MS, peers=(off(0, linked=True),)),
    ),
    "links": (mesh.judge_links, LINKS),
    "links at rest": (mesh.judge_links, mesh.LinkFacts(False, members=(replace(LINKED, linked=False),))),
    "nobody else": (mesh.judge_links, mesh.LinkFacts(True)),
    "membership": (mesh.judge_membership, MEMBERS),
    "a mesh of one": (mesh.judge_membership, mesh.MembershipFacts((OWN,))),
    "schema": (rows.judge_schema, TABLES),
    "adopted": (adopted.judge_adopted, adopted.AdoptedFacts(2, waiting=5, running=True)),
    "nothing adopted": (adopted.judge_adopted, adopted.AdoptedFacts()),
    "held": (rows.judge_held, TABLES),
    "withheld": (rows.judge_withheld, TABLES),
    "conflicts": (rows.judge_conflicts, ConflictCounts()),
    "streams": (rows.judge_streams, [STREAM]),
    "streams to nobody": (rows.judge_streams, []),
    "notices": (rows.judge_notices, []),
}


@pytest.mark.parametrize("case", GOOD)
def test_what_is_well_passes_with_nothing_to_do(case: str) -> None:
    judge, facts = GOOD[case]
    (finding,) = judge(facts)
    assert (finding.verdict, finding.todo) == ("pass", "")
    assert finding.found


def files(*given: home.FileFacts) -> home.HomeFacts:
    return replace(HOME, files=given)


BAD: dict[str, tuple[Judge, Any, str, str]] = {  # what is seen, the verdict, and what is named
    "lost triggers": (adopted.judge_adopted, adopted.AdoptedFacts(1, ("notes",)), "warn", "notes"),
    "unsigned writes": (adopted.judge_adopted, adopted.AdoptedFacts(1, waiting=3), "warn", "3 writes"),
    "rows to compare": (adopted.judge_adopted, adopted.AdoptedFacts(1, looking=1), "warn", "1 table"),
    "no home": (home.judge_home, replace(HOME, folder=None), "fail", "meshnode init"),
    "a closed home": (home.judge_home, replace(HOME, folder=None, error="Permission denied"), "fail", "as the user"),
    "a file for a home": (home.judge_home, replace(HOME, is_folder=False), "fail", "no folder"),
    "an empty home": (home.judge_home, replace(HOME, founded=False), "fail", "meshnode init"),
    "a home begun": (home.judge_home, replace(HOME, founded=False, begun="joining"), "fail", "meshnode join"),
    "an open home": (home.judge_home, replace(HOME, folder=replace(FOLDER, mode=0o750)), "fail", "chmod 700 /h"),
    "another's home": (home.judge_home, replace(HOME, user=1001), "fail", "user 1000"),
    "another's home for root": (home.judge_home, replace(HOME, user=0), "warn", "user 1000"),
    "an open key": (home.judge_home, files(replace(KEY_FILE, mode=0o644)), "fail", "chmod 600 /h/site.key"),
    "an open config": (home.judge_home, files(replace(CONFIG_FILE, mode=0o644)), "warn", "chmod 600 /h/config.toml"),
    "another's file": (home.judge_home, files(replace(CONFIG_FILE, owner=0)), "fail", "chown 1000 /h/config.toml"),
    "an unreadable file": (home.judge_home, files(replace(CONFIG_FILE, readable=False)), "fail", "cannot be read"),
    "no config": (home.judge_config, home.ConfigFacts("/h/config.toml", there=False), "warn", "config set"),
    "a config that went": (
        home.judge_config,
        home.ConfigFacts("/h/config.toml", there=False, running=True),
        "warn",
        "stays in force",
    ),
    "a wrong config": (home.judge_config, home.ConfigFacts("/h/config.toml", error="no setting 'x'"), "fail", "'x'"),
    "a key that does not open": (keys.judge_key, replace(KEY, site="", error="is missing"), "fail", "backup"),
    "a key that is open": (keys.judge_key, replace(KEY, error="is open", modes=True), "fail", "`home`"),
    "a closed config": (home.judge_config, home.ConfigFacts("/h/c", error="Permission", closed=True), "fail", "`home`"),
    "a closed incarnation": (keys.judge_identity, replace(IDENTITY, beside_error="no", closed=True), "fail", "`home`"),
    "a closed database": (database.judge_database, replace(DATABASE, error="no", closed=True), "fail", "`home`"),
    "a database on a full disk": (database.judge_database, replace(DATABASE, error="no", full=True), "fail", "`disk`"),
    "a database of a closed folder": (
        database.judge_database,
        replace(DATABASE, error="no", denied=True),
        "fail",
        "`home` and `disk`",
    ),
    "a locked key": (keys.judge_key, replace(KEY, site="", locked=True), "warn", "--passphrase-fd"),
    "another key": (keys.judge_key, replace(KEY, site=B), "fail", "bbbbbbbb"),
    "a recovery key here": (
        keys.judge_recovery,
        keys.RecoveryFacts("/h/recovery.key", True),
        "warn",
        "off this device",
    ),
    "a moved device": (keys.judge_identity, replace(IDENTITY, moved="on Monday"), "fail", "on Monday"),
    "a twin": (keys.judge_identity, replace(IDENTITY, twin=True), "fail", "identity resume"),
    "a copied database": (keys.judge_identity, replace(IDENTITY, stored="02"), "fail", "identity renew"),
    "a lost incarnation": (keys.judge_identity, replace(IDENTITY, beside=None), "fail", "missing"),
    "a bad incarnation": (keys.judge_identity, replace(IDENTITY, beside_error="is damaged"), "fail", "damaged"),
    "a renewal cut short": (keys.judge_identity, replace(IDENTITY, renewing=True), "warn", "renew INVITE"),
    "no database": (database.judge_database, replace(DATABASE, there=False), "fail", "missing"),
    "a locked database": (database.judge_database, replace(DATABASE, locked=True), "warn", "--passphrase-fd"),
    "a database that does not open": (database.judge_database, replace(DATABASE, error="no"), "fail", "backup"),
    "a damaged database": (database.judge_database, replace(DATABASE, problems=("page 3",)), "fail", "page 3"),
    "a newer database": (database.judge_database, replace(DATABASE, format=4), "fail", "upgrade"),
    "an older database": (database.judge_database, replace(DATABASE, format=2), "warn", "meshnode up"),
    "another database": (database.judge_database, replace(DATABASE, format=0), "fail", "no tables of a node"),
    "a long database": (database.judge_database, replace(DATABASE, finished=False, seconds=5.0), "warn", "in 5 s"),
    "a long encrypted one": (
        database.judge_database,
        replace(DATABASE, finished=False, encrypted=True),
        "warn",
        "meshnode check",
    ),
    "a full disk": (
        database.judge_disk,
        database.DiskFacts((PLACE, replace(PLACE, path="/d", free=database.DISK_FULL_BYTES))),
        "fail",
        "free at /d",
    ),
    "a disk that fills": (
        database.judge_disk,
        database.DiskFacts((replace(PLACE, free=database.DISK_LOW_BYTES),)),
        "warn",
        "make room",
    ),
    "a disk smaller than the database": (
        database.judge_disk,
        database.DiskFacts((replace(PLACE, free=2**33),), 2**33),
        "warn",
        "8.0 GiB",
    ),
    "a read-only disk": (database.judge_disk, database.DiskFacts((replace(PLACE, writable=False),)), "fail", "written"),
    "no disk": (database.judge_disk, database.DiskFacts((replace(PLACE, error="gone"),)), "fail", "gone"),
    "a long WAL": (database.judge_wal, replace(WAL, bytes=database.WAL_LONG_BYTES + 1), "warn", "close programs"),
    "a long WAL at rest": (database.judge_wal, replace(WAL, bytes=2**40, running=False), "warn", "start the node"),
    "a package gone": (software.judge_versions, replace(VERSIONS, packages=(("zeroconf", ""),)), "fail", "zeroconf"),
    "another Python": (software.judge_versions, replace(VERSIONS, python=(3, 14, 0)), "warn", "3.11 to 3.13"),
    "an old SQLite of two": (
        software.judge_versions,
        replace(VERSIONS, sqlite=(3, 51, 2), shared=True),
        "warn",
        "3.51.3",
    ),
    "an old SQLite of a series": (
        software.judge_versions,
        replace(VERSIONS, sqlite=(3, 50, 6), shared=True),
        "warn",
        "WAL-reset",
    ),
    "no node": (network.judge_node, network.NodeFacts(False), "warn", "meshnode up"),
    "a node that hangs": (network.judge_node, network.NodeFacts(False, unanswered="hangs"), "fail", "hangs"),
    "no multicast": (
        network.judge_interfaces,
        network.InterfacesFacts((replace(ETH, refused="eth0: no route"),)),
        "warn",
        "no route",
    ),
    "a small MTU": (network.judge_interfaces, network.InterfacesFacts((replace(ETH, mtu=1279),)), "warn", "1279"),
    "no cable": (network.judge_interfaces, network.InterfacesFacts((replace(ETH, up=False),)), "warn", "cable"),
    "loopback alone": (
        network.judge_interfaces,
        network.InterfacesFacts((LOOPBACK, DOCKER)),
        "warn",
        "docker0: not used (of a container network)",
    ),
    "every interface denied": (
        network.judge_interfaces,
        network.InterfacesFacts((LOOPBACK, replace(ETH, reason="deny_interfaces names it"))),
        "warn",
        "take eth0 out of `deny_interfaces`",
    ),
    "another port": (network.judge_port, replace(PORT, bound=5000), "warn", "5000"),
    "a port taken": (
        network.judge_port,
        replace(FREE, taken=True, taken_by="process 9 (nc)"),
        "warn",
        "process 9 (nc)",
    ),
    "a port of metrics taken": (
        network.judge_port,
        replace(PORT, foreign=(("metrics_port", 9100, "process 9 (node_exporter)"),)),
        "warn",
        "meshnode config set metrics_port N",
    ),
    "an address gone": (network.judge_port, replace(FREE, error="not here"), "fail", "`listen`"),
    "no port": (network.judge_port, replace(FREE, port=0), "warn", "no port"),
    "mdns blocked": (network.judge_mdns, replace(MDNS, state="port 5353 is taken"), "warn", "5353"),
    "a clock off": (mesh.judge_clock, replace(CLOCK, peers=(off(CLOCK_OFFSET_NOTICE_MS),)), "warn", "+60 s"),
    "a clock far ahead": (mesh.judge_clock, replace(CLOCK, peers=(off(SKEW_MS + 1),)), "fail", "refused here"),
    "a clock far behind": (mesh.judge_clock, replace(CLOCK, peers=(off(-SKEW_MS - 1),)), "fail", "refused there"),
    "our clock off": (
        mesh.judge_clock,
        replace(CLOCK, peers=(off(90_000), off(91_000, site=B))),
        "warn",
        "off everybody's",
    ),
    "our clock went back": (mesh.judge_clock, replace(CLOCK, hlc_ms=NOW + 60_000), "warn", "behind what was written"),
    "our clock went far back": (mesh.judge_clock, replace(CLOCK, hlc_ms=NOW + SKEW_MS + 1), "fail", "went back"),
    "our clock was set right": (
        mesh.judge_clock,
        replace(CLOCK, hlc_ms=NOW + 3_600_000, peers=(off(0, linked=True),)),
        "warn",
        "others take it from 15 Jan 08:55 UTC on",
    ),
    "a clock that was off": (
        mesh.judge_clock,
        replace(CLOCK, peers=(off(-SKEW_MS - 1, last_seen_ms=NOW - 720_000),)),
        "fail",
        "was, 12 min ago, -300 s off",
    ),
    "no link": (
        mesh.judge_links,
        replace(LINKS, members=(LINKED, mesh.Reach("lap", False, "no address is known"))),
        "warn",
        "lap: no address is known",
    ),
    "no link of a retired device": (
        mesh.judge_links,
        replace(LINKS, members=(mesh.Reach("lap", False, "it says that this device was retired"),), retired=True),
        "warn",
        "see `membership`",
    ),
    "no answer at a named address": (
        mesh.judge_links,
        replace(LINKS, peers=(mesh.Reach("10.0.0.9:4747", False, "3 failures so far"),)),
        "warn",
        "10.0.0.9:4747: 3 failures",
    ),
    "cut off": (mesh.judge_links, replace(LINKS, online=False), "warn", "on purpose"),
    "no member": (mesh.judge_membership, mesh.MembershipFacts((OTHER,)), "fail", "no member"),
    "retired": (
        mesh.judge_membership,
        mesh.MembershipFacts((changed(OWN, retired=True, retired_by="nas", seniority=None), OTHER)),
        "fail",
        "retired by nas",
    ),
    "retired with its rows": (
        mesh.judge_membership,
        mesh.MembershipFacts((changed(OWN, retired=True, seniority=None), OTHER)),
        "fail",
        "identity renew INVITE",
    ),
    "one authority": (
        mesh.judge_membership,
        mesh.MembershipFacts((OWN, changed(OTHER, role="member", seniority=None))),
        "warn",
        "desk is the only device",
    ),
    "no authority": (
        mesh.judge_membership,
        mesh.MembershipFacts((changed(OWN, role="member", seniority=None),)),
        "warn",
        "--recovery FILE",
    ),
    "an expired invite": (mesh.judge_membership, replace(MEMBERS, expired_invites=2), "warn", "2 invites expired"),
    "somebody at the door": (mesh.judge_membership, replace(MEMBERS, asking=("cccccccc",)), "warn", "approve cccccccc"),
    "events dated ahead": (
        rows.judge_held,
        replace(TABLES, now_ms=NOW, lagging=(changed(LAGGING, reason="rejected", known=(NOW + 3_600_000, 0)),)),
        "warn",
        "taken from 15 Jan 08:55 UTC on",
    ),
    "events beyond a bound": (
        rows.judge_held,
        replace(TABLES, now_ms=NOW, lagging=(changed(LAGGING, reason="rejected"),)),
        "warn",
        "does not help",
    ),
    "an unusable table": (rows.judge_schema, rows.TableFacts((changed(TABLE, unusable="UNIQUE"),)), "fail", "UNIQUE"),
    "a schema that drifts": (rows.judge_schema, replace(TABLES, drift=(DRIFT,)), "warn", "column due"),
    "a key that differs": (
        rows.judge_schema,
        replace(TABLES, unresolved=(changed(DRIFT, kind="unresolved-key", site=A, count=3),)),
        "warn",
        "meshnode rehydrate notes",
    ),
    "held events": (rows.judge_held, replace(TABLES, waiting={"tasks": 4}), "warn", "meshnode table add tasks"),
    "held for an unusable table": (
        rows.judge_held,
        rows.TableFacts((changed(TABLE, unusable="UNIQUE"),), waiting={"notes": 4}),
        "warn",
        "`schema`",
    ),
    "a hole": (rows.judge_held, replace(TABLES, lagging=(LAGGING,)), "warn", "notes of nas (hole)"),
    "conflicts": (
        rows.judge_conflicts,
        ConflictCounts(certain=2, possible=1),
        "warn",
        "3 conflicts that nobody decided, 1",
    ),
    "withheld rows": (rows.judge_withheld, rows.TableFacts((changed(TABLE, withheld=2),)), "warn", "2 rows"),
    "a log with holes": (database.judge_database, replace(DATABASE, lost=2), "fail", "check --repair"),
    "a stream stuck at a hole": (
        rows.judge_streams,
        [changed(STREAM, stuck=True, why=HOW_TO_GO_ON)],
        "fail",
        "run that",
    ),
    "a stuck stream": (rows.judge_streams, [changed(STREAM, stuck=True, why="frame 3")], "fail", "frame 3"),
    "rejected events": (rows.judge_streams, [changed(STREAM, rejected=3, reoffers=3)], "warn", "3 events"),
    "an error of a stream": (rows.judge_streams, [changed(STREAM, last_error="oh")], "warn", "oh"),
    "a notice": (rows.judge_notices, [DRIFT, changed(DRIFT, count=2)], "warn", "schema-drift ×3"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_named_with_what_to_do(case: str) -> None:
    judge, facts, verdict, named = BAD[case]
    findings = judge(facts)
    assert worst(findings) == verdict
    assert any(named in f"{each.found}. {each.todo}" for each in findings)
    assert all(each.todo for each in findings if each.verdict != "pass")
    assert all("\n" not in each.found + each.todo for each in findings)


def test_a_program_of_another_version_than_the_node_is_told() -> None:
    assert software.judge_program("meshnode/1", "meshnode/1") == []
    (finding,) = software.judge_program("meshnode/1", "meshnode/2")
    assert finding.verdict == "warn"


def test_each_interface_is_told_with_what_is_known_of_it() -> None:
    many = tuple(replace(DOCKER, name=f"veth{number}") for number in range(8))
    findings = network.judge_interfaces(network.InterfacesFacts((ETH, *many, LOOPBACK)))
    said = [each.found for each in findings]
    assert said[:2] == ["eth0: used, multicast works, MTU 1500", "lo: used, its loopback, multicast works, MTU 65536"]
    assert said[2] == "veth0: not used (of a container network)"
    assert said[-1] == "not used either: veth5, veth6, veth7"
    assert {each.verdict for each in findings} == {"pass"}
