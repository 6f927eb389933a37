"""Merge tags inside conditions: a variable that is only shown when it has a value is not required."""

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
def test_guarded_variables_are_not_required(body: str) -> None:
    """A variable shown only where a condition makes sure of its value is not required."""
    variable = merge.find_variables({"body": body})["first_name"]
    assert (variable["required"], variable["default"]) == (False, None)


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
        # In this language a missing value is not `blank`
        "{% if first_name != blank %}{{ first_name }}{% endif %}",
        "{% if contact %}{{ first_name }}{% endif %}",
    ],
)
def test_unguarded_variables_are_required(body: str) -> None:
    """A variable is required if the text with it may be shown to contacts without a value."""
    assert merge.find_variables({"body": body})["first_name"]["required"] is True


def test_a_default_inside_a_condition_is_reported() -> None:
    """The default of a variable is reported also where it is given inside a condition."""
    body = "{% if first_name %}Hi {{ first_name | default: 'you' }}{% endif %}"
    assert merge.find_variables({"body": body})["first_name"] == {
        "default": "you",
        "sample": "you",
        "required": False,
    }
