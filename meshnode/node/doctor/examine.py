"""Examining a home in which no node answers: as much of it as can be opened, which may be nothing at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from meshnode.errors import ConfigError, MeshError
from meshnode.node.config import Config
from meshnode.node.databases import database_of
from meshnode.node.doctor.checks import Tell, diagnose
from meshnode.node.doctor.patient import Patient
from meshnode.node.doctorviews import DoctorView
from meshnode.node.home import Home
from meshnode.node.local import LocalNode
from meshnode.node.passphrase import Passphrase
from meshnode.node.storage import Storage, wall_ms


async def examine(
    path: Path,
    checks: Sequence[str] = (),
    *,
    passphrase: Passphrase | None = None,
    unanswered: str = "",
    tell: Tell = lambda _name: None,
) -> DoctorView:
    """Run checks on a home; `unanswered` says why a node that has it does not answer, if there is one."""
    try:
        home, readable = Home(path, passphrase=passphrase), True
    except ConfigError:  # a check tells it
        home, readable = Home(path, Config(), passphrase=passphrase), False
    patient = Patient(home, wall_ms(), home.config, settings_readable=readable, unanswered=unanswered)
    async with _opened(patient) as opened:
        return await diagnose(opened, checks, tell)


@asynccontextmanager
async def _opened(patient: Patient) -> AsyncIterator[Patient]:
    """With what its store says, where that opens."""
    home = patient.home
    if not patient.founded:
        yield patient
        return
    try:
        file = await asyncio.to_thread(database_of, home)
        storage = await asyncio.to_thread(Storage.open, file, None)
    except (MeshError, OSError):  # a check tells why
        if home.passphrase.said() is None:
            home.passphrase = Passphrase()  # who gave none, or another, is not asked again by every check
        yield patient
        return
    try:
        yield replace(patient, node=LocalNode(home, storage), file=file)
    finally:
        await storage.close()
