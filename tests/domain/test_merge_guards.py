"""A variable that a block asks for is no requirement within it: who has none is not shown those words."""

import pytest

from appliance.content.designs import merge


@pytest.mark.parametrize(
    "body",
    [
        "{% if first_name %}Hi {{ first_name }}{% endif %}",
        "{% if email %}a{% elsif first_name %}{{ first_name }}{% endif %}",
        "{% unless first_name %}Hi{% else %}Hi {{ first_name }}{% endunless %}",
        "{% if first_name and email %}{{ first_name }}{% endif %}",
        "{% if first_name != nil %}{{ first_name }}{% endif %}",
        "{% if first_name == nil %}Hi{% else %}{{ first_name }}{% endif %}",
        "{% if first_name == 'Ann' %}{{ first_name | upcase }}{% endif %}",
        "{% if first_name contains 'A' %}{% for one in data.items %}{{ first_name }}{% endfor %}{% endif %}",
        "{% if first_name %}{% if email %}{{ first_name }}{% endif %}{% else %}x{% endif %}",
        "{% if first_name == nil or email %}x{% else %}{{ first_name }}{% endif %}",
    ],
)
def test_what_is_asked_for_is_not_required(body: str) -> None:
    """Within the words that show only where a value is there, nobody can lack it."""
    found = merge.find_variables({"body": body})["first_name"]
    assert (found["required"], found["default"]) == (False, None)


@pytest.mark.parametrize(
    "body",
    [
        "{% if first_name %}Hi {{ first_name }}{% endif %}{{ first_name }}",
        "{% if first_name %}a{% else %}{{ first_name }}{% endif %}",
        "{% unless first_name %}{{ first_name }}{% endunless %}",
        "{% if first_name or email %}{{ first_name }}{% endif %}",
        "{% if email %}{{ first_name }}{% endif %}",
        "{% if first_name != 'Ann' %}{{ first_name }}{% endif %}",
        "{% if first_name == nil %}{{ first_name }}{% endif %}",
        # To the language nothing is not blank
        "{% if first_name != blank %}{{ first_name }}{% endif %}",
        "{% if contact %}{{ first_name }}{% endif %}",
    ],
)
def test_what_is_shown_without_a_value_is_required(body: str) -> None:
    """A question that may hold for somebody without the value makes sure of nothing."""
    assert merge.find_variables({"body": body})["first_name"]["required"] is True


def test_a_default_within_a_question_is_still_told() -> None:
    """What a template says for those who have none is its default, wherever it says it."""
    body = "{% if first_name %}Hi {{ first_name | default: 'you' }}{% endif %}"
    assert merge.find_variables({"body": body})["first_name"] == {
        "default": "you",
        "sample": "you",
        "required": False,
    }
