"""The fields that a browser would post from unedited forms in HTML."""

from html.parser import HTMLParser


class _Controls(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[tuple[str, str]] = []
        self._select: tuple[str, list[tuple[str, bool]]] | None = None
        self._area: list[str] | None = None
        self._name = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag == "select":
            self._select = (attributes.get("name", ""), [])
        elif tag == "option" and self._select:
            self._select[1].append((attributes.get("value", ""), "selected" in attributes))
        elif tag == "textarea":
            self._area, self._name = [], attributes.get("name", "")
        elif tag == "input" and attributes.get("name") and "disabled" not in attributes:
            is_box = attributes.get("type") in ("checkbox", "radio")
            if not is_box or "checked" in attributes:
                # A browser removes line breaks from the value of an input
                value = attributes.get("value", "on" if is_box else "")
                self.pairs.append((attributes["name"], value.replace("\n", "").replace("\r", "")))

    def handle_endtag(self, tag: str) -> None:
        if tag == "select" and self._select:
            name, options = self._select
            chosen = [value for value, selected in options if selected] or [value for value, _ in options[:1]]
            self.pairs += [(name, value) for value in chosen[-1:] if name]
            self._select = None
        elif tag == "textarea" and self._area is not None:
            text = "".join(self._area).replace("\r\n", "\n").removeprefix("\n")
            self.pairs.append((self._name, text.replace("\n", "\r\n")))
            self._area = None

    def handle_data(self, data: str) -> None:
        if self._area is not None:
            self._area.append(data)


def get_form_fields(html: str) -> dict[str, list[str]]:
    """Return the fields that a browser would post from unedited forms, each with its values in order."""
    reader = _Controls()
    reader.feed(html)
    fields: dict[str, list[str]] = {}
    for name, value in reader.pairs:
        fields.setdefault(name, []).append(value)
    return fields
