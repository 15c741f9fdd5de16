"""Run the node in the foreground until it is told to stop; where no node lives yet, found a mesh first.

It says on standard error when it is up. Ctrl-C or SIGTERM ends it, SIGHUP has it read config.toml again. The options
stand for this run before what config.toml says. `meshnode service install` has the system run it instead.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import platform
import signal
import sys
from typing import TYPE_CHECKING

from meshnode.cli import connect
from meshnode.cli.init import founded_text
from meshnode.cli.logs import FORMATS, LEVELS, log_to_stderr
from meshnode.cli.notify import notify
from meshnode.control.client import ControlClient
from meshnode.errors import BusyError, MeshError
from meshnode.model.logevent import LogEvent, log_event
from meshnode.node.config import Config, with_overrides
from meshnode.node.home import Home
from meshnode.node.lock import busy_text, lock_or

if TYPE_CHECKING:
    from meshnode.node.node import Node

LOG = logging.getLogger("meshnode.up")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags: each stands for this run before what `config.toml` says."""
    parser.add_argument("--name", help="what other people see this device called (default: as the settings say)")
    parser.add_argument("--port", type=int, metavar="N", help="UDP port to listen on (default: as the settings say)")
    parser.add_argument("--listen", metavar="ADDRESS", help="address to listen on (default: every interface)")
    parser.add_argument("--peer", action="append", metavar="HOST:PORT", help="dial this address too (repeatable)")
    parser.add_argument("--no-mdns", action="store_true", help="neither announce nor browse on the local network")
    parser.add_argument(
        "--scope", action="append", metavar="PATTERN", help="pattern of tables to take part in (repeatable)"
    )
    parser.add_argument(
        "--log-format", choices=FORMATS, default="text", help="form of the log on standard error (default: text)"
    )
    parser.add_argument("--log-level", choices=LEVELS, default="info", help="the least that is logged (default: info)")
    parser.add_argument("--verbose", action="store_true", help="say more of what happens: --log-level debug")


def run(options: argparse.Namespace) -> int:
    """Run until SIGINT or SIGTERM."""
    log_to_stderr(level="debug" if options.verbose else options.log_level, form=options.log_format)
    connect.run(_up(options))
    return 0


async def _up(options: argparse.Namespace) -> None:
    hangup = _heed_hangup()  # before anything else: unheeded it ends the process
    home = connect.home_of(options)
    home.prepare()
    _config(home.config, options)  # what cannot be used is said before a mesh is founded
    found = await lock_or(home.lock_path, "up", lambda: ControlClient.connect(home))
    if isinstance(found, ControlClient):
        raise BusyError(busy_text(home.lock_path))
    if not home.founded:
        home.refuse_joining()
        await _found(home, options)
    home = home.reloaded()

    from meshnode.control.metrics_port import metrics_port
    from meshnode.control.server import ControlServer
    from meshnode.node.node import Node

    stop = asyncio.Event()
    _stop_on_signals(stop)
    config = _config(home.config, options)
    async with (
        Node(home, config=config, lock=found) as node,
        ControlServer(node, home, dashboard_port=config.dashboard_port),
        metrics_port(node, config.metrics_port),
    ):
        reloading = asyncio.create_task(_reload_on_hangup(node, hangup))
        status = await node.status()
        log_event(LOG, logging.INFO, LogEvent.NODE_UP, site=status.site, port=status.port)
        if options.log_format == "text":
            print(f"meshnode {status.short} is up on UDP port {status.port}; stop it with Ctrl-C", file=sys.stderr)
        notify("READY=1", os.environ)
        if status.retired:
            log_event(LOG, logging.WARNING, LogEvent.RETIRED, reason=status.warnings[0])
        stopped, closed = asyncio.ensure_future(stop.wait()), asyncio.ensure_future(node.wait_closed())
        done, _ = await asyncio.wait({stopped, closed}, return_when=asyncio.FIRST_COMPLETED)
        notify("STOPPING=1", os.environ)
        for task in (stopped, closed, reloading):
            task.cancel()
        if closed in done:
            closed.result()  # raises what ended the node


async def _found(home: Home, options: argparse.Namespace) -> None:
    from meshnode.node.founding import found

    view = await found(home, name=options.name or platform.node() or "meshnode")
    log_event(LOG, logging.INFO, LogEvent.FOUNDED, site=view.site, recovery_key=view.recovery_key)
    if options.log_format == "text":
        print(founded_text(view), file=sys.stderr)


def _config(config: Config, options: argparse.Namespace) -> Config:
    return with_overrides(
        config,
        name=options.name,
        port=options.port,
        listen=options.listen,
        peers=None if options.peer is None else [*config.peers, *options.peer],
        mdns_enabled=False if options.no_mdns else None,
        scope=options.scope,
    )


def _heed_hangup() -> asyncio.Event:
    """Set by SIGHUP, from now on."""
    asked = asyncio.Event()
    hangup = getattr(signal, "SIGHUP", None)  # absent on Windows
    if hangup is not None:
        asyncio.get_running_loop().add_signal_handler(hangup, asked.set)
    return asked


async def _reload_on_hangup(node: Node, asked: asyncio.Event) -> None:
    """SIGHUP: read `config.toml` again; what cannot be used as it stands changes nothing and is said."""
    while True:
        await asked.wait()
        asked.clear()
        await _reload(node)


async def _reload(node: Node) -> None:
    try:
        from meshnode.node.reloading import say_reloaded

        say_reloaded(await node.reload())
    except MeshError as error:
        log_event(LOG, logging.ERROR, LogEvent.CONFIG_REFUSED, reason=str(error))


def _stop_on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, stop.set)
        except NotImplementedError:  # Windows: Ctrl-C arrives as KeyboardInterrupt
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
