"""The LAN of namespaces itself: hosts reach each other, cables can be pulled, and nothing is left behind."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.lan import PREFIX, Lan, lan_available, reap_orphans

pytestmark = pytest.mark.skipif(not lan_available(), reason="needs root and iproute2 to make network namespaces")

SAY = "import socket,sys;s=socket.create_connection((sys.argv[1],9),2)"


def namespaces() -> str:
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout


def refused(lan: Lan, host: int, address: str) -> bool:
    """Whether the other host answers at all: nothing listens there, so it refuses at once."""
    return "ConnectionRefusedError" in lan.run(host, [sys.executable, "-c", SAY, address]).stderr


def test_hosts_reach_each_other_until_a_cable_is_pulled() -> None:
    with Lan(2) as lan:
        assert refused(lan, 0, lan.address(1))
        assert refused(lan, 0, f"{lan.link_local(1)}%eth0")
        lan.cut(1)
        assert not refused(lan, 0, lan.address(1))
        lan.mend(1)
        assert refused(lan, 0, lan.address(1))


def test_programs_and_namespaces_end_with_the_block_whatever_happens_in_it() -> None:
    lan = Lan(2)
    started: list[subprocess.Popen[bytes]] = []

    def fail() -> None:
        with lan:
            started.append(lan.popen(0, ["sleep", "1000"]))
            assert lan.namespace(0) in namespaces()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert started[0].poll() is not None
    assert lan.namespace(0) not in namespaces()
    lan.close()


def test_namespaces_of_a_killed_run_are_removed_and_those_of_a_living_one_are_not() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    orphan = f"{PREFIX}-{gone.pid}-abc-0"
    subprocess.run(["ip", "netns", "add", orphan], check=True)
    with Lan(1, wired=False) as lan:
        reap_orphans()
        assert orphan not in namespaces()
        assert lan.namespace(0) in namespaces()
