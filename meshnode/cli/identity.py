"""How this device keeps its keys, and which copy of a database this is.

`protect` puts the keys under a passphrase, or under another one; `unprotect` takes it off.

`export FILE` moves the device into one file under a passphrase: its keys, its settings and its database. From then on
this home writes and sends nothing. `import FILE`, in a home where no node lives, makes the device go on there. Until
then `resume` takes it back.

Where two copies ran as one device, or a database was copied or restored alone, a node offers nothing to others until
its owner chose. `resume`: this one is the device and goes on; what it lacks of its own events is asked of every peer.
`renew INVITE`: this one becomes another device of the same mesh, with a key of its own; its rows stay, and what it had
not delivered yet goes out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from meshnode.cli import connect
from meshnode.cli.globals import add_globals
from meshnode.cli.join import check_timeout, invite_text, tell
from meshnode.cli.output import print_one, printable
from meshnode.cli.passphrase import new_passphrase, read_descriptor
from meshnode.node.views import IdentityView, KeysView, MovedView


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    actions = parser.add_subparsers(
        dest="action", metavar="protect|unprotect|export|import|resume|renew", required=True
    )
    protect = actions.add_parser(
        "protect", description="Put the keys under a passphrase, or under another one; stop the node first."
    )
    protect.add_argument(
        "--keyring", action="store_true", help="let the system's keyring have it too, so that nobody is asked for it"
    )
    protect.add_argument(
        "--new-passphrase-fd",
        type=int,
        metavar="N",
        help="open descriptor on which the new passphrase is read (default: ask at the terminal)",
    )
    unprotect = actions.add_parser("unprotect", description="Take the passphrase off the keys; stop the node first.")
    leaving = actions.add_parser(
        "export", description="Move the device into a file, for `import` on another one; stop the node first."
    )
    leaving.add_argument("file", metavar="FILE", type=Path, help="the file to write, under a passphrase")
    coming = actions.add_parser("import", description="Make this the device that `export` put into a file.")
    coming.add_argument("file", metavar="FILE", type=Path, help="the file that `export` wrote")
    coming.add_argument("--encrypt", action="store_true", help="encrypt its database, where it is not yet")
    resume = actions.add_parser(
        "resume", description="Go on with this copy: it is the device, or the move of it did not happen."
    )
    renew = actions.add_parser(
        "renew", description="Become another device of the mesh, by an invite; stop the node first."
    )
    renew.add_argument("invite", metavar="INVITE", nargs="+", help="the invite, or `-` to read it from standard input")
    renew.add_argument(
        "--name", default="", help="what other people see this device called from now on (default: as before)"
    )
    renew.add_argument(
        "--timeout", type=float, default=60.0, metavar="S", help="seconds to look for the inviter (default: 60)"
    )
    for each in (protect, unprotect, leaving, coming, resume, renew):
        add_globals(each)


def run(options: argparse.Namespace) -> int:
    """Do it, and say what is so now."""
    action = {
        "protect": _protect,
        "unprotect": _unprotect,
        "export": _export,
        "import": _import,
        "resume": _resume,
        "renew": _renew,
    }[options.action]
    done, says = action(options)
    if options.output in ("json", "jsonl"):
        print_one(done, options.output)
    else:
        print(says)
    return 0


def _protect(options: argparse.Namespace) -> tuple[KeysView, str]:
    keys = connect.run(_protected(options))
    kept = ", which the keyring of this system keeps for you" if keys.keyring else ""
    return keys, f"Under the passphrase now{kept}: {', '.join(keys.files)}."


async def _protected(options: argparse.Namespace) -> KeysView:
    from meshnode.node.keyfile import is_protected
    from meshnode.node.protecting import protect

    async with connect.resting(options, "identity protect") as home:
        number, flag = options.new_passphrase_fd, "--new-passphrase-fd"
        if number is None and not is_protected(home.site_key_path):
            number, flag = options.passphrase_fd, "--passphrase-fd"  # there is no other that it could be
        home.site_key()  # the present passphrase is asked for before the new one
        passphrase = new_passphrase() if number is None else read_descriptor(number, flag)
        return protect(home, passphrase, keyring=options.keyring)


def _unprotect(options: argparse.Namespace) -> tuple[KeysView, str]:
    keys = connect.run(_unprotected(options))
    return keys, f"Under no passphrase now, readable by this account alone: {', '.join(keys.files)}."


async def _unprotected(options: argparse.Namespace) -> KeysView:
    from meshnode.node.protecting import unprotect

    async with connect.resting(options, "identity unprotect") as home:
        return unprotect(home)


def _export(options: argparse.Namespace) -> tuple[MovedView, str]:
    moved = connect.run(_exported(options))
    return moved, (
        f"{printable(moved.name)!r} (site {moved.short}) is in {moved.file} now, and this home writes and sends "
        "nothing any more.\nOn the new device: `meshnode identity import FILE`, then `meshnode up`. Until that has "
        "run, `meshnode identity resume` takes the device back."
    )


async def _exported(options: argparse.Namespace) -> MovedView:
    from meshnode.node.keyfile import is_protected
    from meshnode.node.moving import export_device

    async with connect.resting(options, "identity export") as home:
        if is_protected(home.site_key_path):
            return export_device(home, options.file, None)
        number = options.passphrase_fd
        passphrase = new_passphrase() if number is None else read_descriptor(number, "--passphrase-fd")
        return export_device(home, options.file, passphrase)


def _import(options: argparse.Namespace) -> tuple[MovedView, str]:
    moved = connect.run(_imported(options))
    return moved, (
        f"This device is {printable(moved.name)!r} now, site {moved.short}, in {moved.home}.\n"
        f"Next: `meshnode up` runs the node. Then remove {moved.file}: who opens it is this device too."
    )


async def _imported(options: argparse.Namespace) -> MovedView:
    from meshnode.node.moving import import_device

    async with connect.new_home(options, "identity import") as home:
        return import_device(home, options.file)


def _resume(options: argparse.Namespace) -> tuple[IdentityView, str]:
    identity = connect.run(_resumed(options))
    says = f"This copy goes on as {printable(identity.name)!r} (site {identity.short})."
    return identity, says + (f" It asks {identity.asked} other devices for its own events." if identity.asked else "")


async def _resumed(options: argparse.Namespace) -> IdentityView:
    async with connect.writing(options, "identity resume", taking_back=True) as operations:
        return await operations.resume()


def _renew(options: argparse.Namespace) -> tuple[IdentityView, str]:
    check_timeout(options)
    identity = connect.run(_renewed(options, invite_text(options)[0]))
    says = f"This copy is another device now: {printable(identity.name)!r}, site {identity.short}."
    if identity.former:
        says += (
            f"\nOthers wait for the one that it was, {identity.former[:8]}: where no other copy goes on as that, "
            f"`meshnode retire {identity.former[:8]}` ends it."
        )
    return identity, says


async def _renewed(options: argparse.Namespace, invite: str) -> IdentityView:
    from meshnode.node.identity import renew

    async with connect.resting(options, "identity renew") as home:
        return await renew(home, invite, name=options.name, timeout_s=options.timeout, tell=tell)
