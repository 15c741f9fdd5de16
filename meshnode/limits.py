"""Every bound of the node, with its unit and what or whom it is against (profile §12). All are inclusive."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

# --- Bytes of a peer: what one message may cost before anything of it is verified.
CBOR_DEPTH = 8  # levels of nesting; against decoders driven into recursion (profile §2)
FRAME_BYTES = 2 * MIB  # one length-prefixed frame; against a length that reserves memory (profile §7)
CONTROL_FRAME_ITEMS = 2**18  # CBOR items in a control frame; against empty arrays, which cost 70 times their bytes
EVENT_FRAME_ITEMS = 2**15  # the same for event frames and pairing: more than the records that fit
EVENT_BYTES = 1 * MIB  # one event (profile §4)
RECORD_BYTES = 16 * KIB  # one record (profile §9)
HELLO_BYTES = 64 * KIB  # the hello frame, sent by sites that are members but not yet known well (profile §12)
INTRODUCE_BYTES = 64 * KIB  # the introduce frame, sent by a site that is no member yet (profile §7)
DEFLATED_BYTES = 4 * MIB  # a deflated batch once unpacked; against a decompression bomb (profile §8)
OFFER_EVENTS = 1024  # events named in one offer: each costs the receiver a look into its log (profile §14)
LINKED_SITES = 64  # sites in one `links` frame, as many as a node has links (profile §14)
LABEL_BYTES = 128  # `name`, `software` and `reason` in frames, in UTF-8 (profile §8)

# --- Shape of an event (profile §4).
NAME_BYTES = 128  # a schema, table or column name, in UTF-8
KEY_COLUMNS = 16  # columns of a row key
PAYLOAD_COLUMNS = 256  # columns of a payload

# --- Clock.
SKEW_MS = 300_000  # milliseconds a peer's clock may run ahead; against future-dated writes that always win (SSP/1 §5.1)
CLOCK_OFFSET_NOTICE_MS = 60_000  # milliseconds of offset between two nodes from which both are told (profile §8)

# --- Delivery.
BATCH_EVENTS = 512  # events in one batch
BATCH_BYTES = 256 * KIB  # bytes of events in one batch; a single larger event still fits
WINDOW_FRAMES = 8  # staged frames in flight to one peer; bounds what a stalled peer costs us
WINDOW_MS = 100  # milliseconds of a peer's work that are in flight to it; against waiting behind one's own backlog
LIVE_BACKLOG = 512  # log positions ahead of a cursor from which own new events go ahead of them (feature `live`)
LIVE_FRAMES = 2  # frames of a window that are kept for those; neither they nor the backlog can take the other's
LIVE_EVENTS = 32  # events in one of them: what a flood of writes may take of a window that is full
LIVE_WAITING = 128  # own new events that may wait for it; of more only the newest go, the rest is backlog too
UNCOMMITTED_BYTES = 2 * MIB  # of a peer's frames that are not on disk here; beyond it the link's window stays shut
LEAVING_LINKS = 4  # ended links of one peer with jobs under way; against reconnecting while our disk stands still
COMMIT_EVENTS = 256  # events in one receiving transaction, beyond its first frame; against others waiting for it
STORED_ACK_WINDOWS = 2  # windows of acks kept to answer repeats byte for byte
GENESIS_REWIND_MS = 60_000  # milliseconds between rewinds to genesis for one peer; against a peer that keeps forgetting
CYCLE_MS = 30_000  # milliseconds at the latest between two sync cycles
DEFLATE_FROM_BYTES = 1 * KIB  # events of a batch from which deflating is tried: a lone event hardly shrinks
OFFER_WAIT_MS = 30_000  # milliseconds that an event waits to be offered while its author is linked to the peer
LINKS_MS = 1_000  # milliseconds between two `links` frames of one node to one peer
QUIET_WATERMARKS_MS = 120_000  # milliseconds that watermarks which only serve people wait at most to be told
IDLE_WATERMARKS_MS = 3_000  # milliseconds after the last of them rose: then they are told before
KNOWN_RANGES = 4096  # ranges of log positions remembered as held by one peer; the oldest are offered after all
KNOWN_IDS = 4096  # events remembered as held by one peer before they are here; likewise
FRONTIER_SITES = 256  # slots of the causal frontier; against invented identities (NEOTH)
COMPARED_TABLES = 1024  # tables in one comparison of two members; further ones are left out, and that is said
COMPARED_COLUMNS = 16_384  # columns of all of them together
COMPARED_RANGES = 256  # ranges, items or names in one question of it: what answering one may cost
COMPARED_BYTES = 512 * KIB  # of one question or answer; one entry always fits
COMPARED_ITEMS = 16_384  # items in one answer
COMPARISONS_SERVED = 4  # of other members at a time, each with its trees in memory
COMPARE_ASKS = 4096  # questions answered in one comparison
COMPARE_WORK_S = 120.0  # seconds of answering in one comparison, apart from reading; against questions without end
COMPARE_IDLE_S = 60.0  # seconds without a question after which a comparison is over
COMPARE_WAIT_S = 600.0  # seconds of waiting for answers in one comparison; against a member that trickles them
COMPARE_SCAN_S = 900.0  # seconds that a member has for reading what it compares
COMPARE_NAMED = 1024  # ranges, and items on either side, that a comparison looks into; more are counted as such
COMPARE_NAMES_BYTES = 16 * MIB  # of the names of one side's items, keys above all; against keys of 1 MiB without end
FRAME_NUMBER_MAX = 2**63 - 2  # a frame's number; the next one still is a signed 64-bit integer of SQLite
COUNTER_MAX = 2**63 - 1  # where a frontier counter saturates

# --- This node's own files.
CONFIG_BYTES = 64 * KIB  # `config.toml`; against a wrong file under that name, read again every other second

# --- Storage that a member chooses the size of (profile §6).
HELD_BYTES_PER_SITE = 64 * MIB  # events held for tables that do not exist here
REJECTED_PER_GROUP = 64  # rejected events known by their clocks: the highest, and the lowest beside them
UNKNOWN_GROUPS_PER_SITE = 256  # groups of tables that do not exist here
NOTICE_ROWS = 10_000  # aggregated notices kept
NOTICE_TABLES_PER_SITE = 64  # table names one site may bring into notices; further ones share one entry
UNVERIFIED_RECORDS = 1024  # records kept whose signer's key is not known yet, all such signers together
HONOURED_RECORDS = (RECORD_BYTES - 1 * KIB) // 34  # record ids in one retirement, each with its CBOR head (profile §9)
PENDING_RECORDS_PER_SIGNER = 1024  # records kept per signer that do not count yet
IGNORED_COLUMNS_PER_TABLE = (
    256  # names of columns that do not exist metered for one table; further ones share one entry
)
CAPTURE_LOOK_S = 0.02  # seconds between two looks whether somebody wrote to an adopted database
CAPTURE_AGAIN_S = 2.0  # seconds until it is asked whatever its files say
SCHEMA_LOOK_S = 2.0  # seconds at the latest until an idle node notices that the application changed its tables
ERASURE_WAIT_MS = 100  # milliseconds the writer waits for readers at each later try to empty the WAL
ERASURE_AGAIN_S = 60.0  # seconds until the file is written anew once more, after that failed
SCHEMA_DRIFT_MS = 24 * 3_600_000  # milliseconds of ignoring one column from which it is surfaced (SSP/1 §13.6)
CHANGES_KEPT = 100_000  # rows of the durable change sequence; a subscriber further behind starts from the rows
CONFLICTS = 10_000  # conflicts kept, whatever became of them
CONFLICTS_PER_SITE = 1_000  # of those with one other site; against a member that makes them without end
AGREED_PER_BATCH = 64  # equal concurrent writes remembered of one batch; against the cost of importing one file twice
CONFLICT_VALUE_BYTES = 4 * KIB  # a value that the ledger keeps itself; a larger one stays in the log alone
CONFLICT_LIST_BYTES = 8 * MIB  # of keys and values in one list of conflicts; against a member that writes large ones
TAKEN_RANGES = 256  # ranges of our log of which it is remembered by when one peer had them
REQUESTS_PER_PEER = 64  # unanswered requests kept for one peer
TOLD_GROUPS_PER_PEER = 16_384  # groups of which one peer's watermarks are remembered; against one that invents groups

# --- Transport.
LIVE_CONNECTIONS = 64  # authenticated links
HANDSHAKE_CONNECTIONS = 64  # connections in handshake, counted apart so that strangers keep no member out
HANDSHAKES_PER_ADDRESS = 16  # of them from one IP address; against a host that opens more than it finishes
RETRY_THRESHOLD = 16  # connections in handshake from which a new one must answer a Retry first
HANDSHAKE_S = 10.0  # seconds from the first datagram to an authenticated peer
KEEP_ALIVE_S = 15.0  # seconds between PINGs on a silent link
SILENCE_S = 45.0  # seconds after which a silent link is lost
DUPLICATE_PING_S = 2.0  # seconds the older of two links has to answer a PING
LINK_ANSWER_S = 1.0  # seconds a link has to answer where news suggests another path, until that is dialed as well
LINK_SILENT_S = 3.0  # seconds of acknowledging nothing from which a link is asked without any news
LINK_MOVE_S = 1.0  # seconds at least between two addresses of a link that the node hears of; against a peer that hops
LINK_DOUBT_S = 1.0  # seconds at least between two such questions; against a stream of announcements
HANDSHAKE_BYTES = (
    64 * KIB
)  # bytes of one connection before it is authenticated; against TLS messages announced as 16 MiB
INTRODUCE_S = 3.0  # seconds an unknown site has to introduce itself (profile §7)
PAIRING_S = 30.0  # seconds of one link in a pairing ceremony; who waits longer for a person dials again
LINK_WINDOW_BYTES = 2 * MIB  # bytes one peer may have under way to us, gaps included; against memory held for it
CONTROL_UNACKNOWLEDGED_BYTES = 8 * MIB  # bytes of control frames a peer leaves unread before its link ends
DATAGRAM_BYTES = 1200  # of UDP payload, which every path carries (RFC 9000 §14)
DATAGRAM_SIZES = (  # bytes of UDP payload that are tried beyond that: what an MTU leaves below IPv6 and UDP
    1232,  # 1,280: the smallest of IPv6
    1372,  # 1,420: WireGuard
    1444,  # 1,492: PPPoE
    1452,  # 1,500: Ethernet
    8952,  # 9,000: jumbo frames, and loopback
)
ANSWERED_ADDRESSES = 1024  # peers whose local address is remembered; the oldest is left to the kernel
KEPT_PACKETS = 16_384  # sent packets remembered for one peer; against one that acknowledges nothing
NOTICE_INTERVAL_S = 60.0  # seconds between two notices of one kind about one peer
NOTICE_SUBJECTS = 256  # peers told apart in the endpoint's notices; further ones share one entry

# --- Bundles: files that somebody brings.
BUNDLE_STANDS = 1024  # epochs from which one bundle says that it goes on
BUNDLES_KEPT = 64  # bundles written for one peer, or for any, of which an acknowledgement is still understood
BUNDLE_WATERMARKS = 4096  # groups in one frame of watermarks of a bundle: well below what a frame holds

# --- Pairing and discovery.
NEARBY_CONFIRM_S = 60.0  # seconds two people have to compare six digits (profile §10)
NEARBY_TTL_MS = 2 * 60_000  # milliseconds a device waits for nearby ones unless told otherwise
NEARBY_LONGEST_MS = 15 * 60_000  # the longest that it can be told to
CONFIRM_HOLD_S = 15.0  # seconds a link is held while a person is asked; then the joiner dials again
INVITE_TRIES = 5  # wrong proofs that one invite survives
INVITE_TTL_MS = 15 * 60_000  # milliseconds an invite lives unless told otherwise
OPEN_INVITES = 64  # unconsumed invites of one node
UNKNOWN_INVITES_PER_MINUTE = 30  # tries with an unknown invite id answered in a minute, all strangers together
ADDRESSES_PER_SITE = 16  # addresses kept and tried for one site
HOSTS_PER_ANNOUNCEMENT = 64  # addresses of one announcement among which the nearest are looked for; the rest is unread
SEEN_SITES = 256  # announcements of strangers shown; against a flood of spoofed ones
REFUSED_ANNOUNCEMENTS = 64  # announcements that do not count, kept to be shown with the reason; against a flood of them
ANNOUNCEMENTS_PER_SITE = 4  # announcements kept for one site; against copies of a member's attestation
RESOLVES_AT_ONCE = 64  # announced names being asked about; against a flood of invented ones
MULTICAST_INTERFACES = 16  # interfaces joined; Linux allows a socket 20 groups, many container bridges exceed that
ADDRESS_CHARS = 320  # an address in text: a name of 253, a scope, brackets and a port; longer text is none
DEFAULT_PORT = 4747  # UDP port, if free when the node is founded
TRUSTED_SSIDS = 64  # Wi-Fi names in the settings
SSID_BYTES = 32  # one of them (IEEE 802.11)
TOOL_S = 3.0  # seconds that a tool of the platform has to answer; discovery waits for it, nothing else does
TOOL_BYTES = 256 * KIB  # bytes it may say; against a list of networks that somebody in reach of the radio makes long
WIFI_LOOK_S = 10.0  # seconds between two looks at which networks this device is joined to, where no address changed
