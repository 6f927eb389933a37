"""The invented company of the pictures in the guides: a garden nursery with contacts, campaigns, a flow and a team."""

import io
import tomllib
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from tests.kit.api_users import user_client
from tests.kit.clock import TestClock
from tests.kit.server import Server
from tests.kit.uploads import upload_image

TEXTS: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
OWNER, EDITOR = "ada@fernway.example", "theo@fernway.example"
SHOP = "https://fernway.example"
_FIRST_NAMES = (
    "Anna", "Ben", "Carla", "David", "Elena", "Felix", "Grace", "Hugo", "Ines", "Jonas", "Kira", "Leo", "Maya",
    "Noah", "Olivia", "Paul", "Rosa", "Sam", "Tara", "Victor",
)  # fmt: skip
_LAST_NAMES = ("Birch", "Lindqvist", "Moreau")
_TOWNS = ("Bath", "Bristol", "Wells", "Frome")
_ROSES = ("#d64550", "#e8788a", "#f3b6c0")
_SERVICES = ("gmail.com", "outlook.com", "yahoo.com", "fernmail.example")
# What some recipients of the sent campaign do; all others read nothing.
_ACTIONS = ("click",) * 11 + ("open",) * 15 + ("unsubscribe", "bounce")


def draw_garden() -> bytes:
    """Return a picture of roses in front of hills, as a PNG."""
    width, height = 1200, 520
    image = Image.new("RGB", (width, height), "#cfe8f3")
    draw = ImageDraw.Draw(image)
    draw.ellipse((900, 50, 1020, 170), fill="#f9d976")
    draw.ellipse((-300, 230, 800, 900), fill="#9cc5a1")
    draw.ellipse((400, 270, 1600, 1000), fill="#6fa67a")
    draw.rectangle((0, 400, width, height), fill="#3f7d58")
    for number in range(24):
        x, y, size = 25 + number * 50, 370 + (number * 37) % 70, 22 + (number * 13) % 14
        draw.line((x, y, x, height), fill="#2f6f4f", width=6)
        draw.ellipse((x - size, y - size, x + size, y + size), fill=_ROSES[number % 3])
        draw.ellipse((x - size // 2, y - size // 2, x + size // 2, y + size // 2), fill=_ROSES[(number + 1) % 3])
    content = io.BytesIO()
    image.save(content, "PNG")
    return content.getvalue()


class World:
    """The company in a running server, with texts of one language, and the ids of what the pictures show."""

    def __init__(self, server: Server, clock: TestClock, language: str) -> None:
        self.server, self._clock, self.language = server, clock, language
        self.texts = texts = TEXTS[language]
        self.town = texts["town"]  # the key of a custom field
        self.api, self._owner = server.client(), user_client(server, OWNER)
        self._owner.patch("/users/1", {"name": "Ada Green"}).expect(200)
        self._describe_company()
        self.newsletter, self.workshops = (
            self._create("/lists", name=name, description=text)
            for name, text in (
                (texts["newsletter"], texts["newsletter_about"]),
                (texts["workshops"], texts["workshops_about"]),
            )
        )
        self.contact = self._add_contacts()
        self.picture = upload_image(self.api, draw_garden(), "rose-garden.png").expect(201)
        self.sent = self._send_campaign()
        self.draft = self._draft_campaign()
        self.segment = self._create(
            "/segments", name=texts["segment"],
            filters=[
                {"name": f"data.{self.town}", "predicate": "eq", "value": "Bath"},
                {"name": "event", "predicate": "performed", "value": {"event": "email_clicked"}},
            ],
        )  # fmt: skip
        self.form = self._create(
            "/forms", name=texts["form"], list_ids=[self.newsletter],
            fields=["email", "first_name", f"data.{self.town}"],
            consent_text=texts["consent"],
        )  # fmt: skip
        self.flow = self._start_flow()
        self.sms = self._create(
            "/campaigns", name=texts["sms"], channel="sms",
            trigger_attributes={"contact_list_id": self.workshops},
            template_attributes={"body": texts["sms_body"]},
        )  # fmt: skip
        self._chat()
        self._passwords: dict[str, str] = {}
        for email, name, role in ((EDITOR, "Theo Marsh", "editor"), ("nora@fernway.example", "Nora Field", "admin")):
            user = self._owner.post("/users", {"email": email, "role": role, "name": name}).expect(201)
            self._passwords[email] = user["password"]

    def name_browser(self, name: str) -> None:
        """Name the device of each browser in which the owner is signed in, and let some hours pass.

        Then a picture says that the app of the owner was used hours ago, however long the walk took.
        """
        for session in self._owner.get("/user/sessions").expect(200):
            if session["kind"] == "browser":
                self._owner.patch(f"/user/sessions/{session['id']}", {"name": name}).expect(200)
        self._clock.advance(hours=3)

    def request_approval(self) -> None:
        """Require approval from now on, and let the editor ask for it."""
        self._owner.patch("/account", {"approval_required": True}).expect(200)
        editor = user_client(self.server, EDITOR, self._passwords[EDITOR])
        editor.post(f"/campaigns/{self.draft}/ask_approval").expect(200)

    def _create(self, path: str, **body: Any) -> int:
        return int(self.api.post(path, body).expect(201)["id"])

    def _describe_company(self) -> None:
        self.api.put("/brand", {
            "company_name": "Fernway Gardens", "physical_address": "12 Walled Garden Lane, Bath BA1 2AB",
            "brand_color": "#2f6f4f", "links": [{"label": self.texts["shop"], "url": SHOP}],
        }).expect(200)  # fmt: skip
        self.api.patch("/account", {
            "email_from_name": "Fernway Gardens", "email_from_email": "hello@fernway.example", "time_zone": "UTC",
            "locale": self.language.replace("_", "-"), "sms_from": "+447700900999",
            "sms_opt_out_hint": self.texts["opt_out"],
        }).expect(200)  # fmt: skip

    def _add_contacts(self) -> int:
        """Add sixty contacts and return the id of the first, who is shown."""
        ids = []
        for number in range(60):
            first, last = _FIRST_NAMES[number % 20], _LAST_NAMES[number // 20]
            list_ids = [self.newsletter] + [self.workshops] * (number % 3 == 0)
            phone = {"phone": f"+4477009001{number:02d}"} if number % 3 == 0 else {}
            ids.append(self._create(
                "/contacts", first_name=first, last_name=last, list_ids=list_ids, opt_in=True,
                email=f"{first}.{last}@{_SERVICES[number % 4]}".lower(),
                data={self.town: _TOWNS[number % 4]}, **phone,
            ))  # fmt: skip
        return ids[0]

    def design(self, title: str) -> dict[str, Any]:
        """Return an email of the nursery."""
        texts = self.texts
        return {"sections": [
            {"id": "head", "type": "header", "props": {}},
            {"id": "picture", "type": "image",
             "props": {"src": self.picture["url"], "alt": texts["picture"]}},
            {"id": "title", "type": "heading", "props": {"text": title, "level": 1}},
            {"id": "words", "type": "text", "props": {"content": (
                f'<p>{texts["hello"]} {{{{ contact.first_name | default: "{texts["friend"]}" }}}},</p>'
                f"<p>{texts['text']}</p>")}},
            {"id": "press", "type": "button", "props": {"text": texts["button"], "href": f"{SHOP}/new"}},
            {"id": "foot", "type": "footer", "props": {}},
        ]}  # fmt: skip

    def _send_campaign(self) -> int:
        """Send a campaign, let recipients react, and return its id."""
        content = {"subject": self.texts["sent_subject"], "preheader": self.texts["sent_preheader"],
                   "design": self.design(self.texts["sent_subject"])}  # fmt: skip
        campaign_id = self._create("/campaigns", name=self.texts["sent"], template_attributes=content)
        audience = {"trigger_attributes": {"contact_list_id": self.newsletter}}
        self.api.post(f"/campaigns/{campaign_id}/send", audience).expect(200)
        self.api.wait(f"/campaigns/{campaign_id}", lambda row: row["status"] == "completed")
        captured = sorted(self.api.get("/capture", limit=100).expect(200), key=lambda row: str(row["to"]))
        for row, action in zip(captured, _ACTIONS, strict=False):
            self.api.post(f"/capture/{row['id']}/simulate", {"action": action}).expect(200)
        clicks = _ACTIONS.count("click")
        self.api.wait("/events", lambda rows: len(rows) == clicks, event="email_clicked", limit=100)
        return campaign_id

    def _draft_campaign(self) -> int:
        content = {"subject": self.texts["draft_subject"], "preheader": self.texts["draft_preheader"],
                   "design": self.design(self.texts["draft"])}  # fmt: skip
        return self._create("/campaigns", name=self.texts["draft"], template_attributes=content,
                            trigger_attributes={"contact_list_id": self.workshops})  # fmt: skip

    def _start_flow(self) -> int:
        trigger = {"event": "list_add", "contact_list_id": self.newsletter}
        flow_id = self._create("/flows", starter="welcome", name=self.texts["flow"], trigger=trigger)
        self.api.post(f"/flows/{flow_id}/activate").expect(200)
        for name in ("Ivy", "Basil", "Rowan"):
            email = f"{name}.ash@fernmail.example".lower()
            self._create("/contacts", first_name=name, last_name="Ash", email=email, list_ids=[self.newsletter])
        return flow_id

    def replay_carts(self) -> int:
        """Replay a flow for abandoned carts with a shorter wait, against the carts of some weeks; return its id."""
        mail = {"subject": "Your plants are waiting", "body": "<p>Still in your cart.</p>"}
        steps = [{"duration": 86_400}, mail, {"duration": 172_800}, mail]
        flow_id = self._create(
            "/flows", name="Abandoned cart", trigger={"event": "cart_filled"}, goal="order_paid", steps=steps,
            status="active",
        )  # fmt: skip
        now = self.api.get("/account").expect(200)["updated_at"]
        last = datetime.fromisoformat(now)
        for number, name in enumerate(("Daisy", "Olive", "Jasper", "Hazel", "Reed", "Flora", "Linden", "Violet")):
            contact = self._create(
                "/contacts", first_name=name, last_name="Moss", email=f"{name}.moss@fernmail.example".lower(),
                opt_in=True,
            )  # fmt: skip
            at = last - timedelta(days=10 + 5 * number)
            events = [("cart_filled", at), *[("order_paid", at + timedelta(hours=9))] * (number % 3 > 0)]
            for event, moment in events:
                body = {"event": event, "contact_id": contact, "created_at": moment.isoformat(), "amount": 38.0}
                self.api.post("/events", body).expect(201)
        stored = self.api.get(f"/flows/{flow_id}").expect(200)["steps"]
        stored[0]["duration"] = 14_400
        self.api.post(f"/flows/{flow_id}/replay", {"steps": stored}).expect(202)
        self.api.wait(f"/flows/{flow_id}/replay", lambda row: row["state"] == "complete", 120)
        return flow_id

    def _chat(self) -> None:
        """Exchange SMS with the contact that is shown, after the simulated click, which is dated a little later."""
        self._clock.advance(minutes=10)
        body = {"channel": "sms", "to": "+447700900100", "body": self.texts["ready"]}
        message = self.api.post("/messages", body).expect(201)
        captured = self.api.wait("/capture", bool, message_id=message["id"])[0]["id"]
        reply = {"action": "reply", "text": self.texts["reply"]}
        self.api.post(f"/capture/{captured}/simulate", reply).expect(200)
