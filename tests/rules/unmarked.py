"""Find texts of templates, pages and scripts that no catalogue would have, because they are not marked.

`python -m tests.rules.unmarked FILE...` lists those of some files.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.kit.server import ROOT
from ui import view

# The functions that mark a text; all of their literal arguments are texts or contexts.
MARKERS = {"_", "pgettext_noop", "gettext", "ngettext", "pgettext", "gettext_noop", "gettext_stored", "t"}
# Words that are the same in every language, or are not words.
NAMES = {
    "Alt", "Amazon", "Anna", "Apple", "Arial", "Backspace", "Berg", "Bluesky", "Brevo", "Campanero", "Chromium",
    "Courier", "Ctrl", "Delete", "Enter", "Esc", "Escape", "Facebook", "Fastmail", "GB", "Georgia", "Gmail", "Google",
    "Helvetica", "Instagram", "KB", "Keila", "Klaviyo", "Lax", "LinkedIn", "Liquid", "MB", "Mailchimp", "Mailgun",
    "Mailjet", "Mastodon", "Mautic", "MessageBird", "Microsoft", "Outlook", "Postmark", "Python", "Resend", "SQLite",
    "SendGrid", "Shift", "Tab", "Tahoma", "TikTok", "Times", "Twilio", "UTC", "Verdana", "Vonage", "Yahoo", "YouTube",
    "com", "example", "listmonk", "ms", "px", "Authentik", "Keycloak",
}  # fmt: skip
# Literals that look like texts, but that only programs read: names of fonts and products, parts of selectors, headers,
# policies and English messages that are compared, search words of the jump dialog, and classes of pages.
NOT_SHOWN = {
    "static/js/commands.js": {"merge-field a"},
    "static/js/drag.js": {"Files"},
    "static/js/flow.js": {"Arrow"},
    "static/js/picture.js": {"Files"},
    "static/js/rich.js": {"strong:empty, em:empty, u:empty, span:empty"},
    "static/js/ui.js": {"Files", ".menu:not(#me-menu, #more-menu)", ":hover, :focus-within"},
    "ui/formats.py": {"expected a primitive expression, found end of expression"},
    "ui/labels.py": {"seed one-click"},
    "ui/html/setup/brand.html": {"broad"},
    "ui/html/setup/domain.html": {"wide"},
    "ui/html/setup/mail.html": {"wide"},
    "ui/html/setup/sender.html": {"wide"},
    "ui/html/setup/you.html": {"Northwind", "wide"},
    "ui/documentation.py": {"not lossy WebP", "Shell", "Makefile", "Response", "Prometheus", "Caddyfile"},
    "ui/pages/editor.py": {"is not a colour", "must be between", "must be between ", "is too long"},
    "ui/pages/home.py": {"new create a person subscriber", "create add sign-up signup"},
    "ui/pages/imports.py": {"import-…-….csv"},
    "ui/forms/relay_presets.py": {"Gmail, Google Workspace", "Microsoft 365"},
    "ui/pages/sending.py": {"is invalid", "is reserved", "has already been taken"},
    "ui/pages/webhooks.py": {"is invalid"},
    "ui/static_files.py": {"Not found"},
    "ui/view.py": {"Shift x", "Alt ↑ ↓", "HX-Request, HX-Target"},
    "ui/widgets/editor_panels.py": {
        "Trebuchet MS", "Times New Roman", "Courier New", "Columns", "Images", "Links", "Products",
    },
}  # fmt: skip
_SMALL_WORDS = re.compile(
    r"\b(?:a|an|the|of|to|in|is|are|for|and|or|by|this|that|no|not|on|it|its|your|you|with|from|at|as|be|has|have|will"
    r"|was|were|who|what|than|more|only|all|one|per|if|so|up|out|us|we|they|their|them|yet|now|ago)\b"
)
_TEXT_ATTRIBUTES = ("aria-label", "title", "placeholder", "alt", "label", "aria-description", "aria-roledescription")
_SILENT_TAGS = re.compile(r"<(script|style|code|kbd|pre|svg)\b.*?</\1>", re.DOTALL)
_TAG = re.compile(r"<(/?[a-zA-Z][^<>]*)>")
_ATTRIBUTE = re.compile(r"([\w-]+)=\"([^\"]*)\"")
_HOLE = "\x00"


class Unmarked(NamedTuple):
    """An unmarked text: file, line and the text."""

    path: str
    line: int
    text: str


def is_prose(text: str) -> bool:
    """Return whether a literal of code is probably a text for people: a capitalised word, or several words."""
    bare = text.replace(_HOLE, " ").strip(" .,:;…“”()·×—–")
    if not bare or bare in NAMES or re.search(r"[][<>={}\\_/]|\w\.\w|^[#.&?:]|--|'none'|\bsandbox ", bare):
        return False
    words = bare.split()
    if len(words) == 1:
        return bool(re.fullmatch(r"[A-Z][a-z]{2,}[.…?!]?", bare))
    if not re.search(r"[A-Za-z]{2}", bare) or all(word in NAMES or word.isupper() for word in words):
        return False
    return bool(re.match(r"[A-Z][a-z]", bare) or _SMALL_WORDS.search(bare) or re.search(r"[.,?!…’;]", bare))


def has_words(text: str) -> bool:
    """Return whether a text of HTML has a word that has to be translated."""
    plain = re.sub(r"&\w+;|&#\d+;", " ", text)
    if '="' in text or plain.replace(_HOLE, " ").strip() in NOT_SHOWN:
        return False  # attributes that a macro writes into the tag of its caller
    words = re.findall(r"[A-Za-zÀ-ž]{2,}", re.sub(r"https?://\S*|\S+@\S+|\w+\.\w[\w.]*", " ", plain))
    return any(word not in NAMES and not word.isupper() for word in words)


def in_template(path: Path) -> Iterator[Unmarked]:
    """Yield the unmarked texts of a template: its HTML outside of `trans`, and literals outside of `_()`."""
    html, lines = [], []
    in_trans = False
    calls: list[bool] = []
    previous = ("", "")
    for line, kind, value in view.template_environment().lex(path.read_text(encoding="utf-8")):
        if kind in ("whitespace", "comment_begin", "comment_end", "comment"):
            continue
        if kind == "name" and previous[0] == "block_begin" and value in ("trans", "endtrans"):
            in_trans = value == "trans"
        if kind == "data" and not in_trans:
            html.append(value)
            lines.append((len("".join(html)) - len(value), line))
        elif kind in ("variable_end", "block_end") and not in_trans:
            html.append(_HOLE)
        elif kind == "operator" and value in "([{":
            calls.append(
                previous == ("name", "_") or previous[1] in MARKERS if value == "(" else bool(calls and calls[-1])
            )
        elif kind == "operator" and value in ")]}" and calls:
            calls.pop()
        elif kind == "name" and previous == ("operator", "(") and calls and calls[-1]:
            # A value would be HTML and not escaped; the filter `translated` returns plain text
            yield Unmarked(str(path), line, f"_({value}…")
        elif kind == "string" and not in_trans and not (calls and calls[-1]) and is_prose(value[1:-1]):
            yield Unmarked(str(path), line, value[1:-1])
        previous = (kind, value)
    yield from _in_html(path, "".join(html), lines)


def _in_html(path: Path, html: str, lines: list[tuple[int, int]]) -> Iterator[Unmarked]:
    def line_of(position: int) -> int:
        start, line = [(0, 1), *(pair for pair in lines if pair[0] <= position)][-1]
        return line + html.count("\n", start, position)

    def blank(match: "re.Match[str]") -> str:
        return re.sub(r"[^\n]", " ", match[0])

    html = _SILENT_TAGS.sub(blank, re.sub(r"<!--.*?-->", blank, html, flags=re.DOTALL))
    for tag in _TAG.finditer(html):
        for name, value in _ATTRIBUTE.findall(tag[0]):
            if name in _TEXT_ATTRIBUTES and has_words(value):
                yield Unmarked(str(path), line_of(tag.start()), f"{name}={value.replace(_HOLE, '…')}")
    position = 0
    for text in re.split(r"<[a-zA-Z/!][^<>]*>", html):
        if has_words(text):
            yield Unmarked(str(path), line_of(html.find(text, position)), " ".join(text.replace(_HOLE, "…").split()))
        position = max(position, html.find(text, position))


# Calls whose arguments nobody reads in the interface, and errors that only a programmer causes.
_SILENT_CALLS = {
    "compile", "info", "warning", "error", "exception", "debug", "RuntimeError", "AssertionError", "TypeError",
    "KeyError", "getattr", "setattr", "get_logger", "getLogger", "sub", "match", "fullmatch", "search", "strftime",
    "execute", "TypeVar", "Literal",
}  # fmt: skip


def _marks(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") in MARKERS


def in_python(path: Path) -> Iterator[Unmarked]:
    """Yield the unmarked texts of a module: literals and f-strings outside of the functions that mark."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    silent: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                silent.add(id(first.value))
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in MARKERS and any(_marks(inner) for argument in node.args for inner in ast.walk(argument)):
                # Babel does not find a marked text within the arguments of another marker
                yield Unmarked(str(path), node.lineno, f"{name}(… a marked text …)")
            if name in MARKERS or name in _SILENT_CALLS:
                silent |= {id(inner) for argument in node.args for inner in ast.walk(argument)}
        if isinstance(node, ast.arg) and node.annotation:
            silent |= {id(inner) for inner in ast.walk(node.annotation)}
        if isinstance(node, ast.AnnAssign | ast.FunctionDef | ast.AsyncFunctionDef):
            annotation = node.annotation if isinstance(node, ast.AnnAssign) else node.returns
            if annotation is not None:
                silent |= {id(inner) for inner in ast.walk(annotation)}
    for node in ast.walk(tree):
        if id(node) in silent:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else _HOLE for part in node.values]
            silent |= {id(part) for part in node.values}
            text = "".join(map(str, parts))
            if is_prose(text):
                yield Unmarked(str(path), node.lineno, text.replace(_HOLE, "…"))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and is_prose(node.value):
            yield Unmarked(str(path), node.lineno, node.value)


# The errors that pages show to users, with the positions of the arguments that are texts.
_ERRORS = {"Invalid": (0,), "Conflict": (0,), "NotAllowed": (0,), "RateLimitExceeded": (0,), "Unavailable": (0,),
    "MergeError": (0,), "AddressError": (0,), "add_error": (0,)}  # fmt: skip


def in_errors(path: Path) -> Iterator[Unmarked]:
    """Yield the unmarked texts of errors in a module: arguments of the error classes, and of `Faults.add`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        positions = _ERRORS.get(name, ())
        if name == "add" and ast.unparse(node.func).endswith("faults.add"):
            positions = (1,)
        texts = [node.args[position] for position in positions if position < len(node.args)]
        texts += [keyword.value for keyword in node.keywords if positions and keyword.arg == "message"]
        for text in texts:
            yield from (Unmarked(str(path), line, literal) for line, literal in _find_literals(text))


def _find_literals(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each literal of an expression that is a text, outside of calls and of the keys of dicts."""
    if isinstance(node, ast.Call | ast.Compare | ast.Subscript):
        return
    if isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else _HOLE for part in node.values]
        text = "".join(map(str, parts)).replace(_HOLE, "…")
        if re.search(r"[A-Za-z]{2}", text):
            yield node.lineno, text
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, str) and re.search(r"[A-Za-z]{2}", node.value):
            yield node.lineno, node.value
    else:
        children: Iterable[ast.AST] = ast.iter_child_nodes(node)
        if isinstance(node, ast.Dict):
            children = node.values
        elif isinstance(node, ast.DictComp):
            children = [node.value]
        for child in children:
            yield from _find_literals(child)


_SELECTORS = re.compile(r"[a-z.]+(?:,? [a-z.]+)+")


def in_script(path: Path) -> Iterator[Unmarked]:
    """Yield the unmarked texts of a script: literals outside of `t()`; its comments may say anything."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        code = re.sub(r"(?:^|\s)//.*$|/\*.*?\*/", "", line)
        for match in re.finditer(r"""(\bt\()?("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)""", code):
            text = re.sub(r"\$\{[^}]*\}", _HOLE, match[2][1:-1])
            if not match[1] and is_prose(text) and not _SELECTORS.fullmatch(text):
                yield Unmarked(str(path), number, text.replace(_HOLE, "…"))


def in_file(path: Path) -> Iterator[Unmarked]:
    """Yield the unmarked texts of a file by its kind, without those of `NOT_SHOWN`."""
    allowed = NOT_SHOWN.get(path.resolve().relative_to(ROOT).as_posix(), set())
    for unmarked in {".html": in_template, ".py": in_python, ".js": in_script}[path.suffix](path):
        if unmarked.text.strip("… ") not in allowed and unmarked.text not in allowed:
            yield unmarked


if __name__ == "__main__":
    for name in sys.argv[1:]:
        for unmarked in in_file(Path(name)):
            print(f"{unmarked.path}:{unmarked.line}: {unmarked.text}")
