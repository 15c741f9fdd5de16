"""Generated sets of records among a few sites, for laws of membership."""

from __future__ import annotations

from hypothesis import strategies as st

from meshnode.codec.digest import blake3_256
from meshnode.model.record import Record
from support.records import founding, parsed, retirement, role, site_key, vouch

SITES = [site_key(number) for number in range(6)]
"""The recovery key, the first device and four more."""


@st.composite
def record_sets(draw: st.DrawFn) -> list[Record]:
    """Records among six sites, most of them signed by somebody who may at some time."""
    site = st.sampled_from(SITES)
    issued = st.integers(0, 12)
    datas = founding(SITES[1], 0)
    for _ in range(draw(st.integers(0, 14))):
        signer, subject, at = draw(site), draw(site), draw(issued)
        kind = draw(st.sampled_from(["vouch", "vouch", "authority", "authority", "reader", "member", "retire"]))
        if kind == "vouch":
            datas.append(vouch(signer, subject, at))
        elif kind == "retire":
            kept = draw(st.lists(st.sampled_from(datas), max_size=3))
            datas.append(retirement(signer, subject, at, cutoff=draw(issued), honours=map(blake3_256, kept)))
        else:
            datas.append(role(signer, subject, at, kind))
    return [parsed(each) for each in datas]
