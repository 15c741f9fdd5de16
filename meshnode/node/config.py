"""The node's settings: one frozen struct in which every one is documented, and what each may be."""

from __future__ import annotations

import difflib
import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_type_hints

import msgspec

from meshnode.errors import ConfigError, MeshError, ProtocolError
from meshnode.limits import LABEL_BYTES, LIVE_CONNECTIONS, SSID_BYTES, TRUSTED_SSIDS
from meshnode.model.policy import Policy
from meshnode.model.scope import Scope
from meshnode.net.wifi import WifiPolicy

PORT_MAX = 65535
REPLAY_BUDGET_DAYS = 90  # at most (NEOTH)
SHOWN_CHARACTERS = 60  # of a value that is refused
# What `policy` is about: what crosses, and on which networks this node shows itself.
WIFI_POLICY = (
    "announce_on_untrusted_wifi",
    "trusted_ssids",
    "announce_on_unknown_networks",
    "announce_on_wired_networks",
)
POLICY = ("scope", "replicate_raw_ingress", "replay_budget_days", *WIFI_POLICY)

PolicyName: TypeAlias = Literal[
    "scope",
    "replicate_raw_ingress",
    "replay_budget_days",
    "announce_on_untrusted_wifi",
    "trusted_ssids",
    "announce_on_unknown_networks",
    "announce_on_wired_networks",
]
"""The same for type checkers."""

PolicyValue: TypeAlias = bool | int | Sequence[str]


def _live(about: str) -> msgspec.Meta:
    """Of a setting that a running node takes over at once."""
    return msgspec.Meta(description=about, extra={"live": True})


def _at_start(about: str) -> msgspec.Meta:
    """Of one that takes a new start."""
    return msgspec.Meta(description=about, extra={"live": False})


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every setting with its default, and what it is: files, help and the README say it in these words."""

    name: Annotated[str, _at_start("what other people see this device called; the host's name where empty")] = ""
    port: Annotated[
        int, msgspec.Meta(ge=0, le=PORT_MAX), _at_start("UDP port; 0 is the one that was chosen for this node")
    ] = 0
    listen: Annotated[str, _at_start('address of this device to listen on; "::" is every interface, IPv4 too')] = "::"
    database: Annotated[
        str, _at_start("path of the SQLite file, from the home on; meshnode.db in the home where empty")
    ] = ""
    peers: Annotated[list[str], _live('addresses to dial without discovery, "host:port"')] = []
    mdns_enabled: Annotated[bool, _live("announce this node, and look for others, by mDNS")] = True  # NEOTH
    allow_interfaces: Annotated[
        list[str], _live("interfaces to be found and to look on, names or patterns; none: all real ones")
    ] = []
    deny_interfaces: Annotated[list[str], _live("interfaces never to use so; wins over allow_interfaces")] = []
    announce_on_untrusted_wifi: Annotated[  # NEOTH
        bool, _live("be found, and look, on every Wi-Fi; false: on trusted_ssids alone")
    ] = True
    trusted_ssids: Annotated[list[str], _live("names of your Wi-Fi networks, exactly as they are")] = []  # NEOTH
    announce_on_unknown_networks: Annotated[
        bool, _live("where not every network will do, on those whose name cannot be read")
    ] = False
    announce_on_wired_networks: Annotated[bool, _live("where not every network will do, on what is no Wi-Fi")] = True
    max_links: Annotated[
        int,
        msgspec.Meta(ge=1, le=LIVE_CONNECTIONS),
        _live("links at a time; from 2 on, members that can all reach each other stay one mesh"),
    ] = LIVE_CONNECTIONS
    metrics_port: Annotated[
        int, msgspec.Meta(ge=0, le=PORT_MAX), _at_start("TCP port on loopback where Prometheus may scrape; 0 is none")
    ] = 0
    dashboard_port: Annotated[
        int,
        msgspec.Meta(ge=0, le=PORT_MAX),
        _at_start("TCP port of the dashboard on loopback, once it was opened; 0 is the last one, else any free one"),
    ] = 0
    scope: Annotated[
        list[str], _live('tables to take part in, "schema.table" patterns; none is every one')
    ] = []  # profile §8
    replicate_raw_ingress: Annotated[bool, _live("whether tables of class raw cross the mesh")] = False  # NEOTH
    replay_budget_days: Annotated[
        int, _live("days that events of raw tables may be old and still cross, 1 to 90; 0 is without bound")
    ] = 0


@dataclass(frozen=True, slots=True)
class Setting:
    """What there is to know of one setting."""

    name: str
    default: Any
    live: bool  # whether a running node takes it over at once; else at its next start
    about: str
    takes: str  # what a value is, in words


def _settings() -> Iterator[Setting]:
    default = Config()
    for name, hint in get_type_hints(Config, include_extras=True).items():
        kind, *metas = get_args(hint)
        about = metas[-1]
        low, high = getattr(metas[0], "ge", None), getattr(metas[0], "le", None)
        takes = _KINDS.get(kind, _LIST) if low is None else f"a number from {low} to {high}"
        yield Setting(name, getattr(default, name), about.extra["live"], about.description, takes)


_KINDS = {str: "text in quotes", bool: "true or false", int: "a number"}
_LIST = 'a list of texts, such as ["a", "b"]'
SETTINGS: Mapping[str, Setting] = {setting.name: setting for setting in _settings()}


def setting_of(name: str) -> Setting:
    """The setting of this name; ConfigError that has the nearest one."""
    if name not in SETTINGS:
        raise ConfigError(no_such(name))
    return SETTINGS[name]


def no_such(name: str) -> str:
    """What to say of a name that is none of a setting."""
    near = difflib.get_close_matches(name, SETTINGS, n=1)
    hint = f", did you mean {near[0]!r}?" if near else f"; the settings are {', '.join(SETTINGS)}"
    return f"there is no setting {_shown(name)}{hint}"


def fault_of(name: str, value: Any) -> str | None:
    """Why a setting cannot be this, or is none at all; None where all is well."""
    if name not in SETTINGS:
        return no_such(name)
    try:
        config = msgspec.convert({name: value}, Config)
    except msgspec.ValidationError:
        return f"{name} is {SETTINGS[name].takes}, not {_shown(value)}"
    return next(_faults(config), None)  # those of the defaults are none


def with_overrides(config: Config, **overrides: Any) -> Config:
    """The settings with what the command line says instead; None leaves a setting as it is."""
    changed = {name: value for name, value in overrides.items() if value is not None}
    return checked(msgspec.structs.replace(config, **changed), "command line")


def with_settings(config: Config, values: Mapping[str, Any]) -> Config:
    """The settings with some changed; ConfigError for what they cannot be."""
    for name, value in values.items():
        fault = fault_of(name, value)
        if fault is not None:
            raise ConfigError(fault)
    return msgspec.structs.replace(config, **values)


def policy_of(config: Config) -> Policy:
    """What the settings say of what crosses."""
    return Policy(Scope(tuple(config.scope)), config.replicate_raw_ingress, config.replay_budget_days)


def wifi_policy_of(config: Config) -> WifiPolicy:
    """What the settings say of where this node may show itself."""
    return WifiPolicy(
        config.announce_on_untrusted_wifi,
        config.announce_on_unknown_networks,
        config.announce_on_wired_networks,
        frozenset(name.encode() for name in config.trusted_ssids),
    )


def checked(config: Config, source: str) -> Config:
    """Refuse what has the right type and yet cannot be: each with the source and the setting's name."""
    for fault in _faults(config):
        raise ConfigError(f"{source}: {fault}")
    return config


def _faults(config: Config) -> Iterator[str]:
    if len(config.name.encode("utf-8", "replace")) > LABEL_BYTES:
        yield f"name is longer than {LABEL_BYTES} bytes"
    for setting in ("port", "metrics_port", "dashboard_port"):
        if not 0 <= getattr(config, setting) <= PORT_MAX:
            yield f"{setting} is a number from 0 to {PORT_MAX}, not {getattr(config, setting)}"
    for setting, values in _texts(config):
        if any(not text.isprintable() for text in values):
            yield f"{setting} holds a character that cannot be shown"
        if setting.endswith("_interfaces") and "" in values:
            yield f"{setting} holds an empty name: an interface, or a pattern such as 'eth*'"
    if "\0" in config.database or not _is_text(config.database):
        yield "database holds a character that no path has"
    if not 1 <= config.max_links <= LIVE_CONNECTIONS:
        yield f"max_links is a number from 1 to {LIVE_CONNECTIONS}, not {config.max_links}"
    if not 0 <= config.replay_budget_days <= REPLAY_BUDGET_DAYS:
        yield f"replay_budget_days is 1 to {REPLAY_BUDGET_DAYS}, or 0 for no bound, not {config.replay_budget_days}"
    yield from _ssid_faults(config.trusted_ssids)
    for pattern in config.scope:
        if (fault := _pattern_fault(pattern)) is not None:
            yield f"scope: {_shown(pattern)} matches no table: {fault}, such as main.notes or !main.*"
    try:
        ipaddress.ip_address(config.listen)
    except ValueError:
        yield f"listen is an IP address of this device, not {_shown(config.listen)}"
    if config.peers:
        yield from _peer_faults(config.peers)


def _pattern_fault(pattern: str) -> str | None:
    """Why no table can be meant: its name and its schema's have no dot of their own."""
    if pattern.count(".") > 1:
        return "a scope pattern is schema.table, with one dot"
    try:
        Scope((pattern,))
    except ProtocolError as error:
        return str(error)
    return None


def _texts(config: Config) -> tuple[tuple[str, list[str]], ...]:
    """What the settings have of free text."""
    lists = ("peers", "allow_interfaces", "deny_interfaces", "scope")
    return (("name", [config.name]), ("listen", [config.listen]), *((name, getattr(config, name)) for name in lists))


def _peer_faults(peers: list[str]) -> Iterator[str]:
    from meshnode.net.addresses import parse_address  # of no use to verbs that only read

    for peer in peers:
        try:
            parse_address(peer)
        except MeshError as error:
            yield f"peers: {error}"


def _ssid_faults(ssids: list[str]) -> Iterator[str]:
    if len(ssids) > TRUSTED_SSIDS:
        yield f"trusted_ssids: at most {TRUSTED_SSIDS} names, not {len(ssids)}"
    for name in ssids:
        if not 1 <= len(name.encode("utf-8", "surrogatepass")) <= SSID_BYTES:
            yield f"trusted_ssids: the name of a Wi-Fi network has 1 to {SSID_BYTES} bytes, unlike {_shown(name)}"
        if not _is_text(name):
            yield f"trusted_ssids: {name!r} is no text"


def _is_text(text: str) -> bool:
    return not any(0xD800 <= ord(character) < 0xE000 for character in text)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
