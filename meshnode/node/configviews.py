"""What is shown of settings, and the receipts of changing them: no secret is ever a setting."""

from __future__ import annotations

from typing import Any

import msgspec

from meshnode.node.views import View


class SettingView(View, frozen=True, kw_only=True):
    """One setting as it is in force."""

    setting: str
    value: Any
    default: Any
    source: str  # default, file, or command line: what the node was started with stands before the file
    applies: str  # live: a change is in force at once; restart: at the next start
    pending: Any = msgspec.UNSET  # what it will be after the next start, where the file says that by now
    about: str


class ConfigView(View, frozen=True, kw_only=True):
    """All settings of a node."""

    file: str
    running: bool
    site: str = ""  # of the node that runs
    digest: str  # of the snapshot: of what the file says of every setting
    restart_required: tuple[str, ...] = ()  # settings of which the file says something else than is in force
    settings: tuple[SettingView, ...]


class BeforeAfter(View, frozen=True, kw_only=True):
    """What the file said of one setting, and says now."""

    before: Any
    after: Any


class ConfigReceipt(View, frozen=True, kw_only=True):
    """What came of a change (NEOTH): nothing of it is a secret."""

    changed: dict[str, BeforeAfter]
    reloaded: bool  # the running node answered that it has taken over the snapshot of this digest
    restart_required: tuple[str, ...]  # settings that wait for the next start of the node that runs
    overridden: tuple[str, ...] = ()  # settings that keep what the node was started with, whatever the file says
    digest: str
    site: str = ""  # of the node that answered


class ReloadView(View, frozen=True, kw_only=True):
    """The running node's answer: which snapshot it has taken over."""

    site: str
    digest: str
    changed: tuple[str, ...] = ()  # settings that are another now
    restart_required: tuple[str, ...] = ()
    overridden: tuple[str, ...] = ()


class FaultView(View, frozen=True, kw_only=True):
    """One thing that is wrong with a file."""

    line: int
    setting: str
    reason: str


class ConfigCheck(View, frozen=True, kw_only=True):
    """Whether a file can be used."""

    file: str
    valid: bool
    faults: tuple[FaultView, ...] = ()
