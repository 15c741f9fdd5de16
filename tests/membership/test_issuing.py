"""A record is signed exactly where it has effect, and an error says who could (profile §9)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.mesh_context import Device, TestTime
from support.record_sets import SITES, record_sets
from support.records import FOUNDER, MESH_ID, founding, parsed, role, site_key, vouch

from meshnode.engine.authority import honoured, issue_retirement, issue_role, issue_vouch
from meshnode.errors import MembershipError
from meshnode.limits import HONOURED_RECORDS, RECORD_BYTES
from meshnode.model.hlc import Hlc
from meshnode.model.issuing import Issued, objection, who_could
from meshnode.model.membership import Membership, walk
from meshnode.model.record import Record, Retirement, Role, Vouch, seal_record
from meshnode.model.site import SiteKey

FIRST, SECOND, THIRD, FOURTH = (site_key(number) for number in range(1, 5))
LATE = Hlc(20, 0)  # above all that `record_sets` issues


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    device = Device(tmp_path / "a.db", FIRST, TestTime())
    device.add(*founding(FIRST))
    yield device
    device.context.db.close()


@st.composite
def bodies(draw: st.DrawFn) -> Issued:
    """A record that somebody is about to sign."""
    subject: SiteKey = draw(st.sampled_from(SITES))
    match draw(st.sampled_from(["vouch", "role", "retire"])):
        case "vouch":
            return Vouch(subject.site, subject.public_key, "device", LATE)
        case "role":
            return Role(subject.site, draw(st.sampled_from(["authority", "member", "reader"])), LATE)
        case _:
            return Retirement(subject.site, Hlc(draw(st.integers(0, 20)), 0), (), LATE)


def standing(membership: Membership) -> dict[bytes, object]:
    """What anybody can tell of who is in."""
    return {
        site: (each.public_key, each.role, each.cutoff, each.path is None, each.spans())
        for site, each in membership.by_site.items()
    }


@settings(max_examples=400, deadline=None, derandomize=True)
@given(record_sets(), st.sampled_from(SITES), bodies())
def test_an_objection_is_raised_exactly_where_a_record_is_without_effect(
    records: list[Record], signer: SiteKey, body: Issued
) -> None:
    before = walk(records, FOUNDER.public_key)
    if isinstance(body, Retirement):  # whoever is retired already keeps what it was honoured for
        member = before.by_site.get(body.site)
        assume(member is None or member.cutoff is None or not member.honours)
    record = parsed(seal_record(signer, MESH_ID, body))
    after = walk([*records, record], FOUNDER.public_key)
    why = objection(before, signer.site, body)
    if why is None:
        assert record.record_id in after.counted
    else:
        assert standing(after) == standing(before), why
    for each in who_could(before, body):
        able = next(key for key in SITES if key.site == each.site)
        by_them = parsed(seal_record(able, MESH_ID, body))
        assert by_them.record_id in walk([*records, by_them], FOUNDER.public_key).counted


def test_what_may_not_be_signed_is_refused_and_says_who_may(device: Device) -> None:
    context = device.context
    device.add(vouch(FIRST, SECOND, 2, "second"), role(FIRST, SECOND, 2), vouch(FIRST, THIRD, 2, "third"))
    for attempt, says in (
        (lambda tx: issue_role(context, tx, FIRST.site, "reader", signer=SECOND), "senior to 'second'"),
        (lambda tx: issue_retirement(context, tx, FIRST.site, signer=SECOND), "recovery key"),
        (lambda tx: issue_vouch(context, tx, FOURTH.public_key, "x", signer=THIRD), "'third'.* is no authority"),
        (lambda tx: issue_role(context, tx, FOURTH.site, "reader"), "is no member"),
        (lambda tx: issue_retirement(context, tx, FOUNDER.site), "recovery key"),
    ):
        with pytest.raises(MembershipError, match=says) as refused:
            device.run(attempt)
        assert str(refused.value).startswith("nothing was signed")
    device.run(lambda tx: issue_retirement(context, tx, THIRD.site))
    for signer in (None, FOUNDER):
        with pytest.raises(MembershipError, match="joins as a new one"):
            device.run(lambda tx, signer=signer: issue_vouch(context, tx, THIRD.public_key, "x", signer=signer))  # type: ignore[misc]
        with pytest.raises(MembershipError, match="already"):
            device.run(lambda tx, signer=signer: issue_retirement(context, tx, THIRD.site, signer=signer))  # type: ignore[misc]


def test_a_retirement_honours_what_came_before_its_cutoff_as_far_as_it_fits(device: Device) -> None:
    context = device.context
    now = device.time.now_ms
    device.add(vouch(FIRST, SECOND, now - 100), role(FIRST, SECOND, now - 100))
    before, after = vouch(SECOND, THIRD, now - 60), vouch(SECOND, FOURTH, now - 20)
    device.add(before, after)
    device.run(lambda tx: issue_retirement(context, tx, SECOND.site, cutoff=Hlc(now - 50, 0)))
    assert THIRD.site in context.membership.by_site
    assert FOURTH.site not in context.membership.by_site


def test_a_flood_by_the_one_that_is_retired_still_fits_a_record(device: Device) -> None:
    context = device.context
    device.add(vouch(FIRST, SECOND, 2), role(FIRST, SECOND, 2))
    first = vouch(SECOND, THIRD, 3)
    device.add(first)
    device.add(*(vouch(SECOND, site_key(1000 + number), 4) for number in range(HONOURED_RECORDS + 10)))
    kept = device.run(lambda tx: honoured(context, tx, SECOND.site, Hlc(10, 0)))
    assert len(kept) == HONOURED_RECORDS
    data = device.run(lambda tx: issue_retirement(context, tx, SECOND.site))
    assert RECORD_BYTES - 1024 < len(data) <= RECORD_BYTES
    assert THIRD.site in context.membership.by_site
