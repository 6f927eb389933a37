"""Load the guides under /docs, find the guide of each page of the product, and search in guides.

A guide is `ui/guides/NAME.md`, in English. Those for people who do not program are also in the other languages of the
interface, as `ui/guides/LANGUAGE/NAME.md`. A translation has the headings of the English guide in the same order, which
give it their ids, so that links to a heading work in each language.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from functools import cache
from html import escape, unescape
from typing import Any, NamedTuple

from appliance.api.mcp.resources import GuideText
from appliance.core import shipped
from appliance.core.i18n import DEFAULT_LANGUAGE, gettext_noop
from appliance.settings import config
from ui import static_files


class Group(NamedTuple):
    """A group of guides: its heading, a description in one line (`lead`), and the names of its guides in order."""

    title: str
    lead: str
    names: tuple[str, ...]


# Headings and lines are translated on the page.
GROUPS = (
    Group(
        gettext_noop("Guides"),
        gettext_noop("For everyone who writes and sends. No programming needed."),
        (
            "first-campaign", "importing-contacts", "email-editor", "segments", "sign-up-forms", "automations",
            "flow-steps", "replay", "timing", "best-hour", "recurring", "experiments", "utm", "reports",
            "deliverability", "sms", "team", "passkeys", "data-protection",
        ),
    ),
    Group(
        gettext_noop("Running Campanero"),
        gettext_noop("For those who install Campanero, connect it and keep it running."),
        (
            "install", "https", "connect-a-relay", "connect-a-mailbox", "several-providers", "verify-a-domain",
            "company-mail", "sign-in", "own-roles", "assistants", "watch", "security", "backup", "set-up-copies",
            "copies", "how-far", "second-machine", "several-accounts",
        ),
    ),
    Group(
        gettext_noop("API"),
        gettext_noop("For developers: examples in curl and Python, and every operation."),
        (
            "send-your-first-mail", "scripts", "other-apis", "mcp", "import", "flows", "webhooks", "authentication",
            "errors-and-limits",
        ),
    ),
)  # fmt: skip
# The guide of each page of the product, as (start of the path, guide, id of a heading or ""). `#` stands for an id; the
# longest start wins. Pages of a single contact or campaign have the guide of their tasks.
HELP = (
    ("/", "first-campaign", ""),
    ("/activity", "reports", "see-what-one-contact-did"),
    ("/activity/answers", "sms", "read-the-replies"),
    ("/brand", "email-editor", "set-up-your-brand-once"),
    ("/campaigns", "first-campaign", "create-the-campaign"),
    ("/campaigns/#", "reports", "read-the-report-of-a-campaign"),
    ("/campaigns/#/audience", "first-campaign", "choose-who-gets-it"),
    ("/campaigns/#/content", "email-editor", ""),
    ("/campaigns/#/decide", "team", "ask-for-approval-before-a-send"),
    ("/campaigns/#/experiment", "experiments", "read-the-result"),
    ("/campaigns/#/preview", "first-campaign", "check-it-before-you-send"),
    ("/campaigns/#/rehearsal", "first-campaign", "check-it-before-you-send"),
    ("/campaigns/#/reschedule", "first-campaign", "send-now-or-later"),
    ("/campaigns/#/send", "first-campaign", "send-now-or-later"),
    ("/campaigns/#/template", "email-editor", "start-with-a-design"),
    ("/campaigns/#/test", "first-campaign", "check-it-before-you-send"),
    ("/campaigns/#/translations", "email-editor", "write-in-several-languages"),
    ("/campaigns/#/variants", "experiments", "set-up-an-a-b-test"),
    ("/campaigns/control-group", "experiments", "measure-what-a-campaign-changes"),
    ("/campaigns/new", "first-campaign", "create-the-campaign"),
    ("/contacts", "segments", "filter-contacts"),
    ("/contacts/#", "reports", "see-what-one-contact-did"),
    ("/contacts/#/conversation", "sms", "read-the-replies"),
    ("/contacts/#/delete", "data-protection", "erase-a-contact"),
    ("/contacts/imports", "importing-contacts", ""),
    ("/contacts/new", "importing-contacts", "add-a-single-contact"),
    ("/contacts/suppressions", "data-protection", "block-an-address-for-good"),
    ("/exports", "data-protection", "export-your-data"),
    ("/flows", "automations", ""),
    ("/flows/#/crowd", "automations", "simulate-it-before-you-start"),
    ("/flows/#/people", "automations", "watch-who-is-in-the-flow"),
    ("/flows/#/replay", "replay", ""),
    ("/flows/#/steps", "email-editor", ""),
    ("/flows/#/try", "automations", "simulate-it-before-you-start"),
    ("/forms", "sign-up-forms", ""),
    ("/inbox", "first-campaign", "practise-in-test-mode"),
    ("/lists", "importing-contacts", "use-lists-for-what-contacts-signed-up-for"),
    ("/outbox", "reports", "find-messages-that-were-not-delivered"),
    ("/proposals", "assistants", "decide-about-a-proposal"),
    ("/segments", "segments", ""),
    ("/settings/accounts", "several-accounts", ""),
    ("/settings/accounts/#", "several-accounts", "set-limits"),
    ("/settings/apps", "mcp", ""),
    ("/settings/audit", "team", "see-who-changed-what"),
    ("/settings/backups", "set-up-copies", ""),
    ("/settings/consent", "data-protection", "decide-what-is-tracked"),
    ("/settings/content", "data-protection", "copy-content-to-another-account"),
    ("/settings/data", "data-protection", "export-your-data"),
    ("/settings/doctor", "deliverability", "run-the-health-check"),
    ("/settings/domains", "deliverability", "verify-your-sending-domain"),
    ("/settings/keys", "authentication", ""),
    ("/settings/roles", "own-roles", ""),
    ("/settings/sending", "connect-a-relay", ""),
    ("/settings/sending/connect", "connect-a-mailbox", ""),
    ("/settings/sending/rules", "several-providers", "add-rules"),
    ("/settings/sending/transports", "several-providers", "add-a-transport"),
    ("/settings/sign-in", "sign-in", ""),
    ("/settings/team", "team", ""),
    ("/settings/webhooks", "webhooks", ""),
    ("/settings/you", "team", "protect-your-own-account"),
    ("/settings/you/codes", "passkeys", "if-a-passkey-is-lost"),
    ("/settings/you/identities", "sign-in", "link-your-own-account"),
    ("/settings/you/passkeys", "passkeys", "add-a-passkey"),
    ("/settings/you/passkeys/#", "passkeys", "rename-or-remove-a-passkey"),
    ("/settings/you/sessions", "passkeys", "see-where-you-are-signed-in"),
    ("/templates", "email-editor", ""),
    ("/templates/#/translations", "email-editor", "write-in-several-languages"),
    ("/templates/media", "email-editor", "add-images"),
    ("/templates/pictures", "email-editor", "add-images"),
)
# The base URL in the examples, which is replaced by that of the installation.
_EXAMPLE_BASE_URL = "http://127.0.0.1:8080"
# The captions of code blocks, by language; they are part of guides that are in English only.
_CAPTIONS = {
    "sh": "Shell",
    "bash": "Shell",
    "makefile": "Makefile",
    "python": "Python",
    "json": "Response",
    "toml": "campanero.toml",
    "yaml": "Prometheus",
    "text": "",
    "nginx": "nginx",
    "caddy": "Caddyfile",
}
# How many pixels of a picture are one CSS pixel; tests/ui/test_guide_pictures.py takes the pictures at this scale.
# Those in other languages than English are smaller, because there are eight times as many.
PICTURE_SCALE, TRANSLATED_PICTURE_SCALE = 1.5, 1.25


class Part(NamedTuple):
    """A part of a guide or of the API reference that the search finds, with the URL of its heading.

    `language` is the tag of the language that it is written in (RFC 5646).
    """

    title: str
    heading: str
    href: str
    text: str
    language: str


class Guide(NamedTuple):
    """A guide: its name in URLs, title, introduction and HTML body, the (id, text) of its headings, and its parts.

    `language` is the tag of the language that it is written in (RFC 5646).
    """

    name: str
    title: str
    lead: str
    body: str
    headings: tuple[tuple[str, str], ...]
    parts: tuple[Part, ...]
    language: str


def guide_names() -> tuple[str, ...]:
    """Return the names of all guides, in order."""
    return tuple(name for group in GROUPS for name in group.names)


def list_guides(base: str, language: str = DEFAULT_LANGUAGE) -> list[tuple[Group, list[Guide]]]:
    """Return all guides by group, with examples for this base URL, in a language as far as they are translated."""
    return [(group, [load_guide(name, base, language) for name in group.names]) for group in GROUPS]


def find_neighbours(name: str, base: str, language: str = DEFAULT_LANGUAGE) -> tuple[Guide | None, Guide | None]:
    """Return the guides before and after a guide in its group, or None at the ends.

    Raises StopIteration for an unknown guide.
    """
    names = next(group.names for group in GROUPS if name in group.names)
    at = names.index(name)
    before, after = names[:at][-1:], names[at + 1 :][:1]
    return (
        load_guide(before[0], base, language) if before else None,
        load_guide(after[0], base, language) if after else None,
    )


@cache
def load_guide(name: str, base: str, language: str = DEFAULT_LANGUAGE) -> Guide:
    """Return a guide whose examples use this base URL, in a language or, if it is not translated, in English.

    Raises KeyError for an unknown name.
    """
    if name not in guide_names():
        raise KeyError(name)
    translation = shipped.find("ui", "guides", language, f"{name}.md")
    is_translated = language != DEFAULT_LANGUAGE and translation.is_file()
    tag = (language if is_translated else DEFAULT_LANGUAGE).replace("_", "-")
    title, lead, body = _render_guide(_read_guide(name), DEFAULT_LANGUAGE)
    if is_translated:
        heading_ids = iter(re.findall(r'<h[23] id="([^"]+)">', body))
        title, lead, body = _render_guide(translation.read_text("utf-8"), language)
        body = re.sub(r'<(h[23]) id="[^"]*">', lambda match: f'<{match[1]} id="{next(heading_ids)}">', body)
    body = body.replace(_EXAMPLE_BASE_URL, escape(base))
    headings = re.findall(r'<h2 id="([^"]+)">(.*?)</h2>', body)
    return Guide(
        name,
        title,
        lead,
        body,
        tuple((heading_id, _strip_tags(heading)) for heading_id, heading in headings),
        tuple(_split_parts(title, f"/docs/guides/{name}", f"<p>{lead}</p>{body}", tag)),
        tag,
    )


def list_guide_texts() -> list[GuideText]:
    """Return all guides in English as Markdown, for assistants; a guide is read when its text is needed."""
    return [_describe_guide_text(name) for name in guide_names()]


def _describe_guide_text(name: str) -> GuideText:
    title, lead, _ = _split_guide(_read_guide(name))
    return GuideText(name, title, lead, lambda: _read_guide(name).replace(_EXAMPLE_BASE_URL, _base_url()))


def _read_guide(name: str) -> str:
    """Return the Markdown of an English guide without the comment above its title."""
    text = shipped.find("ui", "guides", f"{name}.md").read_text("utf-8")
    return text[text.index("# ") :]


def _base_url() -> str:
    return config.base_url(config.current())


def _split_guide(text: str) -> tuple[str, str, str]:
    """Return the title, introduction and rest of a guide, in Markdown."""
    title, lead, source = (part.strip() for part in text.split("\n\n", 2))
    return title.removeprefix("# "), lead, source


def _render_guide(text: str, language: str) -> tuple[str, str, str]:
    """Return the title, introduction and HTML body of a guide; the comment above the title is left out.

    Pictures are those of a language.
    """
    title, lead, source = _split_guide(text[text.index("# ") :])
    return title, lead, _markdown_renderer().render(source, {"language": language})


def slug(words: str) -> str:
    """Return the HTML id of a heading."""
    return re.sub(r"[^a-z0-9_]+", "-", words.lower()).strip("-")


def help_url(path: str) -> str:
    """Return the URL of the guide that explains a page of the product; `path` is the path of the page."""
    pattern = re.sub(r"/\d+(?=/|$)", "/#", path)
    _, name, heading = max(
        (entry for entry in HELP if entry[0] == "/" or f"{pattern}/".startswith(f"{entry[0]}/")),
        key=lambda entry: len(entry[0]),
    )
    return f"/docs/guides/{name}" + (f"#{heading}" if heading else "")


# The search reads all parts of all guides: there are a few hundred, of some hundred words each.

MAX_RESULTS = 20
_EXCERPT_CHARACTERS = 180
# Words in other languages than English are compared by their first letters, which most endings leave alone.
_STEM_LETTERS = 6
_TITLE_POINTS, _HEADING_POINTS, _MAX_TEXT_POINTS = 10, 6, 3


class SearchResult(NamedTuple):
    """A part of the documentation that matches a search; `excerpt` has (text, whether it matches) pieces."""

    part: Part
    excerpt: tuple[tuple[str, bool], ...]


class SearchIndex:
    """A search index of parts of the documentation, with their words counted; queries are in the one `language`."""

    def __init__(self, parts: Iterable[Part], language: str = DEFAULT_LANGUAGE) -> None:
        self._language = language
        self._entries = [
            (part, _count_words(part.title), _count_words(part.heading), _count_words(part.text)) for part in parts
        ]

    def search(self, query: str, *, only_headings: bool = False, limit: int = MAX_RESULTS) -> list[SearchResult]:
        """Return the parts that match a query, the best match first, at most `limit`.

        A part matches if it has more than half as many of the query's words as the part that has the most. With
        `only_headings`, all words must be in the title or heading. Filler words are ignored. A word also matches longer
        words that begin with it ("segment" matches "segments"); hyphens in the text are ignored. If nothing matches
        words with hyphens, their parts are searched ("double-opt-in" finds "double opt-in").
        """
        stems = list_stems(query, self._language)
        ranked: list[tuple[int, int, Part]] = []
        for part, *counts in self._entries:
            points = [_rate(stem, part, *counts[: 2 if only_headings else 3]) for stem in stems]
            if any(points):
                ranked.append((sum(map(bool, points)), sum(points), part))
        max_matched = max((matched for matched, _, _ in ranked), default=0)
        min_matched = len(stems) if only_headings else max_matched // 2 + 1
        best = sorted((entry for entry in ranked if entry[0] >= min_matched), key=lambda entry: -entry[1])
        if not best and "-" in query:
            return self.search(query.replace("-", " "), only_headings=only_headings, limit=limit)
        return [SearchResult(part, make_excerpt(part.text, stems)) for _, _, part in best[:limit]]


def list_stems(query: str, language: str = DEFAULT_LANGUAGE) -> list[str]:
    """Return the words of a query in lower case, without filler words, endings such as `ing`, and hyphens.

    If the query has only filler words, they are kept.
    """
    words = list(dict.fromkeys(re.findall(r"\w+", query.lower().replace("-", ""))))
    fillers = _read_filler_words().get(language, frozenset())
    words = [word for word in words if len(word) > 1 and word not in fillers] or words
    if language == DEFAULT_LANGUAGE:
        return [re.sub(r"(?<=\w{4})(?:ing|ed|es|s)$", "", word) for word in words]
    return [word[:_STEM_LETTERS] for word in words]


@cache
def _read_filler_words() -> dict[str, frozenset[str]]:
    """Return the words of a question that say nothing about its subject, by language."""
    words = tomllib.loads(shipped.find("ui", "guides", "filler_words.toml").read_text("utf-8"))
    return {language: frozenset(text.split()) for language, text in words.items()}


def _begins_with(word: str, stem: str) -> bool:
    """Return whether a word begins with a stem.

    A stem with other letters than a to z may be anywhere in the word, because Japanese does not separate words.
    """
    return word.startswith(stem) or (not stem.isascii() and stem in word)


def make_excerpt(text: str, stems: list[str]) -> tuple[tuple[str, bool], ...]:
    """Return the text around the first match, or its beginning, in pieces (text, whether it matches)."""
    alternatives = "|".join(
        rf"\b{'-?'.join(map(re.escape, stem))}[\w-]*" if stem.isascii() else re.escape(stem) for stem in stems
    )
    pattern = re.compile(alternatives or r"(?!)", re.IGNORECASE)
    match = pattern.search(text)
    start = max(match.start() - _EXCERPT_CHARACTERS // 3, 0) if match else 0
    start = text.find(" ", start) + 1 if start else 0
    excerpt = text[start : start + _EXCERPT_CHARACTERS]
    if start + _EXCERPT_CHARACTERS < len(text):
        excerpt = excerpt.rpartition(" ")[0] + " …"
    excerpt = ("… " if start else "") + excerpt
    pieces: list[tuple[str, bool]] = []
    end = 0
    for match in pattern.finditer(excerpt):
        pieces += [(excerpt[end : match.start()], False), (match[0], True)]
        end = match.end()
    return tuple(piece for piece in (*pieces, (excerpt[end:], False)) if piece[0])


def _count_words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text.lower().replace("-", "")))


def _rate(stem: str, part: Part, title: Counter[str], heading: Counter[str], text: Counter[str] | None = None) -> int:
    """Return the points of a part for a word, given by the best place that has it.

    The title counts fully only for the introduction of a guide.
    """
    if any(_begins_with(word, stem) for word in heading):
        return _HEADING_POINTS
    has_title = any(_begins_with(word, stem) for word in title)
    if has_title and not part.heading:
        return _TITLE_POINTS
    occurrences = sum(count for word, count in (text or {}).items() if _begins_with(word, stem))
    return max(min(occurrences, _MAX_TEXT_POINTS), int(has_title))


def _split_parts(title: str, url: str, html: str, language: str) -> Iterable[Part]:
    """Yield the introduction of a guide and its parts by heading, as texts without code blocks."""
    html = re.sub(r'<figure class="code">.*?</figure>', "", html, flags=re.DOTALL)
    intro, *rest = re.split(r'<h[23] id="([^"]+)">(.*?)</h[23]>', html)
    yield Part(title, "", url, _strip_tags(intro), language)
    for heading_id, heading, text in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        yield Part(title, _strip_tags(heading), f"{url}#{heading_id}", _strip_tags(text), language)


def _strip_tags(html: str) -> str:
    # Blocks end with a line, after which the next tag follows, so that words of two blocks are never joined
    return " ".join(unescape(re.sub(r"<[^<>]+>", "", re.sub(r"</(?:td|th|li|p)>", " ", html))).split())


@cache
def _markdown_renderer() -> Any:
    """Return the Markdown renderer. The renderer escapes HTML, so that guides cannot break the page's policy."""
    from markdown_it import MarkdownIt

    renderer = MarkdownIt("commonmark", {"html": False}).enable("table")
    renderer.add_render_rule("fence", _render_code)
    renderer.add_render_rule("heading_open", _render_heading)
    renderer.add_render_rule("image", _render_picture)
    renderer.add_render_rule("table_open", lambda *_: '<div class="wide"><table>\n')
    renderer.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return renderer


def _render_heading(_: Any, tokens: Any, at: int, *__: Any) -> str:
    return f'<{tokens[at].tag} id="{slug(tokens[at + 1].content)}">'


def _render_picture(_: Any, tokens: Any, at: int, __: Any, env: Any) -> str:
    """Return the HTML of a picture of `static/guides`, with its size, so that nothing moves when it is loaded.

    It is the picture of the guide's language or, if there is none, the English one.
    """
    language, scale = env["language"], PICTURE_SCALE
    name = f"guides/{tokens[at].attrs['src']}"
    translated = f"guides/{language}/{tokens[at].attrs['src']}"
    if static_files.has(translated):
        name, scale = translated, TRANSLATED_PICTURE_SCALE
    width, height = (round(pixels / scale) for pixels in _read_picture_size(static_files.read(name)))
    return (
        f'<img class="shot" src="{static_files.url(name)}" alt="{escape(tokens[at].content)}" width="{width}" '
        f'height="{height}" loading="lazy" decoding="async">'
    )


def _read_picture_size(content: bytes) -> tuple[int, int]:
    """Return the width and height of a lossy WebP file (RFC 9649, section 2.5)."""
    if content[:4] != b"RIFF" or content[8:16] != b"WEBPVP8 ":
        raise ValueError(content[:16])
    return (
        int.from_bytes(content[26:28], "little") & 0x3FFF,
        int.from_bytes(content[28:30], "little") & 0x3FFF,
    )


def _render_code(_: Any, tokens: Any, at: int, *__: Any) -> str:
    """Return the HTML of a code block with caption and copy button.

    A word after the language, such as `run`, becomes a data attribute by which tests find the code to execute.
    """
    language, *marks = (tokens[at].info or "text").split()
    code = escape(tokens[at].content.rstrip("\n"))
    caption = "curl" if language == "sh" and "curl " in code else _CAPTIONS[language]
    button = f'<button class="btn sm ghost" type="button" data-copy="{code}"><span data-label>Copy</span></button>'
    mark = f" data-{marks[0]}" if marks else ""
    return (
        f'<figure class="code"><figcaption>{caption}{button if language != "json" else ""}</figcaption>'
        f'<pre><code class="language-{language}"{mark}>{code}</code></pre></figure>\n'
    )
