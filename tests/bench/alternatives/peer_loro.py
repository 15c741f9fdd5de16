"""Loro: a map of maps; its updates go into an append-only file on each side, never synced, and over plain TCP."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loro import ExportMode, LoroDoc, LoroMap, VersionVector
from peer import (
    BATCH,
    FOLDER,
    GAP_S,
    LIVE,
    PORT,
    ROLE,
    N,
    check,
    emit,
    key,
    maxrss_kb,
    now,
    now_ns,
    stamped,
    wait_for,
    workload,
)


def put(rows: Any, name: str, values: dict[str, Any]) -> None:
    """One row."""
    inner = rows.get_or_create_container(name, LoroMap())
    for column, value in values.items():
        inner.insert(column, value)


class Log:
    """Updates, handed to the operating system."""

    def __init__(self) -> None:
        self._file = (Path(FOLDER) / "updates.log").open("ab", buffering=0)

    def add(self, data: bytes) -> None:
        """One more."""
        self._file.write(struct.pack("<I", len(data)) + data)


def send(link: socket.socket, data: bytes) -> None:
    """With its length before it."""
    link.sendall(struct.pack("<I", len(data)) + data)


def frames(link: socket.socket) -> Iterator[bytes]:
    """What the other end sent."""
    stream = link.makefile("rb", 1 << 20)
    while len(head := stream.read(4)) == 4:
        yield stream.read(struct.unpack("<I", head)[0])


def author() -> None:
    """Writes all, then serves it, then the live writes."""
    doc, changes, log = LoroDoc(), workload(), Log()
    rows, pending = doc.get_map("rows"), list[bytes]()
    _kept = doc.subscribe_local_update(lambda data: (pending.append(bytes(data)), True)[1])

    def commit() -> list[bytes]:
        doc.commit()
        found = list(pending)
        pending.clear()
        for data in found:
            log.add(data)
        return found

    begun = now()
    for start in range(0, N, BATCH):
        for name, values in changes[start : start + BATCH]:
            put(rows, name, values)
        commit()
    emit(author_s=now() - begun)
    listener = socket.create_server(("127.0.0.1", int(PORT)))
    emit(ready={})
    link, _ = listener.accept()
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    has = VersionVector.decode(next(frames(link)))
    send(link, doc.export(ExportMode.Updates(has)))  # everything that the other lacks, history included
    wait_for("live")
    begun = now()
    for number in range(LIVE):
        time.sleep(max(0.0, begun + number * GAP_S - now()))
        put(rows, key(number), stamped(number))
        for data in commit():
            send(link, data)
    emit(live_done=1)
    wait_for("quit")


def receiver() -> None:
    """Connects when it is told to, and follows."""
    doc, log = LoroDoc(), Log()
    rows = doc.get_map("rows")
    emit(up=1, rss_kb=maxrss_kb())
    wait_for("go")
    begun = now()
    link = socket.create_connection(("127.0.0.1", int(PORT)))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    send(link, doc.oplog_vv.encode())
    incoming = frames(link)
    data = next(incoming)
    doc.import_(data)
    log.add(data)
    seconds = now() - begun
    check(rows.get_deep_value().items())
    emit(catchup_s=seconds, rss_kb=maxrss_kb())
    late = []
    for number in range(LIVE):
        data = next(incoming)
        doc.import_(data)
        log.add(data)
        stamp = int(rows.get(key(number)).container.get("title").value)
        late.append((now_ns() - stamp) / 1e6)
    emit(lat_ms=late)
    wait_for("quit")


author() if ROLE == "A" else receiver()
