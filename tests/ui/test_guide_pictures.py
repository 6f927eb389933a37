"""The pictures in the guides show the product as it is, in each language.

One walk through the product of an invented company reaches the area of each picture and compares its texts and roles
with those of the time when the picture was taken. After a change of a page, take the pictures anew, and look at them:

    .venv/bin/python -m pytest -n 0 tests/ui/test_guide_pictures.py --write-guide-pictures

`-k en` takes those of one language. Japanese needs a font, such as that of the package fonts-ipafont-gothic. Of the
English pictures the texts are stored, of the others a digest of their texts.
"""

import difflib
import hashlib
import io
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, expect

from appliance.core.i18n import DEFAULT_LANGUAGE, LANGUAGES, gettext, ngettext, pgettext, translate, use_language
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.clock import TestClock
from tests.kit.server import ROOT, Server
from tests.ui.guide_world import OWNER, World
from ui.documentation import PICTURE_SCALE, TRANSLATED_PICTURE_SCALE

PICTURES, TEXTS = ROOT / "static" / "guides", Path(__file__).parent / "guide_pictures"
DIGESTS = Path(__file__).parent / "guide_pictures.txt"
# The day on which the pictures are taken.
DAY = datetime(2026, 9, 15, 8, 0, tzinfo=UTC)
_WIDTH, _QUALITIES = 1180, (84, 76, 68, 60)
_MAX_BYTES = 60_000
# There are eight times as many pictures in other languages, which must not make the executable much larger.
_TRANSLATED_QUALITIES, _MAX_TRANSLATED_BYTES = (40, 32), 45_000
_UNSEEN = re.compile(r"/url:|- status$|- '?option .*(?<!\[selected\])['\"]$")
_FILE_ROWS = (
    "ella.stone@fernmail.example,Ella,Bath,1988-04-12,+44 7700 900201\n"
    "oscar.reed@fernmail.example,Oscar,Wells,1975-11-02,\n"
    "lily.fox@fernmail.example,Lily,Frome,,\n"
    "anna.birch@gmail.com,Anna,Bath,1990-06-21,\n"
)


class Camera:
    """Compares the areas of pictures with what they showed, or takes them anew."""

    def __init__(self, page: Page, language: str, *, is_writing: bool) -> None:
        self.page, self.language, self.is_writing = page, language, is_writing
        self._directory = PICTURES if language == DEFAULT_LANGUAGE else PICTURES / language
        self.digests = _read_digests(language)
        self.differences: dict[str, str] = {}
        self.taken: list[str] = []

    def take(self, name: str, *areas: Locator, max_height: int = 640, margin: int = 10) -> None:
        """Compare or take the picture of some areas beside or below each other, with a margin, cropped to a height."""
        for area in areas:
            expect(area).to_be_visible()
        self.page.mouse.move(0, 0)
        self.taken.append(name)
        text = _mask_values("\n".join(area.aria_snapshot() for area in areas))
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        is_translated = self.language != DEFAULT_LANGUAGE
        if self.is_writing:
            self._directory.mkdir(exist_ok=True)
            picture = _compress(self._shoot(areas, max_height, margin), is_translated=is_translated)
            (self._directory / f"{name}.webp").write_bytes(picture)
            if is_translated:
                self.digests[name] = digest
            else:
                (TEXTS / f"{name}.txt").write_text(text, encoding="utf-8")
        elif is_translated and self.digests.get(name) != digest:
            self.differences[name] = text
        elif not is_translated and (lines := _compare(TEXTS / f"{name}.txt", text)):
            self.differences[name] = lines

    def _shoot(self, areas: tuple[Locator, ...], max_height: int, margin: int) -> bytes:
        boxes = [box for area in areas if (box := area.bounding_box())]
        scrolled = self.page.evaluate("window.scrollY")
        left, top = min(box["x"] for box in boxes) - margin, min(box["y"] for box in boxes) + scrolled - margin
        right = max(box["x"] + box["width"] for box in boxes) + margin
        bottom = max(box["y"] + box["height"] for box in boxes) + scrolled + margin
        left, top, right = max(left, 0), max(top, 0), min(right, _WIDTH)
        clip = {"x": left, "y": top, "width": right - left, "height": min(bottom - top, max_height)}
        return self.page.screenshot(clip=clip, full_page=True, animations="disabled", caret="hide")  # type: ignore[arg-type]  # a dict is a FloatRect


def _compare(file: Path, text: str) -> str:
    """Return the lines by which a text differs from that of a file."""
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    return "\n".join(difflib.unified_diff(before.splitlines(), text.splitlines(), "then", "now", lineterm="", n=1))


def _read_digests(language: str) -> dict[str, str]:
    """Return the digests of the texts of a language's pictures, by name."""
    if not DIGESTS.exists():
        return {}
    rows = (line.split() for line in DIGESTS.read_text("utf-8").splitlines())
    return {name: digest for tag, name, digest in rows if tag == language}


def _write_digests(language: str, digests: dict[str, str]) -> None:
    others = [line for line in DIGESTS.read_text("utf-8").splitlines() if line.split()[0] != language]
    lines = others + [f"{language} {name} {digest}" for name, digest in digests.items()]
    DIGESTS.write_text("".join(f"{line}\n" for line in sorted(lines)), "utf-8")


def _mask_values(snapshot: str) -> str:
    """Return a snapshot without links, numbers and random keys, which may differ, and choices that nobody sees."""
    lines = [line for line in snapshot.splitlines() if not _UNSEEN.search(line)]
    text = re.sub(r"[\w+/=]{30,}", "…", "\n".join(lines))
    return re.sub(r"\d+", "0", text) + "\n"


def _compress(screenshot: bytes, *, is_translated: bool) -> bytes:
    """Return a screenshot as WebP, in the best of some qualities that is small enough."""
    image = Image.open(io.BytesIO(screenshot)).convert("RGB")
    max_bytes = _MAX_TRANSLATED_BYTES if is_translated else _MAX_BYTES
    for quality in _TRANSLATED_QUALITIES if is_translated else _QUALITIES:
        content = io.BytesIO()
        image.save(content, "WEBP", quality=quality, method=6)
        if content.tell() <= max_bytes:
            return content.getvalue()
    raise AssertionError(f"a picture of {image.size} has {content.tell()} bytes: crop it")


@pytest.fixture(params=LANGUAGES)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The invented company, in each language."""
    clock = TestClock(Path(tmp_path_factory.mktemp("clock"), "offset"))
    clock.set(DAY.timestamp() - time.time())
    with Server(clock=clock).set_up(email=OWNER, account="Fernway Gardens") as server, use_language(request.param):
        yield World(server, clock, request.param)
        server.stop()


@pytest.mark.full
def test_pictures_show_the_product(
    browser: Browser, world: World, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Each picture shows what its page shows today."""
    problems, is_writing = Problems(), request.config.getoption("--write-guide-pictures")
    scale = PICTURE_SCALE if world.language == DEFAULT_LANGUAGE else TRANSLATED_PICTURE_SCALE
    page = new_page(
        browser, world.server.url, problems, width=_WIDTH, locale=world.language.replace("_", "-"),
        scale=scale if is_writing else 1,
    )  # fmt: skip
    camera = Camera(sign_in(page, OWNER), world.language, is_writing=is_writing)
    _draw_campaigns(camera, world)
    _draw_import(camera, world, tmp_path)
    _draw_emails(camera, world)
    _draw_audience(camera, world)
    _draw_flows(camera, world)
    _draw_contact(camera, world)
    _draw_settings(camera, world)
    page.context.close()
    assert not problems.found
    assert camera.differences == {}, "\n\n".join(f"{name}\n{text}" for name, text in camera.differences.items())
    if world.language == DEFAULT_LANGUAGE:
        assert sorted(camera.taken) == sorted(path.stem for path in TEXTS.iterdir())
    else:
        if is_writing:
            _write_digests(world.language, camera.digests)
        assert sorted(camera.taken) == sorted(_read_digests(world.language))
    directory = PICTURES if world.language == DEFAULT_LANGUAGE else PICTURES / world.language
    assert sorted(camera.taken) == sorted(path.stem for path in directory.glob("*.webp"))


def _draw_campaigns(camera: Camera, world: World) -> None:
    page, texts = camera.page, world.texts
    page.goto(f"/campaigns/{world.draft}")
    checked = ngettext("Checked for %(num)s contact: all merge tags are filled.",
                       "Checked for %(num)s contacts: all merge tags are filled for every recipient.", 18)  # fmt: skip
    expect(page.get_by_text(checked)).to_be_visible()
    page.get_by_role("heading", name=pgettext("composer", "To"), exact=True).click()
    _wait_for_frames(page)
    camera.take("campaign-draft", page.locator("main"), margin=0)
    page.get_by_role("link", name=gettext("Review and send")).click()
    expect(page.locator("#dialog h2")).to_contain_text("18")
    _wait_for_frames(page)
    camera.take("campaign-review", page.locator("#dialog"), margin=0, max_height=760)
    page.goto(f"/campaigns/{world.draft}?open=experiment")
    page.get_by_role("button", name=gettext("Add an A/B test")).click()
    page.get_by_label(gettext("Subject of %(letter)s", letter="B")).fill(texts["variant_subject"])
    expect(page.locator("#side .inboxes li").nth(1)).to_contain_text(texts["variant_subject"])
    camera.take("ab-test", page.locator("#card-experiment"), margin=0)
    page.get_by_role("button", name=gettext("Remove A/B test")).click()
    expect(page.get_by_role("button", name=gettext("Add an A/B test"))).to_be_visible()
    page.locator("#card-when summary").click()
    page.get_by_text(gettext("Schedule by local time")).click()
    page.get_by_label(gettext("Date"), exact=True).fill("2031-12-01")
    expect(page.locator("#card-when")).to_contain_text("2031")
    camera.take("local-time", page.locator("#card-when"), margin=0)
    page.get_by_text(gettext("Schedule by best hour")).click()
    expect(page.locator("#f-until-hour")).to_be_visible()
    page.get_by_label(gettext("Date"), exact=True).fill("2031-12-01")
    expect(page.locator("#card-when")).to_contain_text("2031")
    camera.take("best-hour", page.locator("#card-when"), margin=0)
    page.get_by_text(gettext("Send immediately")).click()
    expect(page.locator("#card-when")).not_to_contain_text("2031")
    page.locator("#card-when .seg").get_by_text(gettext("Repeat"), exact=True).click()
    expect(page.locator("#card-when")).to_contain_text(gettext("Next dates:"))
    camera.take("repeat", page.locator("#card-when"), margin=0)
    page.locator("#card-when .seg").get_by_text(gettext("Send immediately")).click()
    expect(page.locator("#card-when")).not_to_contain_text(gettext("Next dates:"))
    page.goto(f"/campaigns/{world.sent}")
    camera.take("campaign-report", page.get_by_role("region", name=gettext("Engagement")),
                page.get_by_role("region", name=gettext("First 24 hours")))  # fmt: skip
    page.get_by_role("navigation", name=gettext("Report")).locator("a[href$='/domains']").click()
    camera.take("mailbox-providers", page.locator("main #domains"))
    page.goto(f"/campaigns/{world.sms}")
    expect(page.locator("#sms-meter")).to_contain_text("=")
    page.get_by_role("heading", name=gettext("Text"), exact=True).click()
    camera.take("sms-draft", page.locator("main"), margin=0, max_height=600)


def _draw_import(camera: Camera, world: World, directory: Path) -> None:
    texts = world.texts
    page, file = camera.page, directory / texts["file_name"]
    rows = f"{texts['file_header']}\n{_FILE_ROWS}{texts['file_fault']},Max,Bristol,,\n"
    file.write_text(rows, encoding="utf-8")
    page.goto("/contacts")
    page.get_by_role("link", name=gettext("Import contacts")).click()
    page.get_by_label(gettext("Drop a CSV file here")).set_input_files(file)
    page.get_by_role("button", name=gettext("Continue")).click()
    columns = page.get_by_role("heading", name=gettext("Columns"))
    expect(columns).to_be_visible()
    camera.take("import-columns", page.locator("#columns"), max_height=600)
    page.get_by_label(gettext("Source of these contacts")).fill(texts["file_source"])
    page.get_by_role("radio", name=gettext("Subscribe: they agreed to receive messages")).first.check()
    page.get_by_label(gettext("Or add them to a new list")).fill(texts["file_list"])
    page.locator("input[name=opt_in_phone][value=no]").check()
    page.get_by_role("button", name=gettext("Check file")).click()
    result = page.get_by_role("heading", name=gettext("What this import will do"))
    expect(result).to_be_visible()
    camera.take("import-check", page.locator("section, .card").filter(has=result).last, max_height=520)


def _draw_emails(camera: Camera, world: World) -> None:
    page = camera.page
    page.goto("/templates/new")
    _wait_for_frames(page)
    camera.take("template-designs", page.locator("main .gallery, main ul").first, max_height=460)
    page.goto(f"/campaigns/{world.draft}/content")
    frame = page.frame_locator("#canvas")
    expect(frame.get_by_text(world.texts["text"])).to_be_visible()
    expect(page.locator("#size")).to_contain_text(re.compile(r"\d"))
    _wait_for_frames(page)
    camera.take("editor", page.locator("#editor"), margin=0, max_height=700)


def _draw_audience(camera: Camera, world: World) -> None:
    page = camera.page
    page.goto(f"/segments/{world.segment}")
    expect(page.get_by_role("status").filter(has_text="63")).to_be_visible()
    camera.take("segment", page.locator("main"), margin=0, max_height=620)
    page.goto(f"/forms/{world.form}/edit")
    camera.take("form-settings", page.locator("main"), margin=0, max_height=640)
    page.goto(f"/forms/{world.form}")
    with page.expect_popup() as popup:
        page.locator(".head a.btn[target=_blank]").first.click()
    visitor = Camera(popup.value, camera.language, is_writing=camera.is_writing)
    visitor.take("form-page", popup.value.locator("main"), margin=24)
    camera.differences |= visitor.differences
    camera.taken += visitor.taken
    camera.digests |= visitor.digests


def _draw_flows(camera: Camera, world: World) -> None:
    page = camera.page
    page.goto("/flows")
    page.get_by_role("link", name=world.texts["flow"]).first.click()
    camera.take("flow", page.get_by_role("region", name=gettext("Steps")), max_height=640)
    page.get_by_role("link", name=gettext("Simulate")).first.click()
    end = translate("Completes the flow after its last step: %(time)s.").partition("%")[0]
    expect(page.get_by_text(end.strip(": ：")).first).to_be_visible()
    timeline = page.locator("section, .card").filter(
        has=page.get_by_role("heading", name=pgettext("first name of a made-up contact", "Alex"))
    )
    camera.take("flow-simulation", timeline.first, max_height=560)
    page.goto(f"{page.url.partition('/try')[0]}?at=start&add=http_request")
    page.get_by_label(gettext("URL")).fill("https://shop.example/members")
    page.get_by_label(gettext("JSON body")).fill('{"email": "{{ email }}"}')
    camera.take("flow-request", page.get_by_role("complementary", name=gettext("HTTP request")), max_height=640)
    page.goto(f"/flows/{world.replay_carts()}/replay")
    camera.take("replay", page.locator("#replay"), max_height=640)


def _draw_contact(camera: Camera, world: World) -> None:
    page = camera.page
    page.goto(f"/contacts/{world.contact}")
    camera.take("contact-activity", page.get_by_role("region", name=gettext("Activity")), max_height=520)
    channels = page.get_by_role("region", name=gettext("Channels and consent"))
    channels.get_by_text(gettext("Consent history")).first.click()
    camera.take("consent-history", channels, max_height=480)
    page.goto(f"/contacts/{world.contact}/conversation")
    camera.take("sms-conversation", page.get_by_role("region", name=gettext("SMS")), max_height=520)
    page.goto(f"/contacts/{world.contact}")
    page.get_by_role("button", name=gettext("More actions")).first.click()
    page.get_by_text(gettext("Delete permanently (GDPR)…")).first.click()
    question = page.get_by_role("heading", name=gettext("Permanently delete “%(name)s”?", name="Anna Birch"))
    expect(question).to_be_visible()
    camera.take("erase-contact", page.locator("dialog[open], main .card").filter(has=question).first)


def _draw_settings(camera: Camera, world: World) -> None:
    page = camera.page
    page.goto("/settings/consent")
    for name, value in (("source", "newsletter"), ("medium", "{{ channel }}"), ("campaign", "{{ campaign.name }}")):
        page.get_by_label(f"utm_{name}").fill(value)
    page.get_by_role("button", name=gettext("Save"), exact=True).click()
    expect(page.get_by_text(gettext("Saved."), exact=True)).to_be_visible()
    camera.take("utm", page.locator("#utm"), margin=0)
    page.goto("/settings/team")
    camera.take("team", page.get_by_role("region", name=gettext("Team members")), max_height=420)
    world.name_browser("MacBook Air")
    page.goto("/settings/you")
    camera.take("devices", page.get_by_role("region", name=gettext("Active sessions")), max_height=420)
    world.request_approval()
    page.goto("/")
    page.get_by_role("link", name=world.texts["draft"]).first.click()
    expect(page.get_by_text("Theo Marsh").first).to_be_visible()
    camera.take("approval", page.locator("main"), margin=0, max_height=380)
    page.goto("/settings/domains")
    page.get_by_role("link", name=gettext("Add domain")).first.click()
    page.get_by_label(gettext("Domain")).fill("fernway.example")
    page.get_by_role("button", name=gettext("Add domain")).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("fernway.example")
    cards = page.locator("main .card")
    camera.take(
        "sending-domain",
        cards.filter(has_text=gettext("Last check")),
        cards.filter(has_text=gettext("Domain ownership")),
    )


def _wait_for_frames(page: Page) -> None:
    """Wait until the images of the page and of the emails in it are loaded."""
    for frame in page.frames:
        frame.wait_for_load_state("load")
        frame.wait_for_function("[...document.images].every(image => image.loading === 'lazy' || image.complete)")
