"""Runs `cbor.json`, `identity.json`, `hlc.json` and `signatures.json` (profile §2 to §4, SSP/1 §5)."""

from __future__ import annotations

from typing import Any

from meshnode.cli.conform.report import CaseFailedError, Report, expect, expect_raises
from meshnode.cli.conform.values import hlc_of, same, value_of
from meshnode.codec import cbor, ed25519
from meshnode.errors import CodecError
from meshnode.model import hlc
from meshnode.model.site import SiteKey, mesh_tag, parse_site, short_text, site_id_of, site_text


def run_cbor(vectors: dict[str, Any], report: Report) -> None:
    """Encode gives exactly the bytes, decode gives back the value, and everything else is one family of errors."""
    for case in vectors["encode"]:
        with report.case(f"encode {case['hex'][:40]}"):
            value, data = value_of(case["value"]), bytes.fromhex(case["hex"])
            expect("the encoding", cbor.encode(value), data)
            decoded = cbor.decode_untrusted(data)
            if not same(decoded, value):
                raise CaseFailedError(f"decoding gives {decoded!r}")
    for case in vectors["reject"]:
        with report.case(f"reject {case['why']}"):
            bad = _built(case)
            expect_raises("the encoding", CodecError, lambda bad=bad: cbor.decode_untrusted(bad))  # type: ignore[misc]
    for case in vectors["unencodable"]:
        with report.case(f"unencodable {case['why']}"):
            value = value_of(case["value"])
            expect_raises("the value", CodecError, lambda value=value: cbor.encode(value))  # type: ignore[misc]


def _built(case: dict[str, Any]) -> bytes:
    if case["hex"] is not None:
        return bytes.fromhex(case["hex"])
    unit, count, tail = case["repeat"]
    return bytes.fromhex(unit) * int(count) + bytes.fromhex(tail)


def run_identity(vectors: dict[str, Any], report: Report) -> None:
    """Site ids, their text forms, and the mesh tag."""
    with report.case("mesh tag"):
        expect("the mesh tag", mesh_tag(bytes.fromhex(vectors["mesh_id"])).hex(), vectors["mesh_tag"])
    for site in vectors["sites"]:
        with report.case(f"site {site['short']}"):
            key = SiteKey.from_seed(bytes.fromhex(site["seed"]))
            expect("the public key", key.public_key.hex(), site["public_key"])
            expect("the site id", site_id_of(key.public_key).hex(), site["site_id"])
            expect("the site key's site", site_text(key.site), site["site_id"])
            expect("the short form", short_text(key.site), site["short"])
            expect("the text form read back", parse_site(site["site_id"]), key.site)


def run_hlc(vectors: dict[str, Any], report: Report) -> None:
    """Tick, observe, the total order, and the skew bound."""
    for number, case in enumerate(vectors["cases"]):
        with report.case(f"{case['op']} {number}"):
            last, now = hlc_of(case["last"]), case["now"]
            found = hlc.tick(last, now) if case["op"] == "tick" else hlc.observe(last, hlc_of(case["remote"]), now)
            expect("the result", list(found), case["result"])
    clocks = []
    for case in vectors["order"]:
        with report.case(f"clock {case['clock']}"):
            at = hlc.Hlc(case["physical"], case["logical"])
            clock = hlc.clock_bytes(at, bytes.fromhex(case["site"]))
            clocks.append(clock)
            expect("the clock", clock.hex(), case["clock"])
    with report.case("order of clocks"):
        expect("the order", clocks, sorted(clocks))
    for case in vectors["skew"]:
        with report.case(f"skew of {case['physical']}"):
            expect("accepted", not hlc.beyond_skew(case["physical"], case["now"]), case["accepted"])


def run_signatures(vectors: dict[str, Any], report: Report) -> None:
    """Verification as libsodium does it."""
    for case in vectors["cases"]:
        with report.case(case["name"]):
            key, message, signature = (bytes.fromhex(case[part]) for part in ("public_key", "message", "signature"))
            expect("valid", ed25519.verify(key, message, signature), case["valid"])
