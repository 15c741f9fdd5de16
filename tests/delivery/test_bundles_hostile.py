"""Bundles that are damaged, cut short, of elsewhere or written to do harm: one clear error, or verdicts."""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from support.bundles import export, take
from support.pair import MESH_ID, Node, mesh
from support.records import site_key

from meshnode.codec.digest import blake3_256
from meshnode.codec.framing import frame
from meshnode.errors import BundleError, MembershipError, MeshError, NotFoundError, UsageError
from meshnode.limits import FRAME_BYTES, REQUESTS_PER_PEER
from meshnode.model.bundle import MAGIC, Asks, Bundle, framed, seal
from meshnode.model.event import author_event
from meshnode.model.frames import After, Answered, Batch, Frame, Inbound, Open, Records, WatermarkEntry, Watermarks
from meshnode.model.hlc import Hlc
from meshnode.model.site import SiteKey, mesh_tag
from meshnode.node.bundlefile import BundleReader, BundleWriter

EPOCH = b"epoch..."
UNUSED = "cannot be used, and nothing of it was"


def head(key: SiteKey, *, to: bytes | None = None, mesh_id: bytes = MESH_ID, **fields: object) -> Bundle:
    plain: dict[str, object] = {"public_key": key.public_key, "name": "n", "software": "s", "scope": ()}
    fields = {**plain, "after": None, "holds": {}, **fields}
    return Bundle(tag=mesh_tag(mesh_id), site=key.site, to=to, **fields)  # type: ignore[arg-type]


def written(path: Path, key: SiteKey, parts: Sequence[Frame | bytes], *, mesh_id: bytes = MESH_ID) -> Path:
    """A bundle with these frames, sealed by this key."""
    data = MAGIC + b"".join(frame(part) if isinstance(part, bytes) else framed(part) for part in parts)
    path.write_bytes(data + seal(key, mesh_id, blake3_256(data)))
    return path


@pytest.fixture
def nodes(tmp_path: Path) -> tuple[Node, Node]:
    left, right = mesh(tmp_path, 2)
    left.write("n1", "Milk")
    return left, right


def test_every_cut_and_every_flipped_byte_is_told_and_nothing_is_used(nodes: tuple[Node, Node], tmp_path: Path) -> None:
    left, right = nodes
    file = tmp_path / "x.bundle"
    export(left, right, file)
    whole = file.read_bytes()
    damaged = [whole[:length] for length in range(0, len(whole), 23)]
    damaged += [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(0, len(whole), 11)]
    damaged += [whole + b"\x00", whole + whole[len(MAGIC) :], whole[:-1], b"", b"{}", bytes(len(whole))]
    for data in damaged:
        file.write_bytes(data)
        with pytest.raises(BundleError, match=UNUSED):
            take(right, file)
    assert (right.events(), right.query("SELECT * FROM meshnode_inbound")) == (set(), [])
    file.write_bytes(whole)
    assert take(right, file).verdicts == {"applied": 1}


def test_a_length_beyond_the_bound_reserves_nothing(nodes: tuple[Node, Node], tmp_path: Path) -> None:
    file = tmp_path / "x.bundle"
    file.write_bytes(MAGIC + (FRAME_BYTES + 1).to_bytes(4, "big") + b"x")
    with pytest.raises(BundleError, match="it is damaged"):
        take(nodes[1], file)


def test_of_another_mesh_for_somebody_else_and_ones_own(nodes: tuple[Node, Node], tmp_path: Path) -> None:
    left, right = nodes
    file = tmp_path / "x.bundle"
    other = bytes(16)
    with pytest.raises(BundleError, match="of another mesh"):
        take(right, written(file, left.key, [head(left.key, mesh_id=other), Open(EPOCH, 1)], mesh_id=other))
    with pytest.raises(BundleError, match="its seal does not hold"):  # the tag is public, the mesh id is not
        take(right, written(file, left.key, [head(left.key), Open(EPOCH, 1)], mesh_id=other))
    with pytest.raises(BundleError, match="import it there"):
        take(right, written(file, left.key, [head(left.key, to=site_key(7).site), Open(EPOCH, 1)]))
    with pytest.raises(BundleError, match="this device wrote"):
        take(right, written(file, right.key, [head(right.key), Open(EPOCH, 1)]))
    with pytest.raises(MembershipError, match="is no member"):
        take(right, written(file, site_key(7), [head(site_key(7)), Open(EPOCH, 1)]))
    with pytest.raises(BundleError, match="public key"):
        take(right, written(file, left.key, [head(left.key, public_key=site_key(7).public_key), Open(EPOCH, 1)]))
    with pytest.raises(BundleError, match="its seal does not hold"):  # by another member than its head names
        take(right, written(file, right.key, [head(left.key), Open(EPOCH, 1)]))
    with pytest.raises(NotFoundError):
        take(right, tmp_path / "nowhere")
    with pytest.raises(UsageError):
        take(right, tmp_path)


DEEP = b"\xa1at" + b"\x81" * 20 + b"\x00"


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [b"\xff" * 40],
        [DEEP],
        [b"\x80" * 300_000],
        [Open(EPOCH, 2)],
        [Open(EPOCH, 1), Open(EPOCH, 1)],
        [Records(EPOCH, 1, [])],
        [Open(EPOCH, 1), Records(EPOCH, 2, [])],
        [Open(EPOCH, 1), Records(b"another.", 1, [])],
        [Open(EPOCH, 1), Records(EPOCH, 1, []), Records(EPOCH, 1, [])],
        [Open(EPOCH, 1), Watermarks(After(EPOCH, 0), ()), Records(EPOCH, 1, [])],
        [Open(EPOCH, 1), Watermarks(After(EPOCH, 9), ())],
        [Open(EPOCH, 1), DEEP],
        [Asks(bytes(16), (b"x",) * (REQUESTS_PER_PEER + 1)), Open(EPOCH, 1)],
    ],
    ids=[
        "no stream",
        "garbage",
        "deep nesting first",
        "many items",
        "opened in the middle",
        "opened twice",
        "not opened",
        "a gap",
        "another epoch",
        "a repeat",
        "after the end",
        "watermarks of later frames",
        "deep nesting",
        "many requests",
    ],
)
def test_what_a_member_sealed_and_is_no_bundle(
    nodes: tuple[Node, Node], tmp_path: Path, parts: list[Frame | bytes]
) -> None:
    left, right = nodes
    with pytest.raises(MeshError):
        take(right, written(tmp_path / "x", left.key, [head(left.key), *parts]))
    assert right.events() == set()


def test_what_came_before_a_fault_was_taken_in_and_is_known_when_it_comes_whole(
    nodes: tuple[Node, Node], tmp_path: Path
) -> None:
    left, right = nodes
    good = Batch(EPOCH, 1, {}, [left.event("n2", "Bread").data])
    with pytest.raises(BundleError, match="to its end, and the 1 frames before that were"):
        take(right, written(tmp_path / "x", left.key, [head(left.key), Open(EPOCH, 1), good, DEEP]))
    assert right.rows() == {"n2": "Bread"}
    again = take(right, written(tmp_path / "x", left.key, [head(left.key), Open(EPOCH, 1), good]))
    assert (again.verdicts, again.repeated) == ({"duplicate": 1}, 1)


def test_events_are_judged_one_by_one(nodes: tuple[Node, Node], tmp_path: Path) -> None:
    left, right = nodes
    stranger = author_event(
        site_key(7), MESH_ID, schema="main", table="notes", row_key={"id": "x"}, columns={"title": "x"}, hlc=Hlc(5, 0)
    )
    good = left.event("n2", "Bread")
    forged = good.data[:-1] + bytes([good.data[-1] ^ 1])
    events = [b"", b"\xff" * 9, stranger.data, forged, left.event("n3", None, hlc=Hlc(2**63, 0)).data, good.data]
    parts = [head(left.key), Open(EPOCH, 1), Records(EPOCH, 1, [b"junk"]), Batch(EPOCH, 2, {bytes(16): 9}, events)]
    taken = take(right, written(tmp_path / "x", left.key, parts))
    assert taken.verdicts == {
        "applied": 1,
        "dropped:bad-signature": 1,
        "dropped:malformed": 2,
        "dropped:unknown-signer": 1,
        "rejected:skew": 1,
    }
    assert (taken.records_dropped, taken.settled, right.rows()) == (1, False, {"n2": "Bread"})


def test_a_word_of_what_was_never_written_moves_no_cursor_forward(nodes: tuple[Node, Node], tmp_path: Path) -> None:
    left, right = nodes
    file = tmp_path / "x"
    pages = export(left, right, file)
    for holds in (
        Inbound(EPOCH, 9, bytes(32)),
        Inbound(pages.plan.epoch, pages.no + 1, bytes(32)),
        Inbound(pages.plan.epoch, pages.no + 2, pages.digest),
        Inbound(pages.plan.epoch, pages.no, b""),
    ):
        take(left, written(file, right.key, [head(right.key, holds={left.site: holds}), Open(EPOCH, 1)]))
        assert export(left, right, file).events == 1


def test_what_is_told_of_the_future_or_asked_without_end_is_bounded(nodes: tuple[Node, Node], tmp_path: Path) -> None:
    left, right = nodes
    far = WatermarkEntry(left.site, "main", "notes", 2**62, 0)
    parts = [head(left.key), Open(EPOCH, 1), Answered(EPOCH, 1, bytes(8)), Watermarks(After(EPOCH, 1), (far,))]
    assert take(right, written(tmp_path / "x", left.key, parts)).settled
    assert right.query("SELECT count(*) FROM meshnode_watermarks") == [(0,)]
    assert ("skew",) in right.query("SELECT kind FROM meshnode_notices")


def test_a_stick_that_gives_other_bytes_the_second_time(nodes: tuple[Node, Node], tmp_path: Path) -> None:
    """Else a member's seal would stand for frames that it never wrote, and what is missing be acknowledged."""
    left = nodes[0]
    file, other = tmp_path / "x", tmp_path / "y"
    events = [left.event(f"n{number}", "Bread").data for number in range(2)]
    written(other, left.key, [head(left.key), Open(EPOCH, 1), Batch(EPOCH, 1, {}, events[:1])])
    written(file, left.key, [head(left.key), Open(EPOCH, 1), Batch(EPOCH, 1, {}, events)])
    with closing(BundleReader(file)) as reader:
        assert reader.check(MESH_ID).frames == 2
        file.write_bytes(other.read_bytes())
        with pytest.raises(BundleError, match="became another one"):
            list(reader.parts())
        file.write_bytes(b"")
        with pytest.raises(BundleError):
            list(reader.parts())


def test_a_bundle_takes_nobodys_place_and_leaves_nothing_unfinished(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("mine")
    with pytest.raises(UsageError, match="--force"):
        BundleWriter(path, force=False)
    late = tmp_path / "late"
    writer = BundleWriter(late, force=False)
    late.write_text("somebody was faster")
    with pytest.raises(UsageError, match="--force"):
        writer.finish(b"seal")
    writer.close()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["late", "x"]
    assert (path.read_text(), late.read_text()) == ("mine", "somebody was faster")
    with pytest.raises(UsageError, match="folder"):
        BundleWriter(tmp_path, force=True)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="a pipe or a device"):
        BundleWriter(tmp_path / "pipe", force=True)
    with pytest.raises(UsageError, match="cannot write"):
        BundleWriter(tmp_path / "no" / "such", force=False)
    with closing(BundleReader(path)) as reader, pytest.raises(BundleError, match="no bundle"):
        reader.check(MESH_ID)


def test_what_a_killed_export_left_behind_goes_with_the_next_one_there(tmp_path: Path) -> None:
    killed, alive = (BundleWriter(tmp_path / name, force=False) for name in ("killed", "alive"))
    killed._file.close()  # as the system does for a process that ends
    assert len(list(tmp_path.iterdir())) == 2
    writer = BundleWriter(tmp_path / "next", force=False)
    assert len(list(tmp_path.iterdir())) == 2
    for each in (alive, writer):
        each.finish(b"seal")
        each.close()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["alive", "next"]


@pytest.mark.parametrize("force", [False, True])
def test_a_full_disk_leaves_nothing_of_a_bundle(tmp_path: Path, force: bool) -> None:
    path = tmp_path / "x"
    if force:
        path.write_text("mine")
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, usual[1]))
    try:
        writer = BundleWriter(path, force=force)
        writer.write(bytes(90_000))
        with pytest.raises(UsageError, match="cannot write"):
            writer.finish(bytes(90_000))
        writer.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert [each.read_text() for each in tmp_path.iterdir()] == (["mine"] if force else [])


def test_a_stick_whose_file_system_has_no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("meshnode.node.bundlefile.os.link", link)
    path = tmp_path / "x"
    writer = BundleWriter(path, force=False)
    path.write_text("somebody was faster")
    with pytest.raises(UsageError, match="--force"):
        writer.finish(b"seal")
    writer.close()
    path.unlink()
    writer = BundleWriter(path, force=False)
    writer.finish(b"seal")
    writer.close()
    assert (path.read_bytes(), [each.name for each in tmp_path.iterdir()]) == (MAGIC + b"seal", ["x"])
