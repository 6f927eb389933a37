"""The output of the MCP server costs little time, whatever the data of strangers looks like."""

import json
import time
from typing import Any

from appliance.api.mcp import output


def build_tiny_lists(count: int) -> dict[str, Any]:
    """Return custom data with many lists of one entry."""
    return {str(number): {str(inner): [1] for inner in range(100)} for number in range(count // 100)}


def test_many_small_lists_are_bounded_at_once() -> None:
    """The number of lists and objects does not multiply the work, and the result stays short."""
    values: list[Any] = [build_tiny_lists(3_400), [build_tiny_lists(3_400)] * 50, {"k" * 30_000: 1}, [[[[]]]] * 9_000]
    for data in values:
        started = time.process_time()
        bounded = output.bound({"contact": {"id": 7, "data": data}})
        assert time.process_time() - started < 1
        assert len(json.dumps(bounded.value, separators=(",", ":"))) <= output.MAX_RESULT_CHARACTERS
        assert bounded.cuts and bounded.value["contact"]["id"] == 7


def test_deep_values_are_cut() -> None:
    """A value of many levels is shown down to a level."""
    value: Any = 1
    for _ in range(300):
        value = {"a": [value]}
    bounded = output.bound({"value": value})
    assert json.dumps(bounded.value).count("[") < 60 and "levels" in bounded.cuts[0]


def test_many_names_are_masked_at_once() -> None:
    """The work grows with the text, not with the number of names times the text, and a long text is cut."""
    words = [f"{first}{second}{third}" for first in "abcdefghij" for second in "klmnopqrst" for third in range(40)]
    masker = output.Masker()
    started = time.process_time()
    masker.learn({"first_name": "Zoe", "data": {"all": [" ".join(words[at : at + 30]) for at in range(0, 4_000, 30)]}})
    html = "<p>Zoe " + "lorem ipsum ak7 " * 60_000 + "</p>"
    masked = masker.mask({"bodies": [html] * 10})["bodies"][0]
    assert time.process_time() - started < 1
    assert masked.startswith("<p>[name] lorem ipsum [name] lorem") and "ak7" not in masked
    bounded = output.bound({"body": masked})
    assert bounded.cuts == ["body shows its first 4000 characters."]


def test_a_cut_leaves_no_half_of_a_name() -> None:
    """A name that would be cut in two at the end of what is masked does not appear at all."""
    masker = output.Masker()
    masker.learn({"contact": {"first_name": "Zebulonius"}})
    for length in range(4_380, 4_400):
        text = f"{'x@example.org ' * 100}{'.' * length}"[: length - 1] + " Zebulonius and more" + "." * 999
        assert "Zeb" not in masker.mask(text), length


def test_names_are_masked_wherever_they_stand() -> None:
    """Names of several words, with signs, in any case, at the ends, and as keys of custom data."""
    masker = output.Masker()
    masker.learn({"contact": {"first_name": "Ana Mar\u00eda", "last_name": "O'Brien", "data": {"x": "\u0130zmir"}}})
    for text in ("ANA MAR\u00cdA", "(Ana)", "Mar\u00eda", "o'brien", "O'BRIEN's", "\u0130zmir"):
        assert "[name]" in masker.mask_text(f"-{text}-"), text
    assert masker.mask_text("Anatomy, Mariana, Brian") == "Anatomy, Mariana, Brian"
    masked = masker.mask({"data": {"alice@x.org": 1, "+1 415 555 2671": {"Ana": "x"}}})
    assert masked == {"data": {"[email]": 1, "[phone]": {"[name]": "[hidden]"}}}


def test_style_sheets_have_no_addresses() -> None:
    """`@media` after a closing brace is not an address."""
    css = "a{color:inherit}@media only screen{b{color:red}}"
    assert output.Masker().mask_text(css) == css
