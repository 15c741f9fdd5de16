"""Which interfaces the settings let this node use, and where others can reach it there (profile §11)."""

from __future__ import annotations

from ipaddress import ip_address

from meshnode.net.adapters import selection_at
from meshnode.net.addresses import Address, invite_addresses
from meshnode.net.interfaces import Rules, Selection
from meshnode.node.config import Config


def selection_of(config: Config) -> Selection:
    """The interfaces to announce and browse on as they are now, but for what a guard has against them."""
    rules = Rules(tuple(config.allow_interfaces), tuple(config.deny_interfaces))
    return selection_at(config.listen, rules)


def addresses_of(config: Config, port: int) -> list[str]:
    """Where others can reach a node with these settings: every address of the interfaces that it uses, or the one."""
    if not ip_address(config.listen).is_unspecified:
        return [Address(config.listen, port).text()]
    return [each.text() for each in invite_addresses(selection_of(config).used, port)]
