"""The node's own tables, all named `meshnode_…`, and their forward migrations.

They may live inside an application's database, so `user_version` and `application_id` are never touched: the format
number is a row of `meshnode_meta`. Unsigned 64-bit clock parts are stored by `store.u64`.
"""

from __future__ import annotations

import re
from typing import Final

from meshnode.errors import StoreError
from meshnode.store.database import Tx

FORMAT = 5

_FORMAT_1 = """
CREATE TABLE meshnode_meta (          -- one value per name: mesh, founder, site, HLC, counters
    name TEXT NOT NULL PRIMARY KEY,
    value
) WITHOUT ROWID;

CREATE TABLE meshnode_sites (         -- every site that any row below names, by a small number
    no INTEGER PRIMARY KEY,
    site BLOB NOT NULL UNIQUE
);

CREATE TABLE meshnode_tables (        -- every (schema, table) that an event named; a destination once registered
    no INTEGER PRIMARY KEY,
    schema TEXT NOT NULL,
    name TEXT NOT NULL,
    registered INTEGER NOT NULL DEFAULT 0,
    own_numbers INTEGER NOT NULL DEFAULT 0, -- the application chooses INTEGER PRIMARY KEY values itself (profile §5)
    shape BLOB,                       -- columns and key that its rows were last brought up to (SSP/1 §13.6)
    progress BLOB,                    -- how far bringing them up has come, null where it is done
    horizon_physical NOT NULL DEFAULT 0,
    horizon_logical NOT NULL DEFAULT 0,
    UNIQUE (schema, name)
);

CREATE TABLE meshnode_log (           -- exact event bytes (SSP/1 §2); a position is never used again
    position INTEGER PRIMARY KEY,
    site_no INTEGER NOT NULL,
    physical NOT NULL,
    logical NOT NULL,
    id_prefix INTEGER NOT NULL,       -- first 8 bytes of the event id, signed: tells equal clocks apart
    table_no INTEGER NOT NULL,
    state INTEGER NOT NULL,           -- 0 applied, 1 held, 2 unresolved
    event BLOB NOT NULL
);
-- Ordered by clock, so appends stay local; the prefix keeps a look-up cheap where a site reuses one clock without end.
CREATE INDEX meshnode_log_clock ON meshnode_log (site_no, physical, logical, id_prefix);
CREATE INDEX meshnode_log_held ON meshnode_log (table_no, position) WHERE state = 1;

CREATE TABLE meshnode_removed (       -- ranges of log positions that were taken out on purpose (profile §8)
    first INTEGER PRIMARY KEY,
    last INTEGER NOT NULL,
    why TEXT NOT NULL
);

CREATE TABLE meshnode_reclaims (      -- tables whose evicted events are still being taken out of the log
    table_no INTEGER PRIMARY KEY,
    everything INTEGER NOT NULL       -- 1: the winners of the rows too
);

CREATE TABLE meshnode_rows (          -- clocks of one row (profile §5)
    table_no INTEGER NOT NULL,
    key BLOB NOT NULL,                -- deterministic CBOR of the row_key map
    state BLOB NOT NULL,
    reason TEXT,                      -- why the row is withheld; its values are in the log, by the ranks of the state
    PRIMARY KEY (table_no, key)
) WITHOUT ROWID;

CREATE INDEX meshnode_rows_withheld ON meshnode_rows (table_no) WHERE reason IS NOT NULL;

CREATE TABLE meshnode_watermarks (    -- per group: applied up to here; what was rejected keeps it below (profile §6)
    site_no INTEGER NOT NULL,
    table_no INTEGER NOT NULL,        -- 0: what was rejected of all groups of the site that have no row
    physical NOT NULL DEFAULT 0,
    logical NOT NULL DEFAULT 0,
    reached BLOB NOT NULL,            -- 16 bytes, physical and logical big-endian: what it becomes once nothing is open
    rejected_low BLOB,                -- likewise; null once that event settled
    rejected_high BLOB,
    PRIMARY KEY (site_no, table_no)
) WITHOUT ROWID;

CREATE TABLE meshnode_held (          -- what each site holds of our disk for tables that do not exist
    site_no INTEGER NOT NULL,
    table_no INTEGER NOT NULL,
    events INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (site_no, table_no)
) WITHOUT ROWID;

CREATE TABLE meshnode_forgotten (     -- rows that were forgotten here (NEOTH content and privacy)
    table_no INTEGER NOT NULL,
    key BLOB NOT NULL,                -- BLAKE3-256 of the key bytes: not even the key is left in the file
    PRIMARY KEY (table_no, key)
) WITHOUT ROWID;

CREATE TABLE meshnode_receipts (      -- events of forgotten rows: only their ids are kept
    event_id BLOB NOT NULL PRIMARY KEY
) WITHOUT ROWID;

CREATE TABLE meshnode_ignored (       -- payload columns that no local column took, metered (SSP/1 §13.6)
    table_no INTEGER NOT NULL,
    column_name TEXT NOT NULL,
    count INTEGER NOT NULL,
    first_ms INTEGER NOT NULL,
    last_ms INTEGER NOT NULL,
    PRIMARY KEY (table_no, column_name)
) WITHOUT ROWID;

CREATE TABLE meshnode_changes (       -- the durable change sequence, written in the apply transaction
    seq INTEGER PRIMARY KEY,
    table_no INTEGER NOT NULL,
    change BLOB NOT NULL
);

CREATE TABLE meshnode_notices (       -- surfaced conditions, aggregated and bounded (profile §6)
    no INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    site BLOB NOT NULL,               -- empty where no site is meant
    table_name TEXT NOT NULL,         -- empty where no table is meant
    count INTEGER NOT NULL,
    first_ms INTEGER NOT NULL,
    last_ms INTEGER NOT NULL,
    sample TEXT NOT NULL,
    UNIQUE (kind, site, table_name)
);
CREATE INDEX meshnode_notices_site ON meshnode_notices (site, table_name);

CREATE TABLE meshnode_records (       -- vouches, roles and retirements, counting or not (profile §9)
    position INTEGER PRIMARY KEY,
    record_id BLOB NOT NULL UNIQUE,
    signer BLOB NOT NULL,
    verified INTEGER NOT NULL,        -- 0 while the signer's key is unknown
    counts INTEGER NOT NULL,
    record BLOB NOT NULL
);
CREATE INDEX meshnode_records_signer ON meshnode_records (signer);

CREATE TABLE meshnode_keyring (       -- what the record walk admits: derived, rewritten when the records change
    site BLOB NOT NULL PRIMARY KEY,
    cose_key BLOB NOT NULL,
    name TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE meshnode_invites (
    invite_id BLOB NOT NULL PRIMARY KEY,
    secret BLOB NOT NULL,
    expires_ms INTEGER NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0,
    consumed_by BLOB                  -- public key of the joiner that it was used by
) WITHOUT ROWID;

CREATE TABLE meshnode_peers (         -- what each peer last said of itself
    site BLOB NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    software TEXT NOT NULL,
    last_seen_ms INTEGER NOT NULL,
    clock_offset_ms INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE meshnode_addresses (     -- addresses that worked (profile §11)
    site BLOB NOT NULL,
    address TEXT NOT NULL,
    last_ok_ms INTEGER NOT NULL,
    PRIMARY KEY (site, address)
) WITHOUT ROWID;

CREATE TABLE meshnode_outbound (      -- one delivery stream to a peer: the durable cursor (SSP/1 §14.1)
    site_no INTEGER NOT NULL,
    path TEXT NOT NULL,
    epoch BLOB NOT NULL,
    cursor INTEGER NOT NULL,          -- log position up to which all is settled
    record_cursor INTEGER NOT NULL,   -- record position up to which all is settled
    settled_no INTEGER NOT NULL,      -- last settled frame number of this epoch, 0 none
    settled_digest BLOB NOT NULL,
    rewound_ms INTEGER NOT NULL DEFAULT 0, -- when the stream last started again from genesis
    PRIMARY KEY (site_no, path)
) WITHOUT ROWID;

CREATE TABLE meshnode_staged (        -- exact frames in flight and what follows each (NEOTH commit contract)
    site_no INTEGER NOT NULL,
    path TEXT NOT NULL,
    no INTEGER NOT NULL,
    frame BLOB NOT NULL,
    digest BLOB NOT NULL,
    cursor_after INTEGER NOT NULL,
    record_cursor_after INTEGER NOT NULL,
    items BLOB NOT NULL,              -- what it carries: a kind byte, then 8 bytes per position (store/delivery.py)
    filter TEXT NOT NULL,             -- the scope it was staged under
    attempts INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (site_no, path, no)
) WITHOUT ROWID;

CREATE TABLE meshnode_epochs (        -- earlier epochs of ours: a late ack of one is no error (profile §8)
    no INTEGER PRIMARY KEY,
    site_no INTEGER NOT NULL,
    path TEXT NOT NULL,
    epoch BLOB NOT NULL
);
CREATE INDEX meshnode_epochs_stream ON meshnode_epochs (site_no, path);

CREATE TABLE meshnode_reoffers (      -- positions to offer again first: rejected, or asked for (profile §8)
    site_no INTEGER NOT NULL,
    path TEXT NOT NULL,
    kind INTEGER NOT NULL,            -- 0 event, 1 record
    position INTEGER NOT NULL,
    waiting INTEGER NOT NULL,         -- 1 rejected: waits for the next cycle
    PRIMARY KEY (site_no, path, kind, position)
) WITHOUT ROWID;
CREATE INDEX meshnode_reoffers_due ON meshnode_reoffers (site_no, path, kind, position) WHERE waiting = 0;

CREATE TABLE meshnode_inbound (       -- what this node holds of a peer's stream
    site_no INTEGER NOT NULL,
    path TEXT NOT NULL,
    epoch BLOB NOT NULL,
    next INTEGER NOT NULL,
    first INTEGER NOT NULL DEFAULT 1, -- where the epoch was opened; above 1 there are frames of which nothing is known
    link INTEGER NOT NULL DEFAULT 0,  -- number of the link that adopted the epoch: late work of an older one is refused
    PRIMARY KEY (site_no, path)
) WITHOUT ROWID;

CREATE TABLE meshnode_acks (          -- stored acks, answered byte for byte to a repeat (profile §8)
    site_no INTEGER NOT NULL,
    path TEXT NOT NULL,
    no INTEGER NOT NULL,
    digest BLOB NOT NULL,
    ack BLOB NOT NULL,
    PRIMARY KEY (site_no, path, no)
) WITHOUT ROWID;

CREATE TABLE meshnode_requests (      -- what this node asks of one peer until it is answered
    request_id BLOB NOT NULL,
    site_no INTEGER NOT NULL,
    body BLOB NOT NULL,               -- CBOR of the request frame
    PRIMARY KEY (request_id, site_no)
) WITHOUT ROWID;

CREATE TABLE meshnode_answers (       -- requests of a peer whose re-offers are queued and not yet marked answered
    site_no INTEGER NOT NULL,
    path TEXT NOT NULL,
    request_id BLOB NOT NULL,
    PRIMARY KEY (site_no, path, request_id)
) WITHOUT ROWID;

CREATE TABLE meshnode_frontier (      -- the causal frontier: evidence only (NEOTH)
    site BLOB NOT NULL PRIMARY KEY,
    counter INTEGER NOT NULL
) WITHOUT ROWID;
"""

_FORMAT_2 = """
-- What the table is to the mesh, as this node says (NEOTH, content and privacy).
ALTER TABLE meshnode_tables
    ADD COLUMN class TEXT NOT NULL DEFAULT 'shared' CHECK (class IN ('shared', 'raw', 'private'));
-- Of the frame (store/delivery.py).
ALTER TABLE meshnode_staged ADD COLUMN format INTEGER NOT NULL DEFAULT 1;
-- When an event in the frame becomes older than the replay budget, 0 never.
ALTER TABLE meshnode_staged ADD COLUMN expires_ms INTEGER NOT NULL DEFAULT 0;
-- What a peer may hold of the epochs before, for this one to go on from there (store/delivery.py).
ALTER TABLE meshnode_outbound ADD COLUMN replaces BLOB NOT NULL DEFAULT x'80';
-- What the peer wants, as its last hello said it.
ALTER TABLE meshnode_peers ADD COLUMN scope BLOB NOT NULL DEFAULT x'80';

CREATE TABLE meshnode_backfills (     -- what still goes into a peer's re-offer set, one bounded step after the other
    no INTEGER PRIMARY KEY,
    site_no INTEGER NOT NULL,
    path TEXT NOT NULL,
    schema TEXT NOT NULL,             -- '*' is every one
    name TEXT NOT NULL,               -- likewise
    author BLOB NOT NULL,             -- the site whose events, empty everybody's
    covering INTEGER NOT NULL,        -- 1: what the rows' states need of them (merge/needed.py), not their history
    own INTEGER NOT NULL,             -- 1: the peer asked, so events of its own too
    passed INTEGER NOT NULL,          -- log position that the stream had passed: what follows comes by itself
    last INTEGER NOT NULL,            -- log position up to which this looks
    place BLOB NOT NULL,              -- how far it has come, empty at the beginning
    UNIQUE (site_no, path, schema, name, author, covering, own)
);

CREATE TABLE meshnode_told (          -- watermarks that each peer told on the last link on which it told any
    peer_no INTEGER NOT NULL,
    site_no INTEGER NOT NULL,
    schema TEXT NOT NULL,             -- by name: a peer's word opens no table here
    name TEXT NOT NULL,
    physical NOT NULL,
    logical NOT NULL,
    told_ms INTEGER NOT NULL,
    PRIMARY KEY (peer_no, site_no, schema, name)
) WITHOUT ROWID;

CREATE TABLE meshnode_takebacks (     -- sites whose events are being taken back, and how many are out of the log
    site BLOB NOT NULL PRIMARY KEY,
    events INTEGER NOT NULL
) WITHOUT ROWID;
"""

_FORMAT_3 = """
-- Where events of others are offered first, they have a cursor of their own; null where one cursor counts for all.
ALTER TABLE meshnode_outbound ADD COLUMN offer_cursor INTEGER;
ALTER TABLE meshnode_staged ADD COLUMN offer_cursor_after INTEGER;
-- Log position that the stream had passed of what others wrote; `passed` is of what this node wrote.
ALTER TABLE meshnode_backfills ADD COLUMN passed_others INTEGER NOT NULL DEFAULT 0;
UPDATE meshnode_backfills SET passed_others = passed;
-- 1: asked since this copy may have lost what others wrote; of what the peer itself wrote nothing was dropped here.
ALTER TABLE meshnode_requests ADD COLUMN restored INTEGER NOT NULL DEFAULT 0;
-- Number of the last frame staged in it; of epochs that were over before this was kept, no peer holds more.
ALTER TABLE meshnode_epochs ADD COLUMN last_no INTEGER NOT NULL DEFAULT 9223372036854775807;
-- 1: whoever proves to hold the invite waits until a person has said yes.
ALTER TABLE meshnode_invites ADD COLUMN confirm INTEGER NOT NULL DEFAULT 0;
-- Public key of the joiner that proved it first, null while nobody has.
ALTER TABLE meshnode_invites ADD COLUMN candidate BLOB;
ALTER TABLE meshnode_invites ADD COLUMN candidate_name TEXT NOT NULL DEFAULT '';
ALTER TABLE meshnode_invites ADD COLUMN candidate_ms INTEGER NOT NULL DEFAULT 0;
"""

_FORMAT_4 = """
CREATE TABLE meshnode_conflicts (     -- concurrent writes of one cell, one of them by this node (the conflict ledger)
    no INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,          -- of the pair of events: the same at both authors
    table_no INTEGER NOT NULL,
    key BLOB NOT NULL,                -- deterministic CBOR of the row_key map
    column_name TEXT,                 -- null: whether the row exists
    ours BLOB NOT NULL,               -- rank of the event by this node
    our_value BLOB,                   -- CBOR; null where it is too large to be kept twice: it is in the log
    position INTEGER NOT NULL,        -- of our event in the log
    theirs BLOB NOT NULL,             -- likewise, by the other site
    their_value BLOB,
    their_no INTEGER NOT NULL,        -- the other site
    certain INTEGER NOT NULL,         -- 0: no ack tells whether the other author had seen ours
    status TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',  -- why it is not open any more
    watched INTEGER NOT NULL,         -- 1: a later event of the cell may still go on from it
    recorded_ms INTEGER NOT NULL,
    change INTEGER NOT NULL           -- grows with every change of any row: what a subscriber goes on from
);
CREATE INDEX meshnode_conflicts_row ON meshnode_conflicts (table_no, key) WHERE watched = 1;
CREATE INDEX meshnode_conflicts_site ON meshnode_conflicts (their_no, status, no);
CREATE INDEX meshnode_conflicts_possible ON meshnode_conflicts (their_no, position) WHERE certain = 0 AND watched = 1;
CREATE INDEX meshnode_conflicts_open ON meshnode_conflicts (no, certain) WHERE status = 'open';
CREATE INDEX meshnode_conflicts_change ON meshnode_conflicts (change);

CREATE TABLE meshnode_taken (         -- by which time of its clock a peer had which of our events (model/taken.py)
    peer_no INTEGER NOT NULL,
    path TEXT NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    physical,                         -- null where the peer did not say
    logical,
    PRIMARY KEY (peer_no, path, first, last, kind)
) WITHOUT ROWID;

CREATE TABLE meshnode_repeats (       -- events of a site up to this clock may have been seen here before they come
    site_no INTEGER PRIMARY KEY,
    physical NOT NULL,
    logical NOT NULL
);

-- Grows with every surfacing, so that a reader finds what is new; 1: its owner has seen it, until it arises again.
ALTER TABLE meshnode_notices ADD COLUMN seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE meshnode_notices ADD COLUMN acknowledged INTEGER NOT NULL DEFAULT 0;
UPDATE meshnode_notices SET seq = no;
INSERT INTO meshnode_meta (name, value) SELECT 'next_notice', coalesce(max(no), 0) + 1 FROM meshnode_notices;
CREATE INDEX meshnode_notices_seq ON meshnode_notices (seq);

CREATE TABLE meshnode_bundles (       -- bundles that this node wrote: a peer that says it holds one stands there
    no INTEGER PRIMARY KEY,
    site_no INTEGER NOT NULL,         -- for whom; 0: for any member
    epoch BLOB NOT NULL,
    last_no INTEGER NOT NULL,         -- its last frame, and the digest of that
    digest BLOB NOT NULL,
    start INTEGER NOT NULL,           -- log position from which on it carries everything
    cursor INTEGER NOT NULL,          -- and up to which
    record_cursor INTEGER NOT NULL,
    answers BLOB NOT NULL             -- ids of the requests that it answers
);

CREATE TABLE meshnode_log_counts (    -- how many events the log retains, so that nobody has to count a long one
    chunk INTEGER NOT NULL,           -- position >> 13: 8,192 positions (store/logcounts.py)
    site_no INTEGER NOT NULL,
    table_no INTEGER NOT NULL,
    events INTEGER NOT NULL,
    unresolved INTEGER NOT NULL,      -- of them, those that are offered to nobody
    PRIMARY KEY (chunk, site_no, table_no)
) WITHOUT ROWID;
INSERT INTO meshnode_log_counts
    SELECT position >> 13, site_no, table_no, count(*), sum(state = 2) FROM meshnode_log GROUP BY 1, 2, 3;
-- Triggers, so that whatever puts events in or takes them out is counted.
CREATE TRIGGER meshnode_log_added AFTER INSERT ON meshnode_log BEGIN
    INSERT INTO meshnode_log_counts VALUES (new.position >> 13, new.site_no, new.table_no, 1, new.state = 2)
    ON CONFLICT DO UPDATE SET events = events + 1, unresolved = unresolved + excluded.unresolved; END;
CREATE TRIGGER meshnode_log_removed AFTER DELETE ON meshnode_log BEGIN
    UPDATE meshnode_log_counts SET events = events - 1, unresolved = unresolved - (old.state = 2)
    WHERE chunk = old.position >> 13 AND site_no = old.site_no AND table_no = old.table_no; END;
CREATE TRIGGER meshnode_log_settled AFTER UPDATE OF state ON meshnode_log BEGIN
    UPDATE meshnode_log_counts SET unresolved = unresolved + (new.state = 2) - (old.state = 2)
    WHERE chunk = old.position >> 13 AND site_no = old.site_no AND table_no = old.table_no; END;
"""

_FORMAT_5 = """
CREATE TABLE meshnode_adopted (       -- tables whose writes by plain SQL become events (store/capture.py)
    table_no INTEGER PRIMARY KEY,
    looked BLOB                       -- up to which key its rows were compared with their clocks; null: all of them
);

CREATE TABLE meshnode_captured (      -- rows that somebody wrote by plain SQL, in order, until that is signed
    seq INTEGER PRIMARY KEY,
    table_no INTEGER NOT NULL,
    gone INTEGER NOT NULL,            -- 1: the key names no row any more, 0: read what the row says now
    k0                                -- values of the key; k1 and so on are added for tables that have more
);

CREATE TABLE meshnode_gate (          -- has a row in no committed state: only inside a transaction of the node's own
    closed INTEGER PRIMARY KEY
);

-- Any program's SQLite reads every trigger of the file when it opens it: none says what one of 2013 does not know.
DROP TRIGGER meshnode_log_added;
CREATE TRIGGER meshnode_log_added AFTER INSERT ON meshnode_log BEGIN
    INSERT OR IGNORE INTO meshnode_log_counts VALUES (new.position >> 13, new.site_no, new.table_no, 0, 0); UPDATE
    meshnode_log_counts SET events = events + 1, unresolved = unresolved + (new.state = 2)
    WHERE chunk = new.position >> 13 AND site_no = new.site_no AND table_no = new.table_no; END;
"""

_MIGRATIONS: tuple[str, ...] = (_FORMAT_1, _FORMAT_2, _FORMAT_3, _FORMAT_4, _FORMAT_5)
OWN: Final = frozenset(re.findall(r"CREATE TABLE (\w+)", "".join(_MIGRATIONS)))
"""The names of the node's tables."""


def migrate(tx: Tx) -> None:
    """Bring the tables to `FORMAT`; raises StoreError for a database newer than this program."""
    found = format_of(tx)
    _refuse_newer(found)
    for script in _MIGRATIONS[found:]:
        for statement in script.split(";\n"):
            if statement.strip():
                tx.execute(statement)
    if found < FORMAT:
        tx.execute("INSERT OR REPLACE INTO meshnode_meta (name, value) VALUES ('format', ?)", (FORMAT,))


def check_readable(tx: Tx) -> None:
    """Refuse to read what this program would misread: reading alone migrates nothing. StoreError says what to do."""
    found = format_of(tx)
    _refuse_newer(found)
    if found < FORMAT:
        raise StoreError(
            f"the database was written by an older meshnode (format {found}, this program reads {FORMAT}): "
            "`meshnode up`, or any verb that writes, brings it up to date"
        )


def _refuse_newer(found: int) -> None:
    if found > FORMAT:
        raise StoreError(
            f"the database was written by a newer meshnode (format {found}, this program knows {FORMAT}): "
            "upgrade meshnode on this device"
        )


def format_of(tx: Tx) -> int:
    """The format that a database says it has; 0 where it holds no tables of a node."""
    if not is_present(tx):
        return 0
    row = tx.execute("SELECT value FROM meshnode_meta WHERE name = 'format'").fetchone()
    return int(row[0]) if row else 0


def is_present(tx: Tx) -> bool:
    """Whether the database holds tables of a node."""
    found = tx.execute("SELECT name FROM pragma_table_info('meshnode_meta', 'main')").fetchall()
    return [name for (name,) in found] == ["name", "value"]


def names_in_use(tx: Tx) -> list[str]:
    """The names of the node's tables that the database has, in whatever letter case: anything may have them."""
    found = tx.execute("SELECT name FROM sqlite_master ORDER BY name").fetchall()
    return [name for (name,) in found if name.lower() in OWN]


def remove(tx: Tx) -> None:
    """Take the node's own tables out again, and leave everything else, an application's `meshnode_…` too."""
    found = tx.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (name,) in found:
        if name in OWN:
            tx.execute(f'DROP TABLE "{name}"')
