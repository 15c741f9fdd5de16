"""Show, change and check the settings of this node, which are the lines of its config.toml.

A change is written whole or not at all, and is in force at once where the setting is a live one, in a running node too;
so is what is saved to the file in any other way. The others wait for the next start, and are named until then.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from meshnode.cli import connect
from meshnode.cli.globals import add_globals
from meshnode.cli.output import cell, print_one, print_summed, print_table, printable
from meshnode.errors import ConfigError, unreadable_file
from meshnode.limits import CONFIG_BYTES
from meshnode.node.config import SETTINGS, Config, fault_of, setting_of
from meshnode.node.configtext import about_text, faults_in, parsed_values, said_in, value_text
from meshnode.node.configviews import ConfigCheck, ConfigReceipt, ConfigView, FaultView, SettingView

if TYPE_CHECKING:
    from meshnode.node.api import Operations
    from meshnode.node.configuring import Configuring
    from meshnode.node.home import Home

INVALID = 1
CONFIRMS = 3  # times that a change is looked for in the running node: others may change the file at the same time
_COLUMNS = ("setting", "value", "default", "source", "in force")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    actions = parser.add_subparsers(dest="action", metavar="show|set|apply|check", required=True)
    show = _action(actions, "show", "Show every setting, or one: what is in force, and where that comes from.")
    show.add_argument("key", nargs="?", metavar="KEY", help="this setting alone (default: all)")
    change = _action(
        actions,
        "set",
        "Change settings, all that are named or none. A list is one word of JSON or TOML, or several.",
    )
    change.add_argument("words", nargs="+", metavar="KEY VALUE", help="a setting and what it is to be, in pairs")
    apply = _action(
        actions,
        "apply",
        "Put FILE in place of config.toml, with its comments: what it does not name is a default again.",
    )
    apply.add_argument("file", metavar="FILE", help="the new file, or `-` for standard input")
    check = _action(actions, "check", "Say whether a file can be used, and all that is wrong with it, with lines.")
    check.add_argument(
        "file", nargs="?", metavar="FILE", help="the file, or `-` for standard input (default: the node's config.toml)"
    )


def _action(actions: Any, name: str, does: str) -> argparse.ArgumentParser:
    said = "\n".join(
        f"  {each.name} = {value_text(each.default)}\n      {about_text(each.name)}" for each in SETTINGS.values()
    )
    parser: argparse.ArgumentParser = actions.add_parser(
        name,
        description=does,
        epilog=f"settings, with their defaults:\n{said}",
        allow_abbrev=False,
    )
    add_globals(parser)
    return parser


def run(options: argparse.Namespace) -> int:
    """Show, change or check."""
    if options.action == "show":
        return _show(options)
    if options.action == "check":
        return _check(options)
    if options.action == "set":
        values = parsed_values(options.words)
        for name, value in values.items():
            fault = fault_of(name, value)
            if fault is not None:
                raise ConfigError(fault)
        receipt = connect.run(_set(options, values))
    else:
        text, source = _text(options.file)
        said_in(text, source)
        receipt = connect.run(_apply(options, text))
    _print_receipt(receipt, options.output)
    _warn_of_no_database(options, receipt)
    return 0


def _warn_of_no_database(options: argparse.Namespace, receipt: ConfigReceipt) -> None:
    """The next start would find nothing there, and take it for lost."""
    if "database" not in receipt.changed:
        return
    from meshnode.node.home import Home

    each = receipt.changed["database"]
    path = Home(connect.home_path(options), Config(database=each.after)).database_path
    if not path.exists():
        back = f"`meshnode config set database {shlex.quote(each.before)}`"
        what = f"there is no {path}: with the node stopped move the database there, or {back} takes it back"
        print(printable(f"meshnode: {what}; the node does not start until then"), file=sys.stderr)


# --- show


def _show(options: argparse.Namespace) -> int:
    if options.key is not None:
        setting_of(options.key)
    view = connect.run(_view(options))
    if options.key is not None:
        (one,) = (each for each in view.settings if each.setting == options.key)
        print_one(one, options.output)
    elif options.output in ("json", "jsonl"):
        print_summed(view, "settings", options.output)
    else:
        print_table([_line(each) for each in view.settings], _COLUMNS)
        for each in view.settings:
            if each.pending is not msgspec.UNSET:
                print(f"{each.setting} will be {cell(_shown(each.pending))} at the next start of the node")
    return 0


async def _view(options: argparse.Namespace) -> ConfigView:
    async with connect.configuring(options, None) as (home, node):
        return await (node or _alone(home)).config()


def _alone(home: Home) -> Configuring:
    """The settings of a node that does not run."""
    from meshnode.node.configuring import Configuring

    return Configuring(home, None)


def _line(each: SettingView) -> dict[str, Any]:
    said = {name: _shown(getattr(each, name)) for name in ("setting", "value", "default", "source")}
    return {**said, "in force": "at once" if each.applies == "live" else "next start"}


def _shown(value: Any) -> Any:
    return value_text(value) if isinstance(value, list) else value


# --- set, apply


async def _set(options: argparse.Namespace, values: Mapping[str, Any]) -> ConfigReceipt:
    async with connect.configuring(options, "config set") as (home, node):
        if node is None:
            return await _alone(home).set_config(values)
        return await _confirmed(home, node, await node.set_config(values), values)


async def _apply(options: argparse.Namespace, text: str) -> ConfigReceipt:
    wanted = {name: getattr(said_in(text).config, name) for name in SETTINGS}
    async with connect.configuring(options, "config apply") as (home, node):
        if node is None:
            return await _alone(home).apply_config(text)
        return await _confirmed(home, node, await node.apply_config(text), wanted)


async def _confirmed(home: Home, node: Operations, receipt: ConfigReceipt, wanted: Mapping[str, Any]) -> ConfigReceipt:
    """Believe that it is in force once the node names the digest that the file has here, under the same site.

    Others may have changed the file since: then their change is looked at as well.
    """
    from meshnode.node.configfile import load_config
    from meshnode.node.inforce import digest_of

    with suppress(ConfigError):  # somebody made the file one that cannot be used
        for _ in range(CONFIRMS):
            said, answer = load_config(home.config_path), await node.reload()
            if answer.site != receipt.site or any(getattr(said, name) != value for name, value in wanted.items()):
                break
            if answer.digest == digest_of(said):
                return msgspec.structs.replace(receipt, reloaded=True, restart_required=answer.restart_required)
    return msgspec.structs.replace(receipt, reloaded=False)


def _print_receipt(receipt: ConfigReceipt, output: str | None) -> None:
    if output in ("json", "jsonl"):
        print_one(receipt, output)
        return
    for name, each in receipt.changed.items():
        print(f"{name}: {cell(_shown(each.before))} -> {cell(_shown(each.after))}")
    if not receipt.changed:
        print("nothing changed: config.toml said so before")
    at_once = [name for name in receipt.changed if name not in (*receipt.restart_required, *receipt.overridden)]
    if receipt.reloaded and (at_once or not receipt.changed):
        what = ", ".join(at_once) if len(at_once) < len(receipt.changed) else "it"
        print(f"the running node ({receipt.site[:8]}) has taken {what} over")
    elif receipt.reloaded:
        print(f"the running node ({receipt.site[:8]}) has read the file, and goes on as it was started")
    elif receipt.site:
        print("the running node did not confirm it: see `meshnode config show`")
    if receipt.restart_required:
        print(f"at its next start: {', '.join(receipt.restart_required)}")
    kept = [name for name in receipt.overridden if name in receipt.changed]
    if kept:
        print(f"this run was started with another value of: {', '.join(kept)}")


# --- check


def _check(options: argparse.Namespace) -> int:
    text, source = _text(options.file or str(connect.home_path(options) / "config.toml"))
    faults = [FaultView(line=each.line, setting=each.setting, reason=each.reason) for each in faults_in(text)]
    if options.output in ("json", "jsonl"):
        print_one(ConfigCheck(file=source, valid=not faults, faults=tuple(faults)), options.output)
    elif faults:
        for each in faults:
            print(printable(f"{source}: line {each.line}: {each.reason}"))
    else:
        print(printable(f"{source} can be used"))
    return INVALID if faults else 0


def _text(file: str) -> tuple[str, str]:
    """A text that somebody named, and how to name it."""
    try:
        if file == "-":
            data = sys.stdin.buffer.read(CONFIG_BYTES + 1)
        else:
            with Path(file).open("rb") as opened:
                data = opened.read(CONFIG_BYTES + 1)
        if len(data) > CONFIG_BYTES:
            raise ConfigError(f"{file} has more than {CONFIG_BYTES} bytes: that is no configuration")
        return data.decode(), "standard input" if file == "-" else file
    except OSError as error:
        raise unreadable_file(file, error) from error
    except ValueError as error:
        raise ConfigError(f"cannot read {file}: {error}") from error
