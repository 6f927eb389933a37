"""Every key of a body: origin, names, type; a `!` behind the type where it must be sent.

Types as in `fields.py`; `enum` of a request is written the same way. The heading is the operation.
"""

from typing import NamedTuple

from tests.rules.contract.requests_more import MORE
from tests.rules.contract.rows import lines

_CONTENT = """
S subject,body,preheader,from_name string?
S from_email,reply_to email?
S design Design?
"""
_BRAND = """
S brand_color,text_color,bg_color,font_heading,font_body string?
S style_notes,tone,company_description,industry string?
S physical_address,company_name,logo string?
S example_copy [string]?
S links [BrandLinkWrite]?
S default_header,default_footer,default_theme object?
"""
_CONTACT = """
S first_name,last_name,source,country_code string?
O language string? -- the language of the messages and pages for a contact
S email email?
S phone string?
S list_ids [integer]?
S data object?
S channels_attributes [ChannelWrite]?
S opt_in boolean?
D subscribed_email,subscribed_phone boolean
D tracking enum(full,aggregate,none)
O consent_source string? -- where consent came from, for its record
"""

_TEXT = f"""
= POST /messages
S to string!
S channel enum(email,sms)
S subject,body string?
D html,text,from,from_name string?
D from_email,reply_to email?
D cc,bcc [email]?
D attachments [AttachmentWrite]?
D template_id integer?
D data,tags,headers object?
D send_at date-time?
D idempotency_key string?
D transactional boolean
O channelType enum(email,sms) -- alias of channel
= POST /messages/batch
D messages [any]!
= POST /campaigns
S name string!
S channel enum(email,sms)
D scheduled_at date-time?
D data object?
D trigger_attributes TriggerWrite
D template_attributes Content
O tracking boolean -- opens and clicks may be left uncounted
O utm UtmWrite? -- UTM parameters of the links
O experiment ExperimentWrite? -- A/B test or holdout
O local_time string? -- the time on the clock of each recipient
O best_hour_until integer? -- until which hour each gets it at their best hour
O repeat RepeatWrite? -- dates at which a copy is sent
O contact_list_id,segment_id integer? -- aliases of those of trigger_attributes
O contact_list_ids,exclude_contact_list_ids,exclude_segment_ids [integer] -- aliases of those of its data
O audience_type enum(all_contacts)? -- alias of that of its data
O channelType enum(email,sms) -- alias of channel
= PATCH /campaigns/{{id}}
D name string
D channel enum(email,sms)
D scheduled_at date-time?
D data object?
D trigger_attributes TriggerWrite
D template_attributes Content
D status enum(draft,active,paused,completed,live,cancelled,scheduled)
D updated_at date-time
O tracking boolean -- opens and clicks may be left uncounted
O utm UtmWrite? -- UTM parameters of the links
O experiment ExperimentWrite? -- A/B test or holdout
O local_time string? -- the time on the clock of each recipient
O best_hour_until integer? -- until which hour each gets it at their best hour
O repeat RepeatWrite? -- dates at which a copy is sent
= POST /campaigns/{{id}}/send
S trigger_attributes TriggerWrite
S template_attributes Content
D scheduled_at date-time?
D confirm_send_to_all boolean
D hold_seconds integer
O local_time string? -- the time on the clock of each recipient
O best_hour_until integer? -- until which hour each gets it at their best hour
O contact_list_id,segment_id integer? -- aliases of those of trigger_attributes
O contact_list_ids,exclude_contact_list_ids,exclude_segment_ids [integer] -- aliases of those of its data
O audience_type enum(all_contacts)? -- alias of that of its data
= POST /campaigns/{{id}}/experiment/winner
O variant integer! -- number of the variant, from 1
= POST /campaigns/{{id}}/duplicate
O name string -- without one it is that of the campaign, with "(copy)"
= POST /campaigns/{{id}}/approve
O updated_at date-time -- 409 if it was changed since
= POST /campaigns/{{id}}/reject
D note string?
= trigger_attributes
S event string
S contact_list_id,segment_id integer?
S data object?
= template_attributes
{_CONTENT}
= POST /contacts
{_CONTACT}
= PATCH /contacts/{{id}}
{_CONTACT}
D data_merge object
= channels_attributes[]
S id integer
S value string
S subscribed,_destroy boolean
D kind enum(email,phone)
= POST /contacts/{{id}}/merge
D contact_id integer!
= POST /lists
S name string!
D segment_id integer?
D contact_ids [integer]?
D double_opt_in,public boolean
= PATCH /lists/{{id}}
S name string
S segment_id integer?
S contact_ids [integer]?
D double_opt_in,public boolean
= POST /lists/{{id}}/contacts/bulk
D add,remove [any]
= POST /segments
S name string!
S filters [object]
O starter string -- a ready-made segment, whose filters are used
= PATCH /segments/{{id}}
D name string
D filters [object]
= POST /segments/count
D filters [object]!
= POST /templates
S name string?
{_CONTENT}
O channel enum(email,sms) -- a template may be of SMS
O updated_at date-time -- the body is that of PATCH; without meaning here
O channelType enum(email,sms) -- alias of channel
= PATCH /templates/{{id}}
S name string?
{_CONTENT}
D updated_at date-time
O channel enum(email,sms) -- a template may be of SMS
= POST /templates/preview
S document Design!
D contact_id integer?
D data object?
O subject,preheader,from_name,body string? -- the fields around a design, in which tags stand too
O channel enum(email,sms) -- a template may be of SMS
O transactional boolean -- without the footer that marketing has
O translations,language any -- the document in another language
= PUT /templates/{{id}}/translations/{{language}}
O texts object! -- translations by the id of the text
O updated_at date-time -- as that of PATCH
= POST /templates/{{id}}/send_test
D email any?
D emails [email]?
D contact_id integer?
D data object?
O phone any? -- a test of SMS goes to a number
O phones [string]? -- or to several
O language string? -- in one of its languages
= PUT /brand
{_BRAND}
= links[] of PUT /brand
S url string!
S icon,title string?
= POST /domains
S domain DomainName!
= domain of POST /domains
S name string!
"""


class Key(NamedTuple):
    """One promised key of a body."""

    operation: str
    origin: str
    name: str
    type: str
    required: bool


KEYS = tuple(
    Key(line.heading, line.origin, name, line.cells[1].rstrip("!"), line.cells[1].endswith("!"))
    for line in lines(_TEXT + MORE)
    for name in line.cells[0].split(",")
)
# Where the published shape of a part of a body is found: its name among the schemas
PARTS = {
    "trigger_attributes": "TriggerWrite", "template_attributes": "Content", "channels_attributes[]": "ChannelWrite",
    "links[] of PUT /brand": "BrandLinkWrite", "domain of POST /domains": "DomainName",
    "options of POST /imports": "ImportOptions", "fields[] of a form": "FormField",
}  # fmt: skip
