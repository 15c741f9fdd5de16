"""The door for records: kept, counted, bounded, and what a changed membership sets in motion (profile §9)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.mesh_context import START_MS, Device, TestTime
from support.record_sets import record_sets
from support.records import FOUNDER, MESH_ID, founding, parsed, retirement, role, sealed, site_key, vouch

from meshnode import limits
from meshnode.codec import cbor, cose
from meshnode.codec.cose_key import public_from_cose
from meshnode.codec.digest import blake3_256
from meshnode.engine.authority import issue_retirement, issue_role, issue_vouch
from meshnode.engine.membership import (
    RecordsOutcome,
    accept_introduction_untrusted,
    add_records,
    all_records,
    introduction_of,
    load_membership,
)
from meshnode.errors import CorruptStateError, StoreError, UsageError
from meshnode.model.frames import Request, encode_frame
from meshnode.model.hlc import Hlc
from meshnode.model.membership import walk
from meshnode.model.record import VOUCH, EndpointAttestation, Record, Vouch
from meshnode.model.site import SiteKey
from meshnode.store import log
from meshnode.store.database import Tx
from meshnode.store.u64 import to_sql

FIRST, SECOND, THIRD, FOURTH = (site_key(number) for number in range(1, 5))


@pytest.fixture
def make(tmp_path: Path, time: TestTime) -> Iterator[Callable[[], Device]]:
    made: list[Device] = []

    def one() -> Device:
        made.append(Device(tmp_path / f"{len(made)}.db", site_key(100 + len(made)), time))
        return made[-1]

    yield one
    for device in made:
        device.context.db.close()


def stored(device: Device, what: str = "record_id") -> list[object]:
    return [
        row[0]
        for row in device.run(
            lambda tx: tx.execute(f"SELECT {what} FROM meshnode_records ORDER BY position").fetchall()
        )
    ]


def test_founding_makes_the_device_an_authority(tmp_path: Path, time: TestTime) -> None:
    device = Device.founded(tmp_path / "a.db", FIRST, time)
    member = device.context.membership.by_site[FIRST.site]
    assert (member.name, member.vouched_by, member.role) == ("first", FOUNDER.site, "authority")
    assert device.context.membership.may_sign(FIRST.site, Hlc(time.now_ms, 2))
    assert device.context.clock > Hlc(START_MS, 0)
    again = device.reopened()
    assert again.context.membership == device.context.membership
    again.context.db.close()


def test_every_order_ends_alike(make: Callable[[], Device]) -> None:
    records = [
        *founding(FIRST, 1),
        vouch(FIRST, SECOND, 2),
        role(FIRST, SECOND, 3),
        vouch(SECOND, THIRD, 4, "phone"),
        role(SECOND, THIRD, 5, "reader"),
        vouch(SECOND, FOURTH, 6),
        retirement(FIRST, SECOND, 7, cutoff=5, honours=[blake3_256(vouch(SECOND, THIRD, 4, "phone"))]),
        vouch(FOURTH, site_key(9), 8),
    ]
    shuffler = random.Random(7)
    expected = None
    for _ in range(12):
        device = make()
        shuffler.shuffle(records)
        pending = list(records)
        while pending:
            size = shuffler.randint(1, 4)
            outcome = device.add(*pending[:size])
            assert (outcome.dropped, outcome.rejected) == (0, ())
            del pending[:size]
        assert set(stored(device)) == {blake3_256(each) for each in records}
        seen = (device.context.membership, sorted(device.run(all_records)))
        expected = expected or seen
        assert seen == expected
        counting = device.run(
            lambda tx: {row[0] for row in tx.execute("SELECT record_id FROM meshnode_records WHERE counts = 1")}
        )
        assert counting == device.context.membership.counted
    assert THIRD.site in device.context.membership.by_site
    assert FOURTH.site not in device.context.membership.by_site


@settings(max_examples=40, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(record_sets(), st.randoms(use_true_random=False))
def test_batches_add_up_to_the_walk_over_all(
    tmp_path_factory: pytest.TempPathFactory, records: list[Record], shuffler: random.Random
) -> None:
    device = Device(tmp_path_factory.mktemp("walk") / "node.db", site_key(100), TestTime())
    shuffler.shuffle(records)
    pending = [each.data for each in records]
    while pending:
        size = shuffler.randint(1, 4)
        assert device.add(*pending[:size]).rejected == ()
        del pending[:size]
        assert device.run(lambda tx: load_membership(tx, FOUNDER.public_key)) == device.context.membership
    assert device.context.membership == walk(records, FOUNDER.public_key)
    assert set(stored(device)) == {each.record_id for each in records}
    device.context.db.close()


def test_a_record_of_exactly_the_limit_is_taken(make: Callable[[], Device]) -> None:
    device = make()
    device.add(*founding(FIRST))

    def padded(length: int) -> bytes:
        fields = {"site": SECOND.site, "public_key": SECOND.public_key, "name": "x" * length, "issued": [5, 0]}
        return cose.seal(VOUCH, FIRST.site, cbor.encode(fields), external_aad=MESH_ID, sign=FIRST.sign)

    full = padded(limits.RECORD_BYTES - len(padded(10_000)) + 10_000)
    assert len(full) == limits.RECORD_BYTES
    assert device.add(full, full + b"\0") == RecordsOutcome(added=1, dropped=1, changed=True)


def test_a_repeat_adds_nothing(make: Callable[[], Device]) -> None:
    device = make()
    assert device.add(*founding(FIRST)) == RecordsOutcome(added=2, changed=True)
    generation = device.context.generation
    assert device.add(*founding(FIRST), *founding(FIRST)) == RecordsOutcome()
    assert device.context.generation == generation


def test_malformed_and_forged_are_dropped(make: Callable[[], Device]) -> None:
    device = make()
    device.add(*founding(FIRST))
    good = vouch(FIRST, SECOND, 5)
    attestation = sealed(FIRST, EndpointAttestation(1, bytes(8), 1))
    elsewhere = sealed(FIRST, Vouch(THIRD.site, THIRD.public_key, "x", Hlc(5, 0)), bytes(16))
    huge = good + bytes(limits.RECORD_BYTES)
    hostile = [b"", b"\x84", good[:-1], good[:-1] + bytes([good[-1] ^ 1]), attestation, elsewhere, huge]
    assert device.add(*hostile) == RecordsOutcome(dropped=len(hostile))
    assert device.notices() == {"malformed": 5, "bad-signature": 2}
    assert len(stored(device)) == 2


def test_unknown_signers_wait_and_are_verified_when_the_key_appears(make: Callable[[], Device]) -> None:
    device = make()
    good = vouch(SECOND, THIRD, 5)
    forged = good[:-1] + bytes([good[-1] ^ 1])
    assert device.add(good, forged) == RecordsOutcome(added=2)
    assert device.context.membership.by_site == {}
    outcome = device.add(role(FIRST, SECOND, 3), vouch(FIRST, SECOND, 2), *founding(FIRST))
    assert outcome == RecordsOutcome(added=4, changed=True)
    assert THIRD.site in device.context.membership.by_site
    assert blake3_256(forged) not in stored(device)
    assert stored(device, "verified") == [1] * 5
    assert device.notices() == {"bad-signature": 1}


def test_a_forged_record_in_the_batch_that_brings_the_key_is_dropped(make: Callable[[], Device]) -> None:
    device = make()
    good = vouch(SECOND, THIRD, 5)
    forged = good[:-1] + bytes([good[-1] ^ 1])
    outcome = device.add(forged, role(FIRST, SECOND, 3), vouch(FIRST, SECOND, 2), *founding(FIRST))
    assert outcome == RecordsOutcome(added=4, dropped=1, changed=True)


def test_the_bound_of_unknown_signers_is_inclusive_and_rejects(
    make: Callable[[], Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "UNVERIFIED_RECORDS", 3)
    device = make()
    strangers = [vouch(site_key(50 + number), THIRD, number) for number in range(5)]
    assert device.add(*strangers) == RecordsOutcome(added=3, rejected=(3, 4))
    assert device.notices() == {"quota": 2}
    # A record whose signer is known is not kept out by them, and what was rejected is taken once its signer is known.
    outcome = device.add(*founding(FIRST), vouch(FIRST, site_key(54), 9), strangers[4])
    assert outcome == RecordsOutcome(added=4, changed=True)


def test_what_does_not_count_is_bounded_per_signer(make: Callable[[], Device], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PENDING_RECORDS_PER_SIGNER", 2)
    device = make()
    device.add(*founding(FIRST), vouch(FIRST, SECOND, 2), vouch(FIRST, THIRD, 2))
    noise = [vouch(SECOND, FOURTH, issued) for issued in (5, 6, 7)]
    assert device.add(*noise) == RecordsOutcome(added=2, rejected=(2,))
    with monkeypatch.context() as patch:
        patch.setattr("meshnode.engine.membership.walk", None)  # a record that cannot count costs no walk
        assert device.add(noise[2]) == RecordsOutcome(rejected=(0,))
    assert device.add(vouch(THIRD, FOURTH, 5)) == RecordsOutcome(added=1)
    # An authority's records count and are not bounded; what was rejected is taken now that it does.
    assert device.add(role(FIRST, SECOND, 3), noise[2]) == RecordsOutcome(added=2, changed=True)


def test_who_ends_itself_again_and_again_is_bounded(
    make: Callable[[], Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PENDING_RECORDS_PER_SIGNER", 3)
    device = make()
    device.add(*founding(FIRST), vouch(FIRST, SECOND, 2), vouch(FIRST, THIRD, 2))
    ends = [retirement(SECOND, SECOND, issued, cutoff=20 - issued) for issued in range(5, 11)]
    assert device.add(*ends[:2], vouch(SECOND, FOURTH, 4)) == RecordsOutcome(added=3, changed=True)
    assert device.add(*ends[2:]) == RecordsOutcome(rejected=(0, 1, 2, 3))
    assert device.context.membership.retired(SECOND.site) == Hlc(14, 0)
    assert len(stored(device)) == 7
    # In one batch alike: the walk that stands is that over what was kept.
    more = [retirement(THIRD, THIRD, issued, cutoff=20 - issued) for issued in range(5, 11)]
    assert device.add(*more) == RecordsOutcome(added=3, rejected=(3, 4, 5), changed=True)
    assert device.run(lambda tx: load_membership(tx, FOUNDER.public_key)) == device.context.membership


def test_skew_is_rejected_but_not_for_own_records(make: Callable[[], Device], time: TestTime) -> None:
    device = make()
    device.add(*founding(FIRST))
    edge = vouch(FIRST, SECOND, START_MS + limits.SKEW_MS)
    beyond = vouch(FIRST, THIRD, START_MS + limits.SKEW_MS + 1)
    stranger = vouch(FOURTH, THIRD, START_MS + limits.SKEW_MS + 1)
    assert device.add(beyond, edge, stranger) == RecordsOutcome(added=1, rejected=(0, 2), changed=True)
    assert device.notices() == {"skew": 2}
    time.now_ms += 1
    assert device.add(beyond) == RecordsOutcome(added=1, changed=True)


def test_own_records_survive_a_clock_that_stepped_back(tmp_path: Path, time: TestTime) -> None:
    device = Device.founded(tmp_path / "a.db", FIRST, time)
    time.now_ms -= 3_600_000
    record = device.run(lambda tx: issue_vouch(device.context, tx, SECOND.public_key, "phone"))
    assert parsed(record).issued > Hlc(START_MS, 0)
    assert SECOND.site in device.context.membership.by_site


def test_issued_ticks_above_what_counts_about_issuer_and_subject(tmp_path: Path, time: TestTime) -> None:
    device = Device.founded(tmp_path / "a.db", FIRST, time)
    ahead = START_MS + limits.SKEW_MS
    device.add(vouch(FOUNDER, SECOND, ahead), role(FOUNDER, FIRST, ahead))
    record = device.run(lambda tx: issue_role(device.context, tx, SECOND.site, "reader"))
    assert parsed(record).issued == Hlc(ahead, 1)
    assert device.context.membership.by_site[SECOND.site].role == "reader"
    assert device.context.clock == Hlc(ahead, 1)


def test_a_record_that_would_not_count_is_not_written(tmp_path: Path, time: TestTime) -> None:
    device = Device(tmp_path / "b.db", SECOND, time)
    device.add(*founding(FIRST), vouch(FIRST, SECOND, 2))
    for attempt in (
        lambda tx: issue_vouch(device.context, tx, THIRD.public_key, "x"),
        lambda tx: issue_role(device.context, tx, FIRST.site, "reader"),
        lambda tx: issue_retirement(device.context, tx, FIRST.site),
    ):
        with pytest.raises(UsageError):
            device.run(attempt)
    assert len(stored(device)) == 3
    with pytest.raises(UsageError):
        device.run(lambda tx: issue_vouch(device.context, tx, THIRD.public_key, "x" * 129))


def test_retirement_honours_what_counts(tmp_path: Path, time: TestTime) -> None:
    device = Device.founded(tmp_path / "a.db", FIRST, time)
    context = device.context
    device.run(lambda tx: issue_vouch(context, tx, SECOND.public_key, "phone"))
    device.run(lambda tx: issue_role(context, tx, SECOND.site, "authority"))
    admitted = vouch(SECOND, THIRD, START_MS + 5)
    time.now_ms += 10
    device.add(admitted)
    device.run(lambda tx: issue_retirement(context, tx, SECOND.site, signer=FOUNDER))
    assert context.membership.retired(SECOND.site) == context.clock
    assert THIRD.site in context.membership.by_site
    backdated = vouch(SECOND, FOURTH, START_MS + 5)
    assert device.add(backdated) == RecordsOutcome(added=1)
    assert FOURTH.site not in context.membership.by_site


def test_the_keyring_rows_follow_the_walk(make: Callable[[], Device]) -> None:
    device = make()
    device.add(*founding(FIRST), vouch(FIRST, SECOND, 2, "old name"))
    device.add(vouch(FIRST, SECOND, 3, "new name"))

    def keyring() -> dict[bytes, tuple[bytes, str]]:
        rows = device.run(lambda tx: tx.execute("SELECT site, cose_key, name FROM meshnode_keyring").fetchall())
        return {site: (public_from_cose(key), name) for site, key, name in rows}

    assert keyring() == {
        FIRST.site: (FIRST.public_key, "first"),
        SECOND.site: (SECOND.public_key, "new name"),
    }
    device.add(retirement(FOUNDER, FIRST, 9, cutoff=0))
    assert keyring() == {FIRST.site: (FIRST.public_key, "first")}


def requests_of(device: Device) -> list[tuple[int, bytes]]:
    return device.run(lambda tx: tx.execute("SELECT site_no, body FROM meshnode_requests").fetchall())


def receiving_from(device: Device, *sites: bytes) -> list[int]:
    def add(tx: Tx) -> list[int]:
        numbers = [device.context.sites.number(tx, site) for site in sites]
        for number in numbers:
            tx.execute(
                "INSERT INTO meshnode_inbound (site_no, path, epoch, next) VALUES (?, 'quic', ?, 1)", (number, bytes(8))
            )
        return numbers

    return device.run(add)


def test_history_of_who_became_acceptable_is_requested_from_every_peer(make: Callable[[], Device]) -> None:
    device = make()
    device.add(*founding(FIRST), vouch(FIRST, SECOND, 2))
    assert requests_of(device) == []
    numbers = receiving_from(device, FIRST.site, SECOND.site)
    device.add(vouch(FIRST, THIRD, 3))
    rows = requests_of(device)
    assert sorted(number for number, _ in rows) == numbers
    for request_id, body in device.run(
        lambda tx: tx.execute("SELECT request_id, body FROM meshnode_requests").fetchall()
    ):
        assert body == encode_frame(Request(id=request_id, what="site", site=THIRD.site))
    device.add(role(FIRST, THIRD, 5, "reader"))
    assert len(requests_of(device)) == 2
    device.add(role(FIRST, THIRD, 7, "member"))
    assert len(requests_of(device)) == 4


def test_many_sites_at_once_are_one_request(make: Callable[[], Device]) -> None:
    device = make()
    device.add(*founding(FIRST))
    receiving_from(device, FIRST.site)
    device.add(*(vouch(FIRST, site_key(200 + number), 3) for number in range(limits.REQUESTS_PER_PEER // 2 + 1)))
    [(_, body)] = requests_of(device)
    assert b"table" in body


def test_events_that_no_longer_stand_are_taken_back_and_surfaced_with_their_count(make: Callable[[], Device]) -> None:
    device = make()
    device.add(*founding(FIRST), vouch(FIRST, SECOND, 2))

    def fill(tx: Tx) -> None:
        number = device.context.sites.number(tx, SECOND.site)
        for physical in (5, 8, 9, 2**63, 2**64 - 1):
            tx.execute(
                "INSERT INTO meshnode_log (position, site_no, physical, logical, id_prefix, table_no, state, event)"
                " VALUES (?, ?, ?, ?, 0, 1, ?, x'')",
                (device.context.take_position(), number, to_sql(physical), 0, log.UNRESOLVED),
            )

    device.run(fill)
    device.add(retirement(FIRST, SECOND, 20, cutoff=8))
    sample = device.run(
        lambda tx: tx.execute("SELECT sample FROM meshnode_notices WHERE kind = 'taken-back'").fetchone()
    )
    assert sample[0].endswith(": 3 events")
    assert device.run(lambda tx: tx.execute("SELECT position FROM meshnode_log").fetchall()) == [(1,), (2,)]
    device.add(retirement(FIRST, SECOND, 21, cutoff=8))
    assert device.notices() == {"taken-back": 1}


def test_a_failed_transaction_leaves_the_old_membership(make: Callable[[], Device]) -> None:
    device = make()
    device.add(*founding(FIRST))
    before = device.context.membership

    def fail(tx: Tx) -> None:
        add_records(device.context, tx, [vouch(FIRST, SECOND, 2)], peer=FIRST.site)
        assert SECOND.site in device.context.membership.by_site
        raise StoreError("the disk is full")

    with pytest.raises(StoreError):
        device.run(fail)
    device.run(lambda tx: None)
    assert device.context.membership == before
    assert len(stored(device)) == 2


def test_positions_are_never_used_again(make: Callable[[], Device]) -> None:
    device = make()
    good = vouch(SECOND, THIRD, 5)
    device.add(good[:-1] + bytes([good[-1] ^ 1]))
    assert stored(device, "position") == [1]
    device.add(*founding(FIRST), vouch(FIRST, SECOND, 2))
    assert stored(device, "position") == [2, 3, 4]


def test_unreadable_rows_are_an_error_and_not_an_empty_keyring(make: Callable[[], Device]) -> None:
    device = make()
    device.add(*founding(FIRST))
    device.run(lambda tx: tx.execute("UPDATE meshnode_records SET record = x'00' WHERE position = 2"))
    with pytest.raises(CorruptStateError):
        device.add(vouch(FIRST, SECOND, 2))
    with pytest.raises(CorruptStateError):
        device.reopened()


def test_an_introduction_is_kept_only_if_it_admits(tmp_path: Path, time: TestTime) -> None:
    first = Device.founded(tmp_path / "a.db", FIRST, time)
    context = first.context
    first.run(lambda tx: issue_vouch(context, tx, SECOND.public_key, "phone"))
    first.run(lambda tx: issue_role(context, tx, SECOND.site, "authority"))
    second = Device(tmp_path / "b.db", SECOND, time)
    second.add(*first.run(all_records))
    time.now_ms += 1
    second.run(lambda tx: issue_vouch(second.context, tx, THIRD.public_key, "laptop"))
    shown = second.run(lambda tx: introduction_of(second.context, tx, THIRD.site))

    def introduced(records: list[bytes], key: SiteKey) -> bool:
        return first.run(
            lambda tx: accept_introduction_untrusted(
                first.context, tx, records, site=key.site, public_key=key.public_key
            )
        )

    before = stored(first)
    assert not introduced([], THIRD)
    assert not introduced(shown, FOURTH)
    assert not introduced([vouch(FOURTH, FOURTH, 5), b"junk"], FOURTH)
    assert stored(first) == before
    assert first.notices() == {}
    assert introduced(shown, THIRD)
    assert introduced([], THIRD)
    assert first.context.membership == second.context.membership
    first.run(lambda tx: issue_retirement(first.context, tx, THIRD.site))
    assert not introduced(shown, THIRD)
    for device in (first, second):
        device.context.db.close()
