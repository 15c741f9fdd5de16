"""The membership vectors through the store: however records arrive, one by one or together, a node ends with one set.

What waits for its signer's key is verified later, what does not count is kept, and a restart changes nothing (§9).
"""

from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from support.mesh_context import TestTime
from support.records import site_key

from meshnode.engine.engine import Engine
from meshnode.engine.environment import Environment
from meshnode.engine.membership import add_records
from meshnode.model.hlc import Hlc
from meshnode.model.membership import Membership
from meshnode.store.database import Database

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "membership.json").read_text())
MESH, FOUNDER = bytes.fromhex(VECTORS["mesh_id"]), bytes.fromhex(VECTORS["founder_public_key"])


def arrived(path: Path, records: list[bytes], sizes: random.Random) -> Membership:
    """What a node makes of records that arrive in this order, as a restart finds it too."""
    time = TestTime()
    env = Environment(time.wall_ms, time.random_bytes, sqlite3)
    engine = Engine.create(
        Database(path, sqlite=sqlite3),
        env,
        key=site_key(100),
        mesh_id=MESH,
        founder_public_key=FOUNDER,
        incarnation=bytes(16),
    )
    pending = list(records)
    while pending:
        size = sizes.randint(1, 3)
        batch, pending = pending[:size], pending[size:]
        with engine.context.transaction() as tx:
            outcome = add_records(engine.context, tx, batch, peer=bytes(16))
        assert (outcome.dropped, outcome.rejected) == (0, ())
    membership = engine.context.membership
    engine.close()
    again = Engine.open(Database(path, sqlite=sqlite3), env, site_key(100))
    assert again.context.membership == membership
    again.close()
    return membership


@pytest.mark.parametrize("scenario", VECTORS["scenarios"], ids=lambda scenario: scenario["name"])
def test_a_vector_in_some_orders_of_arrival(scenario: dict[str, Any], tmp_path: Path) -> None:
    records = [bytes.fromhex(each) for each in scenario["records"]]
    shuffler = random.Random(scenario["name"])
    for number, order in enumerate((records[::-1], shuffler.sample(records, len(records)))):
        membership = arrived(tmp_path / f"{number}.db", order, shuffler)
        assert membership.counted == {bytes.fromhex(each) for each in scenario["counted"]}
        for probe in scenario["probes"]:
            verdict = membership.judge(bytes.fromhex(probe["site"]), Hlc(*probe["hlc"]))
            assert (verdict or "acceptable") == probe["verdict"], probe
