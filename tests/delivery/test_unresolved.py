"""Events that name no row of a table here, until it is made again with another key: then they reach others too."""

from __future__ import annotations

from pathlib import Path

from support.pair import Node, Wire, mesh

from meshnode.engine import growth
from meshnode.engine.registry import TableSpec, register


def add_notes(node: Node, key: str) -> None:
    spec = TableSpec("main", "notes", {key: "TEXT"}, {"title": "TEXT"})
    node.context.transact(lambda tx: register(node.context, tx, spec))


def follow_schema(node: Node) -> None:
    node.context.transact(lambda _tx: None)
    while node.context.transact(lambda tx: growth.step(node.context, tx)):
        pass


def test_what_names_a_row_once_its_table_has_the_right_key_reaches_those_behind(tmp_path: Path) -> None:
    author, relay, last = mesh(tmp_path, 3, tables=False)
    relay.context.on_schema_change = lambda tx: growth.look(relay.context, tx)
    for node in (author, last):
        add_notes(node, "id")
    author.write("n", "x")
    wire = Wire(author, relay)
    wire.settle()
    wire.cut()
    add_notes(relay, "number")
    assert relay.query("SELECT kind FROM meshnode_notices") == [("unresolved-key",)]
    assert "`meshnode rehydrate" in relay.query("SELECT sample FROM meshnode_notices")[0][0]
    wire = Wire(relay, last)
    wire.settle()
    assert last.rows() == {}
    with relay.context.transaction() as tx:
        tx.execute("DROP TABLE notes")
    follow_schema(relay)
    add_notes(relay, "id")
    follow_schema(relay)
    assert relay.rows() == {"n": "x"}
    relay.grew()
    wire.settle()
    assert last.rows() == {"n": "x"}
