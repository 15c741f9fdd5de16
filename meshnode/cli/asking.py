"""Asks before something that cannot be undone, and names who it is about."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from meshnode.errors import UsageError
from meshnode.model.site import parse_site
from meshnode.node.memberviews import MemberView
from meshnode.node.naming import Known, site_called


def add_yes(parser: argparse.ArgumentParser) -> None:
    """The flag that answers the question beforehand."""
    parser.add_argument("--yes", action="store_true", help="do not ask")


def add_recovery(parser: argparse.ArgumentParser) -> None:
    """The flag by which the recovery key signs instead of this device's own key."""
    parser.add_argument("--recovery", metavar="FILE", help="sign with the recovery key in this file instead")


def recovery_path(options: argparse.Namespace) -> str | None:
    """The file, named so that a node which runs in another folder finds it: the key itself is sent nowhere."""
    return None if options.recovery is None else str(Path(options.recovery).expanduser().absolute())


def require_yes(options: argparse.Namespace, question: str) -> None:
    """UsageError unless --yes was given or the person says yes; without a terminal nobody is asked."""
    if options.yes:
        return
    if sys.stdin.isatty() and input(f"{question} [y/N] ").strip().lower() in ("y", "yes"):
        return
    raise UsageError("nothing was done: say yes, or give --yes")


def member_called(views: Sequence[MemberView], named: str) -> MemberView:
    """The member that a person means."""
    known = [Known(parse_site(each.site), each.name, current=not each.retired) for each in views]
    wanted = site_called(named, known)
    return next(each for each in views if parse_site(each.site) == wanted)
