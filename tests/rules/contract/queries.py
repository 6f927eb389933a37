"""Every query parameter: origin, names, under the operation. Lists take the page's own besides (`PAGE`)."""

from typing import NamedTuple

from tests.rules.contract.rows import lines

PAGE = ("page", "limit", "per_page", "per")

_CONTACTS = """
S list_id
D search,q,query,tag,segment_id,source,subscribed_email,subscribed_phone
D created_after,created_before,updated_after,updated_before
O sendable_email,sendable_phone -- whom a campaign reaches
O status -- the one state of each contact, as its table counts them
"""
_EVENTS = "S event,contact_id,created_after,created_before,resource_uid,resource_name,test"
_MESSAGES = "D source_type,channel,status,to,contact_id,campaign_id,flow_id,test,created_after,created_before"
_BOM = "O bom -- spreadsheets that know UTF-8 only by its mark"
_RUNS = "O status,step,outcome,message,reason,contact_id,test,since -- runs of a large flow have to be found"

_TEXT = f"""
= GET /messages
{_MESSAGES}
= GET /campaigns
D status,phase
O channel,search -- as other lists have them
O approval_state,awaiting_approval -- what waits for approval
= GET /campaigns/{{id}}/recipients
O status,opened,clicked,link,domain,country,problem,pending,accepted,unsubscribed,contact_id -- each figure's people
O replied -- as the report counts replies
O variant -- those of an A/B test
= GET /campaigns/{{id}}/explain
D contact_id
= GET /contacts
{_CONTACTS}
= GET /contacts/search
S q
= DELETE /contacts/{{id}}
D erase
= GET /contacts/{{id}}/runs
O status -- live ones, or those that ended
= GET /incoming
O kind,contact_id,from,unseen,created_after,created_before -- as other lists have them
= GET /lists
O search -- as other lists have it
= GET /segments
O search -- as other lists have it
= GET /segments/{{id}}/explain
D contact_id
= GET /templates
D standalone,search
O channel -- a template may be of SMS
= GET /flows
D status,event,search
= GET /flows/{{id}}/runs
{_RUNS}
= GET /flows/{{id}}/runs.csv
{_RUNS}
{_BOM}
= GET /flows/{{id}}/report
O range -- of how many days
= GET /events
{_EVENTS}
= GET /suppressions
O reason,channel,address,search,created_after,created_before -- as other lists have them
= DELETE /suppressions/{{id}}
D reason
= GET /imports
O resource,status -- as other lists have them
= POST /imports
D dry_run
= GET /exports/contacts.csv
{_CONTACTS}
{_BOM}
= GET /exports/contacts.jsonl
{_CONTACTS}
{_BOM}
= GET /exports/events.csv
{_EVENTS}
{_BOM}
= GET /exports/events.jsonl
{_EVENTS}
{_BOM}
= GET /exports/messages.csv
{_MESSAGES}
{_BOM}
= GET /exports/messages.jsonl
{_MESSAGES}
{_BOM}
= GET /webhooks
O enabled -- as other lists have it
= GET /webhooks/{{id}}/deliveries
O status,event,event_id -- what went wrong has to be found
= GET /forms
O search -- as other lists have it
= GET /users
O disabled,role -- who is shut out is kept, and stands apart
= DELETE /roles/{{id}}
O replacement -- what those get who had it
= GET /audit
D actor,action,subject,created_after,created_before
= GET /capture
O search,channel,message_id -- as other lists have them
= GET /proposals
O state,kind -- what waits for a decision
"""


class Parameter(NamedTuple):
    """One promised parameter of a query."""

    operation: str
    origin: str
    name: str


PARAMETERS = tuple(
    Parameter(line.heading, line.origin, name) for line in lines(_TEXT) for name in line.cells[0].split(",")
)
