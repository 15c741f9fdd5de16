"""The home: is it there, whose is it, who can get into it, and can its settings be read (profile §3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from meshnode.node.doctor.findings import failed, or_passed, passed, warned
from meshnode.node.doctorviews import FindingView

SEE_HOME = "the check `home` says who may read what, and what helps"
OTHERS = 0o077  # what a mode allows to group and others


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One file that is there, or a folder."""

    path: str
    mode: int
    owner: int
    readable: bool = True  # by whoever runs this
    key: bool = False


@dataclass(frozen=True, slots=True)
class HomeFacts:
    """A folder and what of the node lies in it."""

    path: str
    folder: FileFacts | None  # None where there is nothing of that name
    error: str = ""  # why nobody can look into it
    is_folder: bool = True
    founded: bool = True
    begun: str = ""  # `joining`, `import` or `founding`, where the home was never finished
    user: int = 0  # who runs this
    modes: bool = True  # whether this system has modes and owners
    files: tuple[FileFacts, ...] = ()


def judge_home(facts: HomeFacts) -> list[FindingView]:
    """Whether a node can live there, and nobody else can read its keys."""
    if facts.error:
        todo = "run meshnode as the user whose home it is, or choose another --home"
        return [failed("home", f"{facts.path} cannot be looked into: {facts.error}", todo)]
    if facts.folder is None:
        todo = "found a mesh with `meshnode init`, or become a member of one with `meshnode join INVITE`"
        return [failed("home", f"there is no node in {facts.path}", todo)]
    if not facts.is_folder:
        return [failed("home", f"{facts.path} is no folder", "choose another --home, or move that file away")]
    found = list(_access(facts))
    if facts.begun:
        found.append(failed("home", f"{facts.begun} was begun in {facts.path} and not finished", _GO_ON[facts.begun]))
    elif not facts.founded:
        todo = "`meshnode init` or `meshnode join INVITE` makes one; where one was there, restore it from a backup"
        found.append(failed("home", f"there is no node in {facts.path}", todo))
    return or_passed("home", found, f"{facts.path}, for its owner alone" if facts.modes else facts.path)


_GO_ON = {
    "joining": "go on with `meshnode join INVITE`, or found a mesh of its own with `meshnode init`",
    "import": "go on with `meshnode identity import FILE`",
    "founding": "go on with `meshnode init`",
}


def _access(facts: HomeFacts) -> Iterator[FindingView]:
    folder = facts.folder
    if folder is None or not facts.modes:
        return
    if folder.mode & OTHERS:
        yield failed(
            "home", f"the folder {folder.path} is open to others (mode {folder.mode:04o})", f"`chmod 700 {folder.path}`"
        )
    if folder.owner != facts.user:
        who = f"{folder.path} belongs to user {folder.owner}, and this runs as user {facts.user}"
        todo = "run meshnode as that user: what another one writes there it may not be able to read"
        if facts.user != 0:
            yield failed("home", who, todo)
            return  # what else it cannot read follows from that
        yield warned("home", who, todo)
    for file in facts.files:
        if file.owner != folder.owner:
            todo = f"`chown {folder.owner} {file.path}`"
            yield failed("home", f"{file.path} belongs to user {file.owner}, and the home to {folder.owner}", todo)
        elif not file.readable:
            yield failed("home", f"{file.path} cannot be read", f"`chmod 600 {file.path}`")
        if file.mode & OTHERS:
            what = f"{file.path} can be read by others (mode {file.mode:04o})"
            todo = f"`chmod 600 {file.path}`"
            if file.key:
                yield failed("home", what, f"{todo}, and think of who saw it: `meshnode retire` ends a stolen device")
            else:
                yield warned("home", what, todo)


@dataclass(frozen=True, slots=True)
class ConfigFacts:
    """The settings."""

    path: str
    there: bool = True
    error: str = ""
    closed: bool = False  # this user may not read it
    running: bool = False  # a node that read it once


def judge_config(facts: ConfigFacts) -> list[FindingView]:
    """Whether the settings can be read."""
    if facts.error:
        if facts.closed:
            return [failed("config", facts.error, SEE_HOME)]
        todo = (
            f"mend {facts.path}: `meshnode config check` names every line; do not remove it, it has the name and port"
        )
        return [failed("config", facts.error, todo)]
    if facts.there:
        return passed("config", f"{facts.path} can be read")
    now = "what the node was started with stays in force until its next start, and then" if facts.running else "so"
    found = f"{facts.path} is missing: {now} every setting is as by default, `port` and `name` too"
    return [warned("config", found, "restore it from a backup, or say them again: `meshnode config set SETTING VALUE`")]
