"""What a retired site is shown, and what it believes of its own end (profile §9, §13)."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from support.mesh_context import Device, TestTime
from support.record_sets import record_sets
from support.records import FOUNDER, MESH_ID, founding, retirement, role, sealed, site_key, vouch

from meshnode.engine.authority import issue_retirement
from meshnode.engine.membership import accept_own_end_untrusted, proof_of_end_of
from meshnode.model.hlc import Hlc
from meshnode.model.introduction import proof_of_end, walk_untrusted
from meshnode.model.membership import walk
from meshnode.model.record import Record, Retirement

FIRST, SECOND, THIRD, FOURTH = (site_key(number) for number in range(1, 5))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(record_sets())
def test_a_retired_site_is_shown_what_proves_it(records: list[Record]) -> None:
    membership = walk(records, FOUNDER.public_key)
    by_id = {each.record_id: each for each in records}
    own_vouches = {site: by_id[each.admitted].data for site, each in membership.by_site.items()}
    for site, member in membership.by_site.items():
        shown = [each.data for each in proof_of_end(membership, by_id, site)]
        if member.cutoff is None:
            continue
        # What it knew when it was let in, and what it is shown.
        told = walk_untrusted([own_vouches[site], *shown], mesh_id=MESH_ID, founder_key=FOUNDER.public_key)
        if site in told.by_site:
            assert told.retired(site) is not None
            assert told.retired(site) >= member.cutoff  # type: ignore[operator]


def test_a_device_believes_its_own_end_only_where_it_is_proven(tmp_path: Path) -> None:
    device = Device(tmp_path / "a.db", FIRST, TestTime())
    device.add(*founding(FIRST), vouch(FIRST, SECOND, 2), role(FIRST, SECOND, 2), vouch(FIRST, THIRD, 2))
    theirs = Device(tmp_path / "b.db", SECOND, device.time)
    theirs.add(*founding(FIRST), vouch(FIRST, SECOND, 2))
    by_nobody = [
        retirement(THIRD, SECOND, 5, cutoff=4),
        vouch(THIRD, FOURTH, 5),
        sealed(FIRST, Retirement(SECOND.site, Hlc(4, 0), (), Hlc(5, 0)), bytes(16)),
        b"no record",
    ]
    kept = theirs.run(lambda tx: accept_own_end_untrusted(theirs.context, tx, by_nobody, peer=THIRD.site))
    assert not kept
    assert theirs.context.membership.retired(SECOND.site) is None
    device.run(lambda tx: issue_retirement(device.context, tx, SECOND.site))
    proof = device.run(lambda tx: proof_of_end_of(device.context, tx, SECOND.site))
    assert theirs.run(lambda tx: accept_own_end_untrusted(theirs.context, tx, proof, peer=FIRST.site))
    assert theirs.context.membership.retired(SECOND.site) is not None
    assert theirs.notices() == {"own-retirement": 1}
    theirs.context.db.close()
    device.context.db.close()
