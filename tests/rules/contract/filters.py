"""Filters: fields with their types, predicates of each type, aliases of fields, and limits."""

from tests.rules.contract.rows import lines

_NAMES = """
D contact_first_name,contact_last_name,contact_email,contact_phone_number,contact_source text
O contact_language code -- also matches the tags that begin with the value
D contact_country,contact_verification_status,contact_suppression_reason code
D contact_tag tags
D contact_data.<path> json
D contact_subscribed_email,contact_subscribed_phone,contact_verified,contact_enriched,contact_suppressed boolean
D contact_created_at,contact_updated_at,contact_last_interacted_at,contact_unsubscribed_at time
D email_last_sent_at,email_last_opened_at,email_last_clicked_at time
D contact_list,contact_segment,contact_flow,campaign_sent,campaign_opened,campaign_clicked id
D email_sent_count,email_open_count,email_click_count,email_soft_bounce_count,sms_sent_count number
D event history
D group group
"""
NAMES = {name: line.cells[1] for line in lines(_NAMES) for name in line.cells[0].split(",")}
# Contact field names without prefix, "returned as sent"
ALIASES = {
    "email": "contact_email", "phone": "contact_phone_number", "first_name": "contact_first_name",
    "last_name": "contact_last_name", "source": "contact_source", "country_code": "contact_country",
    "language": "contact_language",
    "list_id": "contact_list", "subscribed_email": "contact_subscribed_email",
    "subscribed_phone": "contact_subscribed_phone", "verification_status": "contact_verification_status",
    "created_at": "contact_created_at", "updated_at": "contact_updated_at",
    "last_interacted_at": "contact_last_interacted_at",
}  # fmt: skip
_PREDICATES = """
D text eq,not_eq,cont,not_cont,start,not_start,end,not_end,in,not_in,present,blank
D code eq,not_eq,in,not_in,present,blank
D id eq,not_eq,in,not_in,present,blank
D tags eq,not_eq,in,not_in,present,blank,cont,not_cont
D number eq,not_eq,gt,gteq,lt,lteq,between,in,not_in,present,blank
D time gt,gteq,lt,lteq,between,eq,within_days,not_within_days,present,blank
D boolean true,false,eq,not_eq
D history performed,not_performed
D group any,all,none
"""
PREDICATES = {line.cells[0]: frozenset(line.cells[1].split(",")) for line in lines(_PREDICATES)}
LIMITS = {"filters": 100, "group": 25, "depth": 5, "in": 500}
