"""Functions that replaced slow patterns give the results of those patterns, and take linear time."""

import json
import re
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.content.designs import sanitizer
from appliance.content.designs.sections import BY_NAME
from appliance.content.templates import editing
from appliance.content.templates.editing import Change
from appliance.core import addresses, validation
from appliance.imports import cells, people
from appliance.sending.delivery import safe_http
from appliance.storage.models import Template
from ui.forms import line_fields

MARKS = "\u0301\u0316\u0327\u0344\u3099"
MANY = 30_000


def join(*pieces: str) -> st.SearchStrategy[str]:
    """Return texts of some of these pieces."""
    return st.lists(st.sampled_from(pieces), max_size=12).map("".join)


@given(st.text(st.sampled_from("aéßﬁ가" + MARKS), max_size=20), st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]))
def test_normalize_unicode_equals_the_standard_library(text: str, form: str) -> None:
    """A text beyond the length at which marks are sorted differently has the normal form of the standard library."""
    text = "x" * addresses._MAX_INSERTION_SORTED + text
    assert addresses.normalize_unicode(form, text) == unicodedata.normalize(form, text)  # type: ignore[arg-type]  # one of the four forms


def test_normalize_unicode_is_linear() -> None:
    """Thousands of combining marks in a row, in the wrong order, take milliseconds."""
    start = time.thread_time()
    for read in (addresses.lowercase, cells.fold_accents):
        read("a" + "\u0301" * MANY + "\u0316" * MANY)
    assert time.thread_time() - start < 2


@given(join("<u>", "</u>", "<em>", "</em>", '<span style="color:red">', "</span>", "x", " ", "<a>", "</a>"))
def test_empty_elements_are_removed_as_by_the_pattern(html: str) -> None:
    """One pass over sanitized HTML removes what repeated passes of a pattern removed."""
    clean = sanitizer.clean_text(html)
    previous, expected = "", clean
    while previous != expected:
        previous, expected = expected, re.sub(r"<(em|u|span)[^<>]*></\1>", "", expected)
    assert sanitizer._remove_empty_elements(clean) == expected


@given(join("<p>", "</p>", "<br>", "&nbsp;", " ", "x", "<p></p>"))
def test_trailing_paragraphs_are_removed_as_by_the_pattern(html: str) -> None:
    """The paragraphs at the end that have only white space are removed."""
    expected = re.sub(r"(?:<p>(?:\s|&nbsp;|<br>)*</p>\s*)+\Z", "", html)
    assert sanitizer._strip_trailing_paragraphs(html) == expected


@given(join("a", "0x", "ff", "1", ".", ":", "-", "G", "com"))
def test_hostname_is_found_as_by_the_pattern(host: str) -> None:
    """A host whose last label has a letter and is not hexadecimal is a name."""
    pattern = r"(?i)(?:^|\.)(?!0x[0-9a-f]*\.?$)[^.:]*[a-z][^.:]*\.?$"
    assert safe_http._is_hostname(host) == bool(re.search(pattern, host))


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        ("Ann <ann@example.org>", "Ann"),
        ('"Ann Lee" <ann@example.org>, ', "Ann Lee"),
        ("'Ann' <ann@example.org> ;", "Ann"),
        (" Ann<ann@example.org>", "Ann"),
        ("' <ann@example.org>", None),
        ("<ann@example.org>", None),
        ("Ann <ann@example.org> <ben@example.org>", None),
        ("Ann <>", None),
        ("a" * 256 + " <ann@example.org>", None),
    ],
)
def test_name_before_email(cell: str, name: str | None) -> None:
    """The name before an address in angle brackets is found without its quotes."""
    assert people._find_name_before_email(cell) == name


@pytest.mark.parametrize(
    ("line", "pairs"),
    [
        ("a: b", {"a": "b"}),
        ("  a b =  c:d ", {"a b": "c:d"}),
        ("a=b=c", {"a": "b=c"}),
        ("a:", {"a": None}),
        ("x" * 100 + ": 1", {"x" * 100: 1}),
    ],
)
def test_lines_of_names_and_values(line: str, pairs: dict[str, object]) -> None:
    """The first colon or equals sign of a line ends its name."""
    assert line_fields.parse_lines(line, "data") == pairs


def test_a_rich_text_is_sanitized_once_for_an_edit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The edit in the write transaction uses the rich text that was sanitized before the transaction."""
    design = {"sections": [{"id": "s1", "type": "text", "props": {"content": "<p>a</p>"}}]}
    prop = next(prop.name for prop in BY_NAME["text"].props if prop.kind == "rich")
    changes = [Change(f"props.{prop}", "<p>b</p><p></p>")]
    template = Template(design=design)
    prepared = editing.build_value_edit(template, "s1", changes)
    assert prepared is not None

    def refuse(html: str) -> str:
        raise AssertionError("sanitized again")

    monkeypatch.setattr(sanitizer, "normalize_rich_text", refuse)
    assert editing.build_value_edit(template, "s1", changes) == prepared


# The pattern of a text that counted the values of JSON.
JSON_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
JSON_LEAVES = st.none() | st.booleans() | st.text(st.sampled_from(',[{"\\:x'), max_size=4)


@given(
    st.recursive(JSON_LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(",{", max_size=2), inner)),
    st.integers(0, 8),
)
def test_values_of_json_are_counted_as_by_the_pattern(value: object, limit: int) -> None:
    """Commas and brackets in texts do not count, whatever is escaped around them."""
    content = json.dumps(value).encode()
    outside = JSON_TEXT.sub(b"", content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validation, "MAX_JSON_VALUES", limit)
        assert validation.has_too_many_values(content) == (sum(map(outside.count, (b",", b"[", b"{"))) > limit)


@pytest.mark.parametrize("unit", [b'"",', b'"a":"",', b'"[",', b'\\",', b"\\\\,", b'a\\\\,b\\",', b"[", b"x"])
def test_values_of_json_are_counted_in_time(unit: bytes) -> None:
    """They are counted on the event loop, before the signature of a webhook is checked; the pattern took 230 ms."""
    content = unit * (2_097_152 // len(unit))
    durations = []
    for _ in range(5):
        start = time.thread_time()
        validation.has_too_many_values(content)
        durations.append(time.thread_time() - start)
    assert min(durations) < 0.1
