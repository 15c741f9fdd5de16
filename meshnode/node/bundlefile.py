"""A bundle as a file: written whole or not at all, and read twice, since nothing is used before its seal was checked.

Everything read here is what somebody put into the file: lengths are bounded before bytes are, and every fault is one
BundleError that names the file. Of a bundle of any size one frame is in memory, and the digests of its pieces, so that
a stick which gives other bytes the second time is found out before those are used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from meshnode.codec.digest import Digest, blake3_256
from meshnode.codec.framing import FrameReader
from meshnode.errors import BundleError, CloseCode, ProtocolError, UsageError, unreadable_file
from meshnode.limits import FRAME_BYTES, KIB
from meshnode.model.bundle import MAGIC, Bundle
from meshnode.model.bundle_untrusted import check_seal_untrusted, decode_head_untrusted
from meshnode.model.site import mesh_tag
from meshnode.node.drafts import Draft
from meshnode.node.private import open_file, sync_folder

_CHUNK_BYTES: Final = 256 * KIB
_PREFIX_BYTES: Final = 4
_SEAL: Final = b"\xa2atdseal"  # how the CBOR of a seal begins


@dataclass(frozen=True, slots=True)
class Sealed:
    """What a bundle was found to be, once all of it was read."""

    head: Bundle
    frames: int  # without head and seal
    digest: bytes


class BundleReader:
    """An open bundle; one thread at a time. NotFoundError, UsageError where it cannot be opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pieces: list[bytes] = []  # digests of what `check` read
        try:
            self._file: BinaryIO = open_file(path)
            self.size = os.fstat(self._file.fileno()).st_size
        except OSError as error:
            raise unreadable_file(path, error) from error

    def check(self, mesh_id: bytes) -> Sealed:
        """Read all of it and check its seal: BundleError where anything of it is not what its writer sealed."""
        digest = Digest()
        digest.update(MAGIC)
        head: Bundle | None = None
        last, frames = b"", 0
        try:
            for data in self._raw(self._pieces.append):
                if head is None:
                    head = decode_head_untrusted(data)
                    if head.tag != mesh_tag(mesh_id):
                        raise self.fault(f"it is of another mesh ({head.tag.hex()})")
                if frames:
                    digest.update(len(last).to_bytes(_PREFIX_BYTES, "big"))
                    digest.update(last)
                last, frames = data, frames + 1
            if head is None or not last.startswith(_SEAL):
                raise self.fault("it is cut short, or something was added at its end: export it again")
            check_seal_untrusted(last, head, mesh_id, digest.value())
        except ProtocolError as error:
            raise self.damaged(error) from error
        return Sealed(head, frames - 2, digest.value())

    def parts(self) -> Iterator[bytes]:
        """The CBOR of every frame between head and seal, which `check` found sound."""
        before: bytes | None = None
        pieces = iter(self._pieces)

        def compare(piece: bytes) -> None:
            if next(pieces, None) != piece:
                text = (
                    f"the bundle {self.path.name} became another one while it was read: what came before that was used"
                )
                raise BundleError(text)

        for number, data in enumerate(self._raw(compare)):
            if number > 1 and before is not None:
                yield before
            before = data

    def tell(self) -> int:
        """How many bytes were read."""
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def fault(self, what: str) -> BundleError:
        """One line about the file."""
        return BundleError(f"the bundle {self.path.name} cannot be used, and nothing of it was: {what}")

    def damaged(self, error: ProtocolError) -> BundleError:
        """Bytes that are not what was written: a length that no frame has is where other bytes begin."""
        if error.code is CloseCode.VERSION:
            return self.fault(str(error))
        what = "other bytes are in it, or behind its end" if error.code is CloseCode.LIMIT else str(error)
        return self.fault(f"it is damaged ({what}): export it again")

    def _raw(self, noted: Callable[[bytes], None]) -> Iterator[bytes]:
        reader = FrameReader(FRAME_BYTES)
        try:
            self._file.seek(0)
            if self._file.read(len(MAGIC)) != MAGIC:
                raise self.fault("it is no bundle of meshnode")
            while chunk := self._file.read(_CHUNK_BYTES):
                noted(blake3_256(chunk))
                yield from reader.feed(chunk)
        except OSError as error:
            raise self.fault(f"it cannot be read: {error.strerror}") from error
        if reader.pending_bytes:
            raise self.fault("it is cut short, or something was added at its end: export it again")


class BundleWriter:
    """A bundle that is written beside its place; `finish` puts it there, `close` takes back what is unfinished.

    What a killed one left behind the next one in that folder takes away.
    """

    def __init__(self, path: Path, *, force: bool) -> None:
        self.path = path
        self.size = 0
        self._force = force
        self._digest = Digest()
        if not force and os.path.lexists(path):
            raise _there(path)
        if os.path.isdir(path):
            raise UsageError(f"{path} is a folder: name a file in it")
        if os.path.exists(path) and not os.path.isfile(path):  # the file would take its place
            raise UsageError(f"{path} is a pipe or a device: name a file, or `-` for standard output")
        try:
            self._draft = Draft(path.parent)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from error
        self._file = self._draft.file
        self.write(MAGIC)

    @property
    def digest(self) -> bytes:
        """Of every byte so far."""
        return self._digest.value()

    def write(self, data: bytes) -> None:
        """Some more bytes; UsageError where the disk does not take them."""
        try:
            self._file.write(data)
        except OSError as error:
            raise UsageError(f"cannot write {self.path}: {error.strerror}") from error
        self._digest.update(data)
        self.size += len(data)

    def finish(self, seal: bytes) -> None:
        """The last bytes; the file has all of its content, on disk and in its place, when this returns."""
        self.write(seal)
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            if os.name != "posix":
                self._file.close()  # elsewhere it stays open, so that nobody takes it for what somebody left behind
            self._put_in_place()
            sync_folder(self.path.parent)
        except OSError as error:
            raise UsageError(f"cannot write {self.path}: {error.strerror}") from error

    def close(self) -> None:
        """Leave nothing unfinished behind."""
        self._draft.discard()

    def _put_in_place(self) -> None:
        draft = self._draft.path
        if self._force:
            draft.replace(self.path)
            return
        try:
            os.link(draft, self.path)  # unlike a rename it never takes another file's place
        except FileExistsError:
            raise _there(self.path) from None
        except OSError:  # a stick's file system may have no links
            if os.path.lexists(self.path):
                raise _there(self.path) from None
            draft.replace(self.path)


def _there(path: Path) -> UsageError:
    return UsageError(f"{path} is there already: choose another name, or say --force to put this one in its place")
