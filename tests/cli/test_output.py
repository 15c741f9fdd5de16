"""What is printed cannot steer a terminal or turn a line around, whoever chose it."""

from __future__ import annotations

import json
import unicodedata

from meshnode.cli.output import json_line, printable

STEERING = [chr(each) for each in (*range(0x20), *range(0x7F, 0xA0), 0x061C, 0x200E, *range(0x2028, 0x202F), 0x2066)]


def test_neither_as_a_table_nor_as_json() -> None:
    for each in STEERING:
        assert each not in printable(each)
        assert each not in json_line({each: [each]})
        assert json.loads(json_line({each: [each]})) == {each: [each]}, "and JSON is read back as it was"
    kept = "é 日本 👩‍💻 \u0301"
    assert printable(kept) == kept
    assert json.loads(json_line(kept)) == kept
    assert all(unicodedata.category(each) in ("Cc", "Cf", "Zl", "Zp") for each in STEERING)
