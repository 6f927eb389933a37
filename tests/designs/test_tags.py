"""The words that stand for merge tags: nobody can write one, and putting them back always ends."""

import re

from appliance.content.designs import merge
from appliance.content.designs.markup import Tokens
from appliance.content.designs.render import render_design
from appliance.content.designs.theme import Look

DOCUMENT = {"sections": [{"type": "header", "props": {}}, {"type": "text", "props": {"content": "{{ first_name }}"}}]}


def test_the_words_of_two_documents_have_nothing_in_common() -> None:
    """The same document has other words each time, so who writes a brand or a body cannot know them."""
    words = {re.sub(r"x\d+z\Z", "", Tokens().keep("a")) for _ in range(50)}
    assert len(words) == 50


def test_putting_back_ends_whatever_a_text_holds() -> None:
    """A text that holds its own word, or one that was never given out, is put back in one pass."""
    tokens = Tokens()
    word = tokens.keep("{{ a }}")
    itself, huge = word.replace("x0z", "x1z"), word.replace("x0z", f"x{'9' * 5_000}z")
    outer = tokens.keep(f"<{word}|{itself}|{huge}>")

    assert tokens.restore(outer) == f"<{{{{ a }}}}|{itself}|{huge}>"
    assert tokens.restore(itself + huge) == f"<{{{{ a }}}}|{itself}|{huge}>{huge}"


def test_no_merge_tag_is_read_in_the_words_of_a_brand() -> None:
    """Names of the company and of its links show braces as they are, whatever a contact's data says."""
    name = "Acme {{ first_name }} {% if show %}"
    look = Look(company_name=name, links=((name, "https://x.test/"),))
    made = render_design({"sections": [{"type": "header"}, {"type": "social"}]}, look)
    for part, context in ((made.html, "html"), (made.text, "text")):
        filled = merge.compile_template(part, context).render({"first_name": "SECRET"})
        assert "SECRET" not in filled and "{ { first_name" in filled


def test_a_brand_is_only_words_to_every_rendering() -> None:
    """No word of one rendering means anything in another, and none is left in what comes out."""
    made = render_design(DOCUMENT, Look(company_name="Acme", header={"wordmark_text": f"{Tokens().keep('x')}"}))

    assert "{{ first_name }}" in made.html
    assert len(re.findall(r"q[0-9a-f]{16}x\d+z", made.html)) == 1
