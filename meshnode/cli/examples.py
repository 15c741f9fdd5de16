"""Command lines for each verb, shown at the end of its help; a test reads each as the program would."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EXAMPLES: Final[Mapping[str, str | tuple[str, ...]]] = {
    "init": ("meshnode init --name desk", "meshnode init --passphrase --encrypt"),
    "up": ("meshnode up --port 4747", "meshnode up --log-format json --log-level warning"),
    "service": ("meshnode service install", "meshnode --home /srv/notes service status"),
    "service install": (
        "meshnode service install",
        "meshnode service install --log-level warning --no-start",
        "meshnode service install --print --manager launchd",
    ),
    "service remove": "meshnode service remove",
    "service status": "meshnode service status --output json",
    "invite": (
        "meshnode invite --wait",
        "meshnode invite --confirm --minutes 60",
        "meshnode invite approve phone",
        "meshnode invite list",
    ),
    "join": "meshnode join - --name lap < invite.txt",
    "nearby": ("meshnode nearby --open", "meshnode nearby --seconds 10"),
    "pair": ("meshnode pair desk --name phone", "meshnode pair 192.168.1.7:50123"),
    "discover": "meshnode discover --seconds 10 --output json",
    "table": ("meshnode table add notes --key id:TEXT --column title:TEXT", "meshnode table list"),
    "table add": (
        "meshnode table add notes --key id:TEXT --column title:TEXT",
        "meshnode table add readings --class raw",
    ),
    "table list": "meshnode table list --output json",
    "table class": "meshnode table class drafts private",
    "adopt": "meshnode adopt APP.db --table notes",
    "release": "meshnode release APP.db",
    "policy": "meshnode policy set scope main.notes main.tasks",
    "policy show": "meshnode policy show",
    "policy set": ("meshnode policy set scope main.notes main.tasks", "meshnode policy set replay_budget_days 30"),
    "config": "meshnode config set replay_budget_days 30 peers '[\"nas.local:4747\"]'",
    "config show": "meshnode config show replay_budget_days",
    "config set": "meshnode config set replay_budget_days 30 peers '[\"nas.local:4747\"]'",
    "config apply": "meshnode config apply /etc/meshnode/config.toml",
    "config check": "meshnode config check new.toml",
    "put": ("meshnode put notes id=n1 title=Milk done:=0", "meshnode put notes id=n1 title:=null"),
    "get": ("meshnode get notes id=n1 --output json", "meshnode get notes id=n1 --explain"),
    "rm": "meshnode rm notes id=n1",
    "rows": "meshnode rows notes --output jsonl",
    "evict": "meshnode evict notes --before 2026-01-01",
    "rehydrate": "meshnode rehydrate notes",
    "compact": "meshnode compact notes",
    "forget": ("meshnode forget notes id=n1", "meshnode forget notes id=n1 --undo"),
    "import": ("meshnode import notes rows.csv", "meshnode import notes - --format jsonl < rows.jsonl"),
    "conflicts": "meshnode conflicts --table notes --all",
    "conflicts resolve": "meshnode conflicts resolve 1f2e3d4c --prefer lap",
    "conflicts acknowledge": "meshnode conflicts acknowledge 1f2e3d4c",
    "watch": "meshnode watch notes --since 0",
    "events": "meshnode events --table notes --since 2026-11-30 --verify",
    "export-events": "meshnode export-events lap.bundle --for lap",
    "import-events": "meshnode import-events lap.bundle",
    "notices": ("meshnode notices --follow", "meshnode notices acknowledge 3 5"),
    "peers": "meshnode peers --output json",
    "members": "meshnode members",
    "vouch": "meshnode vouch 9f0c --name phone",
    "role": ("meshnode role lap authority", "meshnode role lap reader --recovery recovery.key"),
    "retire": ("meshnode retire phone", "meshnode retire phone --at 2026-11-30T17:00"),
    "leave": "meshnode leave --yes",
    "status": "meshnode status --output json",
    "dashboard": "meshnode dashboard --no-browser",
    "doctor": "meshnode doctor database disk",
    "metrics": "meshnode metrics --output table",
    "sync-state": "meshnode sync-state --peer lap",
    "frontier": "meshnode frontier --peer lap",
    "request-sync": "meshnode request-sync lap --table notes",
    "verify": ("meshnode verify lap --table notes", "meshnode verify lap --repair"),
    "identity": ("meshnode identity protect --keyring", "meshnode identity export moved.key"),
    "identity protect": "meshnode identity protect --keyring",
    "identity unprotect": "meshnode identity unprotect",
    "identity export": "meshnode identity export moved.key",
    "identity import": "meshnode identity import moved.key --encrypt",
    "identity resume": "meshnode identity resume",
    "identity renew": "meshnode identity renew - < invite.txt",
    "wait": "meshnode wait --all --timeout 30",
    "digest": "meshnode digest notes",
    "check": "meshnode check",
    "bench": ("meshnode bench", "meshnode bench --only apply --only catch-up --json"),
    "conform": "meshnode conform tests/vectors",
    "demo": ("meshnode demo", "meshnode demo --keep homes"),
    "help": ("meshnode help table add", "meshnode help --man ~/.local/share/man/man1"),
    "completion": (
        "meshnode completion bash > ~/.local/share/bash-completion/completions/meshnode",
        "meshnode completion fish > ~/.config/fish/completions/meshnode.fish",
    ),
}
"""Of each command line that one follows; `verb`, or `verb sub-verb`."""


def examples_of(command: str) -> tuple[str, ...]:
    """Those of one command; none where it has none."""
    told = EXAMPLES.get(command, ())
    return (told,) if isinstance(told, str) else told
