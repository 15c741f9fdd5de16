"""A node that is to show itself on trusted Wi-Fi alone, as the network hears it: quiet, announced, quiet (NEOTH)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from support.lan import DEVICE, Lan, lan_available
from support.launch import event, launch
from support.lines import Lines
from support.nodes import PATIENCE_S, TABLE, Process, changes_until, free_port, pair_of_homes

pytestmark = pytest.mark.skipif(not lan_available(), reason="needs root and iproute2 to make network namespaces")

HOME, CAFE = "Home: \\ Wi-Fi", "Cafe"
QUIET = f'quiet on {DEVICE}: joined to "{{}}", which is not in trusted_ssids'
MARK = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'mark', ('10.47.0.2', 5353))"


class Cafe:
    """Host 0, whose only card is on Wi-Fi for all that `nmcli` says, and what host 1 hears of it."""

    def __init__(self, lan: Lan, folder: Path, config: Path) -> None:
        self.lan = lan
        self._answer, self._config = folder / "answer", config
        self.asked = folder / "asked"
        nmcli = folder / "nmcli"
        nmcli.write_text(f'#!/bin/sh\necho "$*" >>{self.asked}; cat {self._answer}\n')
        nmcli.chmod(0o755)
        self.join(CAFE)
        self.ear: Lines = launch(lan, 1, "listener", interface=DEVICE, address=lan.address(1))

    def join(self, ssid: str) -> None:
        """Be on this network, between others."""
        lines = (f"{DEVICE}: :486F6D65", f"{DEVICE}:*:{ssid.encode().hex().upper()}", f"{DEVICE}: :--")
        self._answer.write_text("".join(f"{line}\n" for line in lines))

    def trust(self, *ssids: str) -> None:
        """Write the settings: announce on no other Wi-Fi than these."""
        kept = [
            line for line in self._config.read_text().splitlines() if not line.startswith(("announce_", "trusted_"))
        ]
        names = ", ".join(f"'{ssid}'" for ssid in ssids)
        self._config.write_text(
            "\n".join([*kept, "announce_on_untrusted_wifi = false", f"trusted_ssids = [{names}]\n"])
        )

    def heard(self) -> list[dict[str, Any]]:
        """Every packet of host 0 so far."""
        assert self.lan.run(0, ["python3", "-c", MARK]).returncode == 0
        self.ear.until(event("noise", host=self.lan.address(0), text="mark"))
        return [line for line in self.ear.seen if line["event"] == "packet" and line["host"] == self.lan.address(0)]

    def until(self, wanted: str, name: str) -> None:
        """A packet of host 0 that gives or takes back this instance."""
        self.ear.until(lambda line: line.get("host") == self.lan.address(0) and name in line.get(wanted, ()))

    def listens(self) -> bool:
        """Whether host 0 would hear anybody ask."""
        return any(
            group in self.lan.configure(0, "maddress", "show", "dev", DEVICE) for group in ("224.0.0.251", "ff02::fb")
        )


async def test_a_node_is_quiet_wherever_its_owner_does_not_trust_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    ports = free_port(), free_port()
    homes = await pair_of_homes(tmp_path, ports)
    with Lan(2) as lan:
        cafe = Cafe(lan, tmp_path, homes[0] / "config.toml")
        inside = [["ip", "netns", "exec", lan.namespace(host)] for host in (0, 1)]
        there = f"{lan.address(1)}:{ports[1]}"
        b = Process(homes[1], "--no-mdns", "--port", str(ports[1]), before=inside[1])
        async with Process(homes[0], "--name", "a", "--port", str(ports[0]), "--peer", there, before=inside[0]) as a:
            name = f"a-{(await a.client.status()).short}._meshnode._udp.local."

            async def says(state: str) -> None:
                async with asyncio.timeout(PATIENCE_S):
                    while (await a.client.status()).discovery != state:
                        pass

            async def crosses(key: str) -> None:
                await a.client.put(TABLE, {"id": key}, {"title": "over a link"})
                await changes_until(b.client, key)

            cafe.until("given", name)
            assert not cafe.asked.exists(), "by default no tool is run"

            cafe.trust(HOME)
            os.kill(a.pid, signal.SIGHUP)
            cafe.until("taken", name)  # it was announced here, so it says goodbye
            await says(QUIET.format(CAFE))
            assert not cafe.listens()
            why = {each.name: (each.used, each.reason) for each in (await a.client.discover(seconds=0)).interfaces}
            assert why[DEVICE] == (False, QUIET.format(CAFE).partition(": ")[2])
            before = len(cafe.heard())
            async with b:
                await crosses("quiet")  # it dials the address that it was given
                assert len(cafe.heard()) == before

                cafe.join(HOME)
                lan.configure(0, "address", "add", "10.47.0.99/24", "dev", DEVICE)  # nothing else tells the node
                cafe.until("given", name)
                await says("on")

                cafe.join("Cafe 2")
                os.kill(a.pid, signal.SIGHUP)
                await says(QUIET.format("Cafe 2"))
                assert not [line for line in cafe.heard()[before:] if name in line["taken"]], "no goodbye to strangers"
                assert not cafe.listens()
                await crosses("quiet again")  # the link stayed

                cafe.trust(HOME, "Cafe 2")
                os.kill(a.pid, signal.SIGHUP)
                cafe.until("given", name)
                await says("on")

        cafe.join("Hotel")
        command = [sys.executable, "-m", "meshnode", "--home", str(homes[0]), "discover", "--seconds", "1"]
        without = lan.run(0, [*command, "--output", "json"])
        assert json.loads(without.stdout)["discovery"] == QUIET.format("Hotel"), without
