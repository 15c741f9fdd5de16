"""profile §4 to §6: every event of the shared vectors gets its verdict, and what it should leave behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.engines import NOTES, Bench, members
from support.mesh_context import TestTime
from support.vectors import load

from meshnode.codec import cbor, cose
from meshnode.codec.digest import blake3_256
from meshnode.model.event import author_event
from meshnode.model.hlc import Hlc
from meshnode.model.scope import Scope
from meshnode.model.site import SiteKey

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
