"""What a node shows to whoever watches it: its meter, its links, and what is on its disk, as metrics.

Label values come from closed sets; `peer` is the short id of a member, of at most PEERS_SHOWN of them. No table, name
or address is a label.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from meshnode.engine.syncstate import oldest_unacknowledged_ms
from meshnode.model.delivery import PATH
from meshnode.model.metering import Labels
from meshnode.model.site import short_text
from meshnode.node import reading
from meshnode.node.meter import Meter
from meshnode.node.metricviews import COUNTER, GAUGE, MetricView, histogram, labelled, single
from meshnode.node.overview import SOFTWARE
from meshnode.node.peering import Heard, Mesh, offered_to, peer_views
from meshnode.node.views import PeerView
from meshnode.store import conflicts, queries

if TYPE_CHECKING:  # of no use to verbs that only read
    from meshnode.node.drive import PeerDriver

PEERS_SHOWN: Final = 256  # the members that a mesh is made for (limits.FRONTIER_SITES)
Numbers: TypeAlias = dict[Labels, float]
_NO_HEARD: Final = Heard()


@dataclass(frozen=True, slots=True)
class LinkNumbers:
    """What is under way on one live link."""

    in_flight: int  # frames that the peer has not acknowledged
    uncommitted_bytes: int  # of its frames, not on disk here
    unacknowledged_bytes: int  # sent, and not acknowledged by its QUIC
    control_backlog_bytes: int  # of them, those of the control stream
    sent_bytes: int  # since the link began
    received_bytes: int


def link_numbers(driver: PeerDriver) -> LinkNumbers:
    """Those of one link, on the event loop."""
    link, session = driver.link, driver.session
    return LinkNumbers(
        session.in_flight,
        session.uncommitted_bytes,
        link.buffered,
        link.control_backlog,
        link.bytes_sent,
        link.bytes_received,
    )


@dataclass(frozen=True, slots=True)
class Now:
    """What only the running process knows of this moment."""

    links: Mapping[bytes, LinkNumbers]
    handshaking: int
    jobs: tuple[int, int]  # writing jobs that wait: this node's, and those of all peers


@dataclass(frozen=True, slots=True)
class Kept:
    """What one snapshot of the store says."""

    events: int
    held: int
    rows: int
    tables: int
    notices: int
    conflicts: tuple[int, int]  # open ones: certain, possible
    peers: list[PeerView]
    lag_ms: dict[str, int]  # by site id: how old the first event is that the peer has not acknowledged


def kept(mesh: Mesh) -> Kept:
    """Read it; as cheap as a status."""
    tx = mesh.tx
    events, held = queries.event_counts(tx)
    tables = reading.table_views(tx)
    lag_ms = {}
    for member in mesh.others()[:PEERS_SHOWN]:
        offered = offered_to(tx, member.site, mesh.heard.get(member.site, _NO_HEARD))
        oldest = None
        if member.cutoff is None:
            oldest = oldest_unacknowledged_ms(tx, member.site, PATH, offered, mesh.now_ms)
        lag_ms[member.site.hex()] = 0 if oldest is None else max(mesh.now_ms - oldest, 0)
    return Kept(
        events=events,
        held=held,
        rows=sum(view.rows for view in tables),
        tables=len(tables),
        notices=queries.notice_count(tx),
        conflicts=conflicts.open_ones(tx),
        peers=peer_views(mesh)[:PEERS_SHOWN],
        lag_ms=lag_ms,
    )


def metrics_of(kept: Kept, database: Path, meter: Meter | None = None, now: Now | None = None) -> list[MetricView]:
    """All metrics, in a fixed order; without a running node those of the store alone."""
    found = [
        labelled("meshnode_build_info", GAUGE, "The program.", ["version"], {(SOFTWARE.partition("/")[2],): 1}),
        single("meshnode_up", GAUGE, "1 while the node runs.", now is not None),
        *_of_store(kept, database),
        *_of_peers(kept),
    ]
    if meter is not None and now is not None:
        found += [*_of_links(meter, now), *_of_work(meter, now), *_of_process()]
    return found


def _of_store(kept: Kept, database: Path) -> Iterator[MetricView]:
    yield single("meshnode_log_events", GAUGE, "Events that the log retains.", kept.events)
    yield single("meshnode_held_events", GAUGE, "Of them, those that wait for a table.", kept.held)
    yield single("meshnode_tables", GAUGE, "Registered tables.", kept.tables)
    yield single(
        "meshnode_rows",
        GAUGE,
        f"Rows that tables show; counted up to {queries.ROWS_COUNTED} and no further.",
        kept.rows,
    )
    yield single(
        "meshnode_stored_notices", GAUGE, "Surfaced conditions on disk, by kind, site and table.", kept.notices
    )
    certain, possible = kept.conflicts
    counts: Numbers = {("certain",): certain, ("possible",): possible}
    yield labelled("meshnode_open_conflicts", GAUGE, "Conflicts that nobody decided.", ["certainty"], counts)
    sizes: Numbers = {(part,): float(_size(database.with_name(database.name + suffix))) for part, suffix in _FILES}
    yield labelled("meshnode_database_bytes", GAUGE, "Size of the database's files.", ["file"], sizes)


_FILES: Final = (("main", ""), ("wal", "-wal"))


def _of_peers(kept: Kept) -> Iterator[MetricView]:
    def each(name: str, help_text: str, of: Mapping[str, float]) -> MetricView:
        return labelled(f"meshnode_peer_{name}", GAUGE, help_text, ["peer"], {(site,): of[site] for site in of})

    peers = {view.short: view for view in kept.peers}
    yield each("linked", "1 while there is a link.", {site: view.linked for site, view in peers.items()})
    yield each(
        "behind_events",
        "Events and records that this node has for it and it has not acknowledged.",
        {site: view.behind for site, view in peers.items()},
    )
    yield each(
        "behind_seconds",
        "Age of the first event that it has not acknowledged.",
        {short: kept.lag_ms.get(view.site, 0) / 1000 for short, view in peers.items()},
    )
    yield each(
        "unconfirmed_events",
        "Events that it gets from their authors, and that are offered to it later.",
        {site: view.unconfirmed for site, view in peers.items()},
    )
    yield each(
        "ahead_groups",
        "Groups of which it told later events than are here, and unanswered requests.",
        {site: view.ahead for site, view in peers.items()},
    )
    yield each("staged_frames", "Frames staged for it.", {site: view.in_flight for site, view in peers.items()})
    yield each(
        "stuck",
        "1 where its stream cannot be read and stands still.",
        {site: view.stuck for site, view in peers.items()},
    )
    yield each(
        "clock_offset_seconds",
        "Its wall clock minus this one, when it last said hello.",
        {short: view.clock_offset_ms / 1000 for short, view in peers.items() if view.clock_offset_ms is not None},
    )


def _of_links(meter: Meter, now: Now) -> Iterator[MetricView]:
    yield single("meshnode_links", GAUGE, "Live links.", len(now.links))
    yield single("meshnode_handshaking", GAUGE, "Connections of strangers.", now.handshaking)
    links = dict(sorted(now.links.items())[:PEERS_SHOWN])
    for name, help_text, of in (
        ("in_flight_frames", "Frames sent and not acknowledged.", attrgetter("in_flight")),
        ("uncommitted_bytes", "Its frames that are not on disk here yet.", attrgetter("uncommitted_bytes")),
        ("unacknowledged_bytes", "Sent, and not acknowledged by QUIC.", attrgetter("unacknowledged_bytes")),
        ("control_backlog_bytes", "Of them, on the control stream.", attrgetter("control_backlog_bytes")),
    ):
        values: Numbers = {(short_text(site),): of(link) for site, link in links.items()}
        yield labelled(f"meshnode_link_{name}", GAUGE, help_text, ["peer"], values)
    passed: Numbers = {
        (short_text(site), way): float(number)
        for site, link in links.items()
        for way, number in (("received", link.received_bytes), ("sent", link.sent_bytes))
    }
    yield labelled(
        "meshnode_link_bytes", GAUGE, "Passed over the link that is there now.", ["peer", "direction"], passed
    )
    endpoint, frames = meter.endpoint, meter.frames
    yield _counts("meshnode_frames_total", "Frames by kind.", ["direction", "kind"], frames.frames.read())
    yield _counts("meshnode_frame_bytes_total", "Bytes of frames by kind.", ["direction", "kind"], frames.bytes.read())
    datagrams: dict[Labels, int] = {("received",): endpoint.datagrams_received, ("sent",): endpoint.datagrams_sent}
    yield _counts("meshnode_quic_datagrams_total", "UDP datagrams.", ["direction"], datagrams)
    quic: dict[Labels, int] = {("received",): endpoint.bytes_received, ("sent",): endpoint.bytes_sent}
    yield _counts("meshnode_quic_bytes_total", "Bytes of UDP payload.", ["direction"], quic)
    handshakes = endpoint.handshakes.read()
    yield _counts("meshnode_handshakes_total", "Handshakes that ended.", ["direction", "outcome"], handshakes)
    yield _counts("meshnode_dials_total", "Dialed addresses, by how it ended.", ["outcome"], meter.dials.read())
    yield _counts("meshnode_link_ends_total", "Links that ended.", ["code", "by"], meter.link_ends.read())


def _of_work(meter: Meter, now: Now) -> Iterator[MetricView]:
    waiting: Numbers = {("own",): float(now.jobs[0]), ("peers",): float(now.jobs[1])}
    yield labelled("meshnode_writer_waiting_jobs", GAUGE, "Writing jobs that wait their turn.", ["lane"], waiting)
    yield single("meshnode_reader_jobs", GAUGE, "Queries that wait or run.", meter.reads)
    yield _counts("meshnode_events_total", "Events by verdict.", ["verdict", "reason"], meter.verdicts.read())
    yield _counts("meshnode_notices_total", "Surfaced conditions by kind.", ["kind"], meter.notices.read())
    yield histogram("meshnode_writer_wait_seconds", "From asking for a writing job to its turn.", meter.waits)
    yield histogram("meshnode_apply_seconds", "A job that took in events, with its commit.", meter.applies)
    yield histogram("meshnode_batch_events", "Events that one such job took in.", meter.batches)
    yield histogram("meshnode_transaction_seconds", "A writing transaction up to its commit.", meter.transactions)
    yield histogram("meshnode_commit_seconds", "The commit of one, fsync included.", meter.commits)


def _counts(name: str, help_text: str, labels: list[str], numbers: Mapping[Labels, int]) -> MetricView:
    return labelled(name, COUNTER, help_text, labels, {key: float(number) for key, number in numbers.items()})


def _of_process() -> Iterable[MetricView]:
    """By the names that every exporter gives them; memory and descriptors where the platform has `/proc`."""
    yield single("process_cpu_seconds_total", COUNTER, "CPU time of the process.", time.process_time())
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        descriptors = len(os.listdir("/proc/self/fd"))
    except (OSError, ValueError, IndexError):
        return
    yield single("process_resident_memory_bytes", GAUGE, "Memory of the process.", pages * os.sysconf("SC_PAGE_SIZE"))
    yield single("process_open_fds", GAUGE, "Open files and sockets of the process.", descriptors)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
