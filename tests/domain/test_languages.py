"""Texts in the language of a request: errors of writes, and texts that were stored in English."""

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from appliance.content import pictures
from appliance.content.designs.merge import make_readable
from appliance.content.templates.validation import validate_design
from appliance.core import addresses, i18n
from appliance.core.errors import Faults, Invalid
from appliance.core.i18n import gettext, gettext_stored, translate_stored
from appliance.sending.delivery import connection_errors, smtp_connect
from appliance.storage import transactions
from appliance.storage.database import close_database
from tests.domain.home import Home
from tests.kit import pseudo_languages
from tests.kit.pseudo_languages import LONG, transform
from ui import formats

STORED = gettext_stored("is too long (maximum is %(limit)s bytes)")


@pytest.fixture(scope="module")
def languages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Support the made-up languages in this process."""
    variables = pseudo_languages.environment(
        tmp_path_factory.mktemp("catalogues"), ["First name", "is in use", "is invalid", "the mailbox is full", STORED]
    )
    i18n.use_test_catalogues(variables["CAMPANERO_TEST_CATALOGUES"])
    yield
    i18n.use_test_catalogues(None)


@pytest.mark.usefixtures("languages")
def test_writes_run_in_the_language_of_their_caller(home: Home) -> None:
    """The writer thread serves one caller after the other, each in its language."""

    def refuse() -> None:
        raise Invalid({"base": [gettext("is in use")]})

    close_database()
    transactions.start()
    try:
        for language, message in ((LONG, transform("is in use")), ("en", "is in use")):
            with i18n.use_language(language), pytest.raises(Invalid) as caught:
                transactions.write(refuse)
            assert caught.value.fields == {"base": [message]}
    finally:
        transactions.stop()


@pytest.mark.usefixtures("languages")
def test_stored_texts_are_translated_where_they_are_shown() -> None:
    """A text that was stored in English is recognised, with its values; any other text is unchanged."""
    stored = STORED % {"limit": 32}
    foreign = "550 5.1.1 user unknown, 100 % sure"
    assert translate_stored(stored) == stored
    with i18n.use_language(LONG):
        assert translate_stored(stored) == transform(STORED) % {"limit": "32"}
        assert translate_stored("the mailbox is full") == transform("the mailbox is full")
        assert translate_stored(foreign) == foreign


@pytest.mark.usefixtures("languages")
def test_numbers_of_stored_texts_are_written_as_in_the_language() -> None:
    """A number that is stored in English notation is shown in that of the reader."""
    with i18n.use_language("de"):
        assert "16.000" in translate_stored(pictures._TOO_LONG_SIDE % {"limit": "16,000"})


def test_days_are_written_in_full() -> None:
    """A heading has no abbreviation, also in languages without a pattern for weekday, day and month in full."""
    days = {}
    for language in ("en", "de", "es", "fr", "ja"):
        with i18n.use_language(language):
            days[language] = i18n.format_day(datetime(2026, 11, 27, tzinfo=UTC))
    assert days == {
        "en": "Friday 27 November", "de": "Freitag, 27. November", "es": "viernes, 27 de noviembre",
        "fr": "vendredi 27 novembre", "ja": "11月27日金曜日",
    }  # fmt: skip


def test_merge_tags_are_named_in_the_language() -> None:
    """A merge tag without a default is shown by its label in the language of the page, not of an earlier page."""
    text = "Hi {{ contact.first_name }}"
    assert make_readable(text) == "Hi [First name]"
    with i18n.use_language("de"):
        assert make_readable(text) == "Hi [Vorname]"


def test_errors_of_connections_are_translated() -> None:
    """The error of a relay and its cause are shown in the language of the page."""
    cause = connection_errors.explain_failure(ConnectionRefusedError()).message
    error = smtp_connect.UNREACHABLE % {"host": "mail.example.com", "port": 587, "error": cause}
    with i18n.use_language("de"):
        assert translate_stored(error) == (
            "mail.example.com:587 ist nicht erreichbar: Verbindung abgelehnt, an diesem Port antwortet nichts"
        )


@pytest.mark.usefixtures("languages")
def test_errors_of_a_design_are_cached_by_language(home: Home) -> None:
    """The errors of a design that a page has checked are English for the API, and the other way round."""
    design = {"sections": [{"id": "a1", "type": "button", "props": {"label": "x", "href": "javascript:1"}}]}
    for language, text in ((LONG, transform("is invalid")), ("en", "is invalid"), (LONG, transform("is invalid"))):
        faults = Faults()
        with i18n.use_language(language):
            validate_design(home.account_id, design, "design.", faults)
        assert faults.fields == {"design.sections[0].props.href": [text]}


@pytest.mark.usefixtures("languages")
def test_names_among_labels_stay_as_they_are() -> None:
    """A list of labels may have names of users in it, whose percent signs and holes mean nothing."""
    with i18n.use_language(LONG):
        assert formats.translated("First name") == transform("First name")
        for name in ("100% sure", "%s", "%(name)s", "{0.__class__}", "50 %"):
            assert formats.translated(name) == name


def test_a_reason_that_names_a_country() -> None:
    """A reason is stored with the English name of the country, and shown with its name in the language of the page."""
    with pytest.raises(addresses.InvalidNationalNumber) as error:
        addresses.parse_written_phone("07700 900003", "GB")  # the range that Ofcom keeps for fiction
    assert str(error.value) == "is not a number in use in the United Kingdom"
    with i18n.use_language("de"):
        assert "Vereinigtes Königreich" in i18n.translate_stored(str(error.value))
        assert i18n.place_country("CH") == "Schweiz"
    assert (i18n.place_country("US"), i18n.place_country("DE")) == ("the United States", "Germany")


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("de; q=0.9, en;q=0.5", "de"), ("fr;Q=1, de", "fr"), ("pt", "pt_BR"), ("PT-br", "pt_BR"),
        ("de-AT,fr;q=0.8", "de"),
        ("sv, nl;q=0.2", "nl"), ("de;q=0, fr;q=0.1", "fr"), ("de;q=-1,fr", "fr"), ("de;q=nan,fr", "fr"), ("*", "en"),
        ("", "en"), (None, "en"), ("x" * 9_999, "en"),
    ],
)  # fmt: skip
def test_the_language_of_a_browser(header: str | None, language: str) -> None:
    """The best supported language of Accept-Language is chosen; what is not a valid element is left out."""
    assert i18n.negotiate_language(header) == language


@given(st.integers(0, 100_000), st.integers(1, 100_000))
@example(1, 2000)
@example(1, 8)
@example(5, 40)
@example(1999, 2000)
@example(19_990, 20_000)
def test_percentages_are_rounded_half_up(part: int, total: int) -> None:
    """A percentage is the exact one, rounded half up: to one decimal below 10% and above 99%, else to none."""
    part = min(part, total)
    exact = Decimal(100 * part) / Decimal(total)
    is_fine = 0 < exact < 10 or 99 < exact < 100
    rounded = exact.quantize(Decimal("0.1") if is_fine else Decimal(1), ROUND_HALF_UP)
    number = f"{rounded:f}".removesuffix(".0")

    assert formats.percent(part, total) == ("under 0.1%" if 0 < exact < Decimal("0.05") else f"{number}%")
    assert formats.percent(part, 0) == "—"
