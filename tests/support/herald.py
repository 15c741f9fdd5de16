"""Announces what it is told by the mDNS library alone, with none of our code between (profile §11).

`python -m support.herald '{"who": 2, "addresses": ["10.47.0.2", ...]}'` announces site `who` of the tests' mesh at
these addresses until its standard input ends; then it says goodbye.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from support.announcer import say, service_of
from support.lines import stdin_lines

TYPE = "_meshnode._udp.local."


async def main(options: dict[str, Any]) -> None:
    service = service_of(options)
    texts = {"v": "1", "tag": service.tag.hex(), "site": service.site.hex()}
    info = AsyncServiceInfo(
        TYPE,
        f"herald-{options['who']}.{TYPE}",
        port=service.port,
        properties={**texts, "att": service.attestation},
        server=f"herald-{options['who']}.local.",
        parsed_addresses=options["addresses"],
    )
    network = AsyncZeroconf()
    await network.async_register_service(info)
    say("started")
    async for _ in stdin_lines():
        pass
    await network.async_unregister_all_services()
    await network.async_close()
    say("stopped")


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
