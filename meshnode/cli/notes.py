"""What help says of verbs besides their arguments: in which group each is, exit codes, files, variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "start here": ("demo", "init", "join", "up", "service", "status"),
    "rows and tables": ("table", "adopt", "release", "put", "get", "rm", "rows", "import", "watch", "conflicts"),
    "letting devices in": ("invite", "nearby", "pair", "members", "role", "vouch", "retire", "leave"),
    "the mesh as it is": ("peers", "discover", "sync-state", "wait", "frontier", "metrics", "notices", "dashboard"),
    "what crosses, and settings": ("policy", "config", "request-sync", "export-events", "import-events"),
    "when something is wrong": ("doctor", "check", "verify", "digest", "events", "bench", "conform"),
    "this device": ("identity", "forget", "evict", "rehydrate", "compact"),
    "about this program": ("help", "completion"),
}

EXITS: Final[Mapping[str, Mapping[int, str]]] = {
    "": {
        0: "it is done",
        1: "an error, a check that failed, or that what was named is not there",
        2: "a command line or a setting that cannot be used, or (wait) somebody is behind",
        3: "(doctor) something is to be looked at, (service status) the service does not run",
        4: "(service status) there is no service",
        130: "interrupted",
    },
    "check": {0: "rows, clocks and watermarks are what the log says", 1: "something differs, and is named"},
    "conform": {0: "every vector holds", 1: "a vector fails, or no runner knows a file"},
    "config check": {0: "the file can be used", 1: "it cannot"},
    "doctor": {0: "every check passes", 1: "a check fails", 3: "a check warns, and the node goes on"},
    "events": {0: "no fault", 1: "with --verify: an event is not what its author signed"},
    "get": {0: "there is such a row", 1: "there is none"},
    "import": {0: "every row was written", 1: "some were left out, one line of standard error each"},
    "import-events": {0: "everything was taken in", 1: "something was rejected, and comes again with the next bundle"},
    "rm": {0: "the row is deleted", 1: "there is no such row"},
    "service status": {
        0: "the service runs",
        3: "it is installed, and does not run",
        4: "it is not installed",
    },
    "up": {
        0: "it was told to stop",
        1: "the node cannot run, or another process holds its home",
        2: "a command line or a setting that cannot be used",
    },
    "verify": {
        0: "equal, or all that differs is explained",
        1: "a fault is left, or there is no such member or table, or the comparison was cut off",
        2: "no node runs, the member is not linked, or the command line cannot be used",
    },
    "wait": {0: "everybody has everything", 2: "somebody is behind at the end of the time"},
}

_HOME: Final = {
    "site.key": "the key that is this device",
    "recovery.key": "the key above every device; move it to a safe place",
    "config.toml": "settings",
    "meshnode.db": "tables and log, where `database` of config.toml names no other file",
    "control.sock": "through which verbs reach a node that runs",
}
FILES: Final[Mapping[str, Mapping[str, str]]] = {
    "": _HOME,
    "up": {name: _HOME[name] for name in ("site.key", "config.toml", "meshnode.db", "control.sock")},
    "init": {name: _HOME[name] for name in ("site.key", "recovery.key", "config.toml", "meshnode.db")},
    "config": {"config.toml": "in the node's home; a line for each setting"},
    "service": {
        "~/.config/systemd/user/meshnode.service": "the unit, of systemd; meshnode@….service for another home",
        "~/Library/LaunchAgents/meshnode.plist": "the agent, of launchd",
        "service.xml": "in the node's home: the task, of Windows",
    },
}
ENVIRONMENT: Final[Mapping[str, Mapping[str, str]]] = {
    "": {
        "MESHNODE_HOME": "the node's home, where --home is not said",
        "MESHNODE_DEBUG": "if set, a fault of the program itself shows where it is",
    },
    "up": {
        "MESHNODE_HOME": "the node's home, where --home is not said",
        "NOTIFY_SOCKET": "where a manager of services is told READY=1 and STOPPING=1 (sd_notify)",
    },
}
