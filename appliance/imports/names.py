"""Split full names into first and last name.

The rules, in order:

- A comma separates the last name from the first: `Kühn, Grace`. A part that has only titles or degrees is neither:
  `Kurz, Max, MBA`.
- Titles and forms of address at the start (`Herr Prof. Dr. med.`) are neither first nor last name. A greeting with the
  first name must not say "Hello Dr.", and contacts are sorted, searched and compared by the last name. They are
  returned apart, so that nothing of the cell is lost.
- A single word after a title is a last name: `Frau Weiß`.
- A particle (`van der`, `de`) begins the last name. At the start of a name it does so only in lower case or before
  another particle, because `Van` and `Di` are also first names.
- Otherwise the first word, with the initials after it, is the first name. In Spanish and Portuguese the last name has
  two words, so the last name cannot be only the last word.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

_TITLES = """
    dr drs prof professor professorin doktor doctor docteur herr herrn frau fräulein familie eheleute mr mrs ms miss mx
    madam sir mme mlle madame mademoiselle monsieur messieurs señor señora señorita signor signora signorina senhor
    senhora dhr mevr mevrouw meneer mgr dipl diplom priv-doz pd
"""
# Abbreviations that are titles only with a full stop, because without it they are names or parts of names
_DOTTED_TITLES = "hr fr frl fam ing mag sig dott dottssa sr sra srta rev hon ir"
# Specialities and grades after a title: with a full stop or in lower case, because `Phil` is a first name
_SPECIALITIES = """
    med dent vet rer nat phil jur iur oec pol theol habil ing inf kfm math phys chem biol psych päd paed soz agr agrar
    pharm univ mult sc tech techn mont soc comm ssa ra
"""
_DEGREES = """
    mba md phd msc bsc ma ba llm llb mph dds dvm rn cpa esq dr prof med dent fh m sc b a d ph ll eng ed ing hc h c
"""
_GENERATIONS = ("jr", "sr", "jun", "sen", "ii", "iii", "iv", "junior", "senior")
_PARTICLE_WORDS = """
    van von vom zu zum zur der den de del della delle dello dei degli di da das do dos du des la le ten ter te af av
    bin ibn 't
"""
_PARTICLES = frozenset(_PARTICLE_WORDS.split())
# Ranks of nobility are part of the last name if a particle follows: `Freiherr von Stein`.
_RANK_WORDS = "freiherr freifrau freiin graf gräfin baron baronin baroness ritter edler edle prinz prinzessin fürst"
_RANKS = frozenset(_RANK_WORDS.split())


def _either(words: str) -> str:
    return "|".join(sorted(map(re.escape, words.split()), key=len, reverse=True))


_TITLE = re.compile(rf"(?i:(?:{_either(_TITLES)})(?:\.|(?=[\s/(-]|\Z))|(?:{_either(_DOTTED_TITLES)})\.)[\s/-]*")
_AFTER_TITLE = re.compile(
    rf"(?:(?i:{_either(_SPECIALITIES)})\.|(?:{_either(_SPECIALITIES)})(?=[\s/(-]|\Z)|(?i:e\.?\s?h|h\.?\s?c)\.|"
    rf"\((?i:fh|th|tu|univ|ba|uni)\.?\)|(?:und|and|et|y|e|&|\+)\s+(?={_TITLE.pattern}))[\s/-]*"
)
_INITIAL = re.compile(r"[^\W\d_]\.|[^\W\d_](?:\.[^\W\d_])+\.?")
_ELIDED_PARTICLE = re.compile(r"[dl]['’]\w", re.IGNORECASE)
_WORD_PARTS = re.compile(r"[\s.\-/()]+")


class SplitName(NamedTuple):
    """The parts of a full name; "" for a part that it does not have. `title` has titles and degrees as written."""

    first: str
    last: str
    title: str = ""


def split_name(text: str) -> SplitName:
    """Return the parts of a full name, by the rules of this module."""
    parts = [" ".join(part.split()) for part in text.split(",")]
    titles, endings, names = [], [], []
    for index, part in enumerate(parts):
        if index and _has_only(part, _GENERATIONS):
            endings.append(part)
        elif index and _has_only(part, _DEGREES.split()):
            titles.append(part)
        else:
            title, rest = _take_titles(part)
            titles += [title] if title else []
            names.append(rest)
    last, first = names[0], " ".join(filter(None, names[1:]))
    if first:
        first, particles = _take_last_particles(first)
        last = " ".join(filter(None, (particles, last)))
    elif len(parts) == len(names) > 1:
        pass  # `Kühn,`: the comma says that it is the last name.
    else:
        first, last = _split_words(last, has_title=bool(titles))
    return SplitName(first, " ".join(filter(None, (last, *endings))), " ".join(titles))


def _has_only(part: str, words: Iterable[str]) -> bool:
    pieces = [piece for piece in _WORD_PARTS.split(part.lower()) if piece]
    return bool(pieces) and set(pieces) <= set(words)


def _take_titles(text: str) -> tuple[str, str]:
    """Return the titles at the start of a text, and the rest."""
    position = 0
    while match := _TITLE.match(text, position) or (_AFTER_TITLE.match(text, position) if position else None):
        position = match.end()
    return text[:position].strip(" /-"), text[position:]


def _take_last_particles(first: str) -> tuple[str, str]:
    """Return a first name without the particles at its end, and these: `Ludwig van` of `Beethoven, Ludwig van`."""
    words = first.split(" ")
    end = len(words)
    while end > 1 and words[end - 1] in _PARTICLES:
        end -= 1
    return " ".join(words[:end]), " ".join(words[end:])


def _split_words(text: str, has_title: bool) -> tuple[str, str]:
    """Return the first and the last name of a name without a comma."""
    words = text.split(" ")
    if len(words) == 1:
        return ("", text) if has_title else (text, "")
    if _begins_last_name(words, 0) and (words[0].islower() or _is_particle(words[1])):
        return "", text
    start = next((index for index in range(1, len(words) - 1) if _begins_last_name(words, index)), None)
    if start is None and _ELIDED_PARTICLE.match(words[-1]):
        start = len(words) - 1
    if start is None:
        start = 1
        while start < len(words) - 1 and _INITIAL.fullmatch(words[start]):
            start += 1
    return " ".join(words[:start]), " ".join(words[start:])


def _is_particle(word: str) -> bool:
    return word.lower() in _PARTICLES or _ELIDED_PARTICLE.match(word) is not None


def _begins_last_name(words: list[str], index: int) -> bool:
    """Return whether the last name begins at a word: a particle, or a rank of nobility before a particle."""
    is_rank = words[index].lower() in _RANKS and index + 1 < len(words) and _is_particle(words[index + 1])
    return is_rank or _is_particle(words[index])


def choose_examples(cells: Iterable[str], number: int = 3) -> list[str]:
    """Return up to `number` full names, first those that are not just two words, in the order of the file."""
    names = list(dict.fromkeys(name for cell in cells if (name := " ".join(cell.split()))))
    chosen: list[str] = []
    for is_telling in (_has_comma, _has_title, _has_many_words):
        chosen += [name for name in names if is_telling(name) and name not in chosen][:1]
    chosen = (chosen + [name for name in names if name not in chosen])[:number]
    return sorted(chosen, key=names.index)


def _has_comma(name: str) -> bool:
    return "," in name


def _has_title(name: str) -> bool:
    return bool(_take_titles(name)[0])


def _has_many_words(name: str) -> bool:
    return len(name.split(" ")) > 2
