"""A key as words that can be read out and written down: five letters for each two bytes, with check bytes (profile §9).

The words alternate consonants and vowels, so they can be spoken in most languages; nothing in them means anything.
"""

from __future__ import annotations

from meshnode.codec.digest import blake3_256
from meshnode.errors import IdentityError

_CONSONANTS = "bdfghjklmnprstvz"
_VOWELS = "aiou"
_CHECK_BYTES = 2
_SEED_BYTES = 32
_WORDS = (_SEED_BYTES + _CHECK_BYTES) // 2


def words_of(seed: bytes) -> list[str]:
    """The words of a key's seed; the last one is a check."""
    data = seed + blake3_256(seed)[:_CHECK_BYTES]
    return [_word(int.from_bytes(data[at : at + 2], "big")) for at in range(0, len(data), 2)]


def seed_of_words(text: str) -> bytes:
    """The seed behind words as a person types them; raises IdentityError that says which word is wrong."""
    words = text.lower().replace("-", " ").split()
    if len(words) != _WORDS:
        raise IdentityError(f"a key is {_WORDS} words, and these are {len(words)}")
    data = b"".join(_number(word, at).to_bytes(2, "big") for at, word in enumerate(words, 1))
    seed, check = data[:_SEED_BYTES], data[_SEED_BYTES:]
    if blake3_256(seed)[:_CHECK_BYTES] != check:
        raise IdentityError("the words do not fit together: one of them is another word, or two changed places")
    return seed


def _word(number: int) -> str:
    return (
        _CONSONANTS[number >> 12]
        + _VOWELS[number >> 10 & 3]
        + _CONSONANTS[number >> 6 & 15]
        + _VOWELS[number >> 4 & 3]
        + _CONSONANTS[number & 15]
    )


def _number(word: str, at: int) -> int:
    alphabets = (_CONSONANTS, _VOWELS, _CONSONANTS, _VOWELS, _CONSONANTS)
    if len(word) != len(alphabets):
        raise IdentityError(f"word {at} does not have {len(alphabets)} letters")
    number = 0
    for letter, alphabet in zip(word, alphabets, strict=True):
        place = alphabet.find(letter)
        if place < 0:
            raise IdentityError(f"word {at} has a letter in a place where it cannot be")
        number = number * len(alphabet) + place
    return number
