"""Bundles of a node: written from its log and taken in through its one door, off the event loop (`model.bundle`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from meshnode.engine import bundle_in, bundle_out
from meshnode.engine.publishing import may_publish
from meshnode.errors import NotFoundError, ProtocolError, UsageError
from meshnode.model.frames import Watermarks
from meshnode.model.member import Member
from meshnode.model.site import site_text
from meshnode.node.bundlefile import BundleReader, BundleWriter
from meshnode.node.bundleviews import ExportView, IntakeView
from meshnode.node.intake import Intake, Read
from meshnode.node.overview import SOFTWARE
from meshnode.node.storage import wall_ms
from meshnode.node.stored import Stored
from meshnode.node.views import HOW_TO_CHOOSE
from meshnode.store.database import Tx

TOLD_S: Final = 0.2  # seconds between two words of how far it is


class Bundling(Stored):
    """These operations over a node's storage."""

    async def export_events(
        self, file: str | Path, *, peer: str | None = None, force: bool = False
    ) -> AsyncIterator[ExportView]:
        """Write a bundle for one member, or for any; the last view says that it is there."""
        to = await self._addressee(peer)
        writer = await asyncio.to_thread(lambda: BundleWriter(Path(file).absolute(), force=force))
        try:
            name, site = self._own_name(), None if to is None else to.site
            plan = await self.storage.write(
                lambda engine: bundle_out.begin(engine.context, site, name=name, software=SOFTWARE)
            )
            await asyncio.to_thread(writer.write, plan.opening())
            pages, pace = bundle_out.Pages(plan, wall_ms), _Pace()
            while not pages.done:
                if frame := await self.storage.read(pages.step):
                    await asyncio.to_thread(writer.write, frame)
                if pace.is_due():
                    yield _export_view(writer, to, pages)
            seal = await self.storage.write(lambda engine: bundle_out.finish(engine.context, pages, writer.digest))
            await asyncio.to_thread(writer.finish, seal)
            yield _export_view(writer, to, pages, done=True)
        finally:
            await asyncio.to_thread(writer.close)

    async def import_events(self, file: str | Path) -> AsyncIterator[IntakeView]:
        """Take in a bundle; the last view says what became of all of it."""
        reader = await asyncio.to_thread(BundleReader, Path(file))
        try:
            context = self.storage.engine.context
            sealed = await asyncio.to_thread(reader.check, context.mesh_id)
            bundle_in.check_head_untrusted(sealed.head, context.mesh_id, context.site)
            intake, pace = Intake(context, reader, sealed), _Pace()
            await self._begin_intake(intake)
            async with _Ahead(intake) as ahead:
                while (read := await ahead.next()) is not None:
                    await self._take_one(intake, read)
                    if pace.is_due():
                        yield intake.view()
            await self._ask()
            yield intake.view(done=True)
        finally:
            await asyncio.to_thread(reader.close)

    async def _begin_intake(self, intake: Intake) -> None:
        shown, asks, opened = await asyncio.to_thread(intake.preamble)
        head = intake.head
        intake.epoch = opened.epoch
        try:
            intake.begun = await self.storage.write(
                lambda engine: bundle_in.begin_untrusted(engine.context, head, shown, asks, opened), head.site
            )
        except ProtocolError as error:
            raise intake.fault(str(error)) from error
        await self._took_in(membership_changed=intake.begun.membership_changed)

    async def _take_one(self, intake: Intake, read: Read) -> None:
        """The next frame, through the door."""
        part, frame, checked = read
        peer, epoch, settle = intake.head.site, intake.epoch, intake.total.settled
        if frame is None:
            assert isinstance(part, Watermarks)
            await self.storage.write(
                lambda engine: bundle_in.take_watermarks_untrusted(engine.context, peer, part.entries), peer
            )
            await self._took_in(membership_changed=False)
        elif frame.no >= intake.begun.next:
            outcome = await self.storage.write(
                lambda engine: bundle_in.commit_frame(engine.context, peer, epoch, frame, checked, settle=settle), peer
            )
            intake.total.add(outcome)
            await self._took_in(membership_changed=outcome.membership_changed, answered=bool(outcome.answered))
        else:
            intake.repeat(frame)

    async def _addressee(self, peer: str | None) -> Member | None:
        """The member of that name or id; UsageError where this copy may not publish."""
        beside = self._incarnation()

        def look(tx: Tx) -> tuple[bool, Member | None]:
            return may_publish(tx, beside), None if peer is None else self._addressed(tx, peer)

        allowed, member = await self.storage.read(look)
        if not allowed:
            raise UsageError(f"another copy of this node may run, so nothing leaves this one: {HOW_TO_CHOOSE}")
        return member

    def _addressed(self, tx: Tx, peer: str) -> Member:
        try:
            return self._others(tx, peer)[0]
        except NotFoundError as error:
            text = f"{error}. Of who joined elsewhere a link tells, or a bundle that its inviter wrote with --all"
            raise NotFoundError(text) from error

    # --- for the running node to refine

    def _own_name(self) -> str:
        return self.home.config.name

    async def _took_in(self, *, membership_changed: bool, answered: bool = False) -> None:
        """The next start knows what came in; a running node knows it now, and passes it on."""


class _Ahead:
    """Reads and verifies the next frame while the one before is being committed."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake

    async def __aenter__(self) -> _Ahead:
        self._begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.wait([self._reading])  # the file is closed after this
        if not self._reading.cancelled():
            self._reading.exception()  # whoever leaves early does not want it

    def _begin(self) -> None:
        self._reading = asyncio.ensure_future(asyncio.to_thread(self._intake.read))

    async def next(self) -> Read | None:
        """The next one; None at the end."""
        read = await asyncio.shield(self._reading)  # a thread is not stopped by who does not wait any more
        if read is not None:
            self._begin()
        return read


@dataclass(slots=True)
class _Pace:
    """When somebody who waits is told how far it is."""

    last: float = 0.0

    def is_due(self) -> bool:
        now = asyncio.get_running_loop().time()
        due = now - self.last >= TOLD_S
        self.last = now if due else self.last
        return due


def _export_view(writer: BundleWriter, to: Member | None, pages: bundle_out.Pages, *, done: bool = False) -> ExportView:
    plan = pages.plan
    return ExportView(
        file=str(writer.path),
        done=done,
        site="" if to is None else site_text(to.site),
        name="" if to is None else to.name,
        start=plan.start.cursor,
        events=pages.events,
        records=pages.records,
        answered=len(plan.answers),
        frames=pages.no,
        bytes=writer.size,
        position=pages.cursor,
        last=plan.last,
    )
