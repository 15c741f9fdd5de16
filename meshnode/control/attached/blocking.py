"""`BlockingAttached`: an attached app on a thread of its own, for Tk, Qt, wx and plain scripts."""

from __future__ import annotations

import os
from typing import Self

from meshnode.control.attached.app import PATIENCE_S, Attached, attach
from meshnode.node.blocking_tables import BlockingTables
from meshnode.node.callbacks import Deliver
from meshnode.node.home import Home
from meshnode.node.loopthread import LoopThread
from meshnode.node.views import PeerView, TableView


class BlockingAttached(BlockingTables[Attached]):
    """An attached app: `with BlockingAttached.open("notes.db", schema="notes") as app:`.

    Methods are those of `Attached`, and wait; `run` reaches those that are not here. Any thread may call them.
    """

    @classmethod
    def open(
        cls,
        database: str | os.PathLike[str],
        *,
        schema: str,
        home: Home | str | os.PathLike[str] | None = None,
        patience_s: float = PATIENCE_S,
        shown: bool = True,
        deliver: Deliver | None = None,
    ) -> Self:
        """Attach, as `attach` does, and return once the copy is up to the node; `deliver` as of `BlockingNode.open`."""
        loop = LoopThread("meshnode-attached")
        try:
            opened = attach(database, schema=schema, home=home, patience_s=patience_s, shown=shown)
            app = loop.call(lambda: _entered(opened, loop))
        except BaseException:
            loop.close()
            raise
        return cls(app, loop, deliver)

    def tables(self) -> list[TableView]:
        """The tables of the schema, by name."""
        return self.run(lambda app: app.tables())

    def caught_up(self, *, timeout_s: float | None = 60.0) -> None:
        """Until the database has all that the node has."""
        self.run(lambda app: app.caught_up(timeout_s=timeout_s))

    def peers(self) -> list[PeerView]:
        """The other devices, linked or not."""
        return self.run(lambda app: app.peers())


async def _entered(app: Attached, loop: LoopThread) -> Attached:
    """From here on the loop's end is the app's."""
    loop.last = app.close
    return await app.__aenter__()
