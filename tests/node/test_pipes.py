"""A pipe or a device where a file belongs: whoever opens it is told so, and nobody waits for a writer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from meshnode.errors import ConfigError, IdentityError, StoreError, UsageError
from meshnode.node.bundlefile import BundleReader
from meshnode.node.configfile import load_config
from meshnode.node.databases import is_encrypted
from meshnode.node.private import open_file, read_private
from meshnode.node.watching import stamp_of


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path, 0o600)
    return path


def test_a_pipe_is_no_file(pipe: Path) -> None:
    """A node that waits for a writer in a thread cannot even be stopped."""
    with pytest.raises(UsageError, match="no file"):
        BundleReader(pipe)
    with pytest.raises(ConfigError, match="no file"):
        load_config(pipe)
    with pytest.raises(IdentityError, match="no file"):
        read_private(pipe, 9)
    with pytest.raises(StoreError, match="no file"):
        is_encrypted(pipe)
    assert "no file" in str(stamp_of(pipe))


def test_neither_is_a_device_or_a_folder(tmp_path: Path) -> None:
    before = os.listdir("/dev/fd")
    for path in (Path("/dev/null"), Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError, match=r"no file|directory"):
            open_file(path)
    assert len(os.listdir("/dev/fd")) == len(before)
