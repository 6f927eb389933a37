"""Translations of an email in the browser: adding a language, translating its texts, and what contacts get."""

import pytest
from playwright.sync_api import Page, expect

from tests.kit import axe
from tests.kit.browser import Problems, save_screenshot
from tests.kit.client import Client
from tests.kit.html_page import HtmlPage, select, text_of
from tests.kit.pictures import encode_image, photo
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.uploads import upload_image

DESIGN = {"sections": [
    {"id": "a", "type": "heading", "props": {"text": "Fresh bread on Sunday", "level": 1}},
    {"id": "b", "type": "text", "props": {"content": "<p>Hello {{ first_name }}, we bake <strong>today</strong>.</p>"}},
    {"id": "c", "type": "button", "props": {"text": "Order now", "href": "https://bakery.example/en"}},
]}  # fmt: skip


@pytest.fixture
def page(browser_page: Page, browser_problems: Problems) -> Page:
    """A page signed in as the owner."""
    browser_problems.allow("Blocked script execution in .*/preview")
    browser_problems.allow("status of 422")
    return browser_page


def create_template(api: Client, name: str) -> int:
    """Create a template with five texts, one of them a link, and return its id."""
    body = {"name": name, "subject": "Bread for {{ first_name }}", "design": DESIGN}
    return int(api.post("/templates", body).expect(201)["id"])


def test_an_sms_has_one_text_to_translate(user: ScriptlessBrowser, api: Client) -> None:
    """The page of an SMS speaks of its text, not of a subject and a sender, which it does not have."""
    body = {"name": "Closing", "channel": "sms", "body": "We close at five"}
    template_id = api.post("/templates", body).expect(201)["id"]
    page = HtmlPage(user, f"/templates/{template_id}/translations")
    page.fill("Language", "German")
    page = page.press("Add language")
    page = HtmlPage(user, f"/templates/{template_id}/translations/de")
    assert page.texts("section.card h2") == ["Text", "Preview"] and "German: SMS text" in page.texts("label .sr")
    assert page.one("#preview iframe").attrib["class"] == "frame low"


def test_translating_an_email(page: Page, api: Client) -> None:
    """A language is added from the editor; each text saves itself, is counted, and shows in the preview."""
    template_id = create_template(api, "Sunday")
    page.goto(f"/templates/{template_id}/edit")
    page.get_by_role("button", name="Languages").click()
    page.get_by_role("link", name="Add language").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Language")).to_be_focused()
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.locator("button#languages")).to_be_focused()
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Add language").click()
    dialog.get_by_role("button", name="Add language").click()
    expect(dialog.get_by_label("Language")).to_have_attribute("aria-invalid", "true")
    save_screenshot(page, "translations-add")
    dialog.get_by_label("Language").select_option("German")
    dialog.get_by_role("button", name="Add language").click()
    expect(dialog.get_by_role("heading", name="German added")).to_be_focused()
    dialog.get_by_role("button", name="Keep editing the original").click()
    assert page.url.endswith(f"/templates/{template_id}/edit")
    expect(page.locator("button#languages")).to_be_focused()
    page.keyboard.press("Enter")
    page.locator("#language-menu").get_by_role("link", name="German 0 of 4").click()

    expect(page.locator("#progress")).to_contain_text("0 of 4 texts translated")
    subject = page.get_by_role("textbox", name="German: Subject")
    subject.fill("Brot für {{ first_name }}")
    subject.blur()
    expect(page.locator("#progress")).to_contain_text("1 of 4 texts translated")
    heading = page.get_by_role("textbox", name="German: Text").first
    heading.fill("Frisches Brot am Sonntag")
    heading.blur()
    expect(page.locator("#progress")).to_contain_text("2 of 4 texts translated")
    expect(page.frame_locator("#preview iframe").locator("h1")).to_have_text("Frisches Brot am Sonntag")
    expect(page.frame_locator("#preview iframe").locator("body")).to_contain_text("we bake today")
    page.locator(".pair", has_text="Order now").get_by_role("button", name="Copy original").click()
    expect(page.locator("#progress")).to_contain_text("3 of 4 texts translated")
    expect(page.locator("#saved-text")).to_contain_text("Saved")
    save_screenshot(page, "translation")
    assert axe.find_violations_in_light_and_dark(page, is_complete=True) == []

    address = page.locator(".pair", has_text="https://bakery.example/en").get_by_role("textbox")
    address.fill("javascript:alert(1)")
    address.blur()
    expect(page.locator(".pair .err")).to_be_visible()
    stored = api.get(f"/templates/{template_id}/translations/de").expect(200)
    assert {text["text"] for text in stored["texts"]} == {
        "Brot für {{ first_name }}", "Frisches Brot am Sonntag", "Order now", None
    }  # fmt: skip


def test_originals_that_changed_are_marked(user: ScriptlessBrowser, api: Client) -> None:
    """A translation whose original changed is marked with the former text, and can be kept; a removal can be undone."""
    template_id = create_template(api, "Changed")
    api.put(f"/templates/{template_id}/translations/fr", {"texts": {"subject": "Du pain"}}).expect(200)
    api.patch(f"/templates/{template_id}", {"subject": "Bread and cake"}).expect(200)
    page = HtmlPage(user, f"/templates/{template_id}/translations/fr")
    subject = text_of(page.one(".pair", "Bread and cake"))
    assert "Original changed" in subject and "Original when it was translated" in subject
    assert "Bread for [First name]" in subject
    page = page.press("Keep translation")
    assert page.has("#progress", "1 of 4 texts translated")
    assert "Original changed" not in text_of(page.one(".pair", "Bread and cake"))

    page = page.press("Remove language")
    assert page.has(".toast", "Translation into French removed.")
    page = page.press("Undo")
    assert page.has(".toast", "Undone.") and page.title == "Translation into French"
    assert api.get(f"/templates/{template_id}").expect(200)["languages"] == ["fr"]


def test_addresses_need_no_translation(page: Page, api: Client) -> None:
    """Links and texts that are only an address are not missing, and a link can still be replaced for a language."""
    links = [{"platform": "instagram", "url": "https://instagram.com/bakery"}]
    sections = [{"id": "s", "type": "social", "props": {"links": links}},
                {"id": "h", "type": "heading", "props": {"text": "hello@bakery.example"}}]  # fmt: skip
    body = {"name": "Social", "subject": "Bread", "design": {"sections": sections}}
    template_id = int(api.post("/templates", body).expect(201)["id"])
    api.put(f"/templates/{template_id}/translations/de", {"texts": {"subject": "Brot"}}).expect(200)
    page.goto(f"/templates/{template_id}/translations/de")
    expect(page.locator("#progress")).to_contain_text("All texts are translated.")
    expect(page.get_by_text("Not translated")).to_have_count(0)
    field = page.get_by_label("German: Links, entry 1: Link")
    expect(field).to_have_accessible_description("Leave empty to use the original link.")
    assert axe.find_violations_in_light_and_dark(page) == []
    field.fill("https://instagram.com/baeckerei")
    field.blur()
    expect(page.locator(".pair.translated")).to_have_count(2)
    stored = api.get(f"/templates/{template_id}/translations/de").expect(200)
    assert "https://instagram.com/baeckerei" in [text["text"] for text in stored["texts"]]


@pytest.mark.full
def test_an_image_of_a_language(page: Page, browser_problems: Problems, api: Client) -> None:
    """An image is replaced for a language by one of the account's images, and need not be."""
    browser_problems.allow("ERR_NAME_NOT_RESOLVED")
    image = {"src": "https://bakery.example/en.png", "alt": "Bread"}
    design = {"sections": [{"id": "i", "type": "image", "props": image}]}
    body = {"name": "Picture", "subject": "Bread", "design": design}
    template_id = int(api.post("/templates", body).expect(201)["id"])
    media = upload_image(api, encode_image(photo(30, 20), "PNG"), "brot.png").expect(201)
    texts = {"subject": "Brot", "i/props.alt": "Brot"}
    api.put(f"/templates/{template_id}/translations/de", {"texts": texts}).expect(200)
    page.goto(f"/templates/{template_id}/translations/de")
    expect(page.locator("#progress")).to_contain_text("All texts are translated.")
    field = page.get_by_label("German: Image")
    expect(page.locator("#pictures option")).to_have_attribute("value", media["url"])
    field.fill("mailto:someone@bakery.example")
    field.blur()
    expect(page.locator(".pair .err")).to_be_visible()
    field.fill(media["url"])
    field.blur()
    expect(page.locator(".pair .err")).to_have_count(0)
    expect(page.frame_locator("#preview iframe").get_by_role("img", name="Brot")).to_have_attribute("src", media["url"])
    save_screenshot(page, "translations-image")


def test_the_navigation_shows_where_the_email_belongs(user: ScriptlessBrowser, api: Client) -> None:
    """The translation of a campaign is a page of Campaigns, not of Templates."""
    template = {"subject": "News", "body": "<p>Bread</p>"}
    campaign = api.post("/campaigns", {"name": "News", "template_attributes": template}).expect(201)
    page = HtmlPage(user, f"/templates/{campaign['templates'][0]['id']}/translations")
    assert page.texts("nav a[aria-current=page]")[0] == "Campaigns"


def test_two_translators(page: Page, api: Client) -> None:
    """A translation that another user saved meanwhile is shown and not overwritten."""
    template_id = create_template(api, "Together")
    api.put(f"/templates/{template_id}/translations/de", {"texts": {}}).expect(200)
    page.goto(f"/templates/{template_id}/translations/de")
    api.put(f"/templates/{template_id}/translations/de", {"texts": {"subject": "Brot"}}).expect(200)
    subject = page.get_by_role("textbox", name="German: Subject")
    subject.fill("Brote")
    subject.blur()
    expect(page.locator(".pair .err")).to_contain_text("“Brot”")
    subject.fill("Brot und Brote")
    subject.blur()
    expect(page.locator(".pair .err")).to_have_count(0)
    texts = api.get(f"/templates/{template_id}/translations/de").expect(200)["texts"]
    assert texts[0]["text"] == "Brot und Brote"


def test_translating_by_keyboard(page: Page, api: Client) -> None:
    """The button that a saved text no longer has leaves the focus in its row, so that the next field is not skipped."""
    template_id = create_template(api, "By keyboard")
    api.put(f"/templates/{template_id}/translations/de", {"texts": {}}).expect(200)
    page.goto(f"/templates/{template_id}/translations/de")
    page.get_by_role("textbox", name="German: Subject").click()
    page.keyboard.type("Brot")
    page.keyboard.press("Tab")  # to the merge tags
    page.keyboard.press("Tab")  # to the button that copies the original
    expect(page.locator("#progress")).to_contain_text("1 of 4 texts translated")
    expect(page.get_by_role("button", name="Insert merge tag").first).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("textbox", name="German: Text").first).to_be_focused()


def test_the_language_of_a_contact_in_previews(page: Page, api: Client) -> None:
    """The editor says that a contact gets the translation, and the previews of a campaign find its recipients."""
    list_id = api.post("/lists", {"name": "Two languages"}).expect(201)["id"]
    for name, language in (("Lena", "de-AT"), ("Paul", "fr")):
        contact = {"email": f"{name}@languages.example", "first_name": name, "language": language, "opt_in": True}
        api.post("/contacts", contact | {"list_ids": [list_id]}).expect(201)
    content = {"subject": "Bread", "design": DESIGN}
    campaign = {"name": "Bread", "template_attributes": content, "trigger_attributes": {"contact_list_id": list_id}}
    draft = api.post("/campaigns", campaign).expect(201)
    template_id = draft["template"]["id"]
    german = {"texts": {"a/props.text": "Frisches Brot"}}
    api.put(f"/templates/{template_id}/translations/de", german).expect(200)

    page.goto(f"/templates/{template_id}/edit")
    note = page.locator("[data-as-note]")
    for name, sentence in (("Lena", "Lena gets the German translation."), ("Paul", "")):
        page.locator("button.as").click()
        page.locator("#as-people").get_by_role("button", name=name).click()
        expect(note).to_contain_text(sentence) if sentence else expect(note).to_be_hidden()
    page.goto(f"/campaigns/{draft['id']}/previews")
    page.get_by_role("navigation", name="Filter").get_by_role("link", name="German").click()
    expect(page.locator(".chip[aria-current]")).to_have_text("German1")
    expect(page.locator(".who li")).to_have_text("LLena")
    expect(page.frame_locator("iframe").locator("h1")).to_have_text("Frisches Brot")
    assert axe.find_violations_in_light_and_dark(page, is_complete=True) == []


def test_translating_without_scripts(user: ScriptlessBrowser, api: Client) -> None:
    """Each text has a button to save it, and an error is told."""
    template_id = create_template(api, "Plain")
    api.put(f"/templates/{template_id}/translations/de", {"texts": {}}).expect(200)
    page = HtmlPage(user, f"/templates/{template_id}/translations/de")
    pair = page.all(".pair")[0]
    [field] = [field for field in select(pair, "textarea, input") if field.get("type") != "hidden"]
    field.set("value", "Brot")
    [save] = [button for button in select(pair, "button") if page.name_of(button).startswith("Save")]
    assert page.press(save).has("#progress", "1 of 4 texts translated")


def test_an_original_changed_meanwhile(user: ScriptlessBrowser, api: Client) -> None:
    """A translation of an original that was changed meanwhile is not saved, and the new original is shown."""
    template_id = create_template(api, "Moving")
    api.put(f"/templates/{template_id}/translations/de", {"texts": {}}).expect(200)
    page = HtmlPage(user, f"/templates/{template_id}/translations/de")
    api.patch(f"/templates/{template_id}", {"subject": "Cake tonight"}).expect(200)
    _translate_subject(page, "Brot heute")
    texts = api.get(f"/templates/{template_id}/translations/de").expect(200)["texts"]
    assert texts[0]["text"] is None
    page = HtmlPage(user, page.path)
    assert "Cake tonight" in page.html
    _translate_subject(page, "Kuchen heute Abend")
    texts = api.get(f"/templates/{template_id}/translations/de").expect(200)["texts"]
    assert texts[0]["text"] == "Kuchen heute Abend"


def _translate_subject(page: HtmlPage, text: str) -> HtmlPage:
    pair = page.all(".pair")[0]
    [field] = [field for field in select(pair, "textarea, input") if field.get("type") != "hidden"]
    field.set("value", text)
    [save] = [button for button in select(pair, "button") if page.name_of(button).startswith("Save")]
    return page.press(save)
