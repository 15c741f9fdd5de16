"""Asks the node, or its store, what it knows of the mesh, of tables and streams, and of itself."""

from __future__ import annotations

import asyncio
import platform
import sqlite3
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from meshnode.model.verdict import UNRESOLVED_KEY
from meshnode.node.doctor.mesh import ClockFacts, LinkFacts, MembershipFacts, Reach
from meshnode.node.doctor.patient import Patient
from meshnode.node.doctor.rows import DRIFT, TableFacts
from meshnode.node.doctor.software import VersionFacts
from meshnode.node.syncviews import SyncStateView
from meshnode.node.views import ConflictCounts, NoticeView

PACKAGES = ("aioquic", "zeroconf", "PyNaCl", "cryptography", "cbor2", "blake3", "pycose", "starlette", "uvicorn")


async def look_at_clock(patient: Patient) -> ClockFacts:
    """What peers said at hello."""
    status = await patient.answering.status()
    return ClockFacts(patient.now_ms, status.hlc[0], tuple(status.peers))


async def look_at_links(patient: Patient) -> LinkFacts:
    """Who is linked, and why the others are not."""
    status = await patient.answering.status()
    if not patient.running:
        others = [Reach(peer.name, False, "") for peer in status.peers if not peer.retired]
        return LinkFacts(False, members=tuple(others))
    found = await patient.answering.discover(seconds=0)
    return LinkFacts(
        True,
        status.online,
        tuple(Reach(f"{m.name} ({m.short})", m.linked, m.dial.why) for m in found.members if not m.retired),
        tuple(Reach(peer.address, peer.dial.state == "linked", peer.dial.why) for peer in found.peers),
        status.retired,
    )


async def look_at_membership(patient: Patient) -> MembershipFacts:
    """Who is in, and the invites."""
    status = await patient.answering.status()
    return MembershipFacts(
        tuple(await patient.answering.members()),
        status.expired_invites,
        status.open_invites,
        tuple(each.short for each in status.asking),
    )


async def look_at_tables(patient: Patient) -> TableFacts:
    """The registered ones, and what waits for others."""
    status = await patient.answering.status()
    return TableFacts(
        tuple(await patient.answering.tables()),
        tuple(notice for notice in status.notices if notice.kind == DRIFT),
        tuple(notice for notice in status.notices if notice.kind == UNRESOLVED_KEY),
        status.waiting,
        tuple(status.lagging),
        patient.now_ms,
    )


async def look_at_conflicts(patient: Patient) -> ConflictCounts:
    """Those that nobody decided."""
    return (await patient.answering.status()).conflicts


async def look_at_streams(patient: Patient) -> Sequence[SyncStateView]:
    """To each other member that is not retired."""
    status = await patient.answering.status()
    retired = {peer.site for peer in status.peers if peer.retired}
    return [state for state in await patient.answering.sync_state() if state.site not in retired]


async def look_at_notices(patient: Patient) -> Sequence[NoticeView]:
    """What stands."""
    return (await patient.answering.status()).notices


async def look_at_versions(patient: Patient) -> VersionFacts:
    """Of what runs this."""
    sqlite = sqlite3 if patient.file is None else patient.file.sqlite
    major, minor, patch = platform.python_version_tuple()
    return VersionFacts(
        (int(major), int(minor), int("".join(filter(str.isdigit, patch)) or 0)),
        sqlite.sqlite_version_info,
        version("meshnode"),
        await asyncio.to_thread(lambda: tuple((name, _version(name)) for name in PACKAGES)),
        bool(patient.config.database),
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
