"""The tokens that stand for merge tags during rendering cannot be forged, and restoring them always ends."""

import re

from appliance.content.designs import merge
from appliance.content.designs.markup import Tokens
from appliance.content.designs.render import render_design
from appliance.content.designs.theme import Look

DOCUMENT = {"sections": [{"type": "header", "props": {}}, {"type": "text", "props": {"content": "{{ first_name }}"}}]}


def test_tokens_differ_each_time() -> None:
    """Each rendering has its own tokens, so that the author of a brand or body cannot guess them."""
    prefixes = {re.sub(r"x\d+z\Z", "", Tokens().keep("a")) for _ in range(50)}
    assert len(prefixes) == 50


def test_restoring_is_one_pass() -> None:
    """A text with its own token, or with one that was never issued, is restored in one pass."""
    tokens = Tokens()
    token = tokens.keep("{{ a }}")
    itself, huge = token.replace("x0z", "x1z"), token.replace("x0z", f"x{'9' * 5_000}z")
    outer = tokens.keep(f"<{token}|{itself}|{huge}>")

    assert tokens.restore(outer) == f"<{{{{ a }}}}|{itself}|{huge}>"
    assert tokens.restore(itself + huge) == f"<{{{{ a }}}}|{itself}|{huge}>{huge}"


def test_merge_tags_in_a_brand_stay_text() -> None:
    """Braces in the company name and in link names are shown as they are."""
    name = "Acme {{ first_name }} {% if show %}"
    look = Look(company_name=name, links=((name, "https://x.test/"),))
    design = render_design({"sections": [{"type": "header"}, {"type": "social"}]}, look)
    for part, context in ((design.html, "html"), (design.text, "text")):
        filled = merge.compile_template(part, context).render({"first_name": "SECRET"})
        assert "SECRET" not in filled and "{ { first_name" in filled


def test_a_token_in_a_brand_stays_text() -> None:
    """A token of another rendering in the brand stays text, and no own token is left in the output."""
    design = render_design(DOCUMENT, Look(company_name="Acme", header={"wordmark_text": f"{Tokens().keep('x')}"}))

    assert "{{ first_name }}" in design.html
    assert len(re.findall(r"q[0-9a-f]{16}x\d+z", design.html)) == 1
