"""What `discover` shows: interfaces, members and strangers, and why each is dialed or is not (profile §11)."""

from __future__ import annotations

from meshnode.node.views import View


class InterfaceView(View, frozen=True, kw_only=True):
    """One network interface of this device."""

    name: str
    used: bool  # to announce and browse on
    reason: str = ""  # why it is not
    up: bool = True
    addresses: tuple[str, ...] = ()


class AnnouncementView(View, frozen=True, kw_only=True):
    """One announcement as it was claimed; only of a verified one anything is proven."""

    instance: str
    standing: str  # verified, or the kind of reason why it is not: see `net.seen.Standing`
    reason: str = ""
    site: str = ""
    short: str = ""
    mesh_tag: str = ""
    addresses: tuple[str, ...] = ()  # with the port


class PassedOverView(View, frozen=True, kw_only=True):
    """An address at which another site answered than the one that was dialed."""

    address: str
    site: str
    short: str


class DialView(View, frozen=True, kw_only=True):
    """How it is with dialing somebody, in a word (see `node.dialreason.Dialing`) and in words."""

    state: str
    why: str
    in_s: float | None = None  # seconds to the next attempt, where one is waited for
    failures: int = 0
    error: str = ""  # why the last attempt led to no link, or the last link ended
    addresses: tuple[str, ...] = ()  # what is tried, in this order
    passed_over: tuple[PassedOverView, ...] = ()


class FoundMemberView(View, frozen=True, kw_only=True):
    """Another member, seen or not."""

    site: str
    short: str
    name: str
    retired: bool
    linked: bool
    seen: tuple[AnnouncementView, ...]
    dial: DialView


class PeerAddressView(View, frozen=True, kw_only=True):
    """An address that the settings say to dial (`peers`)."""

    address: str
    site: str = ""  # who answered there
    short: str = ""
    dial: DialView


class DiscoverView(View, frozen=True, kw_only=True):
    """Who and what is around this device."""

    running: bool
    discovery: str  # as `status` has it
    interfaces: tuple[InterfaceView, ...] = ()
    members: tuple[FoundMemberView, ...] = ()
    peers: tuple[PeerAddressView, ...] = ()
    strangers: tuple[AnnouncementView, ...] = ()  # whatever is not proven to be by a member
    own: tuple[AnnouncementView, ...] = ()  # this device's own, once it was heard
    deaf: str = ""  # why nobody out there could be heard, if so
    notes: tuple[str, ...] = ()  # what else its owner may want to know of the settings
