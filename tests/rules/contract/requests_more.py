"""Keys of the bodies around flows, events, account, people and integrations; read by `requests.py`."""

_WEBHOOK = """
D events [string]?
D enabled boolean?
"""
_FORM = """
O language string? -- of the form and of new contacts; null for that of the browser
D list_ids [integer]?
D origins [string]?
D fields [any]?
D double_opt_in boolean?
D redirect_url string?
D consent_text string?
O title,intro,button_text string? -- the texts of the form
O thanks_title,thanks_text string? -- the texts after submission
O topic_ids [integer]? -- the lists that visitors may choose from
O topics_required boolean? -- whether they must choose one
"""

MORE = f"""
= POST /flows
S name string
S trigger object?
S steps [object]?
D status enum(draft,active,live)
D goal string?
O data object? -- what scripts keep with it
O starter string -- begins with a ready flow
= PATCH /flows/{{id}}
D name string
D trigger object?
D steps [object]?
D status enum(draft,active,paused,archived,live)
D goal string?
D updated_at date-time
O data object? -- what scripts keep with it
= POST /flows/{{id}}/activate
D skip_overdue_seconds integer?
O updated_at date-time -- 409 if it was changed since
= POST /flows/{{id}}/archive
O take_out boolean -- those inside leave at once
= POST /flows/{{id}}/approve
O updated_at date-time -- 409 if it was changed since
= POST /flows/{{id}}/reject
D note string?
= POST /flows/{{id}}/enroll
D contact_ids [integer]?
D segment_id integer?
O confirm_send_to_all boolean -- a segment without filters is everybody
= POST /flows/{{id}}/winner
O step integer! -- the random split
O branch string? -- key of the branch that all take; null goes on with the test
= POST /flows/{{id}}/simulate
D contact_id integer?
D contact ContactWrite?
D events [Assumption]?
D until,start_at date-time?
O event object? -- the event that takes the person in
O branches object? -- which ways random splits take
O steps [object] -- steps that are not saved yet
O responses [SimulatedResponse]? -- of the HTTP requests
= POST /flows/{{id}}/simulate_all
O days integer -- of the past, from which people are taken
O events [BulkAssumption]? -- what is assumed to happen
O start_at,until date-time? -- the time of the rehearsal
O steps [object] -- steps that are not saved yet
= POST /flows/{{id}}/replay
O days,seed integer -- how much of the past, and what decides random splits
O until date-time? -- the end of the past
O order_event string? -- what counts as an order
O sms_price number? -- of a part of an SMS
O steps [object] -- steps that are not saved yet
= POST /flows/{{id}}/runs/move_on
O run_ids [integer]? -- these runs
O step integer? -- or all who are at this step
= POST /flows/{{id}}/runs/take_out
O run_ids [integer]? -- these runs
O step integer? -- or all who are at this step
= PATCH /account
D name,time_zone,locale string
O country_code string? -- of phone numbers that are written without one
D email_from_name,sms_from,sms_opt_out_hint string?
O sms_opt_out_hints object -- the hint in other languages
D email_from_email,email_reply_to email?
D sending_stopped boolean
D frequency_cap FrequencyCap?
O attribution_days integer -- how long an order counts as the result of a click
O control_share number? -- contacts who get no campaigns, to be measured
O utm UtmWrite? -- UTM parameters of the links of campaigns and flows
D sms_quiet_hours QuietHours?
O marketing_calendar MarketingCalendar? -- when marketing email may be sent
D privacy_ip enum(truncated,full,none)
D approval_required,block_on_missing_variable,transactional_allowed boolean
O approval_by_another boolean -- nobody approves of what they wrote last
D test_email_recipients [email]?
O stop_reason string? -- said with the stop switch, for others to read
= POST /events
D event string!
D contact_id integer?
D contact_email email?
D create_contact boolean
D amount number?
D data object?
D resource_uid,resource_name,resource_url string?
D utm_source,utm_medium,utm_term,utm_content,utm_campaign string?
D test,trigger boolean
D idempotency_key string?
D created_at date-time?
O ip,user_agent,referrer string? -- of the client's own visitor
= POST /events/batch
D events [any]!
= POST /suppressions
D address string!
D channel enum(email,sms,phone)
D reason enum(manual,hard_bounce,soft_bounce,complaint)
D note,diagnostic string?
D expires_at date-time?
= DELETE /suppressions/{{id}}
D reason string
= POST /webhooks
D url string!
{_WEBHOOK}
= PATCH /webhooks/{{id}}
D url string
{_WEBHOOK}
= POST /webhooks/{{id}}/test
O event string? -- which event is made up
= POST /webhooks/{{id}}/replay_failed
O since date-time? -- only what failed after it
= POST /forms
D name string!
{_FORM}
= PATCH /forms/{{id}}
D name string
{_FORM}
= fields[] of a form
D name string!
O label string? -- how the page calls it
O required boolean -- whether it may stay empty
O type enum(text,textarea,select,radio,checkboxes,checkbox,date,number,hidden)? -- what it asks for
O options [string]? -- what may be chosen
O help,placeholder string? -- what explains it
O value,query_parameter string? -- what a hidden field has
= POST /imports
D file any!
D resource enum(contacts,suppressions)
D options string
= options of POST /imports
D map object
D list_ids [integer]
D on_conflict enum(merge,skip)
D opt_in,trigger_flows boolean
D consent_source string?
O list_names [string] -- lists that are made with it
O default_country string? -- of phone numbers that are written without one
O date_order enum(dmy,mdy)? -- of dates that may be read in two ways
O opt_in_phone boolean? -- whether phone numbers are opted in, too
O opt_in_unstated boolean -- whether those are who say neither yes nor no
O decimal_mark enum(,,.)? -- of numbers that may be read in two ways
O column_types object -- which columns are text, numbers or dates
= POST /uploads
D file any!
O full_size boolean -- not made smaller
= POST /capture/{{id}}/simulate
D action enum(open,click,bounce,soft_bounce,complain,unsubscribe,reply,stop,start,help,deliver,fail)!
O link integer -- which link is clicked
O text string -- what is answered
= POST /incoming/{{id}}/seen
O opt_out boolean -- and take it for a wish to get no more
= POST /users
D email email!
D role string!
D name string
D password string
= PATCH /users/{{id}}
D name,password string
O otp boolean -- whoever lost it is helped by those who look after the team
D role string
D disabled boolean
= POST /roles
O name string! -- own roles
O scopes [string]! -- what it may do
O contact_data enum(full,masked) -- what it sees of contacts
= PATCH /roles/{{id}}
O name string -- own roles
O scopes [string] -- what it may do
O contact_data enum(full,masked) -- what it sees of contacts
= POST /invitations
O email email! -- who is invited
O role string! -- as what
O days integer -- how long the link is valid
= PATCH /user
D name,password,current_password string
= POST /sign_in_providers
O name,issuer,client_id string! -- as the provider has registered this service
O client_secret string -- a public client has none
O domains [string] -- who may join without an invitation
O role enum(admin,editor,author,viewer) -- as what
O trust_mfa,enabled boolean -- nobody is asked for two codes; a provider may rest
= PATCH /sign_in_providers/{{id}}
O name,client_id,client_secret string -- the issuer stays, because identities belong to it
O domains [string] -- who may join without an invitation
O role enum(admin,editor,author,viewer) -- as what
O trust_mfa,enabled boolean -- nobody is asked for two codes; a provider may rest
= PATCH /sign_in
O password boolean! -- an account may refuse them
= PATCH /user/sessions/{{id}}
O name string? -- people tell their devices apart
= PATCH /user/passkeys/{{id}}
O name string! -- and what they sign in with
= DELETE /user/passkeys/{{id}}
O current_password string! -- a lost session must not weaken the sign-in
= POST /api_keys
D name string!
D scope string
D test boolean
O smtp_hourly_limit integer? -- a hacked site is stopped, and one that sends much may
O agent boolean -- an assistant drafts and proposes, and people decide
= POST /proposals
O kind enum(send_campaign,start_flow,change_flow,change_segment,change_template)! -- what is proposed
O subject_id integer! -- of what
O changes object -- what changes
O note string -- why
= POST /proposals/{{id}}/approve
O version string! -- nobody approves what has changed since
= POST /proposals/{{id}}/return
O note string? -- what the agent should change
"""
