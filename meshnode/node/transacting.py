"""Transactions of a task: what it writes meanwhile goes through the transaction alone."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from meshnode.errors import UsageError
from meshnode.node.transaction import Transaction
from meshnode.node.views import Receipt
from meshnode.node.writing import Write


class Transacting:
    """These operations over whatever writes several rows as one."""

    _collecting: set[asyncio.Task[Any] | None]  # tasks in the middle of a transaction

    @abstractmethod
    async def write_rows(self, writes: Sequence[Write]) -> Receipt:
        """Write them together, or none and an error."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Write several rows of several tables at the end of the block: all of them, or none and an error.

        An exception in the block, or one row that cannot be written, and nothing is. Meanwhile this task writes
        through the transaction alone: UsageError for another transaction, or a write beside it, which would not be
        part of it.
        """
        with self.collecting():
            transaction = Transaction()
            try:
                yield transaction
            finally:
                writes = transaction.end()
        transaction.wrote(await self.write_rows(writes))

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Within, the task that is running writes nothing but by its transaction."""
        self.refuse_in_transaction()
        task = asyncio.current_task()
        self._collecting.add(task)
        try:
            yield
        finally:
            self._collecting.discard(task)

    def refuse_in_transaction(self) -> None:
        """UsageError where the running task is in the middle of a transaction."""
        if self._collecting and asyncio.current_task() in self._collecting:
            raise UsageError("this is in the middle of a transaction: write by the object that `transaction()` gave")
