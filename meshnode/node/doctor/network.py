"""The network of this device: its interfaces, the UDP port, mDNS, and whether a node runs at all (profile §7, §11)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from meshnode.limits import DATAGRAM_BYTES
from meshnode.net.interfaces import ALLOW, DENY
from meshnode.node.doctor.findings import NAMED, failed, listed, passed, warned
from meshnode.node.doctorviews import FindingView

IPV6_MTU = 1280  # bytes of a packet that every link of IPv6 takes (RFC 8200 §5)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Whether a node runs in the home, and who else holds it."""

    running: bool
    pid: int | None = None
    software: str = ""
    unanswered: str = ""  # why one that should answer does not
    holder_pid: int | None = None  # of a process that lives and says that it holds the home
    holder: str = ""  # what that is


def judge_node(facts: NodeFacts) -> list[FindingView]:
    """Nothing is sent or received unless one runs."""
    if facts.running:
        return passed("node", f"runs as process {facts.pid}, {facts.software}")
    if facts.unanswered:
        todo = "what follows was read beside it; where it stays so, stop that process and run `meshnode up`"
        return [failed("node", facts.unanswered, todo)]
    if facts.holder_pid is not None:
        found = f"process {facts.holder_pid} ({facts.holder}) holds the home, and has no control socket to ask it by"
        return passed("node", found)
    return [warned("node", "no node runs here: nothing is sent or received", "start it with `meshnode up`")]


@dataclass(frozen=True, slots=True)
class InterfaceFacts:
    """One interface, and whether others can be found on it."""

    name: str
    reason: str = ""  # why it is not used, empty where it is
    refused: str = ""  # why multicast does not work on one that is
    mtu: int | None = None
    loopback: bool = False
    up: bool = True


@dataclass(frozen=True, slots=True)
class InterfacesFacts:
    """All of them."""

    every: tuple[InterfaceFacts, ...]
    private: bool = False  # the settings let the node listen on this device alone


def judge_interfaces(facts: InterfacesFacts) -> list[FindingView]:
    """Which are used, which are not and why, and what is wrong with those that are."""
    used = [each for each in facts.every if not each.reason]
    skipped = [each for each in facts.every if each.reason]
    findings = [finding for each in used for finding in _used(each) or passed("interfaces", _told(each))]
    findings += [finding for each in skipped[:NAMED] for finding in passed("interfaces", _told(each))]
    if skipped[NAMED:]:
        findings += passed("interfaces", f"not used either: {listed([each.name for each in skipped[NAMED:]])}")
    if facts.private or not all(each.loopback for each in used):
        return findings
    todo = "join a network; where the one that should be used is among these, name it in `allow_interfaces`"
    denied = [each.name for each in skipped if DENY in each.reason]
    if denied:
        todo = f"take {listed(denied)} out of `{DENY}`, which wins over `{ALLOW}`; else join a network"
    return [*findings, warned("interfaces", "no network beyond this device can be announced on", todo)]


def _told(each: InterfaceFacts) -> str:
    use = f"not used ({each.reason})" if each.reason else "used, its loopback" if each.loopback else "used"
    multicast = "" if each.reason or each.refused else ", multicast works"
    return f"{each.name}: {use}{multicast}{'' if each.mtu is None else f', MTU {each.mtu}'}"


def _used(each: InterfaceFacts) -> list[FindingView]:
    return list(_amiss(each))


def _amiss(each: InterfaceFacts) -> Iterator[FindingView]:
    if each.refused:
        todo = "others are not found there: name their addresses in `peers`, or the interface in `deny_interfaces`"
        yield warned("interfaces", f"{_told(each)}, but multicast does not work: {each.refused}", todo)
    if each.mtu is not None and each.mtu < IPV6_MTU and not each.loopback:
        what = f"{each.name} takes packets of {each.mtu} bytes, less than the {IPV6_MTU} of IPv6"
        todo = f"raise its MTU: links need datagrams of {DATAGRAM_BYTES} bytes, and those do not pass"
        yield warned("interfaces", what, todo)
    if not each.up and not each.loopback:
        todo = "plug in its cable, or switch it on; nobody is found there until then"
        yield warned("interfaces", f"{each.name} has an address, and nothing at its other end", todo)


@dataclass(frozen=True, slots=True)
class PortFacts:
    """The UDP port of this node."""

    port: int  # what the home says, 0 where none was chosen
    listen: str = "::"
    running: bool = False
    bound: int | None = None  # by the node that runs
    online: bool = True
    error: str = ""  # why it cannot be bound, where no node runs
    taken: bool = False
    taken_by: str = ""  # which process has it, where that can be told
    by_holder: bool = False  # it is the one that holds the home
    foreign: tuple[tuple[str, int, str], ...] = ()  # setting, TCP port and who else has it


def judge_port(facts: PortFacts) -> list[FindingView]:
    """Whether others can reach this node where it says that it is, and this device's programs what it serves them."""
    served = {"metrics_port": "no metrics are served there", "dashboard_port": "the dashboard does not open"}
    others = [
        warned(
            "port",
            f"TCP port {port} (`{setting}`) is taken by {who}: {served[setting]}",
            f"stop that program, or `meshnode config set {setting} N`; then start the node anew",
        )
        for setting, port, who in facts.foreign
    ]
    return [*_udp_port(facts), *others]


def _udp_port(facts: PortFacts) -> list[FindingView]:
    if facts.running:
        return [*_bound(facts)]
    if not facts.port:
        return [warned("port", "no port was chosen yet", "the first `meshnode up` chooses one")]
    if facts.by_holder:
        return passed("port", f"UDP port {facts.port} is bound by the process that holds the home")
    if facts.taken:
        who = f" by {facts.taken_by}" if facts.taken_by else ""
        found = f"UDP port {facts.port} is taken{who}: a node that starts now listens on another until its next start"
        return [warned("port", found, _PORT_TAKEN)]
    if facts.error:
        todo = "set `listen` in config.toml to an address of this device, or leave it out"
        return [failed("port", f"UDP port {facts.port} at {facts.listen} cannot be bound: {facts.error}", todo)]
    return passed("port", f"UDP port {facts.port} is free; the node binds it when it runs")


_PORT_TAKEN = (
    "stop that program, or give this node another `port` in config.toml; members find it by mDNS meanwhile, those that "
    "only know its address do not"
)


def _bound(facts: PortFacts) -> list[FindingView]:
    if not facts.online:
        return passed("port", "not bound: this node is cut off on purpose")
    if facts.bound != facts.port and facts.port:
        found = f"UDP port {facts.port} was taken, so the node listens on {facts.bound} until its next start"
        return [warned("port", found, _PORT_TAKEN)]
    return passed("port", f"UDP port {facts.bound} is bound by the node")


@dataclass(frozen=True, slots=True)
class MdnsFacts:
    """How discovery is."""

    enabled: bool
    running: bool
    state: str = "on"  # of the node; where none runs, what it would meet


def judge_mdns(facts: MdnsFacts) -> list[FindingView]:
    """Whether others find this device by themselves."""
    if not facts.enabled:
        return passed("mdns", "off by `mdns_enabled = false`: only addresses that are known are dialed")
    if facts.state == "on":
        return passed("mdns", "announced and looking" if facts.running else "can be used once a node runs")
    if facts.state == "off":
        return passed("mdns", "off, since the node was told so: only addresses that are known are dialed")
    todo = "others are still dialed where their address is known: see `interfaces`, or name them in `peers`"
    return [warned("mdns", f"it does not work as it should: {facts.state}", todo)]
