"""Which interfaces are used for discovery, and what each of the others is told (profile §11)."""

from __future__ import annotations

import shutil
from ipaddress import ip_interface
from pathlib import Path

import pytest

from meshnode.errors import TransportError
from meshnode.net import adapters
from meshnode.net.adapters import linux_device, local_interfaces, loopback_selection, selection_at
from meshnode.net.interfaces import ALLOW, DENY, UNKNOWN, Device, Interface, Rules, Selection, select, virtual

CARD, TUNNEL = Device(card=True), Device(tunnel=True)


def interface(name: str, index: int, *addresses: str, device: Device = UNKNOWN) -> Interface:
    return Interface(name, index, tuple(ip_interface(address) for address in addresses), device)


LO = interface("lo", 1, "127.0.0.1/8", "::1/128")
ETH = interface("eth0", 2, "192.168.1.10/24", "fe80::1/64")
WIFI = interface("wlan0", 3, "10.0.0.7/24")
DOCKER = interface("docker0", 4, "172.17.0.1/16")
WG = interface("wg0", 5, "10.8.0.2/24")
ALL = (LO, WG, DOCKER, WIFI, ETH)


def used(selected: Selection) -> list[str]:
    return [one.name for one in selected.used]


def test_real_interfaces_are_used_and_virtual_ones_are_skipped_with_the_reason() -> None:
    selected = select(ALL)
    assert used(selected) == ["eth0", "wlan0"]
    assert dict(selected.skipped) == {
        "docker0": "of a container network, by its name; allow_interfaces can name it",
        "wg0": "a tunnel, by its name; allow_interfaces can name it",
    }
    assert selected.spare == (LO,)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (Rules(allow=("wlan0",)), ["wlan0"]),
        (Rules(allow=("e*", "wg?")), ["eth0", "wg0"]),
        (Rules(allow=("*",)), ["eth0", "wlan0", "docker0", "wg0"]),
        (Rules(allow=("*",), deny=("docker*", "wg0")), ["eth0", "wlan0"]),
        (Rules(deny=("wl*",)), ["eth0"]),
        (Rules(allow=("eth0",), deny=("eth0",)), ["lo"]),
        (Rules(allow=("ETH0",)), ["lo"]),
        (Rules(deny=("*",)), []),
        (Rules(allow=("lo",)), ["lo"]),
    ],
    ids=lambda value: repr(value) if isinstance(value, Rules) else "",
)
def test_rules_say_which_and_deny_wins(rules: Rules, expected: list[str]) -> None:
    selected = select(ALL, rules)
    assert used(selected) == expected
    assert {one.name for one in ALL} == {*expected, *dict(selected.skipped), *(one.name for one in selected.spare)}


def test_reasons_name_the_setting() -> None:
    skipped = dict(select(ALL, Rules(("eth0",), ("wlan0",))).skipped)
    assert skipped["wlan0"] == "deny_interfaces names it"
    assert skipped["docker0"] == "allow_interfaces does not name it"


def test_a_further_reason_stands_above_what_is_allowed() -> None:
    selected = select(ALL, Rules(allow=("wlan0",))).without({"wlan0": "its Wi-Fi is not trusted"})
    assert used(selected) == ["lo"]
    assert dict(selected.skipped)["wlan0"] == "its Wi-Fi is not trusted"


def test_loopback_is_used_only_where_nothing_else_is_left() -> None:
    assert used(select((LO, DOCKER))) == ["lo"]
    assert select((LO, DOCKER)).spare == ()
    assert used(select((LO, ETH))) == ["eth0"]
    assert select(()) == Selection(())


def test_a_name_that_no_interface_has_is_told_with_those_there_are() -> None:
    selected = select(ALL, Rules(allow=("nosuch", "eth?"), deny=("wlan9",)))
    assert used(selected) == ["eth0"]
    there = "(there are: eth0, wlan0, docker0, wg0, lo)"
    assert selected.misnamed(ALLOW) == f"no interface is called nosuch, as allow_interfaces has it {there}"
    assert selected.without({"eth0": "x"}).misnamed(DENY).startswith("no interface is called wlan9, as deny_interfaces")
    assert select(ALL, Rules(allow=("eth0",))).misnamed(ALLOW) == ""


def test_a_card_that_is_down_is_told_although_it_has_no_address_left() -> None:
    bare = Interface("eth9", 9, (), CARD, up=False)
    assert (bare.loopback, used(select((LO, bare))), select((LO, bare)).skipped) == (False, ["lo"], ())
    assert select((LO, bare)).unplugged
    assert not select((LO, bare, ETH)).unplugged
    assert not select((LO, DOCKER)).unplugged
    assert not select((LO,)).unplugged


def test_of_interfaces_without_an_address_only_cards_that_are_down_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = {"lan1": Device(up=False), "lan2": Device(up=True), "ifb0": Device(up=False), "x": Device(True, up=False)}
    monkeypatch.setattr(adapters.socket, "if_nameindex", lambda: list(enumerate(devices, 900)))
    assert {one.name for one in local_interfaces(lambda name, _: devices.get(name, UNKNOWN)) if not one.addresses} == {
        "lan1",
        "x",
    }


def test_containers_that_come_and_go_are_no_other_network_and_a_vpn_is_one() -> None:
    before = select((LO, ETH)).networks
    assert select((LO, ETH, interface("veth12", 9, "fe80::9/64"))).networks == before
    assert select((LO, ETH, WG)).networks != before


def test_a_bridge_stays_the_same_interface_whatever_is_connected_to_it() -> None:
    ports = (("eth0", CARD), ("tap1", TUNNEL))
    bridge = interface("br0", 6, "192.168.1.2/24", device=Device(bridge=True, ports=ports))
    assert bridge == interface("br0", 6, "192.168.1.2/24", device=Device(bridge=True, ports=ports[:1]))


@pytest.mark.parametrize(
    ("name", "device", "expected"),
    [
        ("eth0", TUNNEL, ""),  # a container's one way out, whatever it is made of
        ("enp3s0", UNKNOWN, ""),
        ("wlp2s0", UNKNOWN, ""),
        ("office", UNKNOWN, ""),
        ("office", TUNNEL, "a tunnel"),
        ("tun0", CARD, ""),
        ("br0", Device(bridge=True, ports=(("eth0", CARD), ("tap1", TUNNEL))), ""),  # a NAS, a host of machines
        ("br-lan", Device(bridge=True, ports=(("lan1", CARD),)), ""),  # a router
        ("vmbr1", Device(bridge=True, ports=(("tap0", TUNNEL), ("x", TUNNEL))), "a bridge of virtual interfaces alone"),
        ("br0", Device(bridge=True, ports=(("veth1", UNKNOWN),)), "a bridge of virtual interfaces alone"),
        ("br0", Device(bridge=True, ports=(("eth0", UNKNOWN),)), ""),  # in a container
        ("br-0123", Device(bridge=True, ports=(("veth1", UNKNOWN),)), "of a container network, by its name"),
        ("br0", Device(bridge=True), "a bridge that nothing is connected to"),
        ("virbr0", UNKNOWN, "of virtual machines, by its name"),
        ("utun3", UNKNOWN, "a tunnel, by its name"),
        ("ztabcdefgh", UNKNOWN, "a tunnel, by its name"),
        ("ppp0", UNKNOWN, "a tunnel, by its name"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_virtual(name: str, device: Device, expected: str) -> None:
    assert virtual(name, device) == expected


# --- what Linux tells


class Sysfs:
    """A /sys/class/net of one's own."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(self, name: str, *, index: int = 1, kind: str = "", below: tuple[str, ...] = (), **files: str) -> None:
        path = self.root / name
        path.mkdir()
        (path / "ifindex").write_text(f"{index}\n")
        (path / "uevent").write_text(f"{f'DEVTYPE={kind}' if kind else ''}\nINTERFACE={name}\n")
        for file, text in {"type": "1", **files}.items():
            (path / file).write_text(text)
        for each in below:
            (path / f"lower_{each}").mkdir()

    def look(self, name: str, index: int = 1) -> Device:
        return linux_device(name, index, self.root)


@pytest.fixture
def sysfs(tmp_path: Path) -> Sysfs:
    return Sysfs(tmp_path)


def test_cards_tunnels_and_bridges_are_told_apart(sysfs: Sysfs) -> None:
    sysfs.add("eth0", device="")
    sysfs.add("tap0", tun_flags="0x1002")
    sysfs.add("wg", type="65534", kind="wireguard")
    sysfs.add("br0", kind="bridge", below=("eth0", "tap0"))
    sysfs.add("veth1")
    assert [sysfs.look(name) for name in ("eth0", "tap0", "wg", "veth1")] == [CARD, TUNNEL, TUNNEL, UNKNOWN]
    assert sysfs.look("br0") == Device(bridge=True, ports=(("eth0", CARD), ("tap0", TUNNEL)))


@pytest.mark.parametrize(("state", "up"), [("up", True), ("unknown", True), ("lowerlayerdown", False), ("down", False)])
def test_a_cable_that_is_pulled_shows_although_the_addresses_stay(sysfs: Sysfs, state: str, up: bool) -> None:
    sysfs.add("eth0", operstate=state)
    seen = local_interfaces(lambda name, index: sysfs.look("eth0"))
    assert {one.up for one in seen} == {up}
    assert (seen == local_interfaces(lambda name, index: UNKNOWN)) == up


def test_a_card_is_found_behind_vlans_and_bonds_and_not_behind_a_vxlan(sysfs: Sysfs) -> None:
    sysfs.add("eth0", device="")
    sysfs.add("bond0", kind="bond", below=("eth0",))
    sysfs.add("bond0.7", kind="vlan", below=("bond0",))
    sysfs.add("flannel.1", kind="vxlan", below=("eth0",))
    assert sysfs.look("bond0.7") == CARD
    assert sysfs.look("flannel.1") == UNKNOWN


def test_interfaces_that_lie_on_each_other_in_a_circle_end(sysfs: Sysfs) -> None:
    sysfs.add("a", kind="vlan", below=("b",))
    sysfs.add("b", kind="vlan", below=("a",))
    assert sysfs.look("a") == UNKNOWN


def test_without_sysfs_or_with_that_of_another_namespace_nothing_is_known(sysfs: Sysfs) -> None:
    assert sysfs.look("eth0") == UNKNOWN
    sysfs.add("eth0", index=7, device="")
    assert sysfs.look("eth0", 2) == UNKNOWN
    shutil.rmtree(sysfs.root / "eth0")
    (sysfs.root / "eth0").mkdir()
    (sysfs.root / "eth0" / "ifindex").write_bytes(b"\xff")
    assert sysfs.look("eth0", 7) == UNKNOWN


def test_this_machine_has_loopback_and_uses_it_last() -> None:
    assert any(one.loopback for one in local_interfaces())
    assert all(one.loopback for one in loopback_selection().used)
    assert loopback_selection().used


def test_an_address_to_listen_on_names_its_interface_and_deny_still_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "local_interfaces", lambda: ALL)
    assert used(selection_at("::")) == ["eth0", "wlan0"]
    (found,) = selection_at("10.8.0.2", Rules(allow=("eth0",))).used
    assert (found.name, [str(one) for one in found.addresses]) == ("wg0", ["10.8.0.2/24"])
    assert selection_at("10.8.0.2", Rules(deny=("wg0",))).used == ()
    assert selection_at("127.0.0.1").used[0].name == "lo"
    assert selection_at("192.0.2.1") == Selection(())


@pytest.mark.parametrize(
    "fault",
    [
        OSError(24, "Too many open files"),
        UnicodeDecodeError("utf-8", b"br\xe9", 2, 3, "unexpected end of data"),
        AssertionError("sockaddr_to_ip returned None"),
    ],
    ids=["no-file", "name", "netmask"],
)
def test_a_machine_that_does_not_tell_of_its_interfaces_is_a_reason(
    fault: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise fault

    monkeypatch.setattr("ifaddr.get_adapters", fail)
    with pytest.raises(TransportError, match="does not tell of its network interfaces"):
        local_interfaces()
