"""Open the dashboard of the node that runs here: prints its address, and shows it in the browser.

The address works once and for a minute; the browser then stays known until the node stops, or for 12 hours after the
last look. Whoever sees the address first can use it, so the browser gets it in a file, never on a command line.
"""

from __future__ import annotations

import argparse
import html
import sys

from meshnode.cli import connect
from meshnode.cli.output import print_one
from meshnode.control.client import ControlClient
from meshnode.control.dashboardview import DashboardView, way_in
from meshnode.errors import NotFoundError
from meshnode.node.private import write_private


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--no-browser", action="store_true", help="print the address alone")


def run(options: argparse.Namespace) -> int:
    """Ask the node for a way in, and go there."""
    view = connect.run(_open(options))
    if options.output in ("json", "jsonl"):
        print_one(view, options.output)
    else:
        print(view.url, flush=True)
    if not options.no_browser:
        _browse(options, view)
    return 0


async def _open(options: argparse.Namespace) -> DashboardView:
    async with connect.configuring(options, None) as (_, running):
        if not isinstance(running, ControlClient):
            raise NotFoundError("no node runs here, and the dashboard is served by it: start it with `meshnode up`")
        try:
            return await running.open_dashboard()
        except NotFoundError as error:
            raise NotFoundError(
                "the node that runs here serves no dashboard, since it is of an older release, or part of a program: "
                "stop it, and start it with `meshnode up`"
            ) from error


def _browse(options: argparse.Namespace, view: DashboardView) -> None:
    import webbrowser

    page = way_in(connect.home_path(options).absolute())
    write_private(page, _page(view.url).encode())
    if not webbrowser.open(page.as_uri()):
        print("There is no browser to be opened here: use the address.", file=sys.stderr)


def _page(url: str) -> str:
    """Goes on to the dashboard by itself."""
    address = html.escape(url, quote=True)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>meshnode</title>'
        f'<meta name="referrer" content="no-referrer"><meta http-equiv="refresh" content="0;url={address}"></head>'
        f'<body><p><a href="{address}">Go on to the dashboard</a></p></body></html>\n'
    )
