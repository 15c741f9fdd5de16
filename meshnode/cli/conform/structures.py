"""Runs `records.json`, `frames.json`, `pairing.json` and `membership.json` (profile §7 to §10)."""

from __future__ import annotations

import random
from typing import Any

from meshnode.cli.conform.report import Report, expect
from meshnode.cli.conform.values import hlc_of, value_of
from meshnode.codec import cbor, framing
from meshnode.codec.digest import blake3_256
from meshnode.errors import EnvelopeError
from meshnode.model import frames, pairing
from meshnode.model.frames_untrusted import decode_control_untrusted, decode_events_untrusted, decode_pairing_untrusted
from meshnode.model.invite import parse_invite_untrusted
from meshnode.model.membership import walk
from meshnode.model.record import BINDING, Record, Vouch, open_binding_untrusted, open_record_untrusted
from meshnode.model.site import SiteKey, site_id_of

_EVENT_STREAM = frozenset({"open", "batch", "records", "answered"})
_ORDERS = 3  # orders in which a membership scenario is walked


def run_records(vectors: dict[str, Any], report: Report) -> None:
    """Each record opens, is what its payload says, and has its id. The signers' keys are those that the file shows."""
    mesh_id = bytes.fromhex(vectors["mesh_id"])
    keys = dict(_shown_keys(vectors["records"]))
    for number, case in enumerate(vectors["records"]):
        with report.case(f"{case['content_type']} {number}"):
            data = bytes.fromhex(case["hex"])
            record = open_record_untrusted(data, mesh_id=mesh_id, key_of=keys.get, content_type=case["content_type"])
            expect("the record id", record.record_id.hex(), case["record_id"])
            expect("the signer", record.signer.hex(), case["signer"])
            for name, wanted in value_of(case["payload"]).items():
                expect(name, _plain(getattr(record.body, name)), wanted)
            if case["content_type"] == BINDING:
                expect("the bound site", open_binding_untrusted(data, mesh_id)[1].hex(), case["signer"])


def _shown_keys(records: list[dict[str, Any]]) -> list[tuple[bytes, bytes]]:
    payloads = [value_of(record["payload"]) for record in records]
    keys = [payload["public_key"] for payload in payloads if "public_key" in payload]
    return [(site_id_of(key), key) for key in keys]


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def run_frames(vectors: dict[str, Any], report: Report) -> None:
    """Each frame has its bytes and its digest, comes off the stream whole, and decodes to what encodes the same."""
    for case in vectors["frames"]:
        with report.case(case["name"]):
            data, wire = bytes.fromhex(case["cbor"]), bytes.fromhex(case["wire"])
            _check_frame(value_of(case["frame"]), data)
            expect("the digest", frames.digest(data).hex(), case["digest"])
            expect("the wire form", framing.frame(data), wire)
            expect("the frames on the wire", framing.FrameReader().feed(wire), [data])


def _check_frame(value: dict[str, Any], data: bytes) -> None:
    expect("the encoding", cbor.encode(value), data)
    if value["t"].startswith("pair"):
        frame: frames.Frame = decode_pairing_untrusted(data)
    elif value["t"] in _EVENT_STREAM:
        frame = decode_events_untrusted(data)
    else:
        frame = decode_control_untrusted(data)
    expect("the frame's kind", frames.tag_of(frame), value["t"])
    expect("the frame encoded again", frames.encode_frame(frame), data)


def run_pairing(vectors: dict[str, Any], report: Report) -> None:
    """The transcript, every proof, the frames and the invite's text."""
    part = {name: bytes.fromhex(text) for name, text in vectors.items() if name not in ("about", "frames", "invite")}
    inviter, joiner = SiteKey.from_seed(part["inviter"]), SiteKey.from_seed(part["joiner"])
    ends = pairing.Ends(part["mesh_id"], inviter.site, part["inviter_spki"], joiner.public_key, part["joiner_spki"])
    t = part["transcript"]
    with report.case("transcript"):
        expect("the transcript", pairing.transcript(ends, part["nonce_i"], part["nonce_j"]), t)
    with report.case("joiner's proof"):
        expect("the joiner's mac", pairing.joiner_mac(part["secret"], t), part["mac_joiner"])
        expect("the joiner's signature", pairing.joiner_signature(joiner, t), part["sig"])
        proof = pairing.Proof(ends, t, joiner.public_key, part["mac_joiner"], part["sig"])
        expect("the proof holds", proof.holds(part["secret"]), True)
    with report.case("inviter's proof"):
        expect("the inviter's mac", pairing.inviter_mac(part["secret"], t), part["mac_inviter"])
    with report.case("invite"):
        invite = parse_invite_untrusted(vectors["invite"])
        expect("the invite's text", invite.text(), vectors["invite"])
        expect("the invite id", invite.invite_id, part["invite_id"])
        expect("the mesh", invite.mesh_id, part["mesh_id"])
        expect("the inviter", invite.site, inviter.site)
        expect("the founder", invite.founder, part["founder_public_key"])
        expect("the secret's digest", blake3_256(invite.secret), blake3_256(part["secret"]))
    for case in vectors["frames"]:
        with report.case(case["name"]):
            _check_frame(value_of(case["frame"]), bytes.fromhex(case["cbor"]))


def run_membership(vectors: dict[str, Any], report: Report) -> None:
    """Each scenario's counting records and verdicts, whatever the order of arrival."""
    mesh_id, founder_key = bytes.fromhex(vectors["mesh_id"]), bytes.fromhex(vectors["founder_public_key"])
    with report.case("founder"):
        expect("the founder's site", site_id_of(founder_key).hex(), vectors["founder"])
    for scenario in vectors["scenarios"]:
        with report.case(scenario["name"]):
            records = _opened([bytes.fromhex(text) for text in scenario["records"]], mesh_id, founder_key)
            shuffle = random.Random(scenario["name"]).shuffle  # noqa: S311  # an order, not a secret
            for _ in range(_ORDERS):
                shuffle(records)
                membership = walk(records, founder_key)
                counted = sorted(record_id.hex() for record_id in membership.counted)
                expect("what counts", counted, sorted(scenario["counted"]))
                for probe in scenario["probes"]:
                    site, at = bytes.fromhex(probe["site"]), hlc_of(probe["hlc"])
                    verdict = membership.judge(site, at) or "acceptable"
                    expect(f"the verdict on {probe['site'][:8]} at {tuple(at)}", verdict, probe["verdict"])


def _opened(records: list[bytes], mesh_id: bytes, founder_key: bytes) -> list[Record]:
    """Every record whose signer's key some vouch here shows: what a store holds as verified (profile §9)."""
    keys = {site_id_of(founder_key): founder_key}
    opened: dict[bytes, Record] = {}
    while True:
        before = len(opened)
        for data in records:
            try:
                record = open_record_untrusted(data, mesh_id=mesh_id, key_of=keys.get)
            except EnvelopeError:
                continue  # its signer may be vouched for by one that opens later, or nowhere
            opened[record.record_id] = record
            if isinstance(record.body, Vouch) and site_id_of(record.body.public_key) == record.body.site:
                keys[record.body.site] = record.body.public_key
        if len(opened) == before:
            return list(opened.values())
