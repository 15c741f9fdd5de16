"""The recovery key as its owner kept it: the file that founding made, or its words written into one (profile §9)."""

from __future__ import annotations

from pathlib import Path

from meshnode.errors import IdentityError
from meshnode.model.site import SiteKey
from meshnode.node.keyfile import read_key, text_in
from meshnode.node.passphrase import Passphrase
from meshnode.node.words import seed_of_words


def read_recovery(path: Path, passphrase: Passphrase) -> SiteKey:
    """Read it; IdentityError says what is wrong with the file or with the words, and shows none of them."""
    text = text_in(path)
    if text is None:
        return read_key(path, passphrase)
    try:
        return SiteKey.from_seed(seed_of_words(text))
    except IdentityError as error:
        raise IdentityError(f"{path} holds neither a recovery key nor its words: {error}") from error
