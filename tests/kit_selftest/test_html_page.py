"""Pages without a browser: selectors, names of elements, and the values of fields."""

from typing import cast

from tests.kit.html_page import HtmlPage, select, text_of
from tests.kit.scriptless_browser import ScriptlessBrowser

HTML = """<body><h1>Two  loaves</h1><script>ignored()</script><template>ignored</template>
<dl aria-label="Bread, by kind"><dt class="a b">Rye</dt><dd data-n="1">3</dd></dl>
<form id="order"><label for="f">Name</label><input id="f" name="name" value="Ann">
<label>Note<textarea name="note">\nLine</textarea></label>
<b id="c">Size</b><select name="size" aria-labelledby="c"><option value="s">Small</option>
<option value="l" selected>Large</option></select>
<label><input type="radio" name="way" value="post" checked>By post</label>
<label><input type="radio" name="way" value="shop">In the shop</label>
<label><input type="checkbox" name="gift" value="yes">Gift</label>
<button aria-label="Order now">Go</button></form></body>"""


def make_page() -> HtmlPage:
    """Return a page that was loaded before, and loads no other."""
    return HtmlPage(cast(ScriptlessBrowser, None), "/order", HTML)


def test_selectors() -> None:
    """Tags, classes, ids and attributes, also with commas and spaces in a value, in the order of the page."""
    page = make_page()
    assert page.texts("dl[aria-label='Bread, by kind'] dt.a.b, dd[data-n]") == ["Rye", "3"]
    assert page.texts("[data-n^=1], h1") == ["Two loaves", "3"]
    assert [element.tag for element in select(page.one("form"), "#f, [name=gift]")] == ["input", "input"]
    assert page.all("dd *") == [] and page.has("dt", "Ry") and not page.has("dt", "Wheat")
    assert "ignored" not in page.text and page.title == "Two loaves"


def test_names() -> None:
    """A field is named by its label or by other elements, a button by its label or text."""
    page = make_page()
    names = [page.name_of(field) for field in page.all("form input, form textarea, form select, form button")]
    assert names == ["Name", "Note Line", "Size", "By post", "In the shop", "Gift", "Order now"]
    assert text_of(page.named("button", "Order")[0]) == "Go"


def test_values() -> None:
    """Fields have the values that would be sent; another option or radio button replaces the one before."""
    page = make_page()
    assert (page.value("Name"), page.value("Note"), page.value("Size")) == ("Ann", "Line", "l")
    assert page.is_checked("By post") and not page.is_checked("Gift")
    page.fill("Name", "Bea")
    page.fill("Note", "Other")
    page.fill("Size", "Small")
    page.check("In the shop")
    page.check("Gift")
    assert (page.value("Name"), page.value("Note"), page.value("Size")) == ("Bea", "Other", "s")
    assert not page.is_checked("By post") and page.value("In the shop") == "shop" and page.value("Gift") == "yes"
    page.check("Gift", is_checked=False)
    assert page.value("Gift") == ""
