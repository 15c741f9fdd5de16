"""Where a node lives unless told otherwise: what completing a word needs to know, and imports nothing for."""

from __future__ import annotations

import os
from pathlib import Path

HOME_VARIABLE = "MESHNODE_HOME"
DATABASE = "meshnode.db"


def default_home() -> Path:
    """`MESHNODE_HOME`, else the platform's data folder."""
    told = os.environ.get(HOME_VARIABLE)
    return Path(told).expanduser().absolute() if told else platform_home()


def platform_home() -> Path:
    """The platform's data folder, whatever the environment says of a home."""
    import platformdirs  # only when nobody named a home: it is on every verb's start-up path

    return platformdirs.user_data_path("meshnode", appauthor=False)
