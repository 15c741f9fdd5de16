"""A file that is written is noticed, by the kernel's word or by looking at it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from meshnode.node import filewatch
from meshnode.node.filewatch import FileWatch


@pytest.mark.parametrize("way", ["told", "looking"])
async def test_a_write_is_noticed_once(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "looking":
        monkeypatch.setattr(filewatch, "_inotify", lambda _path: -1)
    path = tmp_path / "wal"
    path.write_bytes(b"1")
    before = len(os.listdir("/proc/self/fd"))
    with FileWatch(path) as watch:
        while await watch.written(0.001):
            pass
        with path.open("ab") as file:
            file.write(b"2")
        assert await watch.written(5.0)
        assert not await watch.written(0.03)
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_file_that_is_not_there_yet_is_looked_for(tmp_path: Path) -> None:
    with FileWatch(tmp_path / "wal") as watch:
        while await watch.written(0.001):
            pass
        (tmp_path / "wal").write_bytes(b"1")
        assert await watch.written(5.0)
