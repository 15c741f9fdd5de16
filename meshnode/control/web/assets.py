"""The files that pages load: held in memory, named by a digest of what is in them, so that browsers keep them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from meshnode.codec.digest import blake3_256

_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
_KEPT: Final = {"Cache-Control": "public, max-age=31536000, immutable"}
_FOLDERS: Final = ("", "vendor")


@dataclass(frozen=True, slots=True)
class Asset:
    """One file."""

    url: str
    kind: str
    data: bytes


class Assets:
    """Every file of `static/`."""

    def __init__(self) -> None:
        root = files("meshnode.control.web").joinpath("static")
        found = [asset for folder in _FOLDERS for asset in _in(root, folder)]
        self._by_name = dict(found)
        self._by_url = {asset.url: asset for _, asset in found}

    def url(self, name: str) -> str:
        """Where a page loads it from."""
        return self._by_name[name].url

    async def serve(self, request: Request) -> Response:
        """The file of this very content; another one's is not here any more."""
        asset = self._by_url.get(request.url.path)
        if asset is None:
            return PlainTextResponse("there is no such file\n", 404)
        return Response(asset.data, media_type=asset.kind, headers=_KEPT)


def _in(root: Traversable, folder: str) -> list[tuple[str, Asset]]:
    found = []
    for file in (root.joinpath(folder) if folder else root).iterdir():
        kind = _TYPES.get(file.name.rpartition(".")[2])
        if kind is None or not file.is_file():
            continue
        name = f"{folder}/{file.name}" if folder else file.name
        data = file.read_bytes()
        found.append((name, Asset(f"/static/{blake3_256(data).hex()[:16]}/{name}", kind, data)))
    return found
