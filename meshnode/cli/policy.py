"""Show or change what of this node may cross the mesh, and on which networks it shows itself.

What is set is written to config.toml and in force at once, in a running node too. The class of one table is changed by
`meshnode table class`.
"""

from __future__ import annotations

import argparse
from typing import Any, cast

from meshnode.cli import connect
from meshnode.cli.globals import add_globals
from meshnode.cli.output import print_one
from meshnode.errors import UsageError
from meshnode.node.config import Config, PolicyName
from meshnode.node.views import PolicyView

_SWITCH = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    actions = parser.add_subparsers(dest="action", metavar="show|set", required=True)
    show = actions.add_parser("show", description="Show the policy that is in force, and the classes of tables.")
    change = actions.add_parser(
        "set",
        description="Change one setting: scope PATTERN… (without one: everything), replicate_raw_ingress true|false, "
        "replay_budget_days 1 to 90 (0: no bound), announce_on_untrusted_wifi true|false, trusted_ssids NAME…, "
        "announce_on_unknown_networks true|false, announce_on_wired_networks true|false.",
    )
    change.add_argument("setting", metavar="KEY", help="the setting")
    change.add_argument("values", nargs="*", metavar="VALUE", help="what it is from now on; a list takes any number")
    for each in (show, change):
        add_globals(each)


def run(options: argparse.Namespace) -> int:
    """Show or change."""
    work = _show(options) if options.action == "show" else _set(options, parsed(options.setting, options.values))
    print_one(connect.run(work), options.output)
    return 0


def parsed(setting: str, values: list[str]) -> Any:
    """A value as it is written on a command line; UsageError where it is none of that setting."""
    default = getattr(Config(), setting, None)
    if isinstance(default, list):
        return values
    if len(values) != 1:
        raise UsageError(f"{setting} takes one value")
    if isinstance(default, bool):
        if values[0].lower() not in _SWITCH:
            raise UsageError(f"{setting} is true or false, not {values[0]!r}")
        return _SWITCH[values[0].lower()]
    return int(values[0]) if values[0].isascii() and values[0].isdigit() and len(values[0]) < 10 else values[0]


async def _show(options: argparse.Namespace) -> PolicyView:
    async with connect.reading(options) as operations:
        return await operations.policy()


async def _set(options: argparse.Namespace, value: Any) -> PolicyView:
    async with connect.writing(options, "policy set") as operations:
        return await operations.set_policy(cast(PolicyName, options.setting), value)
