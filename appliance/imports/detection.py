"""Detect columns of full names, and of numbers and amounts such as `1.234,50 €`, and convert their values.

Full names are split into first and last name by the rules below. A single number such as `1.234` is ambiguous: it is
1234 with a decimal comma, and 1.234 with a decimal point. So the decimal mark is derived from all values of the column,
else from the other columns of the file, else from the country. If none of these shows it, the values stay text until
the user chooses a mark.

Values with leading zeros, such as postcodes and customer numbers, are not numbers, and neither are phone numbers. One
such value makes the whole column text, so that the postcode 52090 is not treated as a number beside 01067.
"""

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Literal, NamedTuple

from appliance.core.i18n import gettext_noop

# The rules for full names, in order:
# - A comma separates the last name from the first: `Kühn, Grace`. A part that has only titles or degrees is neither:
#   `Kurz, Max, MBA`.
# - Titles and forms of address at the start (`Herr Prof. Dr. med.`) belong to neither name. A greeting with the first
#   name must not say "Hello Dr.", and contacts are sorted, searched and compared by the last name. Titles are returned
#   separately, so that nothing of the cell is lost.
# - A single word after a title is a last name: `Frau Weiß`.
# - A particle (`van der`, `de`) begins the last name. At the start of a name it does so only in lower case or before
#   another particle, because `Van` and `Di` are also first names.
# - Otherwise the first word, with the initials after it, is the first name. In Spanish and Portuguese the last name has
#   two words, so the last name cannot be only the last word.

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


def _match_any(words: str) -> str:
    return "|".join(sorted(map(re.escape, words.split()), key=len, reverse=True))


_TITLE = re.compile(rf"(?i:(?:{_match_any(_TITLES)})(?:\.|(?=[\s/(-]|\Z))|(?:{_match_any(_DOTTED_TITLES)})\.)[\s/-]*")
_AFTER_TITLE = re.compile(
    rf"(?:(?i:{_match_any(_SPECIALITIES)})\.|(?:{_match_any(_SPECIALITIES)})(?=[\s/(-]|\Z)|(?i:e\.?\s?h|h\.?\s?c)\.|"
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
    """Return (titles at the start of a text, rest of the text)."""
    position = 0
    while match := _TITLE.match(text, position) or (_AFTER_TITLE.match(text, position) if position else None):
        position = match.end()
    return text[:position].strip(" /-"), text[position:]


def _take_last_particles(first: str) -> tuple[str, str]:
    """Return (first name, particles at its end): `Ludwig` and `van` for `Ludwig van` of `Beethoven, Ludwig van`."""
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


def has_full_names(cells: Iterable[str]) -> bool:
    """Return whether most values of a column are like `Girard, Hélène`: last and first name with a comma."""
    filled = [cell for cell in cells if cell.strip()]
    full_count = sum(_has_comma(cell) and all(split_name(cell)[:2]) for cell in filled)
    return full_count * 2 > len(filled)


def choose_examples(cells: Iterable[str], number: int = 3) -> list[str]:
    """Return up to `number` different full names in file order, preferring a comma, a title or three words."""
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


# Numbers and amounts.

DecimalMark = Literal[",", "."]

# What the values of a column show about its decimal mark. `clear`: each value means the same with both marks.
# `ambiguous`: no value shows the mark. `mixed`: some values have a comma and others a point.
NumberFormat = Literal["clear", ",", ".", "ambiguous", "mixed"]

# A column is no longer read if, from this number of values on, fewer than half of the values so far are numbers.
_SAMPLED_VALUES = 20
_MAX_NUMBER_CHARACTERS = 40
_MAX_DIGITS = 15
_MAX_EXAMPLES, _MAX_EXAMPLE_CHARACTERS = 3, 40
_SPACES = "\u00a0\u2007\u2009\u202f "
_APOSTROPHES = "'’"
_CURRENCY = (
    r"(?:[€$£¥₹₽₺₴₪₩₫₱₦฿]|[A-Z]{0,2}\$|(?i:eur|euro|euros|usd|gbp|chf|sfr\.?|fr\.|sek|nok|dkk|pln|zł|czk|kč|huf|ft|ron|"
    r"lei|bgn|cad|aud|nzd|jpy|brl|mxn|try|kr\.?))"
)
_AMOUNT = re.compile(
    rf"(?P<sign>[-−]?)(?P<before>{_CURRENCY}?)[{_SPACES}]*(?P<inner_sign>[-−]?)"
    rf"(?P<whole>[1-9]\d{{0,2}}(?P<group>[.,{_APOSTROPHES}{_SPACES}])\d{{3}}(?:(?P=group)\d{{3}})*|\d+)"
    rf"(?:(?P<mark>[.,])(?P<decimals>\d{{1,9}}|[-–—]{{1,2}}))?[{_SPACES}]*(?P<after>{_CURRENCY}?)",
    re.ASCII,
)
# Numbers as `cells.parse_typed` reads them.
_PLAIN = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d{1,9})?")

# The countries with a decimal point, by their official languages in Unicode CLDR 45. All others use a comma, or both.
_POINT_COUNTRY_CODES = """
    AE AG AI AS AU BB BD BH BM BS BT BW BZ CC CH CK CN CU CX DG DM DO EG EH ER FJ FK FM GB GD GG GH GI GM GS GT GU GY
    HK HN IE IL IM IN IO IQ IR JE JM JO JP KE KH KI KN KP KR KW KY LC LI LK LR LS MH MM MN MP MS MT MV MW MX MY NA NF
    NG NI NP NR NU NZ OM PA PE PG PH PK PN PR PS PW QA SA SB SD SG SH SL SO SS SV SY TC TH TK TO TT TV TW TZ UG UM US
    VC VG VI WS YE ZM ZW
"""
_POINT_COUNTRIES = frozenset(_POINT_COUNTRY_CODES.split())
_MIXED_COUNTRY_CODES = "AF AW AZ BI CA CM CW DJ EC ET KM MG MO MU PY RW SC SX SZ TD VU"
_MIXED_COUNTRIES = frozenset(_MIXED_COUNTRY_CODES.split())


class Amount(NamedTuple):
    """A number, read with a decimal comma and with a decimal point; None where it is not a valid number.

    `is_plain` says that `cells.parse_typed` reads it as a number, too. `has_spaces` says that only spaces show that it
    is a number, as in `123 456`, which may also be an id or a phone number.
    """

    with_comma: int | float | None
    with_point: int | float | None
    is_plain: bool
    has_spaces: bool

    @property
    def is_clear(self) -> bool:
        """Return whether the number is the same with both decimal marks."""
        return self.with_comma == self.with_point


def find_country_mark(country: str | None, delimiter: str | None) -> DecimalMark | None:
    """Return the decimal mark of a country for files with this column delimiter, or None if it is unknown.

    Spreadsheets write a decimal comma only into files whose delimiter is not a comma.
    """
    if country is None or country in _MIXED_COUNTRIES:
        return None
    if country in _POINT_COUNTRIES:
        return "."
    return None if delimiter == "," else ","


def parse_amount(text: str) -> Amount | None:
    """Parse a number or an amount of money in one of the usual notations; return None if the text is neither."""
    match = _AMOUNT.fullmatch(text.strip()) if len(text) <= _MAX_NUMBER_CHARACTERS else None
    if match is None or (match["before"] and match["after"]) or (match["sign"] and match["inner_sign"]):
        return None
    whole, group, mark = match["whole"], match["group"], match["mark"]
    decimals = (match["decimals"] or "").strip("-–—")  # A dash, as in `12,-`, stands for no decimals.
    digits = re.sub(r"\D", "", whole)
    if len(digits) > _MAX_DIGITS or (digits.startswith("0") and len(digits) > 1) or (group and group == mark):
        return None
    has_money = bool(match["before"] or match["after"])
    sign = "-" if match["sign"] or match["inner_sign"] else ""

    def number(decimal_digits: str, whole_digits: str = digits) -> int | float:
        value = Decimal(f"{sign}{whole_digits}.{decimal_digits or 0}")
        return int(value) if value == value.to_integral_value() else float(value)

    is_plain = _PLAIN.fullmatch(text.strip()) is not None
    if mark is not None:
        return _with_mark(mark, number(decimals), is_plain)
    value = number("")
    if group in (",", "."):
        if whole.count(group) == 1 and not has_money:
            # `1.234`: amounts of money do not have three decimals, but other numbers may.
            left, right = whole.split(group)
            by_mark = {group: number(right, left), "." if group == "," else ",": value}
            return Amount(by_mark[","], by_mark["."], is_plain, False)
        return _with_mark("." if group == "," else ",", value, is_plain)
    return Amount(value, value, is_plain, group is not None and group in _SPACES and not has_money)


def _with_mark(mark: str, value: int | float, is_plain: bool) -> Amount:
    return Amount(value if mark == "," else None, value if mark == "." else None, is_plain, False)


class NumberColumn:
    """The values of a column, from which `get_format` detects whether all are numbers, and with which decimal mark.

    `example` is the longest value that shows the number format. `exception_examples` are the first different values
    that are not numbers. `has_leading_zeros` says that there is a value such as 08805. With `is_forced`, the user has
    chosen numbers, so other values do not make the column text.
    """

    def __init__(self, is_forced: bool = False) -> None:
        self._is_forced = is_forced
        self._numbers = self._other_values = 0
        self._comma = self._point = self._either = self._is_written = False
        self.example = ""
        self.exception_examples: list[str] = []
        self.has_leading_zeros = False

    def add(self, text: str) -> bool:
        """Add a non-empty value, and return whether the column may still be one of numbers."""
        if self._numbers and text.isdecimal() and text.isascii() and text[0] != "0" and len(text) <= _MAX_DIGITS:
            self._numbers += 1
            return True
        amount = parse_amount(text)
        if amount is None:
            self._other_values += 1
            self.has_leading_zeros |= text[0] == "0" and text.isdecimal()
            example = text[:_MAX_EXAMPLE_CHARACTERS]
            if len(self.exception_examples) < _MAX_EXAMPLES and example not in self.exception_examples:
                self.exception_examples.append(example)
            count = self._numbers + self._other_values
            return self._is_forced or count < _SAMPLED_VALUES or self._numbers * 2 >= count
        self._numbers += 1
        self._comma |= amount.with_point is None
        self._point |= amount.with_comma is None
        self._either |= not amount.is_clear and amount.with_comma is not None and amount.with_point is not None
        is_written = not amount.is_plain and not amount.has_spaces
        if (is_written, len(text)) > (self._is_written, len(self.example)):
            self.example = text
        self._is_written |= is_written
        return True

    @property
    def exception_count(self) -> int:
        """Return the number of values that are not numbers in a column that has amounts such as `1.234,50 €`, else 0.

        Because of these values, the column stays text.
        """
        has_amounts = self._is_written and self._numbers * 2 >= self._numbers + self._other_values
        return self._other_values if has_amounts and not self._is_forced else 0

    @property
    def _has_numbers(self) -> bool:
        return bool(self._numbers) and (self._is_forced or not self._other_values)

    @property
    def mark(self) -> DecimalMark | None:
        """Return the decimal mark that the values show, or None if they show none or both."""
        if not self._has_numbers or self._comma == self._point:
            return None
        return "," if self._comma else "."

    def get_format(self, mark: DecimalMark | None) -> NumberFormat | None:
        """Return the format of the column, or None if it needs no conversion.

        `mark` is used if the values do not show the decimal mark, or contradict each other.
        """
        if not self._has_numbers:
            return None
        if not (self._is_written or self._either or self._is_forced):
            return None  # The cells are read one by one, as in other columns.
        if not self._either:
            return self.mark or "clear"
        if self._comma and self._point:
            return mark or "mixed"
        found_mark = self.mark or mark
        if found_mark == "." and not (self._is_written or self._is_forced):
            return None
        return found_mark or "ambiguous"


def convert_number(text: str, number_format: NumberFormat) -> tuple[int | float | None, str | None]:
    """Convert a value of a column of numbers; return (number, None), or (None, reason) if it is not converted."""
    amount = parse_amount(text)
    if amount is None:
        return None, gettext_noop("is not a number")
    if amount.with_comma is None or amount.with_point is None:
        return (amount.with_point if amount.with_comma is None else amount.with_comma), None
    if amount.is_clear or number_format == ",":
        return amount.with_comma, None
    if number_format == ".":
        return amount.with_point, None
    return None, gettext_noop("may have a decimal comma or groups of digits")
