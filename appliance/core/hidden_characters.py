"""Characters that people do not see, in which a text can hide words or seem to be another one."""

import re

# Characters without a shape of their own, in which a text can hide words: controls but tab and line feed, soft hyphen,
# fillers, the empty Braille pattern, zero-width and directional characters, variation selectors but the one of emoji,
# surrogates, private use, tags (U+E0000 to U+E007F)
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\ue000-\uf8ff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff\U000f0000-\U0010ffff]"
)
# The joiners of emoji, Persian and Indic scripts have a meaning only between two characters outside of ASCII.
_LONE_JOINER = re.compile("(?<![^\x00-\x7f\u200c\u200d])[\u200c\u200d]+|[\u200c\u200d]+(?![^\x00-\x7f\u200c\u200d])")
_REPEATED_JOINERS = re.compile("[\u200c\u200d]{2,}")
_LINE_SEPARATORS = re.compile("\r\n?|[\u2028\u2029\x85]")


def clean_text(text: str) -> str:
    """Return a text without the characters that people do not see."""
    if text.isascii() and text.isprintable():
        return text
    text = _HIDDEN.sub("", _LINE_SEPARATORS.sub("\n", text))
    return _LONE_JOINER.sub("", _REPEATED_JOINERS.sub("", text))


def show_hidden(text: str) -> str:
    """Return a text with each hidden character replaced by its code point, such as `[U+202E]`.

    Carriage returns are removed.
    """
    if text.isascii() and text.isprintable():
        return text
    return _HIDDEN.sub(lambda match: "" if match[0] == "\r" else f"[U+{ord(match[0]):04X}]", text)
