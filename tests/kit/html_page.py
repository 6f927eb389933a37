"""Pages used without scripts and without a browser: find elements, follow links, fill forms and press their buttons.

Nothing here knows styles, so a test that depends on what is visible needs a browser.
"""

import re
import time
from collections.abc import Iterator
from functools import cache, cached_property
from html.parser import HTMLParser
from urllib.parse import urlencode, urljoin
from xml.etree.ElementTree import Element

from tests.kit.client import Response
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.timeouts import extend_timeout
from tests.kit.uploads import multipart_form

_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
# Elements that a browser ends at the start of another one of the kind
_ENDED_BY_THE_NEXT = {"li", "option", "tr", "td", "th", "dt", "dd"}
_WITHOUT_TEXT = {"script", "style", "template"}
# Commas and spaces in the values of attributes separate nothing
_ALTERNATIVE = re.compile(r"(?:\[[^\]]*\]|[^,\[])+")
_STEPS = re.compile(r"(?:\[[^\]]*\]|[^\s\[])+")
_STEP = re.compile(r"(?P<tag>[a-z][\w-]*|\*)?(?P<rest>(?:[.#][\w-]+|\[[^\]]+\])*)$")
_CONDITION = re.compile(
    r"\.(?P<class>[\w-]+)|#(?P<id>[\w-]+)|\[(?P<name>[\w-]+)(?:(?P<how>[\^$*]?=)'?(?P<value>[^'\]]*)'?)?\]"
)


class _TreeBuilder(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("document")
        self._open = [self.root]
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _ENDED_BY_THE_NEXT and self._open[-1].tag == tag:
            self._open.pop()
        element = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].append(element)
        if tag not in _VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if any(element.tag == tag for element in self._open[1:]):
            while self._open.pop().tag != tag:
                pass

    def handle_data(self, data: str) -> None:
        parent = self._open[-1]
        if len(parent):
            parent[-1].tail = (parent[-1].tail or "") + data
        else:
            parent.text = (parent.text or "") + data


def text_of(element: Element) -> str:
    """Return the text in an element, each run of white space as one space."""
    return " ".join("".join(_texts(element)).split())


def _texts(element: Element) -> Iterator[str]:
    yield element.text or ""
    for child in element:
        if child.tag not in _WITHOUT_TEXT:
            yield from _texts(child)
        yield child.tail or ""


def select(root: Element, selector: str) -> list[Element]:
    """Return the elements below `root` that match a CSS selector of tags, classes, ids and attributes, in order.

    Steps that are separated by spaces are ancestors, and commas separate alternatives.
    """
    chosen: set[Element] = set()
    for steps in _parse_selector(selector):
        matching = [root]
        for tag, conditions in steps:
            below = (element for ancestor in matching for element in ancestor.iter(tag) if element is not ancestor)
            accepted = (element for element in below if all(_has(element, condition) for condition in conditions))
            matching = list(dict.fromkeys(accepted))
        chosen.update(matching)
    return [element for element in root.iter() if element in chosen] if len(chosen) > 1 else [*chosen]


@cache
def _parse_selector(selector: str) -> list[list[tuple[str | None, list[re.Match[str]]]]]:
    """Return the alternatives of a selector: the tag, if it matters, and the conditions of each step."""
    alternatives = []
    for alternative in _ALTERNATIVE.findall(selector):
        steps = [_STEP.match(step) for step in _STEPS.findall(alternative)]
        assert all(steps), f"not a selector: {selector}"
        alternatives.append([(step["tag"], [*_CONDITION.finditer(step["rest"])]) for step in steps if step])
    return alternatives


def _has(element: Element, condition: re.Match[str]) -> bool:
    if condition["class"]:
        return condition["class"] in element.get("class", "").split()
    if condition["id"]:
        return element.get("id") == condition["id"]
    value, wanted = element.get(condition["name"]), condition["value"]
    if value is None or condition["how"] is None:
        return value is not None
    ways = {"=": value == wanted, "^=": value.startswith(wanted), "$=": value.endswith(wanted), "*=": wanted in value}
    return ways[condition["how"]]


class HtmlPage:
    """A page of a user; each act returns the page that it leads to, or changes a field."""

    def __init__(self, user: ScriptlessBrowser, path: str, html: str | None = None) -> None:
        self.user = user
        self.path, self.html = user.visit(path) if html is None else (path, html)
        self.root = _TreeBuilder(self.html).root
        self._files: dict[Element, tuple[str, bytes]] = {}

    @cached_property
    def _labels(self) -> dict[Element, str]:
        labels: dict[Element, str] = {}
        by_id = {element.attrib["id"]: element for element in self.root.iter() if "id" in element.attrib}
        for label in self.root.iter("label"):
            named = by_id.get(label.get("for", ""))
            for control in [named] if named is not None else select(label, "input, textarea, select"):
                labels[control] = text_of(label)
        return labels

    @property
    def text(self) -> str:
        """Return the text of the page, each run of white space as one space."""
        return text_of(self.one("body"))

    @property
    def title(self) -> str:
        """Return the main heading of the page."""
        return text_of(self.one("h1"))

    def all(self, selector: str, text: str = "") -> list[Element]:
        """Return the elements that match a selector (`select`) and contain a text."""
        return [element for element in select(self.root, selector) if not text or text in text_of(element)]

    def one(self, selector: str, text: str = "") -> Element:
        """Return the only element that matches. Raises AssertionError if there are none or several."""
        elements = self.all(selector, text)
        assert len(elements) == 1, f"{len(elements)} elements are {selector} with {text!r} on {self.path}"
        return elements[0]

    def has(self, selector: str, text: str) -> bool:
        """Return whether an element that matches contains a text."""
        return bool(self.all(selector, text))

    def texts(self, selector: str) -> list[str]:
        """Return the texts of the elements that match."""
        return [text_of(element) for element in self.all(selector)]

    def named(self, selector: str, name: str) -> list[Element]:
        """Return the elements that match and whose accessible name begins with a text."""
        return [element for element in self.all(selector) if self.name_of(element).startswith(name)]

    def name_of(self, element: Element) -> str:
        """Return the accessible name of an element."""
        named_by = [text_of(self.one(f"#{element_id}")) for element_id in element.get("aria-labelledby", "").split()]
        return element.get("aria-label") or " ".join(named_by) or self._labels.get(element) or text_of(element)

    def follow(self, link: str | Element) -> "HtmlPage":
        """Follow a link, given by its element or the start of its name."""
        if isinstance(link, str):
            links = self.named("a[href]", link)
            assert links, f"no link {link} on {self.path}"
            link = links[0]
        path = urljoin(self.path, link.attrib["href"]).partition("#")[0]
        return HtmlPage(self.user, path)

    def reload(self) -> "HtmlPage":
        """Return the page as it is now."""
        return HtmlPage(self.user, self.path)

    def reload_until(self, text: str, seconds: float = 20) -> "HtmlPage":
        """Reload the page until it contains a text. Raises AssertionError if it never does."""
        page, end, pause = self, time.monotonic() + extend_timeout(seconds), 0.05
        while text not in page.text:
            assert time.monotonic() < end, f"{page.path} does not show {text!r}: {page.text}"
            time.sleep(pause)
            page, pause = page.reload(), min(2 * pause, 0.8)
        return page

    def field(self, label: str) -> Element:
        """Return the field with a label. Raises AssertionError unless it is the only one."""
        fields = self.named("input, textarea, select", label)
        if len(fields) > 1:  # one label may begin with another one
            fields = [field for field in fields if self.name_of(field) == label]
        assert len(fields) == 1, f"{len(fields)} fields are called {label} on {self.path}"
        return fields[0]

    def value(self, label: str) -> str:
        """Return the value of the field with a label, as it would be sent."""
        return next(iter(_values(self.field(label), is_pressed=False)), "")

    def is_checked(self, label: str) -> bool:
        """Return whether the box or radio button with a label is checked."""
        return "checked" in self.field(label).attrib

    def fill(self, label: str, value: str) -> None:
        """Enter a value in the field with a label; in a select, choose the option with this value or text."""
        field = self.field(label)
        if field.tag == "select":
            options = select(field, "option")
            chosen = [option for option in options if value in (option.get("value"), text_of(option))]
            assert chosen, f"{label} has no option {value} on {self.path}"
            for option in options:
                option.attrib.pop("selected", None)
            chosen[0].set("selected", "")
        elif field.tag == "textarea":
            field.text = value
        else:
            field.set("value", value)

    def check(self, label: str, *, is_checked: bool = True) -> None:
        """Check a box, or uncheck it; or choose a radio button instead of the others with its name."""
        field = self.field(label)
        others = self.all(f"input[name={field.get('name')}]") if field.get("type") == "radio" else [field]
        for other in others:
            other.attrib.pop("checked", None)
        if is_checked:
            field.set("checked", "")

    def attach(self, label: str, name: str, content: bytes) -> None:
        """Choose a file in the field with a label."""
        self._files[self.field(label)] = name, content

    def press(self, button: str | Element) -> "HtmlPage":
        """Press a button that submits a form, given by its element or name; return the page that it leads to."""
        response, target = self.send(button)
        if response.status == 303:
            return HtmlPage(self.user, response.headers["location"])
        assert response.status in (200, 409, 422), (response.status, target)
        return HtmlPage(self.user, target, response.text)

    def send(self, button: str | Element) -> tuple[Response, str]:
        """Press a button; return the response, which may be a file or a redirect, and the path that was asked for."""
        if isinstance(button, str):
            button = self._button(button)
        form = self.form_of(button)
        fields = list(self._successful(form, button))
        method = button.get("formmethod", form.get("method", "get")).lower()
        target = urljoin(self.path, button.get("formaction") or form.get("action") or self.path)
        if method == "get":
            target = f"{target.partition('?')[0]}?{urlencode(fields)}"
            return self.user.request("GET", target), target
        if form.get("enctype") == "multipart/form-data":
            files = [self._files.get(field, ("", b"")) for field in select(form, "input[type=file]")]
            (name, content), *_ = files
            body, kind = multipart_form(content, name, **dict(fields))
            return self.user.request("POST", target, body, **{"Content-Type": kind}), target
        values: dict[str, list[str]] = {}
        for name, value in fields:
            values.setdefault(name, []).append(value)
        return self.user.submit(target, **values), target

    def _button(self, name: str) -> Element:
        buttons = [button for button in self.named("button", name) if button.get("type") != "button"]
        exact = [button for button in buttons if self.name_of(button) == name] or buttons
        assert exact, f"no button {name} on {self.path}: {self.texts('button')}"
        return exact[0]

    def form_of(self, control: Element) -> Element:
        """Return the form of a control, which the control names or is in."""
        if "form" in control.attrib:
            return self.one(f"form#{control.attrib['form']}")
        forms = [form for form in self.all("form") if control in form.iter()]
        assert forms, f"a control on {self.path} is in no form"
        return forms[-1]

    def _successful(self, form: Element, button: Element) -> Iterator[tuple[str, str]]:
        """Yield the fields that a browser sends for a pressed button, in order."""
        disabled = {each for fieldset in self.all("fieldset[disabled]") for each in fieldset.iter()}
        own = set(form.iter())
        for control in self.all("input[name], textarea[name], select[name], button[name]"):
            is_of_form = control.get("form") == form.get("id") if "form" in control.attrib else control in own
            if not is_of_form or "disabled" in control.attrib or control in disabled:
                continue
            for value in _values(control, is_pressed=control is button):
                yield control.attrib["name"], value


def _values(control: Element, *, is_pressed: bool) -> list[str]:
    kind = control.get("type", "text")
    if control.tag == "button" or kind in ("submit", "image", "button", "file"):
        return [control.get("value", "")] if is_pressed else []
    if control.tag == "textarea":
        return ["".join(control.itertext()).removeprefix("\n").replace("\n", "\r\n")]
    if control.tag == "select":
        options = select(control, "option")
        chosen = [option for option in options if "selected" in option.attrib]
        if "multiple" not in control.attrib:
            chosen = chosen[-1:] or options[:1]
        return [option.get("value", text_of(option)) for option in chosen]
    if kind in ("checkbox", "radio"):
        return [control.get("value", "on")] if "checked" in control.attrib else []
    return [control.get("value", "")]
