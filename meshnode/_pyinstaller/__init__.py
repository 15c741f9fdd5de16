"""What PyInstaller has to know to freeze a program that embeds a node; it asks by the entry point `pyinstaller40`.

A hook is read where a program imports the module in its name, so one without the verbs or the dashboard stays without.
"""

from __future__ import annotations

from pathlib import Path


def get_hook_dirs() -> list[str]:
    """Where the hooks are."""
    return [str(Path(__file__).parent)]
