"""The vectors of bytes, identity, clocks, signatures, records and frames, and the events' envelope and shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import vectors

from meshnode.codec import cbor, ed25519, framing
from meshnode.errors import ClockExhaustedError, CodecError, EnvelopeError, UsageError
from meshnode.model import frames, frames_untrusted, hlc, record, site
from meshnode.model.event import author_event, open_event_untrusted
from meshnode.model.hlc import Hlc

CBOR = vectors.load("cbor")
HLC = vectors.load("hlc")
IDENTITY = vectors.load("identity")
RECORDS = vectors.load("records")
EVENTS = vectors.load("events")

EVENT_FRAMES = {"open", "batch", "records", "answered"}
# What is decided without a store: anything later is the apply path's.
OPENING_VERDICTS = {"dropped:malformed", "dropped:unknown-signer", "dropped:bad-signature"}


def test_the_copy_is_the_shared_set() -> None:
    shared = Path(__file__).parents[3] / "shared" / "vectors"
    for theirs in sorted(shared.glob("*")):
        assert (vectors.DIRECTORY / theirs.name).read_bytes() == theirs.read_bytes(), theirs.name
    assert len(list(vectors.DIRECTORY.glob("*.json"))) == 10


@pytest.mark.parametrize("case", CBOR["encode"], ids=lambda case: case["hex"][:24])
def test_cbor_encodes_and_decodes(case: dict[str, Any]) -> None:
    value = vectors.value_of(case["value"])
    assert cbor.encode(value).hex() == case["hex"]
    decoded = cbor.decode_untrusted(bytes.fromhex(case["hex"]))
    assert decoded == value
    assert cbor.encode(decoded).hex() == case["hex"]  # tells 70 from 70.0, -0.0 from 0.0, true from 1


@pytest.mark.parametrize("case", CBOR["reject"], ids=lambda case: f"{case['why']}-{(case['hex'] or 'built')[:16]}")
def test_cbor_rejects(case: dict[str, Any]) -> None:
    if case["hex"] is None:
        unit, count, tail = case["repeat"]
        data = bytes.fromhex(unit) * count + bytes.fromhex(tail)
    else:
        data = bytes.fromhex(case["hex"])
    with pytest.raises(CodecError):
        cbor.decode_untrusted(data)


@pytest.mark.parametrize("case", CBOR["unencodable"], ids=lambda case: case["why"])
def test_cbor_has_no_form_for(case: dict[str, Any]) -> None:
    with pytest.raises(CodecError):
        cbor.encode(vectors.value_of(case["value"]))


def test_identity() -> None:
    assert site.mesh_tag(bytes.fromhex(IDENTITY["mesh_id"])).hex() == IDENTITY["mesh_tag"]
    for each in IDENTITY["sites"]:
        key = site.SiteKey.from_seed(bytes.fromhex(each["seed"]))
        assert key.public_key.hex() == each["public_key"]
        assert site.site_text(key.site) == each["site_id"]
        assert site.short_text(key.site) == each["short"]
        assert site.parse_site(each["site_id"]) == key.site == site.site_id_of(key.public_key)


@pytest.mark.parametrize("case", HLC["cases"], ids=lambda case: f"{case['op']}-{case['last']}-{case['now']}")
def test_hlc_moves(case: dict[str, Any]) -> None:
    last = Hlc(*case["last"])

    def move() -> Hlc:
        if case["op"] == "tick":
            return hlc.tick(last, case["now"])
        return hlc.observe(last, Hlc(*case["remote"]), case["now"])

    if case["result"] is None:
        with pytest.raises(ClockExhaustedError):
            move()
    else:
        assert list(move()) == case["result"]


def test_hlc_order() -> None:
    clocks = []
    for each in HLC["order"]:
        clock = hlc.clock_bytes(Hlc(each["physical"], each["logical"]), bytes.fromhex(each["site"]))
        assert clock.hex() == each["clock"]
        assert hlc.hlc_of_rank(clock) == (each["physical"], each["logical"])
        clocks.append(clock)
    assert clocks == sorted(clocks)


@pytest.mark.parametrize("case", HLC["skew"], ids=lambda case: str(case["physical"]))
def test_hlc_skew(case: dict[str, Any]) -> None:
    assert hlc.beyond_skew(case["physical"], case["now"]) is not case["accepted"]


@pytest.mark.parametrize("case", vectors.load("signatures")["cases"], ids=lambda case: case["name"])
def test_signatures(case: dict[str, Any]) -> None:
    key, message, signature = (bytes.fromhex(case[name]) for name in ("public_key", "message", "signature"))
    assert ed25519.verify(key, message, signature) is case["valid"]


@pytest.mark.parametrize("case", RECORDS["records"], ids=lambda case: case["content_type"])
def test_records(case: dict[str, Any]) -> None:
    mesh_id, data = bytes.fromhex(RECORDS["mesh_id"]), bytes.fromhex(case["hex"])
    opened = record.open_record_untrusted(
        data, mesh_id=mesh_id, key_of=vectors.site_keys().get, content_type=case["content_type"]
    )
    assert (opened.record_id.hex(), opened.signer.hex()) == (case["record_id"], case["signer"])
    for name, value in vectors.value_of(case["payload"]).items():
        held = getattr(opened.body, name)
        assert (list(held) if isinstance(held, tuple) else held) == value
    key = site.SiteKey.from_seed(vectors.seeds()[opened.signer])
    assert record.seal_record(key, mesh_id, opened.body) == data


@pytest.mark.parametrize("case", vectors.load("frames")["frames"], ids=lambda case: case["name"])
def test_frames(case: dict[str, Any]) -> None:
    data, value = bytes.fromhex(case["cbor"]), vectors.value_of(case["frame"])
    events = value["t"] in EVENT_FRAMES
    decoded = (frames_untrusted.decode_events_untrusted if events else frames_untrusted.decode_control_untrusted)(data)
    assert frames.tag_of(decoded) == value["t"]
    assert frames.encode_frame(decoded) == data
    assert frames.digest(data).hex() == case["digest"]
    wire = bytes.fromhex(case["wire"])
    assert framing.frame(data) == wire
    assert framing.FrameReader().feed(wire) == [data]


@pytest.mark.parametrize("case", EVENTS["cases"], ids=lambda case: case["name"])
def test_events_open(case: dict[str, Any]) -> None:
    mesh_id = bytes.fromhex(EVENTS["mesh_id"])
    keys = {bytes.fromhex(each["site"]): bytes.fromhex(each["public_key"]) for each in EVENTS["keyring"]}
    if case["hex"] is None and case["verdict"] == "dropped:malformed":
        with pytest.raises(UsageError, match="1048576"):
            _build(case["build"], mesh_id)
        return
    data = _build(case["build"], mesh_id) if case["hex"] is None else bytes.fromhex(case["hex"])
    if case["verdict"] in OPENING_VERDICTS:
        with pytest.raises(EnvelopeError) as raised:
            open_event_untrusted(data, mesh_id=mesh_id, key_of=keys.get)
        assert f"dropped:{raised.value.reason}" == case["verdict"]
        return
    event = open_event_untrusted(data, mesh_id=mesh_id, key_of=keys.get)
    assert event.event_id.hex() == case["event_id"]
    assert event.site.hex() == case["signer"]
    assert event.key_bytes == cbor.encode(event.key)
    assert event.rank[:32] == hlc.clock_bytes(event.hlc, event.site)


def _build(spec: dict[str, Any], mesh_id: bytes) -> bytes:
    return author_event(
        site.SiteKey.from_seed(bytes.fromhex(spec["signer_seed"])),
        mesh_id,
        schema=spec["table_schema"],
        table=spec["table_name"],
        row_key={"id": spec["row_key_id"]},
        columns={"title": spec["title_letter"] * spec["title_length"]},
        hlc=Hlc(*spec["hlc"]),
    ).data
