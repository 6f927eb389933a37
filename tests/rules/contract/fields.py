"""Every field of every response: origin, names, type.

Types: `integer number string boolean object date-time uuid email any`, `enum(a,b)`, `[of]` for an array, the name of
another shape; a `?` where the value may be null.
"""

from typing import NamedTuple

from tests.rules.contract.fields_more import MORE
from tests.rules.contract.rows import lines

_TEXT = """
= Campaign
S id,account_id integer
S status enum(draft,active,paused,completed)
S approval_state enum(pending_review,approved,rejected)
S channel enum(email,sms)
S name string
S data object
S scheduled_at date-time?
S sent_count integer
S created_at,updated_at date-time
S trigger Trigger
S template Template
S templates [Template]
D phase enum(draft,scheduled,holding,sending,paused,completed,cancelled)
D editable boolean
D pause_reason string?
D audience_count integer
D stats CampaignStats
D cancelled_at date-time?
O tracking boolean -- opens and clicks may be left uncounted
O utm Utm? -- UTM parameters of its links
O freezing SnapshotProgress? -- how far the writing of rows for a large audience is
O experiment Experiment? -- A/B test or holdout
O local_time string? -- the time on the clock of each recipient
O best_hour_until integer? -- until which hour each gets it at their best hour
O repeat Repeat? -- dates at which a copy is sent
O series_id integer? -- the repeating campaign that this one is a copy of
O waiting CampaignWait? -- why nothing moves, in words
O approval_note string? -- why it was rejected, as a flow has it
O asked_at date-time? -- since when it waits for approval
= Trigger
S id,flow_id integer
S event string
S segment_id,contact_list_id integer?
S data object
S triggered_count integer
S last_triggered_at date-time?
S created_at,updated_at date-time
= Template
S id integer
S name string?
S flow_id,action_id integer?
S subject,body,preheader,from_name,from_email,reply_to string?
S design Design
S variables object
S created_at,updated_at date-time
O channel enum(email,sms) -- a template may be of SMS
O languages [string] -- those it is translated into
= TranslationCounts
O language string -- a template in several languages
O translated,changed,missing integer -- how far it is translated
= TemplateTranslation
O language string -- a template in several languages
O translated,changed,missing integer -- how far it is translated
O updated_at date-time -- of the template, for the next PUT
O texts [TranslatedText] -- what is translated
= TranslatedText
O id,label,section,kind,source string -- which text of the template it is
O text string? -- its translation
O state enum(translated,changed,missing,original) -- whether it is still that of the original
= Flow
S id,account_id integer
S status enum(draft,active,paused,archived)
S approval_state enum(pending_review,approved,rejected)
S name string
S goal string?
S trigger FlowTrigger
S steps [FlowStep]
S sent_count integer
S created_at,updated_at date-time
S templates [Template]
D stats FlowStats
O approval_note string? -- why it was rejected
O asked_at date-time? -- since when it waits for approval
O data object -- what scripts keep with it
O test boolean -- started with a test key: takes in nobody but tests
O version integer -- which of its editions people enter
O triggered_count integer -- as a trigger of a campaign has it
O last_triggered_at date-time? -- as a trigger of a campaign has it
O paused_at date-time? -- since when nobody enters
O pause_reason enum(slow_conditions)? -- why the service itself paused it
O unpublished_changes boolean -- people changed it in a browser and have not published that
= FlowTrigger
S event string
S segment_id,contact_list_id integer?
S data object
= FlowStep
S subject,body,preheader string
S duration integer
S filters [object]
S yes,no [FlowStep]
S event_name string
S forward_event_data boolean
S from_name,from_email,reply_to string
S design Design
S event_data object
S transactional boolean
O utm Utm -- UTM parameters of its links
D id integer
D type enum(email,sms,wait,wait_until,split,split_value,random_split,emit_event,list_add,list_remove,\
tag_add,tag_remove,contact_update,unsubscribe,notify,http_request,go_to,exit)
D template_id integer?
D contact_list_id integer
D data_merge object
D channel enum(email,sms)
= Contact
S id integer
S uuid uuid
S first_name,last_name,source,country_code string?
O language string? -- the language of the messages and pages for a contact
S data object
S subscribed_phone,subscribed_email boolean
S verification_status enum(verified,suppressed,unverified)
S enrichment_status enum(enriched,not_enriched)
S list_ids [integer]
S last_interacted_at date-time?
S created_at,updated_at date-time
S channels [Channel]
D sendable_phone,sendable_email boolean
D tracking enum(full,aggregate,none)
= Channel
S id,contact_id integer
S value string
S subscribed,verified boolean
S opt_in_at,opt_out_at date-time?
S sent_count,fail_count integer
S data object
S created_at,updated_at date-time
D kind enum(email,phone)
D suppression_reason string?
D opted_out_by enum(recipient,operator)?
= ContactList
S id,account_id integer
S name string
S contacts_count integer
S segment_id integer?
S stale boolean
S last_populated_at date-time?
S created_at,updated_at date-time
D sendable_count SendableCount
D double_opt_in,public boolean
= SendableCount
D email,sms integer
= Segment
S id,account_id integer
S name string
S filters [object]
S created_at,updated_at date-time
D contacts_count integer?
O sentence string -- the filters, as a person says them
= Brand
S id,account_id integer
S brand_color,text_color,bg_color,font_heading,font_body string?
S style_notes,tone,company_description,industry string?
S example_copy [string]?
S default_header,default_footer,default_theme object
S physical_address,company_name,source_url,logo string?
S last_scraped_at date-time?
S links [BrandLink]
S complete boolean
S created_at,updated_at date-time
= BrandLink
S url,icon,title string
= SendingDomain
S id integer
S name,provider string
S status enum(pending,verified,failed)
S dns_records [DnsRecord]?
S verified_at date-time?
S created_at date-time
O updated_at date-time -- as everything else has it
O attention string? -- what a verified domain lacks now
O attention_since,failed_at,checked_at,next_check_at date-time? -- when the records were, and will be, looked at
= DnsRecord
S name,value,priority string
S record_type enum(TXT,MX,CNAME)
S valid enum(unknown,valid,invalid)
D purpose enum(ownership,dkim,dkim_second,dkim_next,dkim_previous,return_path,spf,dmarc,tracking)
D required boolean
D found [string]
D checked_at date-time?
O problem string? -- what is wrong with it, in words
= RecordedEvent
S id,account_id integer
S contact_id,user_id integer?
S event string
S amount number?
S data object
S idempotency_key,resource_uid,resource_name,resource_url string?
S test,generated boolean
S chain_depth integer
S ip,user_agent,browser,os,device_type,referrer string?
S utm_source,utm_medium,utm_term,utm_content,utm_campaign string?
S created_at,updated_at date-time
"""


class Field(NamedTuple):
    """One promised field of a shape."""

    shape: str
    origin: str
    name: str
    type: str


FIELDS = tuple(
    Field(line.heading, line.origin, name, line.cells[1])
    for line in lines(_TEXT + MORE)
    for name in line.cells[0].split(",")
)
SHAPES = tuple(dict.fromkeys(field.shape for field in FIELDS))
