"""Fields of messages, the ledger, the account, and of resources related to contacts; read by `fields.py`."""

_MESSAGE = """
D id,account_id,attempts integer
D contact_id,campaign_id,flow_id,step_id,template_id,segments integer?
D channel enum(email,sms)
D status enum(queued,held,sending,sent,delivered,bounced,complained,failed,skipped,cancelled,uncertain)
D provider string
D source_type enum(transactional,campaign,flow,test,system)
D to,from,reply_to,subject,skip_reason,source_name,provider_id,idempotency_key,internet_message_id string?
D transactional,test boolean
D tags object
O variant integer? -- the variant of a campaign's A/B test
D error MessageError?
D next_attempt_at,sent_at,delivered_at,opened_at,clicked_at,bounced_at date-time?
D created_at,updated_at date-time
"""

MORE = f"""
= Message
{_MESSAGE}
= SentMessage
{_MESSAGE}
D recipients [MessageRecipient]
D attachments [MessageAttachment]
= MessageAttachment
D filename,content_type string
D content_id string?
D size integer
= MessageBatchResult
D queued,rejected integer
D results [BatchResult]
= BatchResult
D status integer
D message SentMessage?
D code,reason string?
D errors object
= MessageRecipient
D id integer
D kind enum(to,cc,bcc)
D address,skip_reason string?
D status enum(queued,held,sending,sent,delivered,bounced,complained,failed,skipped,cancelled,uncertain)
= MessageError
D code string
D smtp integer?
D enhanced,text string?
= CampaignStats
D audience,pending,sent,delivered,bounced,complained,failed,skipped,cancelled,uncertain,accepted integer
= FlowStats
D entered,active,completed,exited integer
D audience,pending,sent,delivered,bounced,complained,failed,skipped,cancelled,uncertain,accepted integer
= Preflight
D ok boolean
D blockers,warnings [Finding]
D facts object
= Finding
D code,message,field string
= Preview
S html string
D text string
D warnings [PreviewWarning]
D bytes integer
O sms SmsPreview? -- parts and alphabet, where the template is of SMS
= TestSendResult
D sent integer
D results [TestResult]
O warnings [PreviewWarning] -- what is still unfinished in the message
= TestResult
D email string?
D success boolean
D message_id integer?
D error string?
O to string -- whichever address it went to
O phone string? -- tests of SMS go to a number
= Account
D id integer
D base_url,version string
O public_url string -- what links of the account begin with
D created_at,updated_at date-time
D name,time_zone,locale string
O country_code string? -- of phone numbers that are written without one
D email_from_name,email_from_email,email_reply_to,sms_from string?
D test_email_recipients [string]
D can_send boolean
D blockers [Blocker]
D using_sandbox,domain_verified boolean
D transport,capabilities object
D onboarding object
D approval_required,block_on_missing_variable,transactional_allowed boolean
O approval_by_another boolean -- nobody approves of what they wrote last
D sending_stopped boolean
D stop_reason string?
D frequency_cap FrequencyCap?
O attribution_days integer -- how long an order counts as the result of a click
O control_share number? -- contacts who get no campaigns, to be measured
O utm Utm? -- UTM parameters of the links of campaigns and flows
D sms_quiet_hours QuietHours?
O marketing_calendar MarketingCalendar? -- when marketing email may be sent
D sms_opt_out_hint string?
O sms_opt_out_hints object -- and in other languages
D privacy_ip enum(truncated,full,none)
D counts,usage object
D brand Brand
= Repeat
O every enum(day,week,month) -- how often
O at string -- the hour
O weekdays [string] -- days of a week, or the one of a month
O day_of_month integer? -- 31 is the last day of any month
O week_of_month string? -- such as the last Friday
O ends_at date-time? -- after it there is no date
O only_if_changed boolean -- the same content is not sent twice
O next_at [date-time] -- the next three
= Occurrence
O due_at date-time -- the date that is over
O outcome enum(sent,missed,unchanged,blocked) -- what became of it
O reason string? -- the code of a finding
O campaign_id integer? -- what was sent
= Utm
O source,medium,campaign,term,content string? -- what is added as `utm_source` and so on
= FrequencyCap
D messages,days integer
= QuietHours
D from,to string
= Blocker
D code,severity,message string
= Suppression
D id integer
D channel enum(email,sms)
D address string?
D reason enum(hard_bounce,soft_bounce,complaint,manual,erased,stop_keyword)
D source,diagnostic,note string?
D created_at date-time
D expires_at date-time?
= ContactCount
D count integer
D sample [Contact]
O rows [FilterShare] -- how many each filter leaves
O sentence string -- the filters, as a person says them
= BulkDone
D added,removed integer
D unknown [any]
D kept_opt_out [string]
= EventBatchResult
D created,repeated integer
D errors [RejectedEvent]
= Webhook
D id integer
D url string
D events [string]
D enabled boolean
O account_id integer -- as everything else has it
O pending_count integer -- deliveries that wait
O failing_since,disabled_at date-time? -- whether it is about to be switched off, or was
O disabled_reason enum(failing,gone)? -- and why
O old_secret_until date-time? -- until when both secrets sign
O created_at,updated_at date-time -- as everything else has it
= WebhookWithSecret
D id integer
D url string
D events [string]
D enabled boolean
D secret string
O account_id integer -- as everything else has it
O pending_count integer -- deliveries that wait
O failing_since,disabled_at date-time? -- whether it is about to be switched off, or was
O disabled_reason enum(failing,gone)? -- and why
O old_secret_until date-time? -- until when both secrets sign
O created_at,updated_at date-time -- as everything else has it
= Form
D id integer
D name string
O language string? -- of the form and of new contacts; null for that of the browser
D list_ids [integer]
D origins [string]
D fields [any]
D double_opt_in boolean
D redirect_url,consent_text string?
D public_key string
O title,intro,button_text,thanks_title,thanks_text string? -- the texts of the form
O topic_ids [integer] -- the lists that visitors may choose from
O topics_required boolean -- whether they must choose one
O account_id integer -- as everything else has it
O url string -- its hosted page
O submissions_count,confirmed_count integer -- what it brought
O created_at,updated_at date-time -- as everything else has it
= Import
D id integer
D status enum(pending,processing,complete,failed,cancelled)
D total,created,updated,skipped,failed integer
D resource enum(contacts,suppressions)
D options ImportOptions
O account_id integer -- as everything else has it
O phase,error,product string? -- where it stands, what broke it, whose file it seems to be
O dry_run boolean -- it only reports
O filename string -- what it was made of
O bytes,processed,restored,removed integer -- how far it is
O warnings integer -- rows that came in without one of their values
O repeated integer -- rows among `updated` that repeat a contact of the same file
O arriving object -- who is subscribed, unsubscribed and suppressed afterwards
O left_in_place object -- whom its undo did not remove, and why
O format enum(csv,jsonl) -- what it was read as
O columns [ImportColumn] -- which column became what
O progress number -- the share that is done
O undo_until,undone_at,completed_at date-time? -- its hours
O created_at,updated_at date-time -- as everything else has it
= Upload
D signed_id,url,content_type string
D bytes integer
O width,height integer? -- of a picture
O filename string -- as it was called
= ErrorResponse
S error boolean
S code any
S message string
S validation_errors object
D request_id string
D reason,hint string
D blockers [SendBlocker]
D required_scope,status,from,to,skip_reason string
O required_role enum(owner,admin,editor,author,viewer) -- where no scope helps: the least role
D allowed [string]
O action string -- what was asked for
O allowed_actions [string] -- what it takes now
O limit integer -- of a 429: how many the limit allows
D message_id integer
D used_by any
D updated_at date-time
"""
