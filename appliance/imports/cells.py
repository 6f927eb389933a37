"""Clean and parse the cells of an imported file, including words for yes, no and the status of a contact."""

import re
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any

import msgspec
from babel import Locale
from msgspec import Struct

from appliance.core import addresses, clock, i18n
from appliance.core.addresses import Address
from appliance.core.i18n import gettext_noop, gettext_stored
from appliance.imports.detection import split_name

MAX_TAGS = 100
# The custom field of the titles in a full name
TITLE_KEY = "name_title"
_BREAKS = re.compile(r"[ \t\r\n\v\f\u0085\u2028\u2029]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
SPACES = " \t\r\n\u00a0\u2007\u202f\ufeff\u200b"
# A cell needs cleaning only if it begins or ends with one of these.
UNCLEAN_EDGES = frozenset(SPACES + "'")
# Our export puts a quote before a cell that a spreadsheet would take for a formula.
_ESCAPED_FORMULA = re.compile(r"'+[=+\-@\t\r\n＝＋－＠]")
_TYPED_STARTS = frozenset("-0123456789tf")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d{1,9})?\Z")
_SEPARATORS = re.compile(r"[,;|]")
# The maximum lengths of a cell with addresses and other words, and of a full name. Longer cells are not parsed; one row
# of a file may have a cell of 65,536 characters.
MAX_ADDRESS_CELL_CHARACTERS, _MAX_NAME_CHARACTERS = 4_000, 1_000
# These words are in the form that `normalize_word` returns, without accents. A placeholder such as `-` is not a no.
NO = frozenset(
    ("", "0", "no", "n", "false", "f", "off", "none", "null", "never", "nein", "non", "falsch", "faux", "falso",
     "nie", "jamais", "nunca", "nee", "nooit", "onwaar", "nao", "fałsz", "いいえ", "✗", "✘")
)  # fmt: skip
REFUSALS = NO - {"", "none", "null"}
YES = frozenset(
    ("1", "yes", "y", "true", "t", "on", "x", "ja", "j", "oui", "si", "s", "wahr", "vrai", "verdadero", "ok", "✓", "✔",
     "sim", "verdadeiro", "vero", "waar", "tak", "prawda", "はい")
)  # fmt: skip
# The words for statuses in other products, in the languages of the interface and without accents. If a row has several,
# the most severe one is used.
STATES = {
    "unsubscribed": "out", "unsubscribe": "out", "opted_out": "out", "optout": "out", "abgemeldet": "out",
    "abbestellt": "out", "ausgetragen": "out", "desinscrit": "out", "desinscrite": "out", "desabonne": "out",
    "desabonnee": "out", "baja": "out", "dado_de_baja": "out", "desuscrito": "out", "cancelado": "out",
    "inactive": "off", "disabled": "off", "unconfirmed": "off", "pending": "off", "transactional": "off",
    "non_subscribed": "off", "nonsubscribed": "off", "not_subscribed": "off", "never_subscribed": "off",
    "archived": "off", "deleted": "off", "redacted": "off", "invited": "off", "inaktiv": "off", "unbestatigt": "off",
    "unbestaetigt": "off", "ausstehend": "off", "nicht_angemeldet": "off", "nicht_abonniert": "off",
    "nie_abonniert": "off", "nicht_bestatigt": "off", "nicht_bestaetigt": "off", "inactif": "off", "en_attente": "off",
    "non_inscrit": "off", "non_confirme": "off", "inactivo": "off", "pendiente": "off", "no_suscrito": "off",
    "blocklisted": "manual", "blacklisted": "manual", "blocked": "manual", "manual": "manual", "suppressed": "manual",
    "gesperrt": "manual", "blockiert": "manual", "unterdruckt": "manual", "unterdrueckt": "manual",
    "bloque": "manual", "bloqueado": "manual",
    "cleaned": "hard_bounce", "bounced": "hard_bounce", "bounce": "hard_bounce", "hard_bounce": "hard_bounce",
    "unreachable": "hard_bounce", "invalid": "hard_bounce", "unzustellbar": "hard_bounce", "bereinigt": "hard_bounce",
    "ungultig": "hard_bounce", "ungueltig": "hard_bounce", "rebotado": "hard_bounce",
    "soft_bounce": "soft_bounce", "stop_keyword": "out", "erased": "manual",
    "complained": "complaint", "complaint": "complaint", "spam": "complaint", "abuse": "complaint",
    "disiscritto": "out", "disiscritta": "out", "annullato": "out", "annullata": "out", "inattivo": "off",
    "inattiva": "off", "in_attesa": "off", "non_iscritto": "off", "non_iscritta": "off", "non_confermato": "off",
    "bloccato": "manual", "bloccata": "manual", "non_recapitabile": "hard_bounce", "respinto": "hard_bounce",
    "descadastrado": "out", "descadastrada": "out", "cancelada": "out", "inativo": "off", "inativa": "off",
    "pendente": "off", "nao_inscrito": "off", "nao_inscrita": "off", "nao_confirmado": "off", "bloqueada": "manual",
    "devolvido": "hard_bounce", "invalido": "hard_bounce", "inactiva": "off", "no_suscrita": "off",
    "uitgeschreven": "out", "afgemeld": "out", "inactief": "off", "in_afwachting": "off", "niet_ingeschreven": "off",
    "niet_bevestigd": "off", "onbevestigd": "off", "geblokkeerd": "manual", "onbestelbaar": "hard_bounce",
    "ongeldig": "hard_bounce", "wypisany": "out", "wypisana": "out", "nieaktywny": "off", "nieaktywna": "off",
    "oczekujacy": "off", "oczekujaca": "off", "niezapisany": "off", "niezapisana": "off", "niepotwierdzony": "off",
    "zablokowany": "manual", "zablokowana": "manual", "odbity": "hard_bounce", "niedoreczony": "hard_bounce",
    "配信停止": "out", "登録解除": "out", "無効": "off", "未登録": "off", "未確認": "off", "保留中": "off",
    "拒否": "manual", "不達": "hard_bounce",
}  # fmt: skip
SUBSCRIBED = frozenset(
    ("subscribed", "active", "enabled", "confirmed", "opted_in", "optin", "single_opt_in", "double_opt_in", "aktiv",
     "angemeldet", "abonniert", "bestatigt", "bestaetigt", "inscrit", "inscrite", "abonne", "abonnee", "actif",
     "confirme", "suscrito", "suscrita", "activo", "activa", "alta", "confirmado", "confirmada",
     "iscritto", "iscritta", "attivo", "attiva", "confermato", "confermata", "inscrita", "inscrito", "ativo", "ativa",
     "assinante", "ingeschreven", "aangemeld", "geabonneerd", "actief", "bevestigd", "zapisany", "zapisana", "aktywny",
     "aktywna", "potwierdzony", "potwierdzona", "登録済み", "購読中", "有効", "確認済み")
)  # fmt: skip
# Placeholders for an empty value in any column, exactly as exports and people write them. None of them is a name.
_BLANKS = """
    - -- --- – — − _ ? ?? ??? . .. ... / // n/a N/A n.a. N.A. n/a. #N/A #NA #NV #VALUE! #WERT! #VALEUR! #¡VALOR! #REF!
    #BEZUG! #NAME? #NOM? #¿NOMBRE? #DIV/0! #NULL! null NULL (null) <null> [null] \\N (none) (blank) (empty) (leer)
    undefined k.A. k.a. K.A. n/d N/D s/o S/O 0000-00-00
"""
BLANKS = frozenset((*_BLANKS.split(), "k. A.", "k. a.", "0000-00-00 00:00:00"))
# Further placeholders, only for columns of addresses and countries, where these words are never values. They are in the
# languages of the interface, in lower case and without accents.
_ADDRESS_BLANK_WORDS = """
    na n.a nil none nan unknown empty blank missing unspecified keine keiner keines keins ohne leer unbekannt aucun
    aucune sans inconnu inconnue vide ninguno ninguna sin desconocido desconocida vacio nessuno nessuna senza
    sconosciuto sconosciuta vuoto geen zonder onbekend leeg nvt n.v.t. brak bez nieznany nieznana puste nenhum nenhuma
    sem desconhecido desconhecida vazio なし 無し 無 不明 未設定 未入力 該当なし
"""
_BLANK_IN_ADDRESSES = frozenset(
    (*_ADDRESS_BLANK_WORDS.split(), "not provided", "not given", "no phone", "no email", "keine angabe",
     "keine angaben",
     "nicht angegeben", "non renseigne", "non renseignee", "sin datos", "sin dato", "no disponible", "not specified",
     "not available", "not applicable", "nicht verfugbar", "non specifie", "non disponible", "no especificado",
     "non disponibile", "non specificato", "non indicato", "niet opgegeven", "niet bekend", "niet beschikbaar",
     "brak danych", "nie podano", "nie dotyczy", "nao informado", "nao informada", "nao disponivel", "nao se aplica",
     *(word.lower() for word in _BLANKS.split() if "#" not in word))
)  # fmt: skip
_TARGETS_WITHOUT_WORDS = frozenset(("email", "phone", "country_code"))
KNOWN_REASONS = ("manual", "hard_bounce", "soft_bounce", "complaint")


class InvalidRecord(Exception):
    """A record that is rejected, usually because it has no valid address; the message is the reason."""


def clean_cell(cell: str) -> str:
    """Return a cell without white space at its ends, and without the quote that our export puts before a formula."""
    cell = cell.strip(SPACES)
    return cell[1:] if cell.startswith("'") and _ESCAPED_FORMULA.match(cell) else cell


def fold_accents(text: str) -> str:
    """Return a text in lower case and without accents, for comparison."""
    if not text.isascii():
        text = "".join(c for c in addresses.normalize_unicode("NFKD", text) if not unicodedata.combining(c))
    return text.lower()


def normalize_word(cell: Any) -> str:
    """Return a cell in the form of the word lists: lower case, no accents, `_` for spaces; `yes` or `no` for a bool."""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return fold_accents(str(cell).strip()).replace(" ", "_").replace("-", "_")


def is_blank(cell: str, target: str) -> bool:
    """Return whether the text in a cell is a placeholder for an empty value, such as `n/a`.

    In columns of addresses and countries, the words in `_BLANK_IN_ADDRESSES` are placeholders, too, and in columns of
    phone numbers also a number that has only zeros.
    """
    if cell in BLANKS:
        return True
    if target not in _TARGETS_WITHOUT_WORDS:
        return False
    folded = fold_accents(cell.strip(" '\""))
    if not folded or folded in _BLANK_IN_ADDRESSES:
        # NA is the country code of Namibia.
        return not (target == "country_code" and folded == "na")
    return target == "phone" and not folded.strip("0 .-/()")


# Reasons of warnings are stored in English, and translated where they are shown.
_TOO_LONG = gettext_stored("is too long (maximum is %(limit)s characters)")
_TOO_MANY_TAGS = gettext_stored("is one too many (maximum is %(limit)s tags)")
_TOO_MANY_LISTS = gettext_stored("is one too many (maximum is %(limit)s lists)")
INVALID_EMAIL = gettext_stored("email is invalid: %(value)s")
INVALID_PHONE = gettext_stored("phone %(reason)s: %(value)s")
_NO_CHANNELS = gettext_stored("channels is not a list of addresses (maximum is %(limit)s)")


def add_warning(row: dict[str, Any], target: str, cell: Any, reason: str) -> None:
    """Add a warning (target, cell, reason) to a row: the cell was left out or changed, but the row is imported."""
    row.setdefault("warnings", []).append((target, str(cell)[:100], reason))


def parse_typed(cell: str) -> Any:
    """Return a non-empty cell as an int, float or bool if JSON would write it like this, else as text."""
    if cell[0] not in _TYPED_STARTS:
        return cell
    if cell in ("true", "false"):
        return cell == "true"
    if _NUMBER.match(cell) and cell != "-0":
        return float(cell) if "." in cell else int(cell)
    return cell


def _read_line(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    text = str(cell)
    if not text.isprintable():
        text = _BREAKS.sub(" ", text).strip()
    if len(text) > 255:
        add_warning(row, target, text, gettext_noop("is too long (maximum is 255 characters)"))
    elif not text.isprintable() and _CONTROL.search(text):
        add_warning(row, target, text, gettext_noop("contains control characters"))
    elif text:
        row[target] = text


def _read_address(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    """Append the cell to `row[target]`. `AddressReader` uses the first valid address of all columns of the target."""
    row.setdefault(target, []).append(str(cell))


def _read_name(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    """Read a full name into the first and the last name of the row, and its titles into the custom field of titles."""
    name = str(cell)
    if len(name) > _MAX_NAME_CHARACTERS:
        add_warning(row, target, name, _TOO_LONG % {"limit": _MAX_NAME_CHARACTERS})
        return
    parts = split_name(name)
    for field, text in (("first_name", parts.first), ("last_name", parts.last)):
        if text and field not in row:
            _read_line(row, data, text, field)
    if parts.title:
        data.setdefault(TITLE_KEY, parts.title)


# Country names are recognized in these languages. The executable contains the CLDR data of no other languages.
COUNTRY_LANGUAGES = ("en", "de", "fr", "es", "it", "pt", "nl", "pl")
# Country names that CLDR does not contain
_MORE_COUNTRIES = {
    "uk": "GB", "u.k.": "GB", "england": "GB", "scotland": "GB", "wales": "GB", "great britain": "GB", "holland": "NL",
    "usa": "US", "u.s.a.": "US", "united states of america": "US", "brd": "DE",
    # The vehicle codes of countries that precede postal codes in German addresses: D-10115 Berlin
    "d": "DE", "a": "AT",
}  # fmt: skip


@cache
def _countries() -> dict[str, str]:
    """Return two-letter country codes by the country's names in COUNTRY_LANGUAGES, in lower case without accents."""

    names = {
        fold_accents(name): code
        for language in COUNTRY_LANGUAGES
        for code, name in Locale(language).territories.items()
        if len(code) == 2 and code.isalpha() and code not in ("EU", "EZ", "UN", "ZZ", "XA", "XB")
    }
    return names | _MORE_COUNTRIES


@cache
def _country_codes() -> frozenset[str]:
    """Return the two-letter codes of all countries."""
    return frozenset(_countries().values())


def _read_country(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    text = str(cell).strip()
    if text.upper() in _country_codes():
        row[target] = text.upper()
    elif code := _countries().get(fold_accents(text)):
        row[target] = code
    else:
        add_warning(row, target, cell, gettext_noop("is not a country"))


_MAX_LANGUAGE_CHARACTERS = 100  # more than the longest name of a language in CLDR


@lru_cache(maxsize=4_096)
def _find_language(text: str) -> str | None:
    """Return the tag of a language given by its code, or by its name in one of the product's languages, or None."""
    return i18n.normalize_language_tag(text) or _language_names().get(fold_accents(text))


@cache
def _language_names() -> dict[str, str]:
    """Return language tags by the languages' names in the product's languages, folded: `german`, `deutsch` are de."""
    names: dict[str, str] = {}
    for product_language in i18n.LANGUAGES:
        for code, name in Locale.parse(product_language).languages.items():
            if i18n.normalize_language_tag(code) == code.replace("_", "-"):
                names.setdefault(fold_accents(name), code.replace("_", "-"))
    return names


def _read_language(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    text = str(cell).strip()
    # A longer cell must not enter the cache, which would keep thousands of them.
    if len(text) <= _MAX_LANGUAGE_CHARACTERS and (tag := _find_language(text)):
        row[target] = tag
    else:
        add_warning(row, target, cell, gettext_noop("must be a language code such as de or pt-BR"))


def _read_tracking(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    if cell in ("full", "aggregate", "none"):
        row[target] = cell
    else:
        add_warning(row, target, cell, gettext_noop("is not full, aggregate or none"))


def _read_tags(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    parts = cell if isinstance(cell, list) else split_words(str(cell))
    tags = list(dict.fromkeys(text for part in parts if (text := str(part).strip(SPACES))))
    for tag in tags:
        if len(tag) > 64:
            add_warning(row, target, tag, gettext_noop("is too long (maximum is 64 characters)"))
    valid_tags = [tag for tag in tags if len(tag) <= 64]
    for tag in valid_tags[MAX_TAGS:]:
        add_warning(row, target, tag, _TOO_MANY_TAGS % {"limit": MAX_TAGS})
    if valid_tags:
        data["tags"] = valid_tags[:MAX_TAGS]


def split_words(text: str) -> list[Any]:
    """Return the words of a cell: the items of a JSON list, or the parts between commas, semicolons or bars."""
    if text.startswith("["):
        try:
            words = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            words = None
        if isinstance(words, list):
            return words
    return [part.strip(SPACES + "\"'") for part in _SEPARATORS.split(text)]


def _read_data(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    try:
        values = cell if isinstance(cell, dict) else msgspec.json.decode(str(cell))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        values = None
    if not isinstance(values, dict):
        add_warning(row, target, cell, gettext_noop("is not a JSON object"))
        return
    for key, value in values.items():
        data.setdefault(key, value)


def _read_verified(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    row["verified"] = int(normalize_word(cell) in YES or normalize_word(cell) == "verified")


def _read_reason(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    """Read the reason of a suppression. An unknown one becomes `manual` with a warning: no suppression is lost."""
    status = normalize_word(cell)
    reason = STATES.get(status, status)
    if reason == "out":
        reason = "manual"
    if reason in KNOWN_REASONS:
        row["reason"] = reason
    else:
        add_warning(row, target, cell, gettext_noop("is not a known reason; kept as manual"))


# The parameters are the row, its custom data, the cell and its target. A reader stores the value of the cell in the row
# or the custom data; it leaves out an invalid value with a warning.
CellReader = Callable[[dict[str, Any], dict[str, Any], Any, str], None]
CELL_READERS: dict[str, CellReader] = {
    "email": _read_address, "phone": _read_address, "name": _read_name, "first_name": _read_line,
    "last_name": _read_line, "source": _read_line, "country_code": _read_country,
    "language": _read_language, "tracking": _read_tracking,
    "tags": _read_tags, "data": _read_data, "verified": _read_verified, "reason": _read_reason, "note": _read_line,
}  # fmt: skip


MAX_LISTS = 500
# If a row gives several reasons, the most severe one is used.
REASONS_BY_SEVERITY = ("complaint", "hard_bounce", "manual", "soft_bounce")
_json = msgspec.json.Decoder()


class RowAddress(Struct, array_like=True):
    """An address of a row, with its consent state in the file.

    `key` is the normalized address. `suppression` is the reason or None. `consent` is one of these:

    - `out`: the recipient opted out
    - `no`: the row says no to messages
    - `off`: not subscribed
    - `in`: subscribed
    - `unstated`: the consent column says neither yes nor no, and such rows are not opted in
    - None: the row has no consent column or value

    Times are Unix milliseconds in the past.
    """

    kind: str
    key: str
    value: str
    suppression: str | None = None
    consent: str | None = None
    verified: bool = False
    opt_in_at: int | None = None
    opt_out_at: int | None = None

    @property
    def state(self) -> str | None:
        """Return the state of the address for `contact_rows.decide_consent`: None for an opt-in or an unknown state.

        A complaint takes precedence over the consent, and the consent over any other suppression.
        """
        if self.suppression == "complaint":
            return self.suppression
        if self.consent == "in":
            return None
        return self.consent or self.suppression


def parse_phone(text: Any) -> Address:
    """Parse a phone number with country code. Raises InvalidRecord if it is invalid."""
    try:
        return addresses.parse_phone(str(text))
    except ValueError:
        raise InvalidRecord(INVALID_PHONE % {"reason": gettext_noop("is invalid"), "value": str(text)[:40]}) from None


def parse_email(text: Any) -> Address:
    """Parse an email address. Raises InvalidRecord if it is invalid."""
    try:
        return addresses.parse_email(str(text))
    except ValueError:
        raise InvalidRecord(INVALID_EMAIL % {"value": str(text)[:100]}) from None


def parse_past_time(cell: Any) -> int | None:
    """Parse an ISO 8601 time, in UTC unless it has an offset, and return Unix milliseconds.

    Return None if the cell is not a time or is in the future. An error would reject the row, and lose an opt-out in it.
    """
    try:
        moment = datetime.fromisoformat(str(cell).strip())
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    ms = int(moment.timestamp() * 1000)
    return ms if 0 < ms <= clock.now_ms() else None


def parse_channels(cell: Any) -> list[RowAddress]:
    """Parse a cell of the column `channels` of Campanero's export: a list, or its JSON. Raises InvalidRecord."""
    channels = cell
    if isinstance(cell, str):
        try:
            channels = _json.decode(cell)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            channels = None
    if not isinstance(channels, list) or len(channels) > addresses.MAX_ADDRESSES:
        raise InvalidRecord(_NO_CHANNELS % {"limit": addresses.MAX_ADDRESSES})
    return [_parse_channel(channel) for channel in channels]


def _parse_channel(channel: Any) -> RowAddress:
    if not isinstance(channel, dict) or channel.get("kind") not in ("email", "phone"):
        raise InvalidRecord(gettext_noop("channels is not a list of addresses"))
    address = (parse_email if channel["kind"] == "email" else parse_phone)(channel.get("value"))
    reason = STATES.get(normalize_word(channel.get("suppression")))
    subscribed = channel.get("subscribed")
    consent = None if subscribed is None else "in" if subscribed else "off"
    if (opted_out_by := channel.get("opted_out_by")) in ("recipient", "operator"):
        consent = "out" if opted_out_by == "recipient" else "no"
    return RowAddress(
        address.kind, address.key, address.value, reason if reason in KNOWN_REASONS else None, consent,
        bool(channel.get("verified_at")), parse_past_time(channel.get("opt_in_at")),
        parse_past_time(channel.get("opt_out_at")),
    )  # fmt: skip


def _read_time(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    past_time = parse_past_time(cell)
    if past_time is None:
        add_warning(row, target, cell, gettext_noop("is not a date in the past"))
    row[target] = past_time or row.get(target)


def _read_channels(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    row["channels"] = parse_channels(cell)


def _read_lists(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    entries = cell if isinstance(cell, list) else split_words(str(cell))
    names = list(dict.fromkeys(text for entry in entries if (text := str(entry).strip(SPACES))))
    for name in names:
        if len(name) > 255 or not name.isprintable():
            add_warning(row, target, name, gettext_noop("is not the name of a list"))
    valid_names = [name for name in names if len(name) <= 255 and name.isprintable()]
    for name in valid_names[MAX_LISTS:]:
        add_warning(row, target, name, _TOO_MANY_LISTS % {"limit": MAX_LISTS})
    row["lists"] = msgspec.json.encode(valid_names[:MAX_LISTS]).decode() if valid_names else None


# The readers for times of consent, channels and lists, in addition to CELL_READERS
STATE_READERS: dict[str, CellReader] = {
    "opt_in_at": _read_time,
    "opt_out_at": _read_time,
    "channels": _read_channels,
    "lists": _read_lists,
}
