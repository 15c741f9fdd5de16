"""The homes that every scenario starts from: making them is paid once per module."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.lan_mesh import make_homes

HOMES = 4


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """`n0` to `n3`, members of one mesh that know no address of each other; not to be run, but copied."""
    return asyncio.run(make_homes(tmp_path_factory.mktemp("homes"), HOMES))
