"""What an application may do to a schema of the tables t, twin, other and words: beside the table t, and to it."""

from __future__ import annotations

T = 'CREATE TABLE "t" ("id" PRIMARY KEY, "a", "b") WITHOUT ROWID'
TWIN = T.replace('"t"', '"twin"')
FTS = "CREATE VIRTUAL TABLE {} USING fts5(x)"

UNRELATED = {
    "table": ["CREATE TABLE x (y)"],
    "tables and indexes": ["CREATE TABLE x (y)", "CREATE TABLE z (y UNIQUE)", "CREATE INDEX i ON x (y)"],
    "index of its own": ["CREATE INDEX i ON t (a)", "CREATE INDEX j ON t (b)"],
    "view and trigger": ["CREATE VIEW v AS SELECT * FROM t", "CREATE TRIGGER r AFTER INSERT ON t BEGIN SELECT 1; END"],
    "numbering": ["CREATE TABLE x (y INTEGER PRIMARY KEY AUTOINCREMENT)", "CREATE TABLE z (y)"],
    "full text": [FTS.format("docs")],
    "vacuum": ["VACUUM"],
    "vacuum with gaps": ["CREATE TABLE x (y)", "VACUUM"],
    "analyze": ["ANALYZE"],
    "drop": ["DROP TABLE other"],
    "drop and create": ["DROP TABLE other", "CREATE TABLE x (y)"],
    "rename": ["ALTER TABLE other RENAME TO x"],
    "alter": ["ALTER TABLE other ADD COLUMN z"],
    "made again": ["DROP TABLE other", "CREATE TABLE other (x)"],
    "copied": ["CREATE TABLE tmp (x, y)", "DROP TABLE other", "ALTER TABLE tmp RENAME TO other"],
    "rows": ["INSERT INTO other VALUES (1)"],
}
DISTURBING = {
    "made again": ["DROP TABLE t", T],
    "made again, compacted": ["DROP TABLE t", T, "VACUUM"],
    "made again, with noise": ["CREATE TABLE x (y)", "DROP TABLE t", T, "CREATE INDEX i ON x (y)"],
    "made again, last of all": ["DROP TABLE other", "DROP TABLE twin", "DROP TABLE t", T],
    "column made again": ['ALTER TABLE t DROP COLUMN "b"', 'ALTER TABLE t ADD COLUMN "b"'],
    "column made again, with noise": ['ALTER TABLE t DROP COLUMN "b"', "VACUUM", 'ALTER TABLE t ADD COLUMN "b"'],
    "twin": ["DROP TABLE t", 'ALTER TABLE twin RENAME TO "t"'],
    "twin, compacted": ["DROP TABLE t", 'ALTER TABLE twin RENAME TO "t"', "VACUUM"],
    "swapped": ["ALTER TABLE t RENAME TO tmp", 'ALTER TABLE twin RENAME TO "t"', 'ALTER TABLE tmp RENAME TO "twin"'],
    "swapped, compacted": [
        "ALTER TABLE t RENAME TO tmp",
        'ALTER TABLE twin RENAME TO "t"',
        'ALTER TABLE tmp RENAME TO "twin"',
        "VACUUM",
    ],
    "away, another in its place": ["ALTER TABLE t RENAME TO away", T],
    "copied": [T.replace('"t"', '"u"'), "DROP TABLE t", 'ALTER TABLE u RENAME TO "t"'],
    "beside full text": ["DROP TABLE words", 'ALTER TABLE t DROP COLUMN "b"', 'ALTER TABLE t ADD COLUMN "b"'],
    "beside a rename": ["ALTER TABLE other RENAME TO x", "DROP TABLE t", T],
    "beside new ones": ["CREATE TABLE x (y)", "CREATE TABLE y (y)", "CREATE TABLE z (y)", "DROP TABLE t", T],
}
STATEMENTS = sorted({each for listed in (*UNRELATED.values(), *DISTURBING.values()) for each in listed})
