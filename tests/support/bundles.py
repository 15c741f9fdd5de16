"""Bundles between nodes of `support.pair`: written and taken in by the production steps, one after the other."""

from __future__ import annotations

from pathlib import Path

from meshnode.engine import bundle_in, bundle_out
from meshnode.model.frames import Watermarks
from meshnode.node.bundlefile import BundleReader, BundleWriter
from meshnode.node.bundleviews import IntakeView
from meshnode.node.intake import Intake
from support.pair import Node


def export(node: Node, to: Node | None, path: Path, *, batch: int = 2) -> bundle_out.Pages:
    """A bundle of a node for another one, or for any."""
    writer = BundleWriter(path, force=True)
    try:
        site = None if to is None else to.site
        plan = bundle_out.begin(node.context, site, name=f"node {node.number}", software="test")
        writer.write(plan.opening())
        pages = bundle_out.Pages(plan, node.time.wall_ms, batch)
        while not pages.done:
            with node.context.transaction() as tx:
                frame = pages.step(tx)
            writer.write(frame)
        writer.finish(bundle_out.finish(node.context, pages, writer.digest))
        return pages
    finally:
        writer.close()


def take(node: Node, path: Path) -> IntakeView:
    """A node takes a bundle in."""
    reader = BundleReader(path)
    try:
        context = node.context
        sealed = reader.check(context.mesh_id)
        bundle_in.check_head_untrusted(sealed.head, context.mesh_id, context.site)
        intake = Intake(context, reader, sealed)
        shown, asks, opened = intake.preamble()
        intake.epoch = opened.epoch
        intake.begun = bundle_in.begin_untrusted(context, sealed.head, shown, asks, opened)
        peer = sealed.head.site
        while (read := intake.read()) is not None:
            part, frame, checked = read
            if frame is None:
                assert isinstance(part, Watermarks)
                bundle_in.take_watermarks_untrusted(context, peer, part.entries)
            elif frame.no < intake.begun.next:
                intake.repeat(frame)
            else:
                settle = intake.total.settled
                intake.total.add(bundle_in.commit_frame(context, peer, opened.epoch, frame, checked, settle=settle))
        node.grew()
        node.ask()
        return intake.view(done=True)
    finally:
        reader.close()


def carry(giver: Node, taker: Node, path: Path) -> tuple[bundle_out.Pages, IntakeView]:
    """A bundle from one to the other."""
    return export(giver, taker, path), take(taker, path)
