"""Who a running node is on the network, and what it may do there."""

from __future__ import annotations

from dataclasses import dataclass

from meshnode.model.site import SiteKey
from meshnode.node.config import Config


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Fixed for one start of the node."""

    key: SiteKey
    mesh_id: bytes
    name: str
    software: str
    config: Config  # its port is the chosen one
    port_asked: bool  # whoever started the node named the port: another one will not do
    publishing: bool  # False while it is not known which copy of the database this is (profile §8)
