"""What announcements amount to: proven or only seen, newest boot, bounds, forgeries (profile §11, §12)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.announcer import MESH_ID, boot_of, service_of, site_key

from meshnode.errors import BadSignatureError, MalformedError, UnknownSignerError
from meshnode.limits import ADDRESSES_PER_SITE, ANNOUNCEMENTS_PER_SITE, REFUSED_ANNOUNCEMENTS, SEEN_SITES
from meshnode.net.announcement import Announcement, Attested, attestation_opener, parse_txt_untrusted
from meshnode.net.seen import Seen, Standing
from meshnode.net.sightings import Gone, Ignored, Sighting, SightingBook

TAG = bytes(8)
OWN = b"o" * 16


def site(number: int) -> bytes:
    return hashlib.sha256(b"%d" % number).digest()[:16]


@dataclass
class Keyring:
    """Opens attestations of the form `site ‖ port ‖ issued ‖ boot`; only known sites' verify."""

    known: set[bytes] = field(default_factory=set)

    def open(self, data: bytes) -> Attested:
        if data == b"forged":
            raise BadSignatureError("the signature does not verify")
        attested = Attested(
            data[:16], int.from_bytes(data[16:18], "big"), data[26:34], int.from_bytes(data[18:26], "big")
        )
        if attested.signer not in self.known:
            raise UnknownSignerError("not in the keyring")
        return attested


def announce(number: int, *, instance: str = "", port: int = 4747, issued: int = 1, **changes: object) -> Announcement:
    attestation = site(number) + port.to_bytes(2, "big") + issued.to_bytes(8, "big") + issued.to_bytes(8, "little")
    fields: dict[str, object] = {
        "instance": instance or f"i{number}",
        "site": site(number),
        "tag": TAG,
        "port": port,
        "addresses": (f"10.0.{number >> 8}.{number & 255}",),
        "attestation": attestation,
    }
    return Announcement(**{**fields, **changes})  # type: ignore[arg-type]


def book_of(*members: int) -> tuple[SightingBook, Keyring]:
    keyring = Keyring({site(number) for number in members})
    return SightingBook(OWN, keyring.open), keyring


def only(news: list[Sighting | Gone | Ignored]) -> Sighting | Gone | Ignored:
    assert len(news) == 1
    return news[0]


def test_a_member_is_verified_and_told_once() -> None:
    book, _ = book_of(1)
    sighting = only(book.saw(announce(1)))
    assert isinstance(sighting, Sighting)
    assert sighting.verified
    assert sighting.boot
    assert book.saw(announce(1)) == []
    assert book.sightings() == [sighting]


def test_a_stranger_is_seen_and_becomes_a_member_with_the_keyring() -> None:
    book, keyring = book_of()
    seen = only(book.saw(announce(1)))
    assert isinstance(seen, Sighting)
    assert not seen.verified
    assert book.recheck() == []
    keyring.known.add(site(1))
    member = only(book.recheck())
    assert isinstance(member, Sighting)
    assert member.verified


def test_our_own_announcement_is_not_a_sighting() -> None:
    book, _ = book_of()
    assert book.saw(announce(1, site=OWN)) == []


@pytest.mark.parametrize(
    "lie", [{"attestation": b"forged"}, {"port": 4748, "attestation": announce(1).attestation}, {"site": site(2)}]
)
def test_an_attestation_that_does_not_hold_is_ignored(lie: dict[str, Any]) -> None:
    book, _ = book_of(1, 2)
    assert isinstance(only(book.saw(announce(1, **lie))), Ignored)
    assert book.sightings() == []


def test_a_forged_replacement_takes_the_instance_down() -> None:
    book, _ = book_of(1)
    book.saw(announce(1))
    ignored, gone = book.saw(announce(1, attestation=b"forged"))
    assert isinstance(ignored, Ignored)
    assert gone == Gone(site(1))


@given(st.permutations([1, 2, 3]))
def test_the_newest_boot_counts_in_any_order(order: list[int]) -> None:
    book, _ = book_of(1)
    for issued in order:
        book.saw(announce(1, instance=f"i{issued}", issued=issued, port=4000 + issued))
    assert [sighting.port for sighting in book.sightings()] == [4003]
    moved = only(book.lost("i3"))
    assert isinstance(moved, Sighting)
    assert moved.port == 4002


def test_an_instance_that_comes_back_counts_even_if_its_clock_stepped_back() -> None:
    book, _ = book_of(1)
    book.saw(announce(1, issued=9, port=4000))
    again = only(book.saw(announce(1, issued=3, port=4001)))
    assert isinstance(again, Sighting)
    assert again.port == 4001


def test_copies_of_an_attestation_cannot_hide_the_true_addresses() -> None:
    book, _ = book_of(1)
    book.saw(announce(1, instance="true", addresses=("10.0.0.1", "10.0.0.2")))
    for copy in range(20):
        spoofed = tuple(f"10.9.{copy}.{last}" for last in range(ADDRESSES_PER_SITE))
        book.saw(announce(1, instance=f"copy{copy}", addresses=spoofed))
    (sighting,) = book.sightings()
    assert {"10.0.0.1", "10.0.0.2"} <= set(sighting.addresses)
    assert len(sighting.addresses) == ADDRESSES_PER_SITE
    assert len(book.instances()) == ANNOUNCEMENTS_PER_SITE


@pytest.mark.parametrize("unproven", [False, True])
def test_copies_of_what_a_site_once_announced_do_not_keep_its_new_start_out(unproven: bool) -> None:
    book, _ = book_of(1)
    for number in range(ANNOUNCEMENTS_PER_SITE):
        stranger = announce(2, instance=f"copy {number}").attestation
        book.saw(announce(1, instance=f"copy {number}", **({"attestation": stranger} if unproven else {})))
    assert book.saw(announce(1, instance="one more", **({"attestation": stranger} if unproven else {}))) == []
    sighting = only(book.saw(announce(1, instance="true", issued=2, addresses=("10.0.0.2",))))
    assert isinstance(sighting, Sighting)
    assert (sighting.verified, sighting.addresses) == (True, ("10.0.0.2",))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(1, 3), st.sampled_from(["", "forged"]))))
def test_what_would_be_kept_is_known_without_its_addresses(steps: list[tuple[int, int, int, str]]) -> None:
    book, keyring = book_of(1, 2)
    keyring.known.add(OWN)
    for number, instance, issued, forged in steps:
        change = {"attestation": forged.encode()} if forged else {}
        announcement = announce(number, instance=f"i{instance}", issued=issued, **change)
        if number == 4:
            announcement = replace(announcement, site=OWN)
        expected, was_there = book.would_keep(announcement), book.keeps(announcement.instance)
        book.saw(announcement)
        if not was_there:
            assert book.keeps(announcement.instance) == expected


def test_a_proven_instance_beats_unproven_ones_of_its_site() -> None:
    book, keyring = book_of()
    keyring.known.add(site(1))
    other = announce(2, site=site(1), instance="odd")  # signed by a stranger, claims site 1
    keyring.known.discard(site(2))
    book.saw(other)
    proven = book.saw(announce(1))
    assert isinstance(only(proven), Sighting)
    assert book.sightings()[0].verified


def test_goodbye_of_the_last_instance_is_gone() -> None:
    book, _ = book_of(1)
    book.saw(announce(1, instance="a"))
    book.saw(announce(1, instance="b", issued=2))
    assert isinstance(only(book.lost("b")), Sighting)
    assert book.lost("a") == [Gone(site(1))]
    assert book.lost("a") == []


def test_strangers_are_bounded_and_members_always_fit() -> None:
    members = range(10_000, 10_010)
    book, _ = book_of(*members)
    for number in range(SEEN_SITES + 50):
        book.saw(announce(number))
    assert len(book.sightings()) == SEEN_SITES
    for number in members:
        gone, sighting = sorted(book.saw(announce(number)), key=lambda one: isinstance(one, Sighting))
        assert isinstance(gone, Gone)
        assert isinstance(sighting, Sighting)
    assert len(book.sightings()) == SEEN_SITES
    assert sum(sighting.verified for sighting in book.sightings()) == len(members)
    assert book.saw(announce(1)) == [] or site(1) in {sighting.site for sighting in book.sightings()}


def test_an_instance_that_changes_its_site_leaves_the_old_one() -> None:
    book, _ = book_of(1, 2)
    book.saw(announce(1, instance="x"))
    news = book.saw(announce(2, instance="x"))
    assert Gone(site(1)) in news
    assert [sighting.site for sighting in book.sightings()] == [site(2)]


STANDINGS: dict[str, tuple[dict[str, Any], Standing]] = {
    "member": ({}, Standing.VERIFIED),
    "stranger": ({"number": 3}, Standing.UNKNOWN_SITE),
    "other mesh": ({"number": 3, "tag": b"other   "}, Standing.OTHER_MESH),
    "no attestation": ({"attestation": b""}, Standing.NO_ATTESTATION),
    "wrong port": ({"port": 4748, "attestation": announce(1).attestation}, Standing.WRONG_PORT),
    "forged": ({"attestation": b"forged"}, Standing.BAD_ATTESTATION),
    "by another": ({"site": site(2)}, Standing.BAD_ATTESTATION),
    "own": ({"site": OWN}, Standing.OWN),
}


@pytest.mark.parametrize("case", STANDINGS)
def test_each_announcement_is_shown_with_what_it_is_worth_until_it_goes(case: str) -> None:
    changes, standing = STANDINGS[case]
    book = SightingBook(OWN, Keyring({site(1), site(2)}).open, TAG)
    book.saw(announce(**{"number": 1, "instance": "x", **changes}))
    (seen,) = book.seen()
    assert (seen.instance, seen.standing, bool(seen.reason)) == ("x", standing, standing is not Standing.VERIFIED)
    assert seen.port == changes.get("port", 4747)
    book.saw(announce(2, instance="x"))  # another announcement by that name takes its place
    assert [each.standing for each in book.seen()] == [Standing.VERIFIED]
    book.lost("x")
    assert book.seen() == []


def test_what_cannot_be_read_is_shown_as_malformed_and_takes_the_instance_down() -> None:
    book, _ = book_of(1)
    book.saw(announce(1, instance="x"))
    assert book.malformed("x", 0, ("10.0.0.1",), "no port") == [Gone(site(1)), Ignored(None, "no port")]
    assert book.seen() == [Seen("x", Standing.MALFORMED, "no port", addresses=("10.0.0.1",))]
    book.lost("x")
    assert book.seen() == []


def test_with_the_keyring_what_was_a_strangers_word_may_turn_out_forged() -> None:
    book, keyring = book_of()
    book.saw(announce(1, port=4748, attestation=announce(1).attestation))
    assert [each.standing for each in book.seen()] == [Standing.UNKNOWN_SITE]
    keyring.known.add(site(1))
    assert book.recheck() == [Gone(site(1))]
    assert [each.standing for each in book.seen()] == [Standing.WRONG_PORT]


def test_announcements_that_do_not_count_are_bounded_and_hide_no_member() -> None:
    book, _ = book_of(1)
    for number in range(2 * REFUSED_ANNOUNCEMENTS):
        book.malformed(f"lie {number}", 0, (), "rubbish")
    book.saw(announce(1))
    shown = [each.standing for each in book.seen()]
    assert (len(shown), shown.count(Standing.VERIFIED)) == (REFUSED_ANNOUNCEMENTS + 1, 1)


GOOD = {b"v": b"1", b"tag": b"0" * 16, b"site": b"ab" * 16, b"att": b"x"}


def test_a_good_txt_record_is_read() -> None:
    announcement = parse_txt_untrusted("i", 4747, GOOD, ["10.0.0.1"])
    assert announcement.site == b"\xab" * 16
    assert announcement.tag == bytes(8)


@pytest.mark.parametrize(
    ("change", "port"),
    [
        ({b"v": b"2"}, 1), ({b"v": None}, 1), ({b"tag": b"0" * 15}, 1), ({b"tag": None}, 1), ({b"site": b"AB" * 16}, 1),
        ({b"site": b" b" * 16}, 1), ({b"site": "é".encode() * 16}, 1),
        ({b"att": bytes(20_000)}, 1), ({}, None), ({}, 0), ({}, 70_000),
    ],
)  # fmt: skip
def test_a_txt_record_of_another_shape_is_malformed(change: dict[bytes, bytes | None], port: int | None) -> None:
    with pytest.raises(MalformedError):
        parse_txt_untrusted("i", port, {**GOOD, **change}, [])


@pytest.mark.parametrize(
    ("near", "name", "read"),
    [
        (b"4748", b"Desk", (4748, "Desk")), (b"4748", None, (4748, "")), (b"4748", b"\xff", (4748, "\ufffd")),
        (None, b"Desk", (0, "")), (b"", b"Desk", (0, "")), (b"0", b"Desk", (0, "")), (b"65536", b"Desk", (0, "")),
        (b"-1", b"Desk", (0, "")), (b"000001", b"Desk", (0, "")), (b"4748", b"x" * 129, (0, "")),
    ],
)  # fmt: skip
def test_a_device_that_says_it_is_open_to_nearby_ones(
    near: bytes | None, name: bytes | None, read: tuple[int, str]
) -> None:
    """What is of another shape is as if it were not there: the announcement stands."""
    announcement = parse_txt_untrusted("i", 4747, {**GOOD, b"near": near, b"name": name}, ["10.0.0.1"])
    assert (announcement.nearby, announcement.name) == read


def test_opening_and_closing_is_news_and_proves_nothing() -> None:
    book, _ = book_of()
    assert isinstance(only(book.saw(announce(1))), Sighting)
    opened = only(book.saw(announce(1, nearby=4748, name="desk")))
    assert isinstance(opened, Sighting)
    assert (opened.nearby, opened.name, opened.verified) == (4748, "desk", False)
    closed = only(book.saw(announce(1)))
    assert isinstance(closed, Sighting)
    assert closed.nearby == 0


@given(
    st.dictionaries(
        st.sampled_from([b"v", b"tag", b"site", b"att", b"x", b"near", b"name"]), st.none() | st.binary(max_size=40)
    )
)
def test_no_txt_record_raises_anything_else(properties: dict[bytes, bytes | None]) -> None:
    try:
        parse_txt_untrusted("i", 1, properties, [])
    except MalformedError:
        return
    assert properties[b"v"] == b"1"


def test_real_attestations_open_under_their_mesh_and_key_only() -> None:
    keys = {site_key(1).site: site_key(1).public_key}
    opener = attestation_opener(MESH_ID, keys.get)
    service = service_of({"who": 1})
    assert opener(service.attestation) == Attested(site_key(1).site, 4747, boot_of(1, 1), 1)
    with pytest.raises(BadSignatureError):
        opener(service_of({"who": 1, "other_mesh": True}).attestation)
    with pytest.raises(UnknownSignerError):
        opener(service_of({"who": 2}).attestation)
    for cut in range(len(service.attestation)):
        with pytest.raises(MalformedError):
            opener(service.attestation[:cut])
