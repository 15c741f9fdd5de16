"""The node's settings: one frozen struct, read from `config.toml`; a wrong name is answered with the nearest one."""

from __future__ import annotations

import difflib
import ipaddress
import tomllib
from pathlib import Path
from typing import Annotated, Any

import msgspec

from meshnode.errors import ConfigError, MeshError, ProtocolError
from meshnode.limits import LABEL_BYTES, LIVE_CONNECTIONS, SSID_BYTES, TRUSTED_SSIDS
from meshnode.model.policy import Policy
from meshnode.model.scope import Scope
from meshnode.net.wifi import WifiPolicy

PORT_MAX = 65535
REPLAY_BUDGET_DAYS = 90  # at most (NEOTH)
# What may change while the node runs: what crosses, and on which networks it shows itself.
WIFI_POLICY = (
    "announce_on_untrusted_wifi",
    "trusted_ssids",
    "announce_on_unknown_networks",
    "announce_on_wired_networks",
)
POLICY = ("scope", "replicate_raw_ingress", "replay_budget_days", *WIFI_POLICY)
Port = Annotated[int, msgspec.Meta(ge=0, le=PORT_MAX)]


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every setting with its default."""

    name: str = ""  # what other people see this device called; the host's name where empty
    port: Port = 0  # UDP port; 0 until one was chosen
    listen: str = "::"  # address to listen on; "::" is every interface, IPv4 too
    database: str = ""  # path of the SQLite file; meshnode.db in the home where empty
    peers: list[str] = []  # addresses to dial without discovery, "host:port"
    mdns_enabled: bool = True  # announce and browse by mDNS (NEOTH)
    allow_interfaces: list[str] = []  # interfaces to be found and to look on, names or patterns; none: all real ones
    deny_interfaces: list[str] = []  # interfaces never to use so; wins over allow_interfaces
    announce_on_untrusted_wifi: bool = True  # be found, and look, on every Wi-Fi (NEOTH); false: on trusted_ssids alone
    trusted_ssids: list[str] = []  # names of Wi-Fi networks, exactly as they are (NEOTH)
    announce_on_unknown_networks: bool = False  # where not every network will do, on those whose name cannot be read
    announce_on_wired_networks: bool = True  # on what is no Wi-Fi
    # Links at a time; from 2 on, members that can all reach each other stay one mesh.
    max_links: Annotated[int, msgspec.Meta(ge=1, le=LIVE_CONNECTIONS)] = LIVE_CONNECTIONS
    metrics_port: Port = 0  # TCP port on loopback where Prometheus may scrape; 0 is none
    scope: list[str] = []  # tables to take part in, "schema.table" patterns (profile §8); empty is all
    replicate_raw_ingress: bool = False  # whether tables of class raw cross (NEOTH)
    replay_budget_days: int = 0  # how old events of raw tables may be that cross, 1 to 90; 0 is without bound


def load_config(path: Path) -> Config:
    """Read a configuration file; one that does not exist is all defaults. ConfigError names file and setting."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Config()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    return parse_config(text, str(path))


def parse_config(text: str, source: str = "config.toml") -> Config:
    """TOML text to settings; raises ConfigError with the source's name and one clear reason."""
    try:
        raw = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{source}: not TOML: {error}") from error
    for setting in raw:
        if setting not in Config.__struct_fields__:
            raise ConfigError(f"{source}: there is no setting {setting!r}{_nearest(setting)}")
    try:
        config = msgspec.convert(raw, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source}: {error}") from error
    return _checked(config, source)


def with_overrides(config: Config, **overrides: Any) -> Config:
    """The settings with what the command line says instead; None leaves a setting as it is."""
    changed = {name: value for name, value in overrides.items() if value is not None}
    return _checked(msgspec.structs.replace(config, **changed), "command line")


def with_setting(config: Config, setting: str, value: Any) -> Config:
    """The settings with one changed; ConfigError for what it cannot be."""
    raw = {**{name: getattr(config, name) for name in Config.__struct_fields__}, setting: value}
    try:
        changed = msgspec.convert(raw, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{setting}: {error}") from error
    return _checked(changed, setting)


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


def changed_text(text: str, setting: str, config: Config) -> str:
    """A `config.toml` in which one setting's line says what `config` says; everything else stays as its owner wrote it.

    ConfigError where that cannot be done a line at a time.
    """
    fresh, lines = f"{setting} = {_toml(getattr(config, setting))}", text.splitlines()
    found = [at for at, line in enumerate(lines) if _names(line, setting)]
    set_at = [at for at in found if not lines[at].lstrip().startswith("#")]
    for at in (set_at or found)[:1]:
        lines[at] = fresh
    changed = "\n".join([*lines, *([] if found else [fresh])]) + "\n"
    try:
        said = getattr(parse_config(changed), setting)
    except ConfigError:
        said = None
    if said != getattr(config, setting):
        raise ConfigError(f"config.toml does not say {setting} in one line: change it there, then reload (SIGHUP)")
    return changed


def _names(line: str, setting: str) -> bool:
    name, equals, _ = line.lstrip("# \t").partition("=")
    return bool(equals) and name.strip() == setting


def config_text(config: Config) -> str:
    """A `config.toml` with every setting that differs from its default, the others as comments."""
    default = Config()
    lines = ["# Settings of this meshnode; a line that begins with # shows a default."]
    for setting in Config.__struct_fields__:
        value = getattr(config, setting)
        mark = "# " if value == getattr(default, setting) else ""
        lines.append(f"{mark}{setting} = {_toml(value)}")
    return "\n".join(lines) + "\n"


def _checked(config: Config, source: str) -> Config:
    """Refuse what has the right type and yet cannot be: each with the setting's name."""
    if len(config.name.encode("utf-8", "replace")) > LABEL_BYTES:
        raise ConfigError(f"{source}: name is longer than {LABEL_BYTES} bytes")
    for setting in ("port", "metrics_port"):
        if not 0 <= getattr(config, setting) <= PORT_MAX:
            raise ConfigError(f"{source}: {setting} is a number from 0 to {PORT_MAX}, not {getattr(config, setting)}")
    for setting, values in _texts(config):
        if any(not text.isprintable() for text in values):
            raise ConfigError(f"{source}: {setting} holds a character that cannot be shown")
        if setting.endswith("_interfaces") and "" in values:
            raise ConfigError(f"{source}: {setting} holds an empty name: an interface, or a pattern such as 'eth*'")
    if not 1 <= config.max_links <= LIVE_CONNECTIONS:
        raise ConfigError(f"{source}: max_links is 1 to {LIVE_CONNECTIONS}")
    if not 0 <= config.replay_budget_days <= REPLAY_BUDGET_DAYS:
        raise ConfigError(f"{source}: replay_budget_days is 1 to {REPLAY_BUDGET_DAYS}, or 0 for no bound")
    _check_ssids(config.trusted_ssids, source)
    try:
        Scope(tuple(config.scope))
    except ProtocolError as error:
        raise ConfigError(f"{source}: {'' if source == 'scope' else 'scope: '}{error}, such as main.notes") from error
    try:
        ipaddress.ip_address(config.listen)
    except ValueError as error:
        raise ConfigError(f"{source}: listen is an IP address of this device, not {config.listen!r}") from error
    if config.peers:
        _check_peers(config.peers, source)
    return config


def _texts(config: Config) -> tuple[tuple[str, list[str]], ...]:
    """What the settings have of free text."""
    lists = ("peers", "allow_interfaces", "deny_interfaces")
    return (("name", [config.name]), ("listen", [config.listen]), *((name, getattr(config, name)) for name in lists))


def _check_peers(peers: list[str], source: str) -> None:
    from meshnode.net.addresses import parse_address  # of no use to verbs that only read

    for peer in peers:
        try:
            parse_address(peer)
        except MeshError as error:
            raise ConfigError(f"{source}: peers: {error}") from error


def _check_ssids(ssids: list[str], source: str) -> None:
    head = source if source == "trusted_ssids" else f"{source}: trusted_ssids"
    if len(ssids) > TRUSTED_SSIDS:
        raise ConfigError(f"{head}: at most {TRUSTED_SSIDS} names, not {len(ssids)}")
    for name in ssids:
        if not 1 <= len(name.encode("utf-8", "surrogatepass")) <= SSID_BYTES:
            raise ConfigError(f"{head}: the name of a Wi-Fi network has 1 to {SSID_BYTES} bytes, unlike {name!r}")
        if any(0xD800 <= ord(character) < 0xE000 for character in name):
            raise ConfigError(f"{head}: {name!r} is no text")


def _nearest(setting: str) -> str:
    near = difflib.get_close_matches(setting, Config.__struct_fields__, n=1)
    known = ", ".join(Config.__struct_fields__)
    return f", did you mean {near[0]!r}?" if near else f"; the settings are {known}"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, str):
        return '"' + "".join(_toml_character(character) for character in value) + '"'
    return str(value)


def _toml_character(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    return character if character.isprintable() else f"\\U{ord(character):08x}"
