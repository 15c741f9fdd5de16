"""Looks at the interfaces, the UDP port and mDNS of this device; nothing is announced, and no port is kept."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

from meshnode.errors import MeshError
from meshnode.net.adapters import mtu_of
from meshnode.net.endpoint_socket import open_socket
from meshnode.net.interfaces import Selection
from meshnode.net.multicast import multicast_paths, refusals
from meshnode.node.config import Config
from meshnode.node.doctor.network import InterfaceFacts, InterfacesFacts, MdnsFacts, NodeFacts, PortFacts
from meshnode.node.doctor.patient import NotLookedAtError, Patient
from meshnode.node.interfaces import guard_of, selection_of
from meshnode.node.lock import Holder, holder_of

LOCKS = Path("/proc/locks")
UDP, TCP = ("udp", "07"), ("tcp", "0A")  # tables of the kernel, and the state of a socket that waits there
_SOCKETS = 4096  # open files of one process that are looked at for a socket
_PROCESSES = 8192  # that are looked through


async def look_at_node(patient: Patient) -> NodeFacts:
    """Whether it runs, else who holds the home."""
    if patient.running:
        status = await patient.answering.status()
        return NodeFacts(True, status.pid, status.software)
    holder = _living(patient)
    if holder is None:
        return NodeFacts(False, unanswered=patient.unanswered)
    named = holder.verb if holder.verb.startswith("an ") else f"`meshnode {holder.verb}`"
    return NodeFacts(False, unanswered=patient.unanswered, holder_pid=holder.pid, holder=named)


def _living(patient: Patient) -> Holder | None:
    """Who says that it holds the lock, and does; taking the lock to see would be in the way of a node that starts."""
    path = patient.home.lock_path
    holder = holder_of(path)
    if holder is None or holder.pid <= 0 or os.name != "posix":
        return None
    try:
        locks = LOCKS.read_text(encoding="ascii").splitlines()
        return holder if locks_file(locks, holder.pid, path.stat().st_ino) else None
    except (OSError, UnicodeDecodeError):
        return holder if _lives(holder.pid) else None  # only Linux tells of locks


def locks_file(locks: Sequence[str], pid: int, inode: int) -> bool:
    """Whether a process holds a file, by lines as `1: FLOCK ADVISORY WRITE pid major:minor:inode 0 EOF`."""
    held = (line.split() for line in locks)
    return any(len(each) > 5 and each[4] == str(pid) and each[5].endswith(f":{inode}") for each in held)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True  # as another user's
    except (ProcessLookupError, OverflowError):
        return False
    return True


async def look_at_interfaces(patient: Patient) -> InterfacesFacts:
    """Each one as it is now."""
    every = await asyncio.to_thread(_interfaces, await _selection(patient))
    return InterfacesFacts(every, ip_address(patient.config.listen).is_loopback)


async def _selection(patient: Patient) -> Selection:
    """What is used, by a running node's word where there is one: it knows on which Wi-Fi it keeps quiet."""
    selected = await asyncio.to_thread(selection_of, patient.config)
    if not patient.running:
        return selected.without((await guard_of(patient.config).look(selected.used)).reasons)
    told = {view.name: view.reason for view in (await patient.answering.discover(seconds=0)).interfaces}
    return selected.without({each.name: told[each.name] for each in selected.used if told.get(each.name)})


def _interfaces(selected: Selection) -> tuple[InterfaceFacts, ...]:
    used, skipped = {each.name for each in selected.used}, dict(selected.skipped)
    return tuple(
        InterfaceFacts(
            each.name,
            "" if each.name in used else skipped.get(each.name, "loopback, and there are others"),
            "; ".join(refusals(each)) if each.name in used else "",
            mtu_of(each.name),
            each.loopback,
            each.up,
        )
        for each in selected.every
    )


async def look_at_mdns(patient: Patient) -> MdnsFacts:
    """The node's word, else whether multicast could be used."""
    enabled = patient.config.mdns_enabled
    if patient.running:
        return MdnsFacts(enabled, True, (await patient.answering.status()).discovery)
    if not enabled:
        return MdnsFacts(False, False)
    selected = await _selection(patient)
    try:
        paths = await asyncio.to_thread(multicast_paths, selected)
    except MeshError as error:
        return MdnsFacts(True, False, str(error))
    return MdnsFacts(True, False, "on" if paths.beyond else "; ".join((*paths.refused, "only loopback is left")))


async def look_at_port(patient: Patient) -> PortFacts:
    """Bound by the node; else whether it could be."""
    port, listen = patient.config.port or patient.home.port, patient.config.listen
    if patient.running:
        status = await patient.answering.status()
        foreign = await asyncio.to_thread(_foreign, patient.config, status.pid)
        return PortFacts(port, listen, running=True, bound=status.port, online=status.online, foreign=foreign)
    if not patient.settings_readable:
        raise NotLookedAtError("the settings cannot be read: see `config`")
    found = await asyncio.to_thread(_free_port, patient, port, listen)
    holder = _living(patient)
    foreign = await asyncio.to_thread(_foreign, patient.config, None if holder is None else holder.pid)
    return replace(found, foreign=foreign)


def _foreign(config: Config, own: int | None) -> tuple[tuple[str, int, str], ...]:
    """TCP ports of the settings that a process other than `own`, the node, listens on; its name where that is told."""
    named = [("metrics_port", config.metrics_port), ("dashboard_port", config.dashboard_port)]
    found = [(setting, port, process_at(port, TCP)) for setting, port in named if port and _listened_at(port)]
    return tuple(
        (setting, port, _named(pid) or "another program")
        for setting, port, pid in found
        if (own is None or pid not in (None, own))
    )


def _listened_at(port: int) -> bool:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        if os.name == "posix":  # a port whose connections ended lately is free
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def _free_port(patient: Patient, port: int, listen: str) -> PortFacts:
    if not port:
        return PortFacts(port, listen)
    try:
        with closing(open_socket(listen, port)):
            return PortFacts(port, listen)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            return PortFacts(port, listen, error=os.strerror(error.errno) if error.errno else str(error))
    holder, pid = _living(patient), process_at(port)
    mine = holder is not None and pid in (None, holder.pid)
    return PortFacts(port, listen, taken=True, taken_by=_named(pid), by_holder=mine)


def process_at(port: int, kind: tuple[str, str] = UDP, proc: Path = Path("/proc")) -> int | None:
    """The process that has a port, of the kernel's tables of that kind, as far as Linux tells whoever runs this."""
    name, state = kind
    tables = (proc / "net" / name, proc / "net" / f"{name}6")
    sockets = {f"socket:[{inode}]" for table in tables for inode in _inodes(table, port, state)}
    if not sockets:
        return None
    with suppress(OSError):
        for process in [each for each in os.listdir(proc) if each.isdigit()][:_PROCESSES]:
            with suppress(OSError):
                for file in os.listdir(proc / process / "fd")[:_SOCKETS]:
                    with suppress(OSError):
                        if os.readlink(proc / process / "fd" / file) in sockets:
                            return int(process)
    return None


def _inodes(table: Path, port: int, state: str) -> list[str]:
    """Of the sockets that are bound to a port; `sl local_address rem_address st … uid timeout inode`."""
    try:
        lines = table.read_text(encoding="ascii").splitlines()[1:]
    except (OSError, UnicodeDecodeError):
        return []
    fields = [line.split() for line in lines]
    return [each[9] for each in fields if len(each) > 9 and each[1].endswith(f":{port:04X}") and each[3] == state]


def _named(pid: int | None) -> str:
    if pid is None:
        return ""
    try:
        return f"process {pid} ({Path(f'/proc/{pid}/comm').read_text(encoding='utf-8', errors='replace').strip()})"
    except OSError:
        return f"process {pid}"
