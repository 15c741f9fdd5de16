"""`doctor` on a real network: a container bridge, an interface that is too narrow, and one without its cable."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from support.lan import Lan, lan_available

pytestmark = pytest.mark.skipif(not lan_available(), reason="needs root and iproute2 to make network namespaces")


def looked(lan: Lan, home: Path) -> dict[str, list[tuple[str, str]]]:
    """What `meshnode doctor` says of the interfaces of a host, and of mDNS there."""
    command = ["--home", str(home), "doctor", "interfaces", "mdns", "--output", "json"]
    done = lan.run(0, [sys.executable, "-m", "meshnode", *command])
    told: dict[str, list[tuple[str, str]]] = {}
    for each in json.loads(done.stdout)["findings"]:
        told.setdefault(each["check"], []).append((each["verdict"], each["found"]))
    return told


def test_interfaces_of_a_host(tmp_path: Path) -> None:
    with Lan(1) as lan:
        for command in ("link add docker0 type bridge", "address add 172.17.0.1/16 dev docker0", "link set docker0 up"):
            lan.configure(0, *command.split())
        lan.mtu(0, 1200)
        narrow = looked(lan, tmp_path)
        (warned, said), *others = narrow["interfaces"]
        assert (warned, narrow["mdns"][0][0]) == ("warn", "pass"), narrow
        assert "1200 bytes" in said
        told = {found.split(" (")[0] for verdict, found in others if verdict == "pass"}
        assert {"docker0: not used", "lo: not used"} <= told, narrow
        lan.interface_down(0)
        gone = looked(lan, tmp_path)
        assert gone["mdns"][0][0] == "warn", gone
        assert any("eth0" in said for verdict, said in gone["interfaces"] if verdict == "warn"), gone
