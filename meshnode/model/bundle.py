"""Bundles: one direction of a delivery as a file, for devices that no network ties (profile §8, path `bundle`).

A bundle is what one link would carry one way, recorded: who writes and for whom, what it holds of the other side's
bundles, what it asks for, then the numbered frames of one event stream, and a signature over all of it.

```
file      = "meshnode bundle\\n" frame*         a frame as on a stream: 4 bytes of length, big-endian, then CBOR (§7)
bundle    = { t:"bundle", v:1, tag: bstr8, site, public_key: bstr32, to: site / null, name, software, scope:[text],
              after: null / [[epoch, no]], holds: { site => { epoch, next, digest } } }        first, at most 64 KiB
introduce = { t:"introduce", records:[bstr] }                                         §7, where it is not too large
asks      = { t:"asks", site, requests:[bstr] }                 unanswered requests to that site: their frames, §8
open, records, batch, answered                                  §8, numbered from 1; batches may be deflated
watermarks                                                      §8, told once everything before is there
seal      = { t:"seal", record: bstr }                                                last; nothing follows it
```

The frames come in this order; `records` before every event. `tag` is the mesh tag, `to` null a bundle for any member.
The record of the seal (content type `sovm/ssp-bundle-v1`, payload `{ digest }`) is signed by `site` for the mesh, over
the BLAKE3-256 of every byte before the seal: who has not read all of it and checked that has read nothing.

**Sender.** A bundle carries every event from the position on up to which the peer is known to hold everything: by the
last bundle of its that was imported here, or by its acks on links, whichever is further; from the start of the log
where neither says so, or where it asked for something. So it repeats what may be lost, and each has a new epoch.
`after` names what a receiver has to hold for that to be whole, null where it is everything: any one of these epochs, up
to that frame. What it was sealed with is kept: when `holds` in a bundle of the peer names its epoch, its last frame and
that frame's digest, the peer stands there. When it names nothing that was ever sent, the next one begins at the start.

**Receiver.** State per (peer, path), as for links: an epoch is adopted, frames are committed one transaction each, and
the mark moves with them, but not past a frame of which something was rejected: the next bundle has that once more.
Where none of `after` is held here, everything is asked of the peer, which until then shows nothing whole.
"""

from __future__ import annotations

from typing import Final

from meshnode.codec import cbor, cose
from meshnode.codec.framing import frame
from meshnode.model.frames import Frame, Inbound, encode_frame
from meshnode.model.site import SiteKey

BUNDLE_PATH: Final = "bundle"
"""The transport path of bundles: their cursors are apart from those of links (SSP/1 §14.1)."""

MAGIC: Final = b"meshnode bundle\n"
BUNDLE_VERSION: Final = 1
SEAL_TYPE: Final = "sovm/ssp-bundle-v1"


class Bundle(Frame, frozen=True, tag="bundle"):
    """The head of a bundle."""

    tag: bytes
    site: bytes
    public_key: bytes
    to: bytes | None
    name: str
    software: str
    scope: tuple[str, ...]
    after: tuple[tuple[bytes, int], ...] | None
    holds: dict[bytes, Inbound]
    v: int = BUNDLE_VERSION


class Asks(Frame, frozen=True, tag="asks"):
    """What its writer asks of one site: the CBOR of request frames."""

    site: bytes
    requests: tuple[bytes, ...]


class Seal(Frame, frozen=True, tag="seal"):
    """The end of a bundle, signed."""

    record: bytes


def framed(part: Frame) -> bytes:
    """One frame as a bundle carries it."""
    return frame(encode_frame(part))


def seal(key: SiteKey, mesh_id: bytes, digest: bytes) -> bytes:
    """The last frame of a bundle, over the digest of everything before it."""
    payload = cbor.encode({"digest": digest})
    return framed(Seal(cose.seal(SEAL_TYPE, key.site, payload, external_aad=mesh_id, sign=key.sign)))
