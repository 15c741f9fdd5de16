"""profile §4 to §6: every event of the shared vectors gets its verdict, and what it should leave behind.

Below them a test of the name of each verdict of profile §6 and of each row of the table of SSP/1 §13.6.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.engines import NOTES, PLAIN, Bench, members
from support.mesh_context import START_MS, TestTime
from support.records import site_key
from support.vectors import load

from meshnode.codec import cbor, cose
from meshnode.codec.digest import blake3_256
from meshnode.engine.registry import TableSpec
from meshnode.limits import HELD_BYTES_PER_SITE, SKEW_MS
from meshnode.merge.rows import RowState
from meshnode.model import verdict as reasons_of
from meshnode.model.event import author_event
from meshnode.model.hlc import Hlc
from meshnode.model.scope import Scope
from meshnode.model.site import SiteKey
from meshnode.model.verdict import Verdict
from meshnode.store import watermarks

VECTORS = load("events")
SCOPE = Scope(("main.*", "!main.secrets"))
CASES = VECTORS["cases"]


def _bench(folder: Path) -> Bench:
    sites = [(bytes.fromhex(each["site"]), each) for each in VECTORS["keyring"]]
    membership = members(
        [bytes.fromhex(each["public_key"]) for _, each in sites],
        {site: each["role"] for site, each in sites},
        {site: Hlc(*each["retired"]) for site, each in sites if each["retired"]},
    )
    bench = Bench(
        folder,
        own=9,
        membership=membership,
        mesh_id=bytes.fromhex(VECTORS["mesh_id"]),
        time=TestTime(VECTORS["now"]),
    )
    bench.engine.register_table(NOTES)
    return bench


def _built(build: dict[str, Any]) -> bytes:
    key = SiteKey.from_seed(bytes.fromhex(build["signer_seed"]))
    padding = build["title_letter"] * build["title_length"]
    hlc = Hlc(*build["hlc"])
    too_long = len(padding) - 1_048_334
    if too_long <= 0:
        return author_event(
            key,
            bytes.fromhex(VECTORS["mesh_id"]),
            schema=build["table_schema"],
            table=build["table_name"],
            row_key={"id": build["row_key_id"]},
            columns={"title": padding},
            hlc=hlc,
        ).data
    payload = cbor.encode(
        {
            "table_schema": build["table_schema"],
            "table_name": build["table_name"],
            "row_key": {"id": build["row_key_id"]},
            "operation": "upsert",
            "payload": {"title": padding},
            "hlc_physical_ms": hlc.physical,
            "hlc_logical": hlc.logical,
        }
    )
    mesh_id = bytes.fromhex(VECTORS["mesh_id"])
    return cose.seal("sovm/ssp-event-v1", key.site, payload, external_aad=mesh_id, sign=key.sign)


def _given(bench: Bench, given: dict[str, Any]) -> None:
    engine = bench.engine
    if "horizon" in given:
        engine.set_horizon("main", "notes", Hlc(*given["horizon"]))
    for pair in given.get("forgotten", []):
        engine.forget_row("main", "notes", dict([pair]))
    for data in given.get("after", []):
        assert bench.deliver([bytes.fromhex(data)], scope=SCOPE) == ["applied"]
    if "horizon_after" in given:
        engine.set_horizon("main", "notes", Hlc(*given["horizon_after"]))
    for pair in given.get("forgotten_after", []):
        engine.forget_row("main", "notes", dict([pair]))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_vector(case: dict[str, Any], tmp_path: Path) -> None:
    bench = _bench(tmp_path)
    data = _built(case["build"]) if case["hex"] is None else bytes.fromhex(case["hex"])
    if "size" in case:
        assert len(data) == case["size"]
    assert blake3_256(data).hex() == case["event_id"]
    _given(bench, case.get("given", {}))
    before = bench.sql("SELECT count(*) FROM meshnode_log")[0][0]

    verdict = bench.deliver([data], scope=SCOPE)[0]

    assert verdict.removesuffix(":skew").removesuffix(":quota") == case["verdict"]
    retained = bench.sql("SELECT count(*) FROM meshnode_log")[0][0] - before
    assert retained == (verdict in ("applied", "held"))
    if retained and verdict == "applied":
        # A repeat changes nothing, whatever it was.
        digest = bench.digest("notes")
        assert bench.deliver([data], scope=SCOPE) == ["duplicate"]
        assert bench.digest("notes") == digest


def test_all_in_one_batch_get_the_same_verdicts(tmp_path: Path) -> None:
    """One bad event costs that event only."""
    bench = _bench(tmp_path)
    cases = [case for case in CASES if case["hex"] is not None and "given" not in case]
    data = [bytes.fromhex(case["hex"]) for case in cases]
    verdicts = bench.deliver(data, scope=SCOPE)
    seen: set[str] = set()
    for case, verdict in zip(cases, verdicts, strict=True):
        expected = case["verdict"]
        if expected in ("applied", "held") and case["event_id"] in seen:
            expected = "duplicate"
        seen.add(case["event_id"])
        assert verdict.removesuffix(":skew") == expected, case["name"]


# --- the table of profile §6


@dataclass(frozen=True)
class Line:
    """One verdict: how to bring it about, and what the table says of it. Clocks are ms after the tests' start."""

    give: Callable[[Bench], bytes]
    retained: str  # event, receipt or nothing
    watermark: int | None  # of the event's group afterwards; None: it has none
    surfaced: str | None = None  # the kind of its notice
    table: str = "t"


BEFORE, AT, AFTER = 5, 10, 20
READER, RETIRED, STRANGER = 4, 5, 6
MEMBERS = members(
    (site_key(number).public_key for number in (1, 2, READER, RETIRED)),
    {site_key(READER).site: "reader"},
    {site_key(RETIRED).site: Hlc(START_MS + BEFORE, 0)},
)
TABLES = Scope(("main.*", "!main.outside"))


def upsert(bench: Bench, site: int = 2, at: int = AT, key: Any = None, table: str = "t") -> bytes:
    return bench.event(site, at, {"id": 1} if key is None else key, {"a": 1}, table=table).data


def again(bench: Bench) -> bytes:
    bench.deliver([upsert(bench)])
    return upsert(bench)


def below(bench: Bench) -> bytes:
    bench.engine.set_horizon("main", "t", Hlc(START_MS + AT + 1, 0))
    return upsert(bench)


def forgotten(bench: Bench) -> bytes:
    bench.engine.forget_row("main", "t", {"id": 1})
    return upsert(bench)


def beyond_quota(bench: Bench) -> bytes:
    """As if the site held all that it may already."""
    bench.deliver([upsert(bench, at=BEFORE, table="absent")])
    bench.sql("UPDATE meshnode_held SET bytes = ?", HELD_BYTES_PER_SITE)
    return upsert(bench, table="absent")


def forged(bench: Bench) -> bytes:
    data = upsert(bench)
    return data[:-1] + bytes([data[-1] ^ 1])


LINES = {
    "applied": Line(upsert, "event", AT),
    "duplicate": Line(again, "nothing", AT),
    "below-horizon": Line(below, "nothing", AT),
    "held": Line(lambda bench: upsert(bench, table="absent"), "event", None, table="absent"),
    "rejected:skew": Line(lambda bench: upsert(bench, at=SKEW_MS + 1), "nothing", BEFORE, "skew"),
    "rejected:quota": Line(beyond_quota, "nothing", None, "quota", table="absent"),
    "dropped:malformed": Line(lambda bench: upsert(bench) + b"\0", "nothing", BEFORE, "malformed"),
    "dropped:unknown-signer": Line(lambda bench: upsert(bench, STRANGER), "nothing", BEFORE, "unknown-signer"),
    "dropped:bad-signature": Line(forged, "nothing", BEFORE, "bad-signature"),
    "dropped:retired-signer": Line(lambda bench: upsert(bench, RETIRED), "nothing", BEFORE, "retired-signer"),
    "dropped:role": Line(lambda bench: upsert(bench, READER), "nothing", BEFORE, "role"),
    "dropped:scope": Line(lambda bench: upsert(bench, table="outside"), "nothing", AT, "scope", table="outside"),
    "dropped:reserved-name": Line(
        lambda bench: upsert(bench, table="meshnode_x"), "nothing", AT, "reserved-name", table="meshnode_x"
    ),
    "dropped:empty-key": Line(lambda bench: upsert(bench, key={}), "nothing", AT, "empty-key"),
    "dropped:unresolved-key": Line(lambda bench: upsert(bench, key={"no": 1}), "nothing", AT, "unresolved-key"),
    "dropped:forgotten": Line(forgotten, "receipt", AT),
}


def _plain(folder: Path) -> Bench:
    """A node that has a table and has settled one event of each member but the reader."""
    bench = Bench(folder, membership=MEMBERS)
    bench.engine.register_table(PLAIN)
    for site in (2, RETIRED):
        assert bench.deliver([bench.event(site, BEFORE, {"id": 0}, {})], peer=site) == ["applied"]
    return bench


def _watermark(bench: Bench, site: int, table: str = "t") -> int | None:
    """In ms after the tests' start."""
    found = bench.read(watermarks.all_watermarks)
    marks = [each.hlc.physical - START_MS for each in found if (each.site, each.table) == (site_key(site).site, table)]
    return marks[0] if marks else None


@pytest.mark.parametrize("verdict", LINES)
def test_verdict(verdict: str, tmp_path: Path) -> None:
    """What is retained, what the watermark does, and what is surfaced: the line of profile §6."""
    bench, line = _plain(tmp_path), LINES[verdict]
    data = line.give(bench)
    log, receipts = bench.sql("SELECT count(*) FROM meshnode_log"), bench.sql("SELECT count(*) FROM meshnode_receipts")
    notices = bench.notices()

    assert bench.deliver([data], scope=TABLES) == [verdict]

    grown = bench.sql("SELECT count(*) FROM meshnode_log")[0][0] - log[0][0]
    kept = bench.sql("SELECT count(*) FROM meshnode_receipts")[0][0] - receipts[0][0]
    assert (grown, kept) == {"event": (1, 0), "receipt": (0, 1), "nothing": (0, 0)}[line.retained]
    assert _watermark(bench, 2, line.table) == line.watermark
    assert _watermark(bench, RETIRED) in (None, BEFORE)
    assert bench.notices().keys() - notices.keys() == ({line.surfaced} if line.surfaced else set())


def test_every_verdict_has_its_line() -> None:
    reasons = {value for name, value in vars(reasons_of).items() if name.isupper() and isinstance(value, str)}
    alone = {"applied", "duplicate", "below-horizon", "held"}
    assert {each.partition(":")[2] for each in LINES} - {""} == reasons
    assert {each for each in LINES if ":" not in each} == alone
    assert alone | {"rejected", "dropped"} == set(Verdict)


# --- the table of SSP/1 §13.6


def test_13_6_destination_table_missing(tmp_path: Path) -> None:
    """Held and retried later; the watermark does not advance past it."""
    bench = _plain(tmp_path)
    held = [upsert(bench, at=at, key={"id": at}, table="absent") for at in (AT, AFTER)]
    assert bench.deliver(held) == ["held", "held"]
    assert _watermark(bench, 2, "absent") is None
    bench.engine.register_table(TableSpec("main", "absent", {"id": ""}, {"a": ""}))
    assert bench.sql("SELECT id, a FROM absent ORDER BY id") == [(AT, 1), (AFTER, 1)]
    assert _watermark(bench, 2, "absent") == AFTER


def test_13_6_beyond_the_skew_bound(tmp_path: Path) -> None:
    """Rejected, surfaced and not retained; the watermark does not advance past it until it was offered again."""
    bench = _plain(tmp_path)
    data = upsert(bench, at=SKEW_MS + AT)
    assert bench.deliver([data]) == ["rejected:skew"]
    assert bench.deliver([upsert(bench, at=AFTER, key={"id": 2})]) == ["applied"]
    assert _watermark(bench, 2) == BEFORE
    assert "skew" in bench.notices()
    assert bench.sql("SELECT count(*) FROM meshnode_log WHERE event = ?", data) == [(0,)]
    bench.time.now_ms += AT
    assert bench.deliver([data]) == ["applied"]
    assert _watermark(bench, 2) == SKEW_MS + AT


def test_13_6_signature_verification_fails(tmp_path: Path) -> None:
    """Dropped and surfaced; it stalls nobody: what the site itself sends goes on (profile §6: no watermark moves)."""
    bench = _plain(tmp_path)
    assert bench.deliver([forged(bench), upsert(bench, at=AFTER)]) == ["dropped:bad-signature", "applied"]
    assert bench.notices()["bad-signature"].site == site_key(2).site  # the peer that delivered it
    assert _watermark(bench, 2) == AFTER


@pytest.mark.parametrize("key", [None, {}], ids=["null", "empty"])
def test_13_6_row_key_is_null_or_empty(key: dict[str, Any] | None, tmp_path: Path) -> None:
    """Dropped and surfaced; the watermark advances past it, and no row comes of it."""
    bench = _plain(tmp_path)
    rows = bench.sql("SELECT * FROM t")
    for at, columns in ((AT, {"a": 1}), (AFTER, None)):
        assert bench.deliver([bench.event(2, at, key, columns)]) == ["dropped:empty-key"]
        assert _watermark(bench, 2) == at
    assert "empty-key" in bench.notices()
    assert bench.sql("SELECT * FROM t") == rows


@pytest.mark.parametrize(
    "key", [{"no": 1}, {"id": 0, "no": 1}, {"ID": 0}], ids=["another", "one of them", "letter case"]
)
def test_13_6_row_key_names_a_column_that_the_table_does_not_have(key: dict[str, Any], tmp_path: Path) -> None:
    """Dropped, whatever else the key names; the watermark advances past it, and no row is touched."""
    bench = _plain(tmp_path)
    rows = bench.sql("SELECT * FROM t")
    for at, columns in ((AT, {"a": 1}), (AFTER, None)):
        assert bench.deliver([bench.event(2, at, key, columns)]) == ["dropped:unresolved-key"]
        assert _watermark(bench, 2) == at
    assert bench.sql("SELECT * FROM t") == rows


def test_13_6_payload_names_columns_that_the_table_does_not_have(tmp_path: Path) -> None:
    """Those that it has are applied, the rest is ignored with its clocks untouched; the watermark advances past it."""
    bench = _plain(tmp_path)
    assert bench.deliver([bench.event(2, AFTER, {"id": 1}, {"a": "new", "later": "high"})]) == ["applied"]
    assert bench.get({"id": 1}) == {"a": "new"}
    assert _watermark(bench, 2) == AFTER
    assert bench.sql("SELECT column_name, count FROM meshnode_ignored") == [("later", 1)]
    [(stored,)] = bench.sql("SELECT state FROM meshnode_rows WHERE key = ?", cbor.encode({"id": 1}))
    assert RowState.unpack(stored).columns.keys() == {"a"}
    assert bench.deliver([bench.event(2, AT, {"id": 2}, {"later": "alone"})]) == ["applied"]
    assert bench.get({"id": 2}) == {}  # it exists and is empty, which is not cleared
