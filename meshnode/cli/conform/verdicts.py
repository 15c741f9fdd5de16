"""Runs `events.json`: each event, given to a fresh node, gets the verdict that the vector names (profile §4 to §6)."""

from __future__ import annotations

from typing import Any

from meshnode.cli.conform.node import deliver, fresh_engine
from meshnode.cli.conform.report import Report, expect
from meshnode.cli.conform.values import hlc_of
from meshnode.codec import cbor, cose
from meshnode.codec.digest import blake3_256
from meshnode.engine.engine import Engine
from meshnode.engine.registry import TableSpec
from meshnode.model.event import CONTENT_TYPE
from meshnode.model.scope import parse_scope_untrusted
from meshnode.model.site import SiteKey
from meshnode.model.verdict import Verdict

_SCOPE = ("main.*", "!main.secrets")  # as the file's `about` says


def run_events(vectors: dict[str, Any], report: Report) -> None:
    """Every case on a node of its own."""
    scope = parse_scope_untrusted(list(_SCOPE))
    for case in vectors["cases"]:
        with report.case(case["name"]), fresh_engine(vectors) as engine:
            data = bytes.fromhex(case["hex"]) if case["hex"] is not None else _built(case, vectors)
            expect("the event id", blake3_256(data).hex(), case["event_id"])
            given = case.get("given", {})
            _prepare(engine, vectors["table"], given)
            for earlier in given.get("after", []):
                expect("the earlier event", deliver(engine, [bytes.fromhex(earlier)], scope)[0].text(), "applied")
            _change(engine, vectors["table"], given.get("horizon_after"), given.get("forgotten_after"))
            judgement = deliver(engine, [data], scope)[0]
            rejected = judgement.verdict is Verdict.REJECTED  # the file names no reason for these
            expect("the verdict", judgement.verdict.value if rejected else judgement.text(), case["verdict"])


def _prepare(engine: Engine, table: dict[str, Any], given: dict[str, Any]) -> None:
    key = dict.fromkeys(table["key"], "TEXT")
    engine.register_table(TableSpec(table["schema"], table["name"], key, dict.fromkeys(table["columns"], "")))
    _change(engine, table, given.get("horizon"), given.get("forgotten"))


def _change(engine: Engine, table: dict[str, Any], horizon: Any, forgotten: Any) -> None:
    if horizon is not None:
        engine.set_horizon(table["schema"], table["name"], hlc_of(horizon))
    if forgotten is not None:
        engine.forget_row(table["schema"], table["name"], dict(forgotten))


def _built(case: dict[str, Any], vectors: dict[str, Any]) -> bytes:
    """An event that the file describes instead of spelling out; one beyond the limits too."""
    build = case["build"]
    key = SiteKey.from_seed(bytes.fromhex(build["signer_seed"]))
    payload = {
        "table_schema": build["table_schema"],
        "table_name": build["table_name"],
        "row_key": {"id": build["row_key_id"]},
        "operation": build["operation"],
        "payload": {"title": build["title_letter"] * build["title_length"]},
        "hlc_physical_ms": build["hlc"][0],
        "hlc_logical": build["hlc"][1],
    }
    mesh_id = bytes.fromhex(vectors["mesh_id"])
    data = cose.seal(CONTENT_TYPE, key.site, cbor.encode(payload), external_aad=mesh_id, sign=key.sign)
    expect("the size", len(data), case["size"])
    return data
