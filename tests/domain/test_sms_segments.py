"""Segments of an SMS, counted as mobile networks do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.sending.sms.segments import character_name, count_segments, replace_typography

BASIC = (
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿"
    "abcdefghijklmnopqrstuvwxyzäöñüà"
)
EXTENSION = "\f^{}\\[~]|€"

VECTORS = [
    ("", 0, None),
    ("a", 1, None),
    ("a" * 160, 1, None),
    ("a" * 161, 2, None),
    ("a" * 306, 2, None),
    ("a" * 307, 3, None),
    ("a" * 1530, 10, None),
    ("a" * 1531, 11, None),
    ("a" * 158 + "€", 1, None),
    ("a" * 159 + "€", 2, None),
    ("a" * 152 + "€" + "b" * 152, 3, None),  # the euro sign does not fit at the end of the first part
    ("a" * 152 + "€" + "b" * 151, 2, None),
    ("a" * 151 + "€" + "b" * 153, 2, None),
    ("€" * 80, 1, None),
    ("€" * 81, 2, None),
    ("€" * 152, 2, None),  # 76 a part: one unit of each stays empty
    ("€" * 153, 3, None),
    ("^{}\\[~]|€\f", 1, None),
    (BASIC, 1, None),
    ("Ж" * 70, 1, "Ж"),
    ("Ж" * 71, 2, "Ж"),
    ("Ж" * 134, 2, "Ж"),
    ("Ж" * 135, 3, "Ж"),
    ("😀" * 35, 1, "😀"),
    ("😀" * 36, 2, "😀"),
    ("😀" * 66, 2, "😀"),  # 33 a part: a pair of surrogates is never split
    ("😀" * 67, 3, "😀"),
    ("Garçon", 1, "ç"),
    ("GARÇON", 1, None),
    ("Fifty % off “now”", 1, "“"),
]


def _count_one_by_one(text: str) -> tuple[int, str | None]:
    """Count the parts character by character, and return them with the first character that forces UCS-2."""
    forcing = next((character for character in text if character not in BASIC + EXTENSION), None)
    if forcing is None:
        sizes = [2 if character in EXTENSION else 1 for character in text]
    else:
        sizes = [len(character.encode("utf-16-le")) // 2 for character in text]
    single, each = (160, 153) if forcing is None else (70, 67)
    if sum(sizes) <= single:
        return (1 if text else 0), forcing
    parts, used = 1, 0
    for size in sizes:
        if used + size > each:
            parts, used = parts + 1, 0
        used += size
    return parts, forcing


@pytest.mark.parametrize(("text", "parts", "forcing"), VECTORS)
def test_count_segments(text: str, parts: int, forcing: str | None) -> None:
    """Parts, alphabet and the character that forces UCS-2 follow GSM 03.38."""
    counted = count_segments(text)
    assert (counted.parts, counted.forcing_character) == (parts, forcing)
    assert counted.alphabet == ("GSM-7" if forcing is None else "UCS-2")
    assert counted.characters == len(text)


@given(st.text(st.sampled_from(BASIC + EXTENSION * 4), max_size=700))
def test_gsm_7_segments_match_a_simple_count(text: str) -> None:
    """Any GSM-7 text has as many segments as when counted character by character."""
    counted = count_segments(text)
    assert (counted.parts, counted.forcing_character) == _count_one_by_one(text)


@given(st.text(st.sampled_from("aé€Ж中😀𝒳\u200d"), max_size=400))
def test_ucs_2_segments_match_a_simple_count(text: str) -> None:
    """Any UCS-2 text has as many segments as when counted character by character, without split emoji."""
    counted = count_segments(text)
    assert (counted.parts, counted.forcing_character) == _count_one_by_one(text)


@given(st.text(st.sampled_from("ab€^😀Ж"), max_size=400))
def test_remaining_units_fit_in_the_last_segment(text: str) -> None:
    """`remaining_units` more letters keep the number of parts; one more adds a part."""
    counted = count_segments(text)
    if counted.parts:
        assert count_segments(text + "b" * counted.remaining_units).parts == counted.parts
        assert count_segments(text + "b" * (counted.remaining_units + 1)).parts == counted.parts + 1


@pytest.mark.parametrize(
    ("original", "expected"),
    [
        ("“Fifty” – it’s yours…", '"Fifty" - it\'s yours...'),
        ("e\u0301te\u0301\u00a0!", "été !"),
        ("zero\u200bwidth\u00adsoft\ttab", "zerowidthsoft tab"),
        ("as it is", "as it is"),
        ("Ж “stays” – as it is…", "Ж “stays” – as it is…"),
    ],
)
def test_replace_typography(original: str, expected: str) -> None:
    """Quotes, dashes, dots and special spaces are replaced if that avoids UCS-2, and only then."""
    assert replace_typography(original) == expected


def test_character_name() -> None:
    """A character is described by code point and Unicode name, if it has one."""
    assert character_name("“") == "U+201C LEFT DOUBLE QUOTATION MARK"
    assert character_name("\u200b") == "U+200B ZERO WIDTH SPACE"
    assert character_name("\x85") == "U+0085"
