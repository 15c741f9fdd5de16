"""From a finished handshake to a link: authentication, admission, and what is told to those refused (profile §7).

Connections of strangers (in handshake, not yet introduced, in a pairing ceremony) are counted apart from live links.
When they are too many the oldest of those that share an address with most gives way: a peer with a real handshake is
through in a few round trips.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from cryptography import x509

from meshnode.errors import CloseCode, TransportError
from meshnode.model.logevent import LogEvent, log_event
from meshnode.model.site import short_text
from meshnode.net.endpoint_config import CEREMONIES, Admission, Admit, EndpointConfig
from meshnode.net.endpoint_connection import Connection
from meshnode.net.endpoint_counts import EndpointCounts, outcome_of
from meshnode.net.endpoint_links import LinkRegistry
from meshnode.net.endpoint_notices import NoticeBoard
from meshnode.net.endpoint_ports import Ending, in_words
from meshnode.net.endpoint_socket import address_text, host_of
from meshnode.net.endpoint_source import Address
from meshnode.net.identity import AuthenticatedPeer, EndpointIdentity, authenticate_untrusted
from meshnode.net.link import Link

logger = logging.getLogger("meshnode.net")

_RETIRED = "the site is retired"


@dataclass(frozen=True, slots=True)
class _Dial:
    expect_site: bytes | None
    opened: asyncio.Future[Link]
    on_proven: Callable[[], None] | None


@dataclass(frozen=True, slots=True)
class _Proven:
    peer: AuthenticatedPeer
    alpn: str
    admission: Admission


class Reception:
    """Turns handshaken connections into links, or ends them with the code that says why not."""

    def __init__(
        self,
        identity: EndpointIdentity,
        config: EndpointConfig,
        notices: NoticeBoard,
        *,
        admit: Admit,
        on_link: Callable[[Link], None],
        counts: EndpointCounts,
    ) -> None:
        self._counts = counts
        self._identity = identity
        self._config = config
        self._notices = notices
        self._admit = admit
        self._on_link = on_link
        self._strangers: dict[Connection, None] = {}
        self._dials: dict[Connection, _Dial] = {}
        self._proven: dict[Connection, _Proven] = {}
        self._links: dict[Connection, Link] = {}
        self.links = LinkRegistry(identity.key.site, config, notices, self._hand_over)

    @property
    def handshaking(self) -> int:
        """Connections of strangers."""
        return len(self._strangers)

    def crowded(self, address: Address) -> bool:
        """As many strangers as may be answered a Retry from that IP address, and none of them is through.

        Others do not count, since anybody can send in the name of that address and so keep its owner out.
        """
        most = self._config.handshakes_per_address
        return len(self._strangers) >= most and self._crowds()[address[0]] >= most

    def _crowds(self) -> Counter[str]:
        return Counter(stranger.address[0] for stranger in self._strangers if stranger.address_proven)

    def stop(self) -> None:
        """The endpoint closes."""
        self.links.stop()

    def expect(self, connection: Connection) -> None:
        """A stranger begins a handshake."""
        if len(self._strangers) >= self._config.handshakes:
            self._notices.post("handshakes", "", f"more than {self._config.handshakes} strangers at once")
            crowds = self._crowds()
            oldest = max(self._strangers, key=lambda stranger: crowds[stranger.address[0]])
            if oldest.usable:
                oldest.close(CloseCode.LIMIT, "too many strangers")
                del self._strangers[oldest]
            else:
                oldest.abandon("made room for another")
        self._strangers[connection] = None
        connection.abandon_after(self._config.handshake_s, "the handshake took too long")

    def expect_site(
        self, connection: Connection, site: bytes | None, on_proven: Callable[[], None] | None
    ) -> asyncio.Future[Link]:
        """A dialed connection, the site that has to answer, and who wants to know when it has."""
        opened: asyncio.Future[Link] = asyncio.get_running_loop().create_future()
        self._dials[connection] = _Dial(site, opened, on_proven)
        return opened

    def receive_untrusted(self, connection: Connection, certificates: list[x509.Certificate], alpn: str) -> None:
        """Authenticate; an incoming link is accepted at once, an outgoing one when the peer confirms."""
        try:
            peer = authenticate_untrusted(certificates, self._identity.mesh_id)
        except TransportError as error:
            self._refuse(connection, None, error.code or CloseCode.NOT_AUTHENTICATED, str(error))
            return
        dial = self._dials.get(connection)
        if dial is not None and dial.expect_site not in (None, peer.site):
            self._refuse(connection, peer, CloseCode.NOT_AUTHENTICATED, "another site answers at that address")
        elif peer.site == self._identity.key.site:
            self._refuse_self(connection, peer)
        else:
            admission = self._judge(peer.site, peer.public_key, alpn, connection.opened_by_us)
            if admission is Admission.RETIRED and (alpn in CEREMONIES or connection.opened_by_us):
                self._refuse(connection, peer, CloseCode.RETIRED, _RETIRED)
            elif admission is Admission.REFUSED:
                self._refuse(connection, peer, CloseCode.NOT_AUTHENTICATED, "refused")
            elif connection.opened_by_us:
                self._proven[connection] = _Proven(peer, alpn, admission)
            else:
                self._accept(connection, _Proven(peer, alpn, admission))

    def confirmed(self, connection: Connection) -> None:
        """The peer of an outgoing connection let us in."""
        proven = self._proven.pop(connection, None)
        if proven is not None:
            self._accept(connection, proven)

    def keep(self, link: Link) -> None:
        """Its ceremony came so far that it makes no room for strangers any more; its deadline stands."""
        self._strangers.pop(link.connection, None)

    def recheck(self) -> None:
        """Membership changed."""
        for link in self.links.live():
            admission = self._judge(link.site, link.public_key, link.alpn, link.opened_by_us)
            if admission is Admission.RETIRED:
                link.close(CloseCode.RETIRED, _RETIRED)
            elif admission is not Admission.MEMBER:
                link.close(CloseCode.NOT_A_MEMBER, "no member any more")

    def ended(self, connection: Connection, ending: Ending) -> None:
        """Forget the connection; whoever dialed it learns how it ended."""
        stranger = connection in self._strangers
        self._strangers.pop(connection, None)
        self._proven.pop(connection, None)
        link = self._links.pop(connection, None)
        dial = self._dials.pop(connection, None)
        if dial is not None and not dial.opened.done():
            dial.opened.set_exception(
                TransportError(
                    f"{address_text(connection.address)}: {in_words(ending)}",
                    ending.code,
                    link.site if link else None,
                    ours=ending.local,
                )
            )
        if link is None:
            self._counts.handshake(outcome_of(ending.code), opened_by_us=connection.opened_by_us)
        if link is not None:
            if not link.admitted and ending.local and ending.code is CloseCode.NOT_A_MEMBER:
                self._notices.post("not-a-member", link.site, f"{short_text(link.site)} is no member")
            self.links.ended(link)
        elif stranger and ending.code is None and not ending.abandoned and connection.quic.decrypted_something:
            where = host_of(connection.address)
            self._notices.post("handshake-failed", where, f"{where}: {ending.reason}")

    def _judge(self, site: bytes, public_key: bytes, alpn: str, opened_by_us: bool) -> Admission:
        """A joiner has no keyring to ask; its invite names the site, and the ceremony proves the rest (profile §10)."""
        if alpn in CEREMONIES and opened_by_us:
            return Admission.UNKNOWN
        try:
            return self._admit(site, public_key, alpn)
        except Exception:
            log_event(logger, logging.ERROR, LogEvent.FAULT, trace=True, work=f"whether {short_text(site)} is a member")
            return Admission.REFUSED

    def _accept(self, connection: Connection, proven: _Proven) -> None:
        link = Link(
            connection,
            proven.peer,
            own_spki=self._identity.spki,
            alpn=proven.alpn,
            admitted=proven.alpn not in CEREMONIES and proven.admission is Admission.MEMBER,
            on_admitted=self._admitted,
            on_boot=self.links.boot_known,
        )
        self._links[connection] = link
        self._counts.handshake("accepted", opened_by_us=connection.opened_by_us)
        connection.use(link)
        dial = self._dials.get(connection)
        if dial is not None and dial.on_proven is not None:
            dial.on_proven()
        if link.admitted:
            self._admitted(link)
        elif link.alpn in CEREMONIES:
            connection.close_after(self._config.pairing_s, CloseCode.NOT_AUTHENTICATED, "the ceremony took too long")
            self._hand_over(link)
        elif proven.admission is Admission.RETIRED:  # the node tells it why before it closes
            connection.close_after(self._config.introduce_s, CloseCode.RETIRED, _RETIRED)
            self._post_refused(connection, proven.peer, CloseCode.RETIRED, _RETIRED)
            self._hand_over(link)
        else:
            connection.close_after(self._config.introduce_s, CloseCode.NOT_A_MEMBER, "not a member, and not introduced")
            self._hand_over(link)

    def _admitted(self, link: Link) -> None:
        link.connection.stay()
        self._strangers.pop(link.connection, None)
        self.links.enter(link)

    def _hand_over(self, link: Link) -> None:
        try:
            if link.handed_over:
                link.on_live()
            else:
                self._on_link(link)
        except Exception:
            log_event(logger, logging.ERROR, LogEvent.FAULT, trace=True, work=f"taking over {link!r}")
            link.close(CloseCode.INTERNAL, "internal error")
        link.hand_over()
        dial = self._dials.get(link.connection)
        if dial is not None and not dial.opened.done() and not link.connection.closing:
            dial.opened.set_result(link)

    def _refuse_self(self, connection: Connection, peer: AuthenticatedPeer) -> None:
        """Our own site answers: this very process, or a copy of it that runs elsewhere (profile §8, twin)."""
        if peer.spki == self._identity.spki:
            connection.close(CloseCode.DUPLICATE, "this node dialed itself")
            self._fail(connection, CloseCode.DUPLICATE, "that address is this node itself", peer.site)
        else:
            self._refuse(connection, peer, CloseCode.TWIN, "another running process answers for this node's site")

    def _refuse(self, connection: Connection, peer: AuthenticatedPeer | None, code: CloseCode, reason: str) -> None:
        connection.close(code, reason)
        self._post_refused(connection, peer, code, reason)
        self._fail(connection, code, reason, None if peer is None else peer.site)

    def _post_refused(
        self, connection: Connection, peer: AuthenticatedPeer | None, code: CloseCode, reason: str
    ) -> None:
        where = host_of(connection.address)
        who = where if peer is None else f"{short_text(peer.site)} at {where}"
        kind = code.name.lower().replace("_", "-")
        self._notices.post(kind, where if peer is None else peer.site, f"{who}: {reason}")

    def _fail(self, connection: Connection, code: CloseCode, reason: str, site: bytes | None = None) -> None:
        dial = self._dials.get(connection)
        if dial is not None and not dial.opened.done():
            dial.opened.set_exception(TransportError(f"{address_text(connection.address)}: {reason}", code, site))
