"""Pages used without scripts and without a browser: find elements, follow links, fill forms and press their buttons.

Nothing here knows styles, so a test that depends on what is visible needs a browser.
"""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from urllib.parse import urlencode, urljoin
from xml.etree.ElementTree import Element

from tests.kit.scriptless_browser import ScriptlessBrowser

_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
# Elements that a browser ends at the start of another one of the kind
_ENDED_BY_THE_NEXT = {"li", "option", "tr", "td", "th", "dt", "dd"}
_STEP = re.compile(r"(?P<tag>[a-z][\w-]*)?(?P<rest>(?:[.#][\w-]+|\[[^\]]+\])*)$")
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
    return " ".join("".join(element.itertext()).split())


def select(root: Element, selector: str) -> list[Element]:
    """Return the elements below `root` that match a CSS selector of tags, classes, ids and attributes, in order.

    Steps that are separated by spaces are ancestors, and commas separate alternatives.
    """
    chosen: set[Element] = set()
    for alternative in selector.split(","):
        matching = [root]
        for step in alternative.split():
            below = (element for ancestor in matching for element in ancestor.iter() if element is not ancestor)
            matching = list(dict.fromkeys(element for element in below if _matches(element, step)))
        chosen.update(matching)
    return [element for element in root.iter() if element in chosen]


def _matches(element: Element, step: str) -> bool:
    parts = _STEP.match(step)
    assert parts is not None, f"not a selector: {step}"
    if parts["tag"] and element.tag != parts["tag"]:
        return False
    return all(_has(element, condition) for condition in _CONDITION.finditer(parts["rest"]))


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
        self.user, self.path = user, path
        self.root = _TreeBuilder(user.get(path) if html is None else html).root
        self._labels: dict[Element, str] = {}
        by_id = {element.attrib["id"]: element for element in self.all("[id]")}
        for label in self.all("label"):
            named = by_id.get(label.get("for", ""))
            for control in [named] if named is not None else select(label, "input, textarea, select"):
                self._labels[control] = text_of(label)

    def all(self, selector: str) -> list[Element]:
        """Return the elements that match a selector (`select`)."""
        return select(self.root, selector)

    def one(self, selector: str) -> Element:
        """Return the only element that matches. Raises AssertionError if there are none or several."""
        elements = self.all(selector)
        assert len(elements) == 1, f"{len(elements)} elements are {selector} on {self.path}"
        return elements[0]

    def texts(self, selector: str) -> list[str]:
        """Return the texts of the elements that match."""
        return [text_of(element) for element in self.all(selector)]

    def named(self, selector: str, name: str) -> list[Element]:
        """Return the elements that match and whose accessible name begins with a text."""
        return [element for element in self.all(selector) if self._name(element).startswith(name)]

    def _name(self, element: Element) -> str:
        return element.get("aria-label") or self._labels.get(element) or text_of(element)

    def follow(self, link: str | Element) -> "HtmlPage":
        """Follow a link, given by its element or the start of its name."""
        if isinstance(link, str):
            links = self.named("a[href]", link)
            assert links, f"no link {link} on {self.path}"
            link = links[0]
        path = urljoin(self.path, link.attrib["href"]).partition("#")[0]
        return HtmlPage(self.user, path)

    def field(self, label: str) -> Element:
        """Return the field with a label. Raises AssertionError unless it is the only one."""
        fields = self.named("input, textarea, select", label)
        assert len(fields) == 1, f"{len(fields)} fields are called {label} on {self.path}"
        return fields[0]

    def press(self, button: Element) -> "HtmlPage":
        """Press a button that submits a form; return the page that it leads to."""
        form, _ = self._form_of(button)
        fields = list(self._successful(form, button))
        method = button.get("formmethod", form.get("method", "get")).lower()
        target = urljoin(self.path, button.get("formaction") or form.get("action") or self.path)
        if method == "get":
            return HtmlPage(self.user, f"{target.partition('?')[0]}?{urlencode(fields)}")
        values: dict[str, list[str]] = {}
        for name, value in fields:
            values.setdefault(name, []).append(value)
        response = self.user.submit(target, **values)
        if response.status == 303:
            return HtmlPage(self.user, response.headers["location"])
        assert response.status in (200, 422), (response.status, target)
        return HtmlPage(self.user, target, response.text)

    def _form_of(self, control: Element) -> tuple[Element, bool]:
        """Return the form of a control, and whether the control names it."""
        if "form" in control.attrib:
            return self.one(f"form#{control.attrib['form']}"), True
        forms = [form for form in self.all("form") if control in form.iter()]
        assert forms, f"a control on {self.path} is in no form"
        return forms[-1], False

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
