"""How systemd and a C program of Windows read what a service's file says, written again from their manuals."""

from __future__ import annotations

import re


def systemd_words(line: str) -> list[str]:
    """The words of a line as systemd.syntax(7) says, character by character, with specifiers resolved as `%%`."""
    words: list[str] = []
    word: str | None = None
    quote = ""
    characters = iter(line)
    for character in characters:
        if character == "\\":
            escaped = next(characters)
            word = (word or "") + {"n": "\n", "t": "\t", "\\": "\\", '"': '"', "'": "'", "s": " "}[escaped]
        elif quote and character == quote:
            quote = ""
        elif not quote and character in "'\"":
            quote, word = character, word or ""
        elif not quote and character == " ":
            words += [] if word is None else [word]
            word = None
        else:
            word = (word or "") + character
    words += [] if word is None else [word]
    assert not quote
    assert not re.search("%(?!%)", "".join(words).replace("%%", "")), "a specifier"
    return [word.replace("%%", "%") for word in words]


def windows_words(line: str) -> list[str]:
    """CommandLineToArgvW, but for the program's own name: of slashes before a quote every second one counts."""
    words, at = [], 0
    while at < len(line):
        while at < len(line) and line[at] in " \t":
            at += 1
        if at == len(line):
            break
        word, inside = "", False
        while at < len(line) and (inside or line[at] not in " \t"):
            run = len(line[at:]) - len(line[at:].lstrip("\\"))
            if line[at + run : at + run + 1] == '"':
                word += "\\" * (run // 2) + ('"' if run % 2 else "")
                inside ^= run % 2 == 0
                at += run + 1
            elif run:
                word, at = word + "\\" * run, at + run
            else:
                word, at = word + line[at], at + 1
        words.append(word)
    return words


def line_of(text: bytes, name: str) -> str:
    (line,) = [line for line in text.decode().split("\n") if line.startswith(f"{name}=")]
    return line.partition("=")[2]
