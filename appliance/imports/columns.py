"""Guess the targets of columns from their names, recognize exports of other products, and convert columns of dates.

A single date such as `03/04/2026` is ambiguous, so the order of day and month is derived from all values of its column.
Dates are converted to ISO 8601, which segments, merge tags and flows understand. If the order remains ambiguous, the
dates stay text unless the user chooses an order.

A year of two digits means the latest year in which the date is not in the future, because most dates of contacts are
birthdays, sign-ups or purchases. In November 2026, `31.12.79` is in 1979, `01.02.26` in 2026 and `31.12.26` in 1926.

A spreadsheet exports a date without its format as a day number: 45123 is 16 July 2023. It is read as a date only in a
column that the user marks as dates, because it may as well be a postcode or an amount.
"""

import re
import unicodedata
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Literal, NamedTuple

from appliance.core import clock
from appliance.core.i18n import gettext_noop
from appliance.imports.cells import fold_accents

# The targets of columns, in addition to `data.<key>`. A column with the target "" is skipped.
TARGETS = (
    "email", "phone", "name", "first_name", "last_name", "source", "country_code", "language", "tracking", "tags",
    "data", "status", "subscribed_email", "subscribed_phone", "opted_out_by", "verified", "unsubscribed", "bounced",
    "reason", "note", "opt_in_at", "opt_out_at", "channels", "lists", "",
)  # fmt: skip
# The usual column names of each target, in the form that `cells.fold_accents` returns
_NAMES = {
    "email": "email e_mail mail email_address e_mail_address emailaddress address_email correo correo_electronico "
             "courriel adresse_email adresse_e_mail adresse_mail e_mail_adresse email_adresse emailadresse mailadresse "
             "e_mail_1_value email_1 primary_email email_id direccion_de_correo direccion_de_correo_electronico "
             "direccion_email emailadres e_mailadres adres_e_mail adres_email indirizzo_e_mail indirizzo_email "
             "endereco_de_e_mail endereco_de_email メールアトレス",
    "phone": "phone phone_number mobile mobile_phone telephone tel sms cell telefon telefono handy mobile_number "
             "mobile_no phone_no tel_no cell_phone contact_number primary_phone phone_1_value whatsapp sms_number "
             "telefonnummer telefon_nr telefonnr rufnummer mobil mobilnummer mobiltelefon handynummer portable "
             "telephone_portable tel_portable numero_de_telephone movil celular telefono_movil numero_de_telefono "
             "cellulare numero_di_telefono telefone numero_de_telefone telefoon telefoonnummer mobiel mobiel_nummer "
             "numer_telefonu telefon_komorkowy komorka 電話番号 電話 携帯電話",
    # Headings such as `Nom et prénom` (last name first) are not full names, because their values rarely have a comma.
    "name": "name full_name fullname complete_name contact_name customer_name your_name name_surname "
            "name_and_surname first_and_last_name vor_und_nachname vor_u_nachname vor_nachname vorname_und_nachname "
            "vorname_u_nachname vorname_nachname vor_und_zuname vor_zuname vorname_und_name vorname_name "
            "vollstandiger_name vollstaendiger_name voller_name ganzer_name kundenname kontaktname ansprechpartner "
            "nom_complet prenom_et_nom prenom_nom prenom_et_nom_de_famille nombre_completo nombre_y_apellidos "
            "nombre_y_apellido nombre_apellidos nombre_apellido nome_completo nome_e_cognome nome_cognome "
            "nome_e_sobrenome nome_sobrenome nome_e_apelido nome_apelido naam volledige_naam voor_en_achternaam "
            "voornaam_en_achternaam voornaam_achternaam imie_i_nazwisko imie_nazwisko nome 氏名 名前",
    "first_name": "first_name firstname fname given_name vorname prenom nombre forename voornaam imie "
                  "primeiro_nome 名",
    "last_name": "last_name lastname lname surname family_name nachname familienname nom nom_de_famille apellido "
                 "apellidos cognome sobrenome achternaam nazwisko 姓",
    "source": "source",
    "country_code": "country_code country country_iso country_name land landercode pays pais paese kraj code_pays "
                    "codigo_de_pais",
    "language": "language lang locale language_code preferred_language preferred_locale language_preference sprache "
                "sprachcode langue langue_preferee idioma lingua taal jezyk 言語",
    "tracking": "tracking",
    "tags": "tags tag labels schlagworte schlagworter etiquettes etiquetas", "data": "data attributes custom_fields",
    "status": "status subscription_status email_status email_marketing_status email_marketing_consent "
              "newsletter_status newsletterstatus anmeldestatus abo_status abonnement_status statut_abonnement "
              "statut_d_abonnement estado_suscripcion estado_de_suscripcion stato_iscrizione",
    "subscribed_email": "subscribed_email subscribed opt_in optin email_opt_in accepts_email_marketing "
                        "accepts_marketing newsletter newsletter_opt_in newsletter_subscription newsletter_subscriber "
                        "marketing_opt_in email_marketing email_consent email_permission abonniert "
                        "newsletter_abonniert newsletter_anmeldung newsletter_einwilligung newsletter_erhalten "
                        "newsletter_empfanger email_einwilligung werbeeinwilligung abonne suscrito boletin",
    "subscribed_phone": "subscribed_phone sms_opt_in accepts_sms_marketing sms_marketing_consent sms_consent "
                        "sms_marketing sms_permission",
    "opted_out_by": "opted_out_by", "verified": "verified email_verified",
    "unsubscribed": "unsubscribed unsub_time unsubscribed_at do_not_email donotemail do_not_contact donotcontact dnc "
                    "dnc_reason do_not_contact_reason opted_out opt_out optout abgemeldet abgemeldet_am desinscrit "
                    "desabonne baja",
    "bounced": "bounced clean_time cleaned bounced_at",
    "opt_in_at": "subscribed_at subscribed_on date_subscribed subscription_date subscribe_date signup_date "
                 "sign_up_date signed_up_at signed_up_on date_signed_up signup_time opt_in_date optin_date opt_in_time "
                 "optin_time consent_date newsletter_since anmeldedatum datum_der_anmeldung angemeldet_am abonniert_am "
                 "angemeldet_seit abonniert_seit date_d_inscription date_d_abonnement inscrit_le abonne_depuis "
                 "fecha_de_suscripcion suscrito_el data_iscrizione data_di_iscrizione iscritto_il data_de_inscricao "
                 "inscrito_em inschrijfdatum aanmelddatum data_zapisu",
}  # fmt: skip
# The words for yes and no after the name of a consent column, such as `Newsletter ja/nein`
_YES_NO_REMARK = re.compile(r"_(?:ja_nein|j_n|yes_no|y_n|oui_non|o_n|si_no|sim_nao)$")
_TARGET_BY_NAME = {name: target for target, names in _NAMES.items() for name in names.split()}
# Columns of our own export that are skipped, because the service computes their values
_OWN_NAMES = """
    id account_id uuid list_ids lists created_at updated_at last_interacted_at channels channels_attributes
    sendable_email sendable_phone verification_status enrichment_status email_sent_count email_open_count
    email_click_count email_soft_bounce_count sms_sent_count email_last_sent_at email_last_opened_at
    email_last_clicked_at opt_in_at opt_out_at suppression suppression_reason kept_opt_out
"""
_OWN_COLUMNS = frozenset(_OWN_NAMES.split())


# Targets, in addition to custom data, that several columns may have
_REPEATABLE = ("phone", "tags", "unsubscribed", "bounced")


class Product(NamedTuple):
    """An export format of a product.

    `needs` are the names of the columns that identify it, and `map` has the targets of columns by name. The names are
    in the form that `_join_words` returns. The target "" skips a column.
    """

    name: str
    needs: frozenset[str]
    map: dict[str, str]


def _product(name: str, required_columns: str, left_out: str = "", **targets: str) -> Product:
    mapped = dict.fromkeys(left_out.split(), "") | targets
    return Product(name, frozenset(required_columns.split()), mapped)


OWN_EXPORT = "campanero"
# Columns of our own export. Under these names, the targets are recognised in our own export only.
_ROUND_TRIP = ("opt_in_at", "opt_out_at", "channels", "lists")
PRODUCTS = (
    _product(OWN_EXPORT, "id uuid subscribed_email subscribed_phone channels lists data",
             **{x: x for x in _ROUND_TRIP}),
    _product("listmonk", "uuid email name attributes status", "uuid created_at updated_at"),
    _product(
        "mailchimp", "email_address leid euid",
        "member_rating optin_ip confirm_time confirm_ip latitude longitude gmtoff dstoff last_changed leid "
        "euid unsub_campaign_title unsub_campaign_id unsub_reason unsub_reason_other clean_campaign_title "
        "clean_campaign_id",
        cc="country_code", phone_number="phone", unsub_time="unsubscribed", clean_time="bounced",
        optin_time="opt_in_at",
    ),
    _product("keila", "email first_name last_name data status"),
    _product("keila", "email first_name last_name data"),
    _product(
        "mautic", "firstname lastname points email",
        "id points owner_id is_published date_added date_modified date_identified last_active stage ownerusername "
        "createdbyuser modifiedbyuser",
    ),
)  # fmt: skip


def normalize_name(name: str) -> str:
    """Return the name of a column in lower case, its words joined by `_`: `FirstName` becomes `first_name`."""
    return re.sub(r"[^\w]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.strip())).strip("_").lower()


def recognize_product(names: list[str]) -> str | None:
    """Return the name of the first of PRODUCTS whose identifying columns are all in `names`, or None."""
    joined_names = {_join_words(name) for name in names}
    return next((product.name for product in PRODUCTS if product.needs <= joined_names), None)


def _join_words(name: str) -> str:
    """Return a name like `normalize_name`, but do not split it at capitals: `FirstName` becomes `firstname`."""
    return re.sub(r"[^\w]+", "_", name.strip()).strip("_").lower()


def guess_targets(names: list[str], resource: str = "contacts") -> list[str]:
    """Return a target for each column name, "" for a column to skip.

    If several columns have a target that only one may have, the others become custom data. `resource` is `contacts` or
    `suppressions`.
    """
    joined_names = {_join_words(name) for name in names}
    product = next((candidate for candidate in PRODUCTS if candidate.needs <= joined_names), None)
    targets: list[str] = []
    guesses = [_guess_target(name, product) for name in names]
    for name, target in zip(names, guesses, strict=True):
        if target.startswith("data.") and (loose := _guess_loosely(name)) and loose not in guesses:
            target = loose
        if resource == "suppressions":
            target = _suppression_target(name, target)
        is_single = target and not target.startswith("data") and target not in _REPEATABLE
        targets.append(f"data.{normalize_name(name)}"[:255] if is_single and target in targets else target)
    return targets


def _guess_target(name: str, product: Product | None) -> str:
    flat, split = (_YES_NO_REMARK.sub("", text) for text in (_join_words(name), normalize_name(name)))
    if product is not None and flat in product.map:
        return product.map[flat]
    if name.strip().startswith("data.") and len(name.strip()) > 5:
        return name.strip()
    if flat in _OWN_COLUMNS:
        return ""
    target = _TARGET_BY_NAME.get(fold_accents(flat)) or _TARGET_BY_NAME.get(fold_accents(split))
    if target is not None:
        return target
    return f"data.{split}" if split else ""


def _guess_loosely(name: str) -> str | None:
    """Return the target of a column name in which remarks in brackets and alternatives are allowed, or None.

    `Newsletter (Y/N)` is read as `Newsletter`. `Mobile / Tel` is a phone number, because both alternatives have that
    target.
    """
    plain = name.partition("(")[0].partition("[")[0]
    if plain == name and "/" not in name:
        return None
    targets = {_TARGET_BY_NAME.get(fold_accents(normalize_name(word))) for word in plain.split("/")}
    return targets.pop() if len(targets) == 1 else None


def _suppression_target(name: str, target: str) -> str:
    flat = _join_words(name)
    if flat in ("address", "value", "recipient"):
        return "email"
    return flat if flat in ("reason", "note") else target if target in ("email", "phone") else ""


DateOrder = Literal["dmy", "mdy"]

# The order of dates in a column. `clear`: it does not matter for any date. `dmy`: the day is first. `mdy`: the month is
# first. `ambiguous`: no date shows the order. `mixed`: some dates have the day first, and others the month.
DateFormat = Literal["clear", "dmy", "mdy", "ambiguous", "mixed"]

# A column contains dates if half of all its values are dates. It is no longer read if, from this number of values on,
# fewer than half of the values so far are dates.
_SAMPLED_VALUES = 20

_MAX_DATE_CHARACTERS = 40

_TIME = r"(?:,?[t\s]\s*(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,]\d{1,9})?)?\s*" \
        r"(?P<half>[ap]\.?m\.?)?\s*(?P<zone>z|utc|gmt|[+-]\d{2}:?\d{2})?)?"  # fmt: skip

_ISO = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]|\Z)")

_YEAR_FIRST = re.compile(r"(?P<year>\d{4})([-/.])(?P<month>\d{1,2})\2(?P<day>\d{1,2})" + _TIME)

_YEAR_LAST = re.compile(
    r"(?P<first>\d{1,2})\s?(?P<mark>[./-])\s?(?P<last>\d{1,2})\s?(?P=mark)\s?(?P<year>\d{4}|\d{2})" + _TIME
)

# The apostrophe is that of `3 April '85`.
_NAMED_YEAR = r"(?:(?P<year>\d{4})|['’]?(?P<short_year>\d{2}))"

_DAY_NAMED = re.compile(
    r"(?P<day>\d{1,2})(?:st|nd|rd|th|er|\.)?[\s-]+(?:de\s+)?(?P<name>[^\W\d_]{3,})\.?,?[\s-]+(?:de\s+)?"
    + _NAMED_YEAR + _TIME
)  # fmt: skip

_NAMED_DAY = re.compile(r"(?P<name>[^\W\d_]{3,})\.?\s+(?P<day>\d{1,2})(?:st|nd|rd|th)?,?\s+" + _NAMED_YEAR + _TIME)

_WEEKDAY = re.compile(r"[^\W\d_]{2,}\.?,\s+(?=[\w\d])")

_MONTHS = (
    "january januar janvier enero gennaio januari janeiro",
    "february februar fevrier febrero febbraio februari fevereiro",
    "march marz maerz mars marzo maart marco",
    "april avril abril aprile",
    "may mai mayo maggio mei maio",
    "june juni juin junio giugno junho",
    "july juli juillet julio luglio julho",
    "august aout agosto augustus",
    "september septembre septiembre settembre setembro",
    "october oktober octobre octubre ottobre outubro",
    "november novembre noviembre novembro",
    "december dezember decembre diciembre dicembre dezembro",
)


def _month(name: str) -> int | None:
    """Return the month (1 to 12) of a full or shortened name in seven languages; None if no or several match."""
    folded = "".join(c for c in unicodedata.normalize("NFKD", name.casefold()) if not unicodedata.combining(c))
    months = {
        number
        for number, names in enumerate(_MONTHS, 1)
        if any(month_name.startswith(folded) for month_name in names.split())
    }
    return months.pop() if len(months) == 1 else None


class ParsedDate(NamedTuple):
    """A date in ISO 8601, once with the day first and once with the month first; None where that is not a valid date.

    `has_dots` says that the numbers are separated by dots, as in `31.12.1985`.
    """

    day_first: str | None
    month_first: str | None
    has_dots: bool = False

    @property
    def is_clear(self) -> bool:
        """Return whether the date is the same in both orders."""
        return self.day_first == self.month_first


def parse_date(text: str) -> ParsedDate | None:
    """Parse a date, with or without a time, in a common notation; return None if the text is not a date."""
    text = text.strip()
    if not 6 <= len(text) <= _MAX_DATE_CHARACTERS or not any(character.isdecimal() for character in text):
        return None
    if _ISO.match(text):
        return ParsedDate(text, text) if _is_iso(text) else None
    text = _WEEKDAY.sub("", text.casefold(), count=1)
    match = _YEAR_FIRST.fullmatch(text) or _YEAR_LAST.fullmatch(text)
    match = match or _DAY_NAMED.fullmatch(text) or _NAMED_DAY.fullmatch(text)
    if match is None:
        return None
    groups = match.groupdict()
    suffix, year = _iso_time(groups), groups["year"] or groups["short_year"]
    if suffix is None:
        return None
    if "first" in groups:
        first_number, second_number = int(groups["first"]), int(groups["last"])
        parsed = ParsedDate(
            _iso_day(year, second_number, first_number, suffix), _iso_day(year, first_number, second_number, suffix),
            groups["mark"] == ".",
        )  # fmt: skip
    else:
        month = _month(groups["name"]) if "name" in groups else int(groups["month"])
        day = _iso_day(year, month or 0, int(groups["day"]), suffix)
        parsed = ParsedDate(day, day)
    return parsed if parsed.day_first or parsed.month_first else None


def _is_iso(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _iso_day(year: str, month: int, day: int, suffix: str) -> str | None:
    """Return a date in ISO 8601, or None if it does not exist. A year of two digits is read by the module's rule."""
    try:
        parsed = date(int(year), month, day) if len(year) > 2 else _past_date(int(year), month, day)
    except ValueError:
        return None
    return f"{parsed.isoformat()}{suffix}" if 1000 <= parsed.year <= 2999 else None


def _past_date(year: int, month: int, day: int) -> date:
    """Return the latest date with this two-digit year that is not in the future; raises ValueError if there is none."""
    # The last day that has begun in any time zone
    today = datetime.fromtimestamp(clock.now() + 14 * 3600, UTC).date()
    parsed = date(today.year // 100 * 100 + year, month, day)
    return parsed if parsed <= today else parsed.replace(year=parsed.year - 100)


def _iso_time(groups: dict[str, str | None]) -> str | None:
    """Return a time with its offset as the end of an ISO 8601 text, "" for no time, or None for an invalid time."""
    if groups["hour"] is None or groups["minute"] is None:
        return ""
    hour, day_half = int(groups["hour"]), (groups["half"] or "").replace(".", "")
    if day_half and not 1 <= hour <= 12:
        return None
    if day_half:
        hour = hour % 12 + (12 if day_half == "pm" else 0)
    try:
        time_of_day = time(hour, int(groups["minute"]), int(groups["second"] or 0))
    except ValueError:
        return None
    zone = (groups["zone"] or "").upper()
    if zone in ("Z", "UTC", "GMT"):
        zone = "Z"
    elif len(zone) == 5:
        zone = f"{zone[:3]}:{zone[3:]}"
    return f"T{time_of_day.isoformat()}{zone}"


# The day numbers of spreadsheets count from this day (ECMA-376 part 1, 18.17.4.1). Those below the minimum could be
# years. 45123.5 is noon of day 45123.
_DAY_ZERO = datetime(1899, 12, 30)
_MIN_DAY_NUMBER = 3_000
_DAY_NUMBER = re.compile(r"(?P<day>\d{4,5})(?:[.,](?P<part>\d{1,15}))?", re.ASCII)


def convert_day_number(text: str) -> str | None:
    """Return the day number of a spreadsheet as a date in ISO 8601, with a time if it has a fraction; else None."""
    match = _DAY_NUMBER.fullmatch(text)
    if match is None or int(match["day"]) < _MIN_DAY_NUMBER:
        return None
    seconds = round(Decimal(f"0.{match['part'] or 0}") * 86_400)
    moment = _DAY_ZERO + timedelta(days=int(match["day"]), seconds=seconds)
    return moment.isoformat() if seconds else moment.date().isoformat()


# Words for dates and birthdays in the names of columns, in the languages of the interface
_DATE_WORDS = re.compile(
    r"date|datum|fecha|\bdata|day\b|geb(?:oren|urt)|birth|naissance|nacimiento|nascita|nasc|geboorte|urodz|日付|誕生日|生年月日",
    re.IGNORECASE,
)


def has_day_numbers(name: str, samples: list[str]) -> bool:
    """Return whether a column probably has day numbers of a spreadsheet: by its name, and by all of its samples."""
    return bool(_DATE_WORDS.search(name)) and bool(samples) and all(map(convert_day_number, map(str.strip, samples)))


class DateColumn:
    """The values of a column, from which `get_format` detects whether they are dates and in which order.

    A column that `is_chosen` has dates whatever its values are, and day numbers of spreadsheets are dates in it; then
    `day_number` is the first of them, or "".
    """

    def __init__(self, *, is_chosen: bool = False) -> None:
        self.is_chosen, self.day_number = is_chosen, ""
        self._filled = self._dates = 0
        self._day_first = self._month_first = self._either = self._has_dots = False

    def add(self, text: str) -> bool:
        """Add a non-empty value, and return whether the column may still be one of dates."""
        parsed = parse_date(text)
        self._filled += 1
        if self.is_chosen and not self.day_number and convert_day_number(text):
            self.day_number = text
        if parsed is not None:
            self._dates += 1
            self._day_first |= parsed.month_first is None
            self._month_first |= parsed.day_first is None
            if parsed.day_first and parsed.month_first and not parsed.is_clear:
                # A date with dots has the day first, unless another value of the column has the month first.
                self._has_dots |= parsed.has_dots
                self._either |= not parsed.has_dots
        return self.is_chosen or self._filled < _SAMPLED_VALUES or self._dates * 2 >= self._filled

    def get_format(self, order: DateOrder | None) -> DateFormat | None:
        """Return the date format of the column, or None if it has no dates.

        `order` is used if the values do not show the order of day and month, or contradict each other.
        """
        if not self.is_chosen and (self._dates * 2 < self._filled or not self._dates):
            return None
        if self._day_first and self._month_first:
            return order or "mixed"
        if self._month_first:
            return "mdy"
        if self._day_first or (self._has_dots and not self._either):
            return "dmy"
        return (order or "ambiguous") if self._either else "clear"


def convert_date(text: str, date_format: DateFormat, *, has_day_numbers: bool = False) -> tuple[str | None, str | None]:
    """Convert a value of a column of dates; return (ISO 8601 text, None), or (None, reason) if it is not converted."""
    if has_day_numbers and (moment := convert_day_number(text)):
        return moment, None
    parsed = parse_date(text)
    if parsed is None:
        return None, gettext_noop("is not a date")
    if parsed.is_clear:
        return parsed.day_first, None
    if not (parsed.day_first and parsed.month_first):
        # Only one order makes a valid date of 31.12.1985 or 12/31/1985, even in a column that contains both orders.
        return parsed.day_first or parsed.month_first, None
    if date_format in ("ambiguous", "mixed", "clear"):
        return None, gettext_noop("may be day or month first")
    return (parsed.month_first if date_format == "mdy" else parsed.day_first), None
