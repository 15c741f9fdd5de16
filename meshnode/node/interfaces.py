"""Which interfaces the settings let this node use, and where others can reach it there (profile §11)."""

from __future__ import annotations

import time
from ipaddress import ip_address

from meshnode.net.adapters import selection_at
from meshnode.net.addresses import Address, invite_addresses
from meshnode.net.interfaces import Rules, Selection
from meshnode.net.wifi_guard import WifiGuard
from meshnode.node.config import Config, wifi_policy_of


def selection_of(config: Config) -> Selection:
    """The interfaces to announce and browse on as they are now, but for what a guard has against them."""
    rules = Rules(tuple(config.allow_interfaces), tuple(config.deny_interfaces))
    return selection_at(config.listen, rules)


def guard_of(config: Config) -> WifiGuard:
    """What keeps a node with these settings quiet on networks that are not trusted."""
    return WifiGuard(wifi_policy_of(config), now=time.monotonic)


def addresses_of(config: Config, port: int) -> list[str]:
    """Where others can reach a node with these settings: every address of the interfaces that it uses, or the one."""
    if not ip_address(config.listen).is_unspecified:
        return [Address(config.listen, port).text()]
    return [each.text() for each in invite_addresses(selection_of(config).used, port)]
