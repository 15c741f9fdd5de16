"""The record walk: vectors in any order, and the laws that it is built on (profile §9)."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.record_sets import SITES, record_sets
from support.records import FOUNDER, MESH_ID, founding, parsed, retirement, role, site_key, vouch

from meshnode.model.hlc import Hlc
from meshnode.model.introduction import introduction, walk_untrusted
from meshnode.model.member import acceptable_beyond
from meshnode.model.membership import Membership, walk
from meshnode.model.record import Record

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "membership.json").read_text())


def walked(*records: bytes) -> Membership:
    return walk(map(parsed, records), FOUNDER.public_key)


def orders(records: list[bytes], shuffler: random.Random) -> Iterator[Sequence[bytes]]:
    """Every order in which few records can arrive; of many, some of them, with repeats."""
    if len(records) <= 5:
        yield from permutations(records)
    for _ in range(20):
        order = records + shuffler.choices(records, k=3)
        shuffler.shuffle(order)
        yield order


@pytest.mark.parametrize("scenario", VECTORS["scenarios"], ids=lambda scenario: scenario["name"])
def test_vector_in_every_order(scenario: dict[str, Any]) -> None:
    founder_key = bytes.fromhex(VECTORS["founder_public_key"])
    datas = [bytes.fromhex(each) for each in scenario["records"]]
    for order in orders(datas, random.Random(scenario["name"])):
        membership = walk(map(parsed, order), founder_key)
        assert membership.counted == {bytes.fromhex(each) for each in scenario["counted"]}
        for probe in scenario["probes"]:
            verdict = membership.judge(bytes.fromhex(probe["site"]), Hlc(*probe["hlc"]))
            assert (verdict or "acceptable") == probe["verdict"], probe
    signed = walk_untrusted(datas, mesh_id=bytes.fromhex(VECTORS["mesh_id"]), founder_key=founder_key)
    assert signed == membership


@settings(max_examples=150, deadline=None, derandomize=True)
@given(record_sets(), st.randoms(use_true_random=False))
def test_function_of_the_set(records: list[Record], shuffler: random.Random) -> None:
    before = walk(records, FOUNDER.public_key)
    again = records + records[:3]
    shuffler.shuffle(again)
    assert walk(again, FOUNDER.public_key) == before


@settings(max_examples=150, deadline=None, derandomize=True)
@given(record_sets())
def test_what_does_not_count_has_no_effect(records: list[Record]) -> None:
    before = walk(records, FOUNDER.public_key)
    counting = [each for each in records if each.record_id in before.counted]
    assert walk(counting, FOUNDER.public_key) == before


@settings(max_examples=150, deadline=None, derandomize=True)
@given(record_sets())
def test_spans_say_what_judge_says(records: list[Record]) -> None:
    membership = walk(records, FOUNDER.public_key)
    for site, member in membership.by_site.items():
        for physical in range(15):
            hlc = Hlc(physical, 0)
            inside = any(
                (above is None or hlc > above) and (up_to is None or hlc <= up_to) for above, up_to in member.spans()
            )
            assert inside == (membership.judge(site, hlc) is None)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(record_sets(), record_sets())
def test_gained_acceptance_is_noticed(first: list[Record], second: list[Record]) -> None:
    before = walk(first, FOUNDER.public_key)
    after = walk(first + second, FOUNDER.public_key)
    for site, member in after.by_site.items():
        gained = any(
            after.judge(site, hlc) is None and before.judge(site, hlc) is not None
            for hlc in (Hlc(physical, logical) for physical in range(15) for logical in (0, 1))
        )
        assert acceptable_beyond(member, before.by_site.get(site)) >= gained
        assert not acceptable_beyond(member, member)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(record_sets())
def test_an_introduction_alone_admits(records: list[Record]) -> None:
    membership = walk(records, FOUNDER.public_key)
    by_id = {each.record_id: each for each in records}
    for site in membership.by_site:
        shown = [each.data for each in introduction(membership, by_id, site)]
        alone = walk_untrusted(shown, mesh_id=MESH_ID, founder_key=FOUNDER.public_key)
        assert alone.key_of(site) == membership.key_of(site)


def test_a_junior_never_touches_a_senior() -> None:
    first, second = SITES[1], SITES[2]
    base = [*founding(first), vouch(first, second, 2), role(first, second, 2)]
    hostile = [
        role(second, first, 3, "reader"),
        retirement(second, first, 3, cutoff=0),
        role(second, FOUNDER, 3, "reader"),
        retirement(second, FOUNDER, 3, cutoff=0),
        retirement(FOUNDER, FOUNDER, 3, cutoff=0),
        vouch(first, FOUNDER, 3, "founder"),
    ]
    assert walked(*base, *hostile) == walked(*base)


def test_founder_is_no_member_but_may_sign_for_ever() -> None:
    membership = walked(*founding(SITES[1]))
    assert [member.site for member in membership.members()] == [SITES[1].site]
    assert membership.key_of(FOUNDER.site) == FOUNDER.public_key
    assert membership.may_sign(FOUNDER.site, Hlc(2**63, 0))
    assert membership.judge(FOUNDER.site, Hlc(5, 0)) is None


def test_role_and_retirement_bounds() -> None:
    device, other = SITES[1], SITES[2]
    membership = walked(
        *founding(device, 1),
        vouch(device, other, 2, "phone"),
        role(device, other, 5, "reader"),
        retirement(device, other, 9, cutoff=8),
    )
    judged = {physical: membership.judge(other.site, Hlc(physical, 0)) for physical in (0, 5, 6, 8, 9)}
    assert judged == {0: None, 5: None, 6: "role", 8: "role", 9: "retired-signer"}
    assert membership.retired(other.site) == Hlc(8, 0)
    assert membership.key_of(other.site) == other.public_key
    assert not membership.is_peer(other.site, other.public_key)
    assert membership.is_peer(device.site, device.public_key)
    assert not membership.is_peer(device.site, other.public_key)
    assert not membership.may_sign(other.site, Hlc(10, 0))
    assert membership.latest_about(other.site) == Hlc(9, 0)


def test_three_hundred_members_are_walked_quickly() -> None:
    device = site_key(1)
    records = founding(device)
    for number in range(2, 302):
        member = site_key(number)
        records += [vouch(device, member, number), role(device, member, number, "member")]
    parsed_records = [parsed(each) for each in records]
    started = time.perf_counter()
    membership = walk(parsed_records, FOUNDER.public_key)
    assert time.perf_counter() - started < 0.5
    assert len(membership.members()) == 301
