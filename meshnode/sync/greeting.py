"""The hello, ours and the peer's: what each side says of itself first (profile §8). Pure."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from meshnode.codec.framing import frame
from meshnode.errors import CloseCode, ProtocolError
from meshnode.limits import CLOCK_OFFSET_NOTICE_MS, LABEL_BYTES
from meshnode.model.delivery import LinkState
from meshnode.model.frames import FEATURE_COVERING, VERSION, Frame, Hello, Inbound, Request, encode_frame
from meshnode.model.frames_untrusted import decode_control_untrusted
from meshnode.model.hlc import ZERO, Hlc, beyond_skew
from meshnode.model.scope import Scope, parse_scope_untrusted
from meshnode.sync.effects import Effect, Notice, RolledBack, SendControl


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """What a node says of itself on every link."""

    site: bytes
    name: str
    software: str
    boot: bytes
    scope: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    introduce: tuple[bytes, ...] = ()  # records that make us a member, for a peer that may not have heard of us


def label(text: str) -> str:
    """As much of a text as a frame may carry of it (profile §8: 128 bytes)."""
    return text.encode("utf-8", "replace")[:LABEL_BYTES].decode("utf-8", "ignore")


def said(message: Frame) -> SendControl:
    """A message as it goes out on the control stream."""
    return SendControl(frame(encode_frame(message)))


def own_hello(greeting: Greeting, state: LinkState, inbound: Inbound | None, now_ms: int) -> Hello:
    """Our hello for one link."""
    return Hello(
        site=greeting.site,
        name=label(greeting.name),
        software=label(greeting.software),
        incarnation=state.incarnation,
        boot=greeting.boot,
        wall=now_ms,
        hlc=state.hlc,
        scope=greeting.scope,
        features=greeting.features,
        inbound=inbound,
        max_hlc=dict(state.max_hlc),
    )


def plain(body: bytes) -> bytes:
    """A stored request of ours without what takes a feature."""
    request = decode_control_untrusted(body, frozenset({FEATURE_COVERING}))
    assert isinstance(request, Request)
    return encode_frame(msgspec.structs.replace(request, covering=None))


def check_hello_untrusted(hello: Hello, peer: bytes) -> Scope:
    """The scope that the peer wants; ProtocolError where the link cannot go on."""
    if hello.v != VERSION:
        raise ProtocolError(f"the peer speaks version {hello.v} of the protocol, not {VERSION}", CloseCode.VERSION)
    if hello.site != peer:
        raise ProtocolError("the hello names another site than the authenticated one")
    return parse_scope_untrusted(hello.scope)


def without_skew(hello: Hello, now_ms: int) -> tuple[Hello, int]:
    """The hello with every HLC beyond the skew bound left out, and how many those were (SSP/1 §5.1, profile §8)."""
    kept = {site: hlc for site, hlc in hello.max_hlc.items() if not beyond_skew(hlc.physical, now_ms)}
    skewed = len(hello.max_hlc) - len(kept)
    own = hello.hlc
    if beyond_skew(own.physical, now_ms):
        own, skewed = ZERO, skewed + 1
    return (msgspec.structs.replace(hello, hlc=own, max_hlc=kept), skewed) if skewed else (hello, 0)


def remarks(hello: Hello, skewed: int, known: Hlc, site: bytes, now_ms: int) -> list[Effect]:
    """What a hello shows of the two clocks and of our own past; `known` is the newest event of ours that we know."""
    effects: list[Effect] = []
    offset = hello.wall - now_ms
    if abs(offset) >= CLOCK_OFFSET_NOTICE_MS:
        effects.append(
            Notice(
                "clock-offset", f"its clock was {offset / 1000:+.0f} s off ours when it linked: set one of them right"
            )
        )
    if skewed:
        effects.append(Notice("skew", f"{skewed} clock readings in its hello are too far in the future"))
    claimed = hello.max_hlc.get(site, ZERO)
    if claimed > known:
        effects.append(RolledBack(claimed))
    return effects
