"""Frames that are not as the profile spells them, sent by an independent peer (profile §7, §8, §12)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.foreign_bytes import encode, framed
from support.foreign_node import running
from support.foreign_peer import Link
from support.foreign_wire import Ended

U64 = 2**64 - 1


Say = Callable[[Link], Any]


def _ack(link: Link, **changes: Any) -> dict[str, Any]:
    ack = {"t": "ack", "epoch": bytes(8), "no": 1, "digest": bytes(32), "hlc": [1, 1]}
    return ack | {"rejected": [], "held": 0, "dropped": 0} | changes


def _marks(entry: Any) -> dict[str, Any]:
    return {"t": "watermarks", "after": {"epoch": bytes(8), "no": 0}, "entries": [entry]}


def _request(**fields: Any) -> dict[str, Any]:
    return {"t": "request", "id": bytes(8), **fields}


PROTOCOL_ERRORS: dict[str, Say] = {
    "unknown t": lambda link: link.say({"t": "offer"}),
    "unknown t on the event stream": lambda link: link.show({"t": "offer"}),
    "no t": lambda link: link.say({"v": 1}),
    "t is no text": lambda link: link.say({"t": 1}),
    "not a map": lambda link: link.say(encode([1])),
    "an empty frame": lambda link: link.say(b""),
    "not CBOR": lambda link: link.say(b"\xff\xff"),
    "two values": lambda link: link.say(encode({"t": "bye", "code": 0, "reason": ""}) + b"\0"),
    "not deterministic": lambda link: link.say(bytes.fromhex("a361746362796564636f6465180066726561736f6e60")),
    "unsorted keys": lambda link: link.say(bytes.fromhex("a364636f64650061746362796566726561736f6e60")),
    "unknown key in nak": lambda link: link.say(
        {"t": "nak", "epoch": bytes(8), "expected": 1, "reason": "", "more": 1}
    ),
    "unknown key in open": lambda link: link.show({"t": "open", "epoch": bytes(8), "next": 1, "more": 1}),
    "second hello": lambda link: link.hello(),
    "introduce after hello": lambda link: link.say({"t": "introduce", "records": []}),
    "lacking key in ack": lambda link: link.say({"t": "ack", "epoch": bytes(8), "no": 1}),
    "ack on the event stream": lambda link: link.show(_ack(link)),
    "batch on the control stream": lambda link: link.say(
        {"t": "batch", "epoch": bytes(8), "no": 1, "clock": {}, "events": []}
    ),
    "pairing frame": lambda link: link.say({"t": "pair-hello", "invite": bytes(8), "nonce": bytes(16)}),
    "ack of nothing": lambda link: link.say(_ack(link)),
    "short epoch": lambda link: link.show({"t": "open", "epoch": bytes(7), "next": 1}),
    "negative number": lambda link: link.show({"t": "open", "epoch": bytes(8), "next": -1}),
    "float number": lambda link: link.show({"t": "open", "epoch": bytes(8), "next": 1.0}),
    "bool number": lambda link: link.show({"t": "open", "epoch": bytes(8), "next": True}),
    "long reason": lambda link: link.say({"t": "nak", "epoch": bytes(8), "expected": 1, "reason": "r" * 129}),
    "event is text": lambda link: (link.open(), link.offer(events=["text"])),
    "record is an array": lambda link: (link.open(), link.offer("records", records=[[]])),
    "events is a map": lambda link: (link.open(), link.offer(events={})),
    "clock with a short site": lambda link: (link.open(), link.offer(events=[], clock={b"short": 1})),
    "deflated without the feature": lambda link: (
        link.open(),
        link.show({"t": "batch", "epoch": link.peer.epoch, "no": 1, "clock": {}, "deflated": b""}),
    ),
    "request for something else": lambda link: link.say(_request(what="row", site=bytes(16))),
    "request for a table with a site": lambda link: link.say(
        _request(what="table", schema="main", table="t", site=bytes(16))
    ),
    "request with a short id": lambda link: link.say({"t": "request", "id": b"", "what": "site", "site": bytes(16)}),
    "request for a short site": lambda link: link.say(_request(what="site", site=bytes(15))),
    "watermark of four": lambda link: link.say(_marks([bytes(16), "main", "t", 1])),
    "watermark of a short site": lambda link: link.say(_marks([b"", "main", "t", 1, 1])),
    "answered without id": lambda link: (link.open(), link.offer("answered")),
}

FRAMES_BEFORE_HELLO: dict[str, Say] = {
    "nak": lambda link: link.say({"t": "nak", "epoch": bytes(8), "expected": 1, "reason": ""}),
    "request": lambda link: link.say(_request(what="site", site=bytes(16))),
    "unknown": lambda link: link.say({"t": "offer"}),
}

HELLOS: dict[str, tuple[int, dict[str, Any]]] = {
    "version 2": (7, {"v": 2}),
    "version 0": (7, {"v": 0}),
    "version 2 and otherwise unlike": (7, {"v": 2, "more": 1}),
    "another site": (1, {"site": bytes(16)}),
    "no wall": (1, {"wall": ...}),
    "no inbound": (1, {"inbound": ...}),
    "version as text": (1, {"v": "1"}),
    "inbound with a short digest": (1, {"inbound": {"epoch": bytes(8), "next": 2, "digest": b"short"}}),
    "long name": (1, {"name": "n" * 129}),
    "long software": (1, {"software": "é" * 65}),
    "boot of 7": (1, {"boot": bytes(7)}),
    "incarnation of 8": (1, {"incarnation": bytes(8)}),
    "hlc of 3": (1, {"hlc": [1, 2, 3]}),
    "scope without dot": (1, {"scope": ["notes"]}),
    "scope with globbing": (1, {"scope": ["main.no*"]}),
    "scope with two stars": (1, {"scope": ["**.notes"]}),
    "scope without a table": (1, {"scope": ["main."]}),
    "scope without a schema": (1, {"scope": [".notes"]}),
    "scope of an exclamation mark": (1, {"scope": ["!"]}),
    "scope of a number": (1, {"scope": [1]}),
    "features of a number": (1, {"features": [1]}),
    "max_hlc of a short site": (1, {"max_hlc": {b"short": [1, 1]}}),
    "too large": (8, {"filler": bytes(64 * 1024)}),
}


async def ended(link: Link, case: str) -> int:
    """The close code; says which case it was that did not end."""
    try:
        return (await link.wire.end())[0]
    except TimeoutError:
        pytest.fail(f"{case}: the link goes on")


async def test_what_is_no_frame_of_the_profile_is_a_protocol_error(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        for case, misbehave in PROTOCOL_ERRORS.items():
            async with peer.greeted(here.port) as link:
                misbehave(link)
                assert await ended(link, case) == 1, case
            peer.last, peer.epoch = None, os.urandom(8)
        async with peer.greeted(here.port) as link:  # the node lives on
            link.open()
            await link.offered(peer.event({"id": "a"}, {}))


async def test_hello_is_first(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        for case, say in FRAMES_BEFORE_HELLO.items():
            async with peer.dial(here.port) as link:
                say(link)
                link.hello()
                assert await ended(link, case) == 1, case


async def test_a_hello_that_is_not_as_spelled_ends_the_link(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        for case, (code, changes) in HELLOS.items():
            async with peer.dial(here.port) as link:
                link.hello(**changes)
                assert await ended(link, case) == code, case


async def test_a_hello_may_say_more_up_to_its_bound(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        scope = ["*.*", "!main.a.b", "main.*", "*.notes"]
        hello = peer.greeting(more={"a": [1]}, features=["unheard", "of"], scope=scope, filler=b"")
        filler = bytes(64 * 1024 - len(encode(hello)) - 2)
        hello["filler"] = filler[: 64 * 1024 - len(encode(hello | {"filler": filler})) or None]
        assert len(encode(hello)) == 64 * 1024
        async with peer.dial(here.port) as link:
            link.say(hello)
            assert (await link.greeting())["features"] == link.theirs["features"]
            link.open()
            await link.offered(peer.event({"id": "a"}, {}))


@pytest.mark.parametrize("stream", [0, 2])
async def test_a_frame_longer_than_2_mib_is_a_limit(tmp_path: Path, stream: int) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            link.wire.write(stream, (2 * 2**20 + 1).to_bytes(4, "big"))
            assert (await link.wire.end())[0] == 8


async def test_a_frame_of_2_mib_stands(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            link.open()
            fixed = len(encode({"t": "batch", "epoch": peer.epoch, "no": 1, "clock": {}, "events": [bytes(2**20)] * 2}))
            rest = bytes(2**20 - (fixed - 2 * 2**20))
            sent = link.offer(events=[bytes(2**20), rest], clock={})
            assert len(sent.data) == 2 * 2**20
            ack = await link.acked(sent)
            assert {name: ack[name] for name in ("rejected", "held", "dropped")} == {
                "rejected": [],
                "held": 0,
                "dropped": 2,
            }


async def test_frames_may_come_in_any_pieces(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        async with peer.dial(here.port) as link:
            for piece in framed(encode(peer.greeting())):
                link.wire.write(0, bytes([piece]))
                await link.wire.ping() if piece % 16 == 0 else None
            await link.greeting()
            link.open()
            await link.offered(peer.event({"id": "a"}, {}))


async def test_numbers_of_64_bits_cost_a_peer_its_link_at_most_by_code_1(tmp_path: Path) -> None:
    """Never code 9: what a peer sends is no failure of the node."""
    largest: dict[str, Say] = {
        "wall": lambda link: None,
        "open": lambda link: (link.open(at=U64), link.offer(no=U64, events=[])),
        "open, just above 63 bits": lambda link: (link.open(at=2**63), link.offer(no=2**63, events=[])),
        "the last of 63 bits": lambda link: (link.open(at=2**63 - 1), link.offer(no=2**63 - 1, events=[])),
        "nak": lambda link: link.say({"t": "nak", "epoch": bytes(8), "expected": U64, "reason": ""}),
        "watermark": lambda link: link.say(_marks([link.peer.node, "main", "notes", 5, U64])),
        "clock": lambda link: (link.open(at=1), link.offer(no=1, events=[], clock={link.peer.site.site: U64})),
        "event": lambda link: (
            link.open(at=1),
            link.offer(
                no=1, events=[link.peer.event({"id": "a"}, {}, (5, U64)), link.peer.event(None, {}, (U64, U64))]
            ),
        ),
    }
    async with running(tmp_path) as here:
        peer = await here.member()
        ends: dict[str, int] = {}
        for case, say in largest.items():
            peer.last, peer.epoch, peer.inbound = None, os.urandom(8), None
            hello = {"wall": U64, "hlc": [U64, U64], "max_hlc": {bytes(16): [0, U64]}} if case == "wall" else {}
            async with peer.greeted(here.port, **hello) as link:
                say(link)
                try:
                    await link.wire.ping()
                    link.open(epoch=os.urandom(8), at=1)
                    link.offer(events=[peer.event({"id": "b"}, {})])
                    while (await link.control("ack"))["epoch"] != peer.epoch:
                        pass  # of what the case itself offered
                except Ended:
                    ends[case] = (await link.wire.end())[0]
        assert {case: code for case, code in ends.items() if code != 1} == {}
