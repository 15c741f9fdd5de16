"""The first device of a mesh, by a clock that the test sets: it lets others in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.mesh_context import Device, TestTime
from support.records import site_key


@pytest.fixture
def time() -> TestTime:
    return TestTime()


@pytest.fixture
def inviter(tmp_path: Path, time: TestTime) -> Iterator[Device]:
    device = Device.founded(tmp_path / "inviter.db", site_key(1), time)
    yield device
    device.context.db.close()
