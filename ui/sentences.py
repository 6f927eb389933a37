"""How texts that also speak to programs are said to people: as sentences, without the names of settings."""

import re

# What the language of merge tags says of a fault, and how people say it
_MERGE_FAULTS = {
    "expected '}}'": "A merge tag is not closed: }} is missing", "missing expression": "A merge tag says nothing",
    "expected a primitive expression, found end of expression": "A merge tag says nothing",
}  # fmt: skip
# Names of settings and of standards in brackets, which say something to who writes a program
_NAMES = re.compile(r" \((?:[a-z]+[._][a-z_.]+(?: of the account)?(?:, [a-z]+[._][a-z_.]+)*|RFC \d+)\)")


def plain(text: str) -> str:
    """Leave out of a text what only who writes a program reads."""
    return _NAMES.sub("", text)


def sentence(text: str) -> str:
    """Write a text as a sentence: a capital first, a full stop last. A domain or an address keeps its letters."""
    text = plain(text.strip())
    for fault, said in _MERGE_FAULTS.items():
        text = text.replace(fault, said)
    is_name = "." in text.partition(" ")[0][:-1]
    return (text[:1] if is_name else text[:1].upper()) + text[1:] + ("" if text.endswith((".", "?", ")", ":")) else ".")


def inside(text: str) -> str:
    """Say words in the middle of a sentence; names in capitals stay as they are."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]
