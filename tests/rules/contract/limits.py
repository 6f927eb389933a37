"""Every limit: of a text or an array in a body (origin, operation, key, limit, unit), of a whole body, of a page."""

from typing import NamedTuple

from tests.rules.contract.rows import lines

# Units: `characters` of a text, `entries` of an array, `bytes` of JSON; the key may lie inside others
_TEXT = """
D POST /contacts first_name 255 characters
D POST /contacts last_name 255 characters
D POST /contacts source 255 characters
D POST /contacts data 32768 bytes
D POST /contacts list_ids 500 entries
D PATCH /contacts/{id} data 32768 bytes
D PATCH /contacts/{id} list_ids 500 entries
D POST /lists name 255 characters
D POST /lists contact_ids 10000 entries
D PATCH /lists/{id} name 255 characters
D PATCH /lists/{id} contact_ids 10000 entries
D POST /segments name 255 characters
D PATCH /segments/{id} name 255 characters
D POST /campaigns name 255 characters
D POST /campaigns data 32768 bytes
D POST /campaigns template_attributes.subject 998 characters
D POST /campaigns template_attributes.preheader 255 characters
D POST /campaigns template_attributes.from_name 255 characters
D PATCH /campaigns/{id} name 255 characters
D PATCH /campaigns/{id} template_attributes.subject 998 characters
D POST /templates name 255 characters
D POST /templates subject 998 characters
D POST /templates preheader 255 characters
D POST /templates from_name 255 characters
D PATCH /templates/{id} name 255 characters
D PATCH /templates/{id} subject 998 characters
D POST /flows name 255 characters
D POST /messages subject 998 characters
D POST /messages from_name 255 characters
D POST /messages idempotency_key 255 characters
D POST /messages data 32768 bytes
D POST /messages cc 49 entries
D POST /messages bcc 49 entries
D POST /messages attachments 20 entries
D POST /messages/batch messages 500 entries
D POST /events data 32768 bytes
D POST /events idempotency_key 255 characters
D POST /events resource_name 255 characters
D POST /events/batch events 1000 entries
D POST /forms name 255 characters
D PUT /brand company_name 255 characters
D PATCH /account name 255 characters
"""


class Limit(NamedTuple):
    """How long something in a body may be."""

    operation: str
    key: str
    limit: int
    unit: str


LIMITS = tuple(
    Limit(" ".join(line.cells[:2]), line.cells[2], int(line.cells[3]), line.cells[4]) for line in lines(_TEXT)
)
BODY_BYTES = 2 * 1024 * 1024
UPLOAD_BYTES = 5 * 1024 * 1024
IMPORT_BYTES = 200 * 1024 * 1024
PAGE, MOST = 50, 100
SMS_CHARACTERS = 1600
TAGS = (100, 64)
BATCH = 1000
KEY = (1, 255)
# Requests a minute and burst, by bucket; 0 = off, burst = a tenth (sends, renders as said)
RATES = {"requests": (3000, 300), "messages": (12_000, 1200), "sends": (120, 60), "renders": (600, 60)}
