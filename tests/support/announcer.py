"""One discovery process for the LAN tests: announces, browses, prints one JSON line per thing that happens.

`python -m support.announcer '{"who": 1, "members": [1, 2], "port": 4747, ...}'`; then commands on stdin, one per line:
`port N` announces another port, `refresh` asks the network again, `admit N` takes a site into the keyring,
`state` prints the state, `quit` (or the end of stdin) says goodbye and ends.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import sys
from typing import Any

from meshnode.model.record import EndpointAttestation, seal_record
from meshnode.model.site import SiteKey, mesh_tag
from meshnode.net.adapters import loopback_selection, selection
from meshnode.net.announcement import attestation_opener
from meshnode.net.interfaces import Rules
from meshnode.net.mdns import Discovery
from meshnode.net.pace import Pace
from meshnode.net.responder import Service
from meshnode.net.sightings import Sighting
from support.lines import stdin_lines

MESH_ID = bytes(range(16))


def site_key(who: int) -> SiteKey:
    return SiteKey.from_seed(hashlib.sha256(b"announcer %d" % who).digest())


def boot_of(who: int, start: int) -> bytes:
    return hashlib.sha256(b"boot %d %d" % (who, start)).digest()[:8]


def service_of(options: dict[str, Any]) -> Service:
    """The announcement of site `who`; `claims` makes it one that does not hold up."""
    who, port, start = int(options["who"]), int(options.get("port", 4747)), int(options.get("start", 1))
    attested_port = int(options.get("attested_port", port))
    mesh_id = bytes(16) if options.get("other_mesh") else MESH_ID
    attestation = seal_record(site_key(who), mesh_id, EndpointAttestation(attested_port, boot_of(who, start), start))
    return Service(options.get("name", f"host {who}"), site_key(who).site, mesh_tag(MESH_ID), port, attestation)


def say(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def describe(sighting: Sighting) -> dict[str, Any]:
    return {
        "site": sighting.site.hex(),
        "port": sighting.port,
        "addresses": list(sighting.addresses),
        "verified": sighting.verified,
        "boot": sighting.boot.hex(),
    }


async def main(options: dict[str, Any]) -> None:
    keys = {site_key(who).site: site_key(who).public_key for who in options.get("members", ())}
    rules = Rules(tuple(options.get("allow", ())), tuple(options.get("deny", ())))
    discovery = Discovery(
        service_of(options),
        open_attestation=attestation_opener(MESH_ID, keys.get),
        on_sighting=lambda sighting: say("sighting", **describe(sighting)),
        on_gone=lambda site: say("gone", site=site.hex()),
        on_notice=lambda kind, site, text: say("notice", kind=kind, site=site.hex() if site else None, text=text),
        random=random.random,
        scan=loopback_selection if options.get("loopback_only") else lambda: selection(rules),
        pace=Pace(**{"rescan_s": 0.2, "browse_s": 0.0, "retry_s": 0.2, "retry_cap_s": 0.5, **options.get("pace", {})}),
    )
    discovery.start()
    say("started")
    try:
        await obey(discovery, options, keys)
    finally:
        await discovery.stop()
        say("stopped")


async def obey(discovery: Discovery, options: dict[str, Any], keys: dict[bytes, bytes]) -> None:
    async for line in stdin_lines():
        match line.split():
            case ["port", port]:
                discovery.update(service_of({**options, "port": int(port)}))
            case ["refresh"]:
                discovery.refresh()
            case ["admit", who]:
                keys[site_key(int(who)).site] = site_key(int(who)).public_key
                discovery.recheck()
            case ["state"]:
                say("state", working=discovery.state.working, reason=discovery.state.reason)
            case ["quit"]:
                return


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
