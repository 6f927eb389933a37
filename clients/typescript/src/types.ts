// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

/** An account with its settings, capabilities and usage, and what blocks sending. */
export interface Account {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** URL of the installation: of its interface and of the API */
  base_url: string;
  /**
   * URL with which links in messages, forms and images begin: the address that the operator has set for this
   * account, else `base_url`
   */
  public_url: string;
  /** version of the service */
  version: string;
  /** when the object was created */
  created_at: string;
  /** when the object was last changed */
  updated_at: string;
  /** name of the account */
  name: string;
  /** time zone for dates without a time and for times of day, such as `Europe/Berlin` */
  time_zone: string;
  /** language of the pages for recipients, such as `en` */
  locale: string;
  /** two-letter country code that applies to phone numbers without a country code in imports, forms and pages */
  country_code: string | null;
  /** default sender name of emails */
  email_from_name: string | null;
  /** default sender address of emails */
  email_from_email: string | null;
  /** default address for replies to emails */
  email_reply_to: string | null;
  /** sender number or name of SMS */
  sms_from: string | null;
  /** recipients of test emails for which no address is given */
  test_email_recipients: string[];
  /** true if nothing blocks sending */
  can_send: boolean;
  /** problems that block sending or need attention */
  blockers: Blocker[];
  /** true if email is captured and does not leave the machine */
  using_sandbox: boolean;
  /** true if at least one sending domain is verified */
  domain_verified: boolean;
  /** transports for `email` and `sms` */
  transport: Transports;
  /** features of this installation: `email`, `sms`, `tracking`, `inbound` */
  capabilities: Capabilities;
  /** onboarding steps and progress */
  onboarding: Onboarding;
  /** whether campaigns and flows need approval before they are sent */
  approval_required: boolean;
  /** whether a user other than author and requester must approve, if there is one */
  approval_by_another: boolean;
  /** whether a merge tag without a value blocks a campaign */
  block_on_missing_variable: boolean;
  /** whether messages that need no consent, such as receipts, may be sent */
  transactional_allowed: boolean;
  /** whether a user, or the restore of a backup, has stopped all sending; new sends are accepted and wait */
  sending_stopped: boolean;
  /** reason; `restored` after a restore; null if none was given */
  stop_reason: string | null;
  /** maximum number of marketing messages per contact; null for no limit */
  frequency_cap: FrequencyCap | null;
  /** share of contacts who get no campaigns, to be measured; null for none */
  control_share: number | null;
  /**
   * attribution window: for how many days after a click orders and other custom events count as its result; in a
   * replay of a flow, after a message
   */
  attribution_days: number;
  /** UTM parameters of the links in campaigns and flows; null for none */
  utm: Utm | null;
  /** hours in which no marketing SMS is sent; null for none */
  sms_quiet_hours: QuietHours | null;
  /** when marketing email may be sent; null for any time */
  marketing_calendar: MarketingCalendar | null;
  /** text appended to marketing SMS, such as `STOP to opt out`; null for none */
  sms_opt_out_hint: string | null;
  /** the same text in other languages, by language tag, for contacts with them */
  sms_opt_out_hints: Record<string, string>;
  /** how visitors' IP addresses are stored */
  privacy_ip: "full" | "none" | "truncated";
  /** number of objects of each kind */
  counts: Record<string, number>;
  /** recent sending volume */
  usage: AccountUsage;
  /** brand of the account */
  brand: Brand;
}

/** Messages sent in the last 30 days, without tests. */
export interface AccountUsage {
  /** start of the period */
  since: string;
  /** number of emails sent */
  email_sent: number;
  /** number of SMS sent */
  sms_sent: number;
  /** number of SMS parts sent */
  sms_parts: number;
}

/** The writable fields of an account; fields that are not given stay unchanged. */
export interface AccountWrite {
  /** name of the account */
  name?: string;
  /** time zone for dates without a time and for times of day, such as `Europe/Berlin` */
  time_zone?: string;
  /** language of the pages for recipients, such as `en` */
  locale?: string;
  /** two-letter country code that applies to phone numbers without a country code in imports, forms and pages */
  country_code?: string | null;
  /** default sender name of emails */
  email_from_name?: string | null;
  /** default sender address of emails */
  email_from_email?: string | null;
  /** default address for replies to emails */
  email_reply_to?: string | null;
  /** whether campaigns and flows need approval before they are sent */
  approval_required?: boolean;
  /** whether a user other than author and requester must approve, if there is one */
  approval_by_another?: boolean;
  /**
   * whether all sending is stopped; new sends are accepted and wait. The restore of a backup stops it, too; false
   * lets everything go out that waits
   */
  sending_stopped?: boolean;
  /** reason; null if none was given */
  stop_reason?: string | null;
  /** maximum number of marketing messages per contact; null for no limit */
  frequency_cap?: FrequencyCap | null;
  /** phone number in E.164, short code, sender name of up to 11 letters and digits, or SID of a messaging service */
  sms_from?: string | null;
  /** hours in which no marketing SMS is sent; null for none */
  sms_quiet_hours?: QuietHours | null;
  /** when marketing email may be sent; null for any time */
  marketing_calendar?: MarketingCalendar | null;
  /** text appended to marketing SMS, such as `STOP to opt out`; null for none */
  sms_opt_out_hint?: string | null;
  /**
   * the same text in other languages, by language tag (`{"de": "STOP zum Abmelden"}`), for contacts with that
   * language
   */
  sms_opt_out_hints?: Record<string, string>;
  /**
   * share of contacts who get no campaigns, so that all campaigns together can be measured; null for none. A larger
   * share only adds contacts
   */
  control_share?: number | null;
  /**
   * attribution window: for how many days after a click orders and other custom events count as its result; in a
   * replay of a flow, after a message
   */
  attribution_days?: number;
  /** UTM parameters of the links in campaigns and flows; null for none */
  utm?: UtmWrite | null;
  /** how visitors' IP addresses are stored */
  privacy_ip?: "full" | "none" | "truncated";
  /** recipients of test emails for which no address is given */
  test_email_recipients?: string[] | null;
  /** whether a merge tag without a value blocks a campaign */
  block_on_missing_variable?: boolean;
  /** whether messages that need no consent, such as receipts, may be sent */
  transactional_allowed?: boolean;
}

/** Options for activating a flow: the version that was read, and what happens to messages of a pause. */
export interface ActivateRequest {
  /** messages that were due longer ago than this number of seconds are dropped; null to drop none */
  skip_overdue_seconds?: number | null;
  /** `updated_at` as last read; if the object has been changed since then, the response is 409 */
  updated_at?: string;
}

/** An agent: an active API key of this kind, with what it did in the last hour. */
export interface Agent {
  /** id of its API key */
  api_key_id: number;
  /** name of its API key */
  name: string;
  /** changes and proposals that it made in the last hour */
  acts: number;
  /** when it made the last request; null for never */
  last_used_at: string | null;
}

/** The agents of an account, and whether they are stopped. */
export interface Agents {
  /** since when all agents are stopped; null if they are not */
  stopped_at: string | null;
  /** changes and proposals that each agent may make in an hour */
  acts_per_hour: number;
  /** active agents, newest first */
  agents: Agent[];
}

/** An API key without its secret; `hint` is its last four characters. */
export interface ApiKey {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the account */
  account_id: number;
  /** name of the key, such as the program that uses it */
  name: string;
  /** last four characters of the key */
  hint: string;
  /** `full`, `read`, `send`, `draft`, or a comma-separated list of scopes, such as `contacts:write,events:write` */
  scope: string;
  /** true for a test key: everything that it sends is captured and counted nowhere */
  test: boolean;
  /** true for the key of an AI agent, which reads, drafts and proposes */
  agent: boolean;
  /** id of the user who created the key; null if it was created on the command line or the user was deleted */
  created_by: number | null;
  /** when the key was last used; null for never */
  last_used_at: string | null;
  /** number of emails that SMTP submission accepted with the key */
  smtp_count: number;
  /** when the last one was accepted; null for never */
  smtp_last_at: string | null;
  /** recipients of SMTP submission within an hour; 0: no limit */
  smtp_hourly_limit: number;
  /** when the object was created */
  created_at: string;
}

/** A new API key. `key` is shown once. */
export interface ApiKeyWithSecret {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the account */
  account_id: number;
  /** name of the key, such as the program that uses it */
  name: string;
  /** last four characters of the key */
  hint: string;
  /** `full`, `read`, `send`, `draft`, or a comma-separated list of scopes, such as `contacts:write,events:write` */
  scope: string;
  /** true for a test key: everything that it sends is captured and counted nowhere */
  test: boolean;
  /** true for the key of an AI agent, which reads, drafts and proposes */
  agent: boolean;
  /** id of the user who created the key; null if it was created on the command line or the user was deleted */
  created_by: number | null;
  /** when the key was last used; null for never */
  last_used_at: string | null;
  /** number of emails that SMTP submission accepted with the key */
  smtp_count: number;
  /** when the last one was accepted; null for never */
  smtp_last_at: string | null;
  /** recipients of SMTP submission within an hour; 0: no limit */
  smtp_hourly_limit: number;
  /** when the object was created */
  created_at: string;
  /** key to send after `Bearer`, shown in this response only */
  key: string;
}

/** The approval of a proposal as it was read. */
export interface ApproveProposal {
  /** `version` as last read */
  version: string;
}

/** The request body of an approval, with the version that was read. */
export interface ApproveRequest {
  /** `updated_at` as last read; if the object has been changed since then, the response is 409 */
  updated_at?: string;
}

/** Options for archiving a flow: contacts in it stay at their step, unless `take_out` ends their runs. */
export interface ArchiveRequest {
  /** whether active runs exit */
  take_out?: boolean;
}

/** An event that is assumed to happen: at a time, or `after` a number of seconds; by default at the start. */
export interface Assumption {
  /** name of the assumed event */
  event: string;
  /** seconds after the start or, with `step`, after the message of that step was sent */
  after?: number;
  /** time of the event */
  at?: string;
  /** id of the step to whose message the event refers; default: that of the last message sent */
  step?: number;
  /** data of the event */
  data?: Record<string, unknown>;
  /** amount of the event */
  amount?: number;
}

/** A file to attach to an email. */
export interface AttachmentWrite {
  /** file name; types that mail servers reject, such as `.exe`, are rejected */
  filename: string;
  /** content in base64; all files together have at most 25 MB */
  content: string;
  /** MIME type; default: by the file name */
  content_type?: string | null;
  /** id of an inline image, such as `logo` for `<img src="cid:logo">` */
  content_id?: string | null;
}

/** Why one contact gets, got or does not get a campaign. */
export interface AudienceExplanation {
  /** id of the campaign */
  campaign_id: number;
  /** id of the contact */
  contact_id: number;
  /** whether the contact is in the audience */
  in_audience: boolean;
  /** why a message to the contact would be skipped; null if it would not */
  skip_reason: string | null;
  /** id of the message; null if there is none */
  message_id: number | null;
  /** status of the contact's message; null if there is none */
  status: string | null;
  /** description as a sentence */
  sentence: string;
  /** results for each list and segment of the audience */
  parts: AudiencePart[];
}

/** A list or segment of the audience, and whether the contact is in it now. */
export interface AudiencePart {
  /** kind */
  kind: "excluded_list" | "excluded_segment" | "list" | "segment";
  /** id of the list or segment */
  id: number;
  /** name */
  name: string;
  /** whether the contact belongs to it now */
  matches: boolean;
}

/** An entry of the audit log: what an actor, such as `user:7`, did to a subject, such as `campaign:3`. */
export interface AuditEntry {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the account */
  account_id: number;
  /** who did it: `user:7`, `key:3`, `cli`, `recipient`, or `system` */
  actor: string;
  /** name of the user or key; null if there is none */
  actor_name: string | null;
  /** action, such as `campaign_send` */
  action: string;
  /** object of the action, such as `campaign:3`; null if there is none */
  subject: string | null;
  /** details of the action: names and numbers, never a secret or an address */
  data: Record<string, unknown>;
  /** full IP address; null if unknown */
  ip: string | null;
  /** when the action happened */
  created_at: string;
}

/** A backup on this machine. */
export interface BackupFile {
  /** name of the file in the directory `backups` */
  name: string;
  /** when the object was created */
  created_at: string;
  /** size in bytes */
  size: number;
  /** whether the service created it, and deletes it when it is old */
  scheduled: boolean;
}

/** The backups of the installation. */
export interface Backups {
  /** whether a backup on this machine is being created */
  running: boolean;
  /** why the last backup on this machine failed; null if it did not */
  error: string | null;
  /** backups on this machine, newest first */
  files: BackupFile[];
  /** copies on another machine */
  copies: CopiesState;
}

/** The result of one message of a batch: the message, or the errors that a single request would have got. */
export interface BatchResult {
  /** 201: queued; 200: queued before; 409, 422, 429, 500, 503: not queued */
  status: number;
  /** the message; null if it was not queued */
  message: SentMessage | null;
  /** error code; null if the message was queued */
  code: string | null;
  /** reason of the error, such as `recipient_suppressed`; often null */
  reason: string | null;
  /** errors by field; empty if the message was queued */
  errors: Record<string, string[]>;
}

/** A problem that prevents sending (`severity` is `error`), or a warning. */
export interface Blocker {
  /** code for programs */
  code: string;
  /** `error` blocks sending, `warning` does not */
  severity: string;
  /** explanation for people */
  message: string;
}

/** The number of contacts that continued with one branch of a step. */
export interface BranchCount {
  /** key of the branch */
  key: string;
  /** label of the branch */
  label: string;
  /** number */
  count?: number;
}

/** The visits of a step that continued with one of its branches. */
export interface BranchFigures {
  /** key of the branch, which is also the outcome of its visits */
  key: string;
  /** label of the branch */
  label: string;
  /** number */
  count: number;
  /** path of the list of these contacts */
  people: string;
}

/** The brand of an account: colours, fonts, logo, company and postal address. */
export interface Brand {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the account */
  account_id: number;
  /** colour of buttons and links, such as `#0a7d52` */
  brand_color: string | null;
  /** text colour */
  text_color: string | null;
  /** background colour */
  bg_color: string | null;
  /** font of headings */
  font_heading: string | null;
  /** font of text */
  font_body: string | null;
  /** description of the visual style */
  style_notes: string | null;
  /** tone of voice */
  tone: string | null;
  /** description of the company */
  company_description: string | null;
  /** industry of the company */
  industry: string | null;
  /** sample texts in the brand's tone */
  example_copy: string[] | null;
  /** default properties of headers */
  default_header: Record<string, unknown>;
  /** default properties of footers */
  default_footer: Record<string, unknown>;
  /** default theme of designs */
  default_theme: Record<string, unknown>;
  /** postal address, included in every marketing email */
  physical_address: string | null;
  /** name of the company */
  company_name: string | null;
  /** always null: no website is read */
  source_url: string | null;
  /** always null: no website is read */
  last_scraped_at: string | null;
  /** links to websites and social profiles */
  links: BrandLink[];
  /** URL of the logo */
  logo: string | null;
  /** true if `brand_color` and `company_name` are set */
  complete: boolean;
  /** when the object was created */
  created_at: string;
  /** when the object was last changed */
  updated_at: string;
}

/** A link of the brand. */
export interface BrandLink {
  /** URL of the link: http, https or mailto */
  url: string;
  /** name of the icon */
  icon: string;
  /** title of the link */
  title: string;
}

/** A link of the brand in a request. */
export interface BrandLinkWrite {
  /** URL of the link: http, https or mailto */
  url: string;
  /** name of the icon */
  icon?: string | null;
  /** title of the link */
  title?: string | null;
}

/** The writable fields of a brand; an absent field is left unchanged, null clears it. */
export interface BrandWrite {
  /** colour of buttons and links, such as `#0a7d52` */
  brand_color?: string | null;
  /** text colour */
  text_color?: string | null;
  /** background colour */
  bg_color?: string | null;
  /** font of headings */
  font_heading?: string | null;
  /** font of text */
  font_body?: string | null;
  /** description of the visual style */
  style_notes?: string | null;
  /** tone of voice */
  tone?: string | null;
  /** description of the company */
  company_description?: string | null;
  /** industry of the company */
  industry?: string | null;
  /** postal address, included in every marketing email */
  physical_address?: string | null;
  /** name of the company */
  company_name?: string | null;
  /** URL of the image, or `signed_id` of an upload */
  logo?: string | null;
  /** sample texts in the brand's tone */
  example_copy?: string[] | null;
  /** links to websites and social profiles */
  links?: BrandLinkWrite[] | null;
  /** default properties of headers */
  default_header?: Record<string, unknown> | null;
  /** default properties of footers */
  default_footer?: Record<string, unknown> | null;
  /** default theme of designs */
  default_theme?: Record<string, unknown> | null;
}

/** The number of first opens and first clicks in one hour (in the first two days of a campaign) or one day. */
export interface Bucket {
  /** start of the interval, inclusive */
  from: string;
  /** end of the interval, exclusive */
  until: string;
  /** number of recipients who first opened in the interval */
  opened: number;
  /** number of recipients who first clicked in the interval */
  clicked: number;
}

/** An event that is assumed to happen to a share of the contacts, by default to all. */
export interface BulkAssumption {
  /** name of the assumed event */
  event: string;
  /** seconds after the start or, with `step`, after the message of that step was sent */
  after?: number;
  /** time of the event */
  at?: string;
  /** id of the step to whose message the event refers; default: that of the last message sent */
  step?: number;
  /** data of the event */
  data?: Record<string, unknown>;
  /** amount of the event */
  amount?: number;
  /** share of contacts to which the event happens, from 0 to 1; default: 1 */
  share?: number;
}

/** The result of adding contacts to a list and removing contacts from it. */
export interface BulkDone {
  /** number of contacts added */
  added: number;
  /** number of contacts removed */
  removed: number;
  /** values that match no contact, as sent */
  unknown: (number | string)[];
  /** contacts that had left the list themselves and were not added again */
  kept_opt_out: string[];
}

/** A bulk simulation with the contacts that matched the trigger in the last `days` days (default: 90). */
export interface BulkSimulateRequest {
  /** number of past days whose triggers are simulated */
  days?: number;
  /** assumed events */
  events?: BulkAssumption[] | null;
  /** start of the simulation; default: now */
  start_at?: string | null;
  /** latest end of the simulation */
  until?: string | null;
  /** steps to simulate instead of the stored ones */
  steps?: FlowStepWrite[];
}

/** The result of a bulk simulation: how many contacts matched the trigger, and how their simulated runs went. */
export interface BulkSimulation {
  /** id of the flow */
  flow_id: number;
  /** live version that was simulated; null if the flow is not active or other steps were tried */
  version: number | null;
  /** number of past days whose triggers are simulated */
  days: number;
  /** number of contacts that met the trigger */
  met: number;
  /** number of contacts simulated */
  rehearsed: number;
  /** whether the simulated contacts are a sample */
  sampled: boolean;
  /** completed runs */
  completed: number;
  /** runs that ended early */
  exited: number;
  /** runs that were still active at the end */
  live: number;
  /** why contacts exited, with counts */
  reasons: Record<string, number>;
  /** results by step */
  steps: StepCount[];
  /** limits of the simulation */
  notes: string[];
  /** whole result as text */
  text?: string;
}

/** The contacts to add to and to remove from a list, each by id or email address. */
export interface BulkWrite {
  /** contacts to add, by id or email address */
  add?: (number | string)[];
  /** contacts to remove, by id or email address */
  remove?: (number | string)[];
}

/** A section of the type `button`. */
export interface ButtonSection {
  /** section type */
  type: "button";
  /** properties; `GET /templates/spec` lists their defaults and limits */
  props?: ButtonSectionProps | null;
  /** your identifier of the section */
  id?: string | number | null;
  /** styles of the surrounding box; `props` take precedence */
  styles?: ButtonSectionStyles | null;
}

/** properties; `GET /templates/spec` lists their defaults and limits */
export interface ButtonSectionProps {
  /** text */
  text?: string | number | boolean | null;
  /** link */
  href?: string | number | boolean | null;
  /** background */
  background_color?: string | number | boolean | null;
  /** text colour */
  text_color?: string | number | boolean | null;
  /** corner radius */
  border_radius?: string | number | boolean | null;
  /** padding */
  inner_padding?: string | number | boolean | null;
  /** style */
  style?: string | number | boolean | null;
  /** width */
  width?: string | number | boolean | null;
  /** text below the button */
  note?: string | number | boolean | null;
  /** alignment */
  align?: string | number | boolean | null;
  /** hide on */
  hide_on?: string | number | boolean | null;
  /** show only to. Segment filters. */
  show_if?: Filter[] | null;
  /** section name */
  name?: string | number | boolean | null;
}

/** styles of the surrounding box; `props` take precedence */
export interface ButtonSectionStyles {
  /** background */
  background_color?: string | number | boolean | null;
  /** padding. One to four pixel values, 0 to 96. */
  padding?: string | number | boolean | null;
}

/** A message to many contacts. */
export interface Campaign {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the account */
  account_id: number;
  /** status */
  status: "active" | "completed" | "draft" | "paused";
  /** status in finer detail */
  phase: "cancelled" | "completed" | "draft" | "holding" | "paused" | "scheduled" | "sending";
  /** approval state of the current content */
  approval_state: "approved" | "pending_review" | "rejected";
  /** note of the user who rejected it */
  approval_note: string | null;
  /** since when it waits for approval; null if it does not */
  asked_at: string | null;
  /** `email` or `sms` */
  channel: "email" | "sms";
  /** name */
  name: string;
  /** custom data as JSON of at most 32 KiB; a write replaces all of it */
  data: Record<string, unknown>;
  /** whether opens and clicks are tracked */
  tracking: boolean;
  /** UTM parameters of the links; null for those of the account */
  utm: Utm | null;
  /** when to send, kept afterwards; null if no time was set */
  scheduled_at: string | null;
  /**
   * time on the clock of each recipient at which it is sent, such as `2026-12-01T09:00`; null if all get it at the
   * same moment
   */
  local_time: string | null;
  /**
   * until which hour of that day each recipient gets it, at the best hour of their own from `local_time` on; null
   * if all get it at `local_time`
   */
  best_hour_until: number | null;
  /** number of messages ever accepted by the next hop, without tests; it never decreases */
  sent_count: number;
  /** number of recipients stored when the campaign was sent */
  audience_count: number;
  /** progress of storing a large audience; null if completed or not started */
  freezing: SnapshotProgress | null;
  /** number of recipients by status */
  stats: CampaignStats;
  /** whether content, audience, channel and time can still be changed */
  editable: boolean;
  /** why the campaign was paused automatically; null if a user paused it */
  pause_reason: string | null;
  /** why sending waits; null if it does not */
  waiting: CampaignWait | null;
  /** when the campaign was cancelled */
  cancelled_at: string | null;
  /** when the object was created */
  created_at: string;
  /** when the object was last changed */
  updated_at: string;
  /** audience of the campaign */
  trigger: Trigger;
  /** content of the campaign */
  template: Template;
  /** list with the one template */
  templates: Template[];
  /** A/B test or holdout; null for none */
  experiment: Experiment | null;
  /** dates at which a copy is sent; null for none */
  repeat: Repeat | null;
  /** id of the repeating campaign that this one is a copy of; null for others */
  series_id: number | null;
}

/** The duplicate of a campaign; its default name is the original name with "(copy)" appended. */
export interface CampaignCopy {
  /** name */
  name?: string;
}

/** A new campaign; only `name` is required. */
export interface CampaignCreate {
  /** name */
  name: string;
  /** channel; default: `email` */
  channel?: "email" | "sms";
  /** when to send; it takes effect when the draft is sent */
  scheduled_at?: string | null;
  /**
   * when to send, such as `2026-12-01T09:00`, on the clock of each recipient; replaces `repeat` and `scheduled_at`,
   * which is then the first moment at which it is that time anywhere. null: no local time
   */
  local_time?: string | null;
  /**
   * until which hour of the day of `local_time` to send, such as `20`, to each recipient at the best hour of their
   * own from `local_time` on, by their clicks. It needs a `local_time` at a full hour in the same request. null:
   * all get it at `local_time`
   */
  best_hour_until?: number | null;
  /** custom data as JSON of at most 32 KiB; a write replaces all of it */
  data?: Record<string, unknown> | null;
  /** whether opens and clicks are tracked */
  tracking?: boolean;
  /** UTM parameters of the links; null for those of the account */
  utm?: UtmWrite | null;
  /** audience of the campaign */
  trigger_attributes?: TriggerWrite;
  /** content of the campaign */
  template_attributes?: Content;
  /** A/B test or holdout; null for none */
  experiment?: ExperimentWrite | null;
  /**
   * dates at which a copy is sent; replaces `local_time` and `scheduled_at`, which is then the next date. null: no
   * repetition
   */
  repeat?: RepeatWrite | null;
  /** alias of `trigger_attributes.contact_list_id`; beside it, both must be the same */
  contact_list_id?: number | null;
  /** alias of `trigger_attributes.segment_id`; beside it, both must be the same */
  segment_id?: number | null;
  /** alias of `trigger_attributes.data.contact_list_ids`; beside it, both must be the same */
  contact_list_ids?: number[];
  /** alias of `trigger_attributes.data.exclude_contact_list_ids`; beside it, both must be the same */
  exclude_contact_list_ids?: number[];
  /** alias of `trigger_attributes.data.exclude_segment_ids`; beside it, both must be the same */
  exclude_segment_ids?: number[];
  /** alias of `trigger_attributes.data.audience_type`; beside it, both must be the same */
  audience_type?: "all_contacts" | null;
  /** alias of `channel`; beside it, both must be the same */
  channelType?: "email" | "sms";
}

/** A change of a campaign. */
export interface CampaignPatch {
  /** name */
  name?: string;
  /** `email` or `sms` */
  channel?: "email" | "sms";
  /** when to send; null makes a scheduled campaign a draft */
  scheduled_at?: string | null;
  /**
   * when to send, such as `2026-12-01T09:00`, on the clock of each recipient; replaces `repeat` and `scheduled_at`,
   * which is then the first moment at which it is that time anywhere. null: no local time
   */
  local_time?: string | null;
  /**
   * until which hour of the day of `local_time` to send, such as `20`, to each recipient at the best hour of their
   * own from `local_time` on, by their clicks. It needs a `local_time` at a full hour in the same request. null:
   * all get it at `local_time`
   */
  best_hour_until?: number | null;
  /** custom data as JSON of at most 32 KiB; a write replaces all of it */
  data?: Record<string, unknown> | null;
  /** whether opens and clicks are tracked */
  tracking?: boolean;
  /** UTM parameters of the links; null for those of the account */
  utm?: UtmWrite | null;
  /**
   * changes the status, as the actions do: `live` is `active`, `cancelled` cancels, `scheduled` schedules for
   * `scheduled_at`
   */
  status?: "active" | "cancelled" | "completed" | "draft" | "live" | "paused" | "scheduled";
  /** audience of the campaign */
  trigger_attributes?: TriggerWrite;
  /** content of the campaign */
  template_attributes?: Content;
  /** A/B test or holdout; null removes it */
  experiment?: ExperimentWrite | null;
  /**
   * dates at which a copy is sent; replaces `local_time` and `scheduled_at`, which is then the next date. null: no
   * repetition
   */
  repeat?: RepeatWrite | null;
  /** `updated_at` as last read; if the object has been changed since then, the response is 409 */
  updated_at?: string;
}

/** The report of a campaign; all figures are from the same moment. */
export interface CampaignReport {
  /** id of the campaign */
  campaign_id: number;
  /** whether opens and clicks are tracked */
  tracking: boolean;
  /** all recipients of the audience, each counted in one term */
  ledger: LedgerFigures;
  /** opens */
  opens: EngagementFigures;
  /** clicks */
  clicks: EngagementFigures;
  /** unsubscribes */
  unsubscribes: RecipientCount;
  /** spam complaints */
  complaints: RecipientCount;
  /** bounces */
  bounces: RecipientCount;
  /** links in the order of the content */
  links: LinkFigures[];
  /** mailbox providers, largest first */
  domains: DomainFigures[];
  /** transports that took emails of the campaign, largest first */
  transports: TransportFigures[];
  /** results for SMS only; null for email */
  sms: SmsFigures | null;
  /** reasons why messages were not delivered, most frequent first */
  problems: ProblemFigures[];
  /** first opens and first clicks over time */
  over_time: Bucket[];
}

/** Message counts by status. `audience` is the sum of `pending` and all final statuses. */
export interface CampaignStats {
  /** number of recipients in the audience: the sum of `pending` and every final status */
  audience: number;
  /** not yet final: queued, held or sending */
  pending: number;
  /** accepted by the next hop, with no report since */
  sent: number;
  /** reported as delivered */
  delivered: number;
  /** accepted, and later reported as undeliverable */
  bounced: number;
  /** reported as spam */
  complained: number;
  /** rejected permanently, or given up after retries */
  failed: number;
  /** skipped, each for a reason */
  skipped: number;
  /** cancelled before they were sent */
  cancelled: number;
  /** unconfirmed: it cannot be known whether the next hop accepted them */
  uncertain: number;
  /** accepted by the next hop: sent, delivered, bounced and complained */
  accepted: number;
}

/** Further parts of a campaign's audience. */
export interface CampaignTriggerData {
  /** ids of lists to send to, beside `contact_list_id` */
  contact_list_ids?: number[];
  /** ids of lists whose members get nothing */
  exclude_contact_list_ids?: number[];
  /** ids of segments whose members get nothing */
  exclude_segment_ids?: number[];
  /** `all_contacts`, with `confirm_send_to_all`, for all contacts */
  audience_type?: "all_contacts" | null;
  /** true to send to all contacts */
  confirm_send_to_all?: boolean;
  [key: string]: unknown;
}

/** The reason why all or some messages of a campaign wait. */
export interface CampaignWait {
  /**
   * reason code: sending_stopped, stop_file, paused, scheduled, held, storage, unreachable, warm_up, hour_limit,
   * group, retries, quiet_hours, parts_per_day; more may follow
   */
  reason: string;
  /** the same as a sentence */
  text: string;
  /** when sending resumes by itself; null if unknown */
  until: string | null;
}

/** What the installation can do with its current configuration. */
export interface Capabilities {
  /** whether email can be sent */
  email: boolean;
  /** whether SMS can be sent */
  sms: boolean;
  /** whether opens and clicks are tracked */
  tracking: boolean;
  /** whether this installation receives bounces, spam complaints and unsubscribe requests by email */
  inbound: boolean;
}

/** The result of deleting all captured messages. */
export interface CaptureCleared {
  /** number of deleted messages */
  deleted: number;
}

/** A header of a captured email, decoded. */
export interface CapturedHeader {
  /** header name */
  name: string;
  /** decoded header value */
  value: string;
}

/** An email or SMS in the built-in inbox; `message_id` is the `id` of its Message. */
export interface CapturedMessage {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the account */
  account_id: number;
  /** `email` or `sms` */
  channel: "email" | "sms";
  /** id of the message; null if it was not sent by this installation */
  message_id: number | null;
  /** sender */
  from: string | null;
  /** recipient */
  to: string;
  /** return path */
  mail_from: string;
  /** subject line, with merge tags */
  subject: string | null;
  /** beginning of the text */
  preview: string | null;
  /** size in bytes */
  bytes: number;
  /** when the object was created */
  created_at: string;
}

/** A captured email or SMS with its content; `message` is the current state of the Message that was captured. */
export interface CapturedMessageDetail {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the account */
  account_id: number;
  /** `email` or `sms` */
  channel: "email" | "sms";
  /** id of the message; null if it was not sent by this installation */
  message_id: number | null;
  /** sender */
  from: string | null;
  /** recipient */
  to: string;
  /** return path */
  mail_from: string;
  /** subject line, with merge tags */
  subject: string | null;
  /** beginning of the text */
  preview: string | null;
  /** size in bytes */
  bytes: number;
  /** when the object was created */
  created_at: string;
  /** headers in their original order */
  headers: CapturedHeader[];
  /** HTML content; null if there is none */
  html: string | null;
  /** content as plain text */
  text: string | null;
  /** number of SMS parts; null for email */
  segments: number | null;
  /** alphabet of the SMS; null for email */
  alphabet: "GSM-7" | "UCS-2" | null;
  /** number of characters of the SMS; null for email */
  characters: number | null;
  /** current state of the message; null if it was deleted */
  message: Message | null;
}

/** An email address or phone number of a contact. */
export interface Channel {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the contact */
  contact_id: number;
  /** kind */
  kind: "email" | "phone";
  /** email address or phone number */
  value: string;
  /** whether the contact has consented to marketing at this address */
  subscribed: boolean;
  /** whether the address was verified: by confirmation, click, reply or import */
  verified: boolean;
  /** when the contact last opted in; null for never */
  opt_in_at: string | null;
  /** when the contact opted out; null if opted in */
  opt_out_at: string | null;
  /** who opted the address out; null if it was not opted out */
  opted_out_by: "operator" | "recipient" | null;
  /** why the address is suppressed; null if it is not */
  suppression_reason: string | null;
  /** number of messages to the address accepted by the next hop */
  sent_count: number;
  /** number of messages that failed or bounced */
  fail_count: number;
  /** custom data of the address */
  data: Record<string, unknown>;
  /** when the object was created */
  created_at: string;
  /** when the object was last changed */
  updated_at: string;
}

/** An address in a request: with `id` it is changed, without `id` added, and with `_destroy` removed. */
export interface ChannelWrite {
  /** id of the address to change; absent for a new one */
  id?: number;
  /** email address or phone number */
  value?: string;
  /** kind of the address, which stays as it is; default: email if it contains an @ */
  kind?: "email" | "phone";
  /** whether marketing may be sent to the address; true lifts an opt-out */
  subscribed?: boolean;
  /** true to remove the address */
  _destroy?: boolean;
}

/** A link of the message that is broken or was not checked, and why. */
export interface CheckedLink {
  /** URL of the link */
  href: string;
  /** description of the problem */
  why: string;
}

/** The choice of the branch of a random split that all contacts take from now on. */
export interface ChooseBranch {
  /** id of the random split */
  step: number;
  /** key of the branch; null goes on with the test */
  branch?: string | null;
}

/** The choice of a variant for all recipients who wait. */
export interface ChooseWinner {
  /** number of the variant, from 1 */
  variant: number;
}

/** How often a contact clicks at an hour of the day, from which campaigns take their best hour. */
export interface ClickHour {
  /** hour of the day on the contact's clock, 0 to 23 */
  hour: number;
  /** number of messages that the contact first clicked in that hour */
  clicks: number;
}

/** A section of the type `columns`. */
export interface ColumnsSection {
  /** section type */
  type: "columns";
  /** properties; `GET /templates/spec` lists their defaults and limits */
  props?: ColumnsSectionProps | null;
  /** your identifier of the section */
  id?: string | number | null;
  /** styles of the surrounding box; `props` take precedence */
  styles?: ColumnsSectionStyles | null;
}

/** properties; `GET /templates/spec` lists their defaults and limits */
export interface ColumnsSectionProps {
  /** columns */
  columns?: (ColumnsSectionPropsColumn | null)[] | null;
  /** column widths */
  preset?: string | number | boolean | null;
  /** gap */
  gap?: string | number | boolean | null;
  /** stack on phones */
  stack_on_phone?: string | number | boolean | null;
  /** alignment */
  align?: string | number | boolean | null;
  /** hide on */
  hide_on?: string | number | boolean | null;
  /** show only to. Segment filters. */
  show_if?: Filter[] | null;
  /** section name */
  name?: string | number | boolean | null;
}

export interface ColumnsSectionPropsColumn {
  /** width */
  width?: string | number | boolean | null;
  /** sections */
  sections?: DesignSection[] | null;
}

/** styles of the surrounding box; `props` take precedence */
export interface ColumnsSectionStyles {
  /** background */
  background_color?: string | number | boolean | null;
  /** padding. One to four pixel values, 0 to 96. */
  padding?: string | number | boolean | null;
}

/** An estimate with an interval that holds however often one looks (95 %); null while there is no figure yet. */
export interface ConfidenceInterval {
  /** estimate */
  estimate: number | null;
  /** lower end of the interval */
  low: number | null;
  /** upper end of the interval */
  high: number | null;
}

/** The number of open connections and its limit. */
export interface ConnectionCount {
  /** number of open connections */
  open: number;
  /** maximum number of connections */
  limit: number;
}

/** A consent record: who agreed or refused, how, when, from where and to which text. */
export interface ConsentRow {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the contact; null if there is none or it was deleted */
  contact_id: number | null;
  /** kind of the address */
  kind: "email" | "phone";
  /** address; null once the contact is erased */
  address: string | null;
  /** what changed */
  act: "confirmed" | "erase_requested" | "import_undone" | "lifted" | "list_joined" | "list_left" | "opt_in" | "opt_out" | "requested" | "suppressed" | "tracking";
  /** who made the change */
  by: "operator" | "recipient" | "service";
  /** how the change was made, such as `api`, `form`, `import` or `link` */
  source: string;
  /** who made the change, such as `key:3`, `user:7` or `recipient`; null if not recorded */
  actor: string | null;
  /** id of the list; null if there is none */
  list_id: number | null;
  /** IP address of the request, stored as the account's `privacy_ip` says */
  ip: string | null;
  /** User-Agent header of the request */
  user_agent: string | null;
  /** consent text that the contact saw or is recorded to have agreed to */
  text: string | null;
  /** further data */
  data: Record<string, unknown>;
  /** when the object was created */
  created_at: string;
}

/** A person with email addresses and phone numbers, consent, and custom data. */
export interface Contact {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** random unique identifier that reveals nothing about the contact */
  uuid: string;
  /** first name */
  first_name: string | null;
  /** last name */
  last_name: string | null;
  /** origin of the contact, as free text */
  source: string | null;
  /** two-letter country code; default: that of the phone number */
  country_code: string | null;
  /** language tag such as de or pt-BR; null if it is not known */
  language: string | null;
  /** custom data as JSON of at most 32 KiB; `tags` is a list of strings */
  data: Record<string, unknown>;
  /** true if any phone number of the contact is subscribed; a write applies to all of them */
  subscribed_phone: boolean;
  /** true if any email address of the contact is subscribed; a write applies to all of them */
  subscribed_email: boolean;
  /** true if the contact can be sent marketing SMS */
  sendable_phone: boolean;
  /**
   * true if the contact can be sent marketing email: subscribed, not suppressed, and confirmed if a list requires
   * it
   */
  sendable_email: boolean;
  /** verification status of the first email address, or of the phone number if there is none */
  verification_status: "suppressed" | "unverified" | "verified";
  /** `enriched` if `data.enrichment` is not empty */
  enrichment_status: "enriched" | "not_enriched";
  /** tracking of opens and clicks: `full`, anonymous (`aggregate`) or `none` */
  tracking: "aggregate" | "full" | "none";
  /** lists of which the contact is a member */
  list_ids: number[];
  /**
   * when the contact last opened, clicked, replied, submitted a form or had another event; automated activity does
   * not count
   */
  last_interacted_at: string | null;
  /** when the object was created */
  created_at: string;
  /** when the object was last changed */
  updated_at: string;
  /** email addresses and phone numbers of the contact */
  channels: Channel[];
}

/** The number of contacts that match filters, some of these contacts, and the number that each filter matches. */
export interface ContactCount {
  /** number */
  count: number;
  /** sample of the contacts */
  sample: Contact[];
  /** number of contacts per filter, in the order of the request */
  rows: FilterShare[];
  /** description as a sentence */
  sentence: string;
}

/** All stored data about a contact. */
export interface ContactExport {
  /** when the export was created */
  exported_at: string;
  /** the contact */
  contact: Contact;
  /** time zone by which campaigns and flows are sent to the contact */
  time_zone: string;
  /** hours at which the contact clicks */
  click_hours: ClickHour[];
  /** lists of which the contact is a member */
  lists: ListName[];
  /** lists that the contact left */
  left_lists: ListName[];
  /** suppressions of the contact's addresses */
  suppressions: Suppression[];
  /** consent records */
  consents: ConsentRow[];
  /** messages sent to the contact */
  messages: Message[];
  /** content of the single messages sent to the contact */
  message_texts: MessageText[];
  /** messages that the contact wrote */
  incoming: IncomingMessage[];
  /** events of the contact */
  events: RecordedEvent[];
  /** flow runs of the contact */
  flow_runs: FlowRunDetail[];
}

/** A list of contacts. */
export interface ContactList {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the account */
  account_id: number;
  /** name of the list, unique in the account regardless of case */
  name: string;
  /** number of contacts in the list */
  contacts_count: number;
  /** number of contacts in the list that can be sent marketing */
  sendable_count: SendableCount;
  /** id of the segment that the list follows; null for a static list */
  segment_id: number | null;
  /** true while the list is being updated after a change of its segment */
  stale: boolean;
  /** whether members must confirm their address before they are sent marketing */
  double_opt_in: boolean;
  /** whether the list is shown on the preference page */
  public: boolean;
  /** when the list was last filled from its segment; null for a static list */
  last_populated_at: string | null;
  /** when the object was created */
  created_at: string;
  /** when the object was last changed */
  updated_at: string;
}

/** The changes of an existing contact; `data_merge` is a JSON merge patch (RFC 7396) of `data`. */
export interface ContactPatch {
  /** first name */
  first_name?: string | null;
  /** last name */
  last_name?: string | null;
  /** email address to create or change, which is opted in */
  email?: string | null;
  /** phone number (E.164) to create or change, which is opted in */
  phone?: string | null;
  /** origin of the contact, as free text */
  source?: string | null;
  /** two-letter country code; default: that of the phone number */
  country_code?: string | null;
  /** language tag such as de or pt-BR; messages and pages follow it */
  language?: string | null;
  /** ids of the lists to join; in PATCH, they replace the static lists of the contact */
  list_ids?: number[] | null;
  /** custom data; POST merges it into the existing data, PATCH replaces it */
  data?: Record<string, unknown> | null;
  /** addresses to add, change or remove */
  channels_attributes?: ChannelWrite[] | null;
  /** true lifts an opt-out, false withdraws consent; if absent, new addresses are opted in */
  opt_in?: boolean | null;
  /** where the contact consented and to which text, stored as evidence */
  consent_source?: string | null;
  /** true if any email address of the contact is subscribed; a write applies to all of them */
  subscribed_email?: boolean;
  /** true if any phone number of the contact is subscribed; a write applies to all of them */
  subscribed_phone?: boolean;
  /** tracking of opens and clicks: `full`, anonymous (`aggregate`) or `none` */
  tracking?: "aggregate" | "full" | "none";
  /** JSON merge patch (RFC 7396) for `data` */
  data_merge?: Record<string, unknown>;
}

/** The fields of a contact to create or change: absent fields stay unchanged, and null clears a field. */
export interface ContactWrite {
  /** first name */
  first_name?: string | null;
  /** last name */
  last_name?: string | null;
  /** email address to create or change, which is opted in */
  email?: string | null;
  /** phone number (E.164) to create or change, which is opted in */
  phone?: string | null;
  /** origin of the contact, as free text */
  source?: string | null;
  /** two-letter country code; default: that of the phone number */
  country_code?: string | null;
  /** language tag such as de or pt-BR; messages and pages follow it */
  language?: string | null;
  /** ids of the lists to join; in PATCH, they replace the static lists of the contact */
  list_ids?: number[] | null;
  /** custom data; POST merges it into the existing data, PATCH replaces it */
  data?: Record<string, unknown> | null;
  /** addresses to add, change or remove */
  channels_attributes?: ChannelWrite[] | null;
  /** true lifts an opt-out, false withdraws consent; if absent, new addresses are opted in */
  opt_in?: boolean | null;
  /** where the contact consented and to which text, stored as evidence */
  consent_source?: string | null;
  /** true if any email address of the contact is subscribed; a write applies to all of them */
  subscribed_email?: boolean;
  /** true if any phone number of the contact is subscribed; a write applies to all of them */
  subscribed_phone?: boolean;
  /** tracking of opens and clicks: `full`, anonymous (`aggregate`) or `none` */
  tracking?: "aggregate" | "full" | "none";
}

/** A created or updated contact; `kept_opt_out` names the opt-outs that the request did not lift. */
export interface ContactWritten {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** random unique identifier that reveals nothing about the contact */
  uuid: string;
  /** first name */
  first_name: string | null;
  /** last name */
  last_name: string | null;
  /** origin of the contact, as free text */
  source: string | null;
  /** two-letter country code; default: that of the phone number */
  country_code: string | null;
  /** language tag such as de or pt-BR; null if it is not known */
  language: string | null;
  /** custom data as JSON of at most 32 KiB; `tags` is a list of strings */
  data: Record<string, unknown>;
  /** true if any phone number of the contact is subscribed; a write applies to all of them */
  subscribed_phone: boolean;
  /** true if any email address of the contact is subscribed; a write applies to all of them */
  subscribed_email: boolean;
  /** true if the contact can be sent marketing SMS */
  sendable_phone: boolean;
  /**
   * true if the contact can be sent marketing email: subscribed, not suppressed, and confirmed if a list requires
   * it
   */
  sendable_email: boolean;
  /** verification status of the first email address, or of the phone number if there is none */
  verification_status: "suppressed" | "unverified" | "verified";
  /** `enriched` if `data.enrichment` is not empty */
  enrichment_status: "enriched" | "not_enriched";
  /** tracking of opens and clicks: `full`, anonymous (`aggregate`) or `none` */
  tracking: "aggregate" | "full" | "none";
  /** lists of which the contact is a member */
  list_ids: number[];
  /**
   * when the contact last opened, clicked, replied, submitted a form or had another event; automated activity does
   * not count
   */
  last_interacted_at: string | null;
  /** when the object was created */
  created_at: string;
  /** when the object was last changed */
  updated_at: string;
  /** email addresses and phone numbers of the contact */
  channels: Channel[];
  /** opt-outs that the write did not lift, because the contact made them: addresses, and lists such as `list:5` */
  kept_opt_out: string[];
}

/** The content of one message in a request: subject, body, sender and design. */
export interface Content {
  /** subject line, with merge tags */
  subject?: string | null;
  /** content: HTML or plain text of an email (the text part beside a design), or the text of an SMS */
  body?: string | null;
  /** preview text that mailboxes show after the subject line */
  preheader?: string | null;
  /** sender name; null for that of the account */
  from_name?: string | null;
  /** sender address; null for that of the account */
  from_email?: string | null;
  /** address for replies; null for the sender */
  reply_to?: string | null;
  /** design; replaces the whole existing design */
  design?: Design | null;
}

/** An SMS of a conversation. `id` is the id of an Incoming (direction `in`) or of a Message (direction `out`). */
export interface ConversationMessage {
  /** `in` for messages from the contact, `out` for messages to the contact */
  direction: "in" | "out";
  /** id of the Incoming or the Message */
  id: number;
  /** when the message was sent or received */
  at: string;
  /** sender */
  from: string | null;
  /** recipient */
  to: string | null;
  /** text of the message */
  body: string | null;
  /** classification of the message; null for messages to the contact */
  kind: "help" | "keyword" | "message" | "refusal" | "start" | "stop" | null;
  /** keyword with which the message begins */
  keyword: string | null;
  /** status of the message; null for messages from the contact */
  status: "bounced" | "cancelled" | "complained" | "delivered" | "failed" | "held" | "queued" | "sending" | "sent" | "skipped" | "uncertain" | null;
  /** number of SMS parts; null for email */
  segments: number | null;
  /** source of the message; null for messages from the contact */
  source_type: "campaign" | "flow" | "system" | "test" | "transactional" | null;
  /** name of the campaign or flow */
  source_name: string | null;
  /** whether it is a test; tests are captured and never counted */
  test: boolean;
}

/** The state of copies on another machine. */
export interface CopiesState {
  /** whether there is a store, and a key or passphrase that reads copies */
  configured: boolean;
  /** moment that the data in the last good copy has */
  last_at: string | null;
  /** whether the last good copy is older than twice the interval */
  late: boolean;
  /** when the next copy is due; null if none is planned */
  next_at: string | null;
  /** whether the last test restore succeeded; null if there was none */
  proven: boolean | null;
  /** when a test restore succeeded last */
  proven_at: string | null;
  /** copies in the store after the last good one, newest first */
  stored: StoredCopy[];
  /** latest copies and test restores, newest first */
  runs: CopyRun[];
}

/** A copy on another machine that was made or attempted, or a test restore of the newest copy. */
export interface CopyRun {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** `proof` is a test restore */
  kind: "copy" | "proof";
  /** `interrupted` if the service ended meanwhile; it is repeated by itself */
  state: "failed" | "interrupted" | "running" | "succeeded" | "waiting";
  /** what is being done while it runs; empty otherwise */
  step: string;
  /** how much of the step is done, from 0 to 1 */
  progress: number;
  /** name of the copy; null if it is not known */
  copy: string | null;
  /** moment that the data in the copy has */
  taken_at: string | null;
  /** size of the copy in bytes */
  size: number | null;
  /** kind of failure, such as `unreachable` or `damaged` */
  error_code: string | null;
  /** reason of a failure; null without one */
  error: string | null;
  /** when it was begun, or asked for while it waits */
  started_at: string;
  /** when it ended; null while it waits or runs */
  ended_at: string | null;
}

/** The request body for counting the contacts that match filters, without storing a segment. */
export interface CountWrite {
  /** filters, all of which must match; without filters, the segment holds all contacts */
  filters: Filter[];
}

/** The results of the SMS to one country, or to numbers without a known country. */
export interface CountryFigures {
  /** two-letter country code; null for unknown countries */
  country: string | null;
  /** path of the list of these contacts */
  people: string;
  /** number of recipients */
  audience: number;
  /** accepted by the next hop: sent, delivered, bounced and complained */
  accepted: number;
  /** reported as delivered */
  delivered: number;
  /** accepted, and later reported as undeliverable */
  bounced: number;
  /** rejected permanently, or given up after retries */
  failed: number;
  /** skipped, each for a reason */
  skipped: number;
  /** number of people who clicked a link */
  clicked: number;
  /** number of accepted SMS parts */
  parts: number;
}

/** A section of the type `coupon`. */
export interface CouponSection {
  /** section type */
  type: "coupon";
  /** properties; `GET /templates/spec` lists their defaults and limits */
  props?: CouponSectionProps | null;
  /** your identifier of the section */
  id?: string | number | null;
  /** styles of the surrounding box; `props` take precedence */
  styles?: CouponSectionStyles | null;
}

/** properties; `GET /templates/spec` lists their defaults and limits */
export interface CouponSectionProps {
  /** code */
  code?: string | number | boolean | null;
  /** offer */
  text?: string | number | boolean | null;
  /** expiry date. Shown as entered. A date such as 2026-12-31 is shown in the language of the email. */
  expires_at?: string | number | boolean | null;
  /** expiry label */
  expires_text?: string | number | boolean | null;
  /** button */
  button?: CouponSectionPropsButton | string | null;
  /** border */
  border?: string | number | boolean | null;
  /** alignment */
  align?: string | number | boolean | null;
  /** hide on */
  hide_on?: string | number | boolean | null;
  /** show only to. Segment filters. */
  show_if?: Filter[] | null;
  /** section name */
  name?: string | number | boolean | null;
}

/** button */
export interface CouponSectionPropsButton {
  /** text */
  text?: string | number | boolean | null;
  /** link */
  href?: string | number | boolean | null;
}

/** styles of the surrounding box; `props` take precedence */
export interface CouponSectionStyles {
  /** background */
  background_color?: string | number | boolean | null;
  /** padding. One to four pixel values, 0 to 96. */
  padding?: string | number | boolean | null;
}

/** Changes to the signed-in user. */
export interface CurrentUserPatch {
  /** name shown to other users */
  name?: string;
  /** new password of at least 10 characters; ends all your sessions, including this one */
  password?: string;
  /** current password, required to change it */
  current_password?: string;
}

/** The delivery status of email, with the status of SMS in `sms`. */
export interface DeliveryStatus {
  /** transport for email */
  transport: string;
  /** true unless an obstacle stops all email */
  open: boolean;
  /** reasons why all or some email waits */
  obstacles: SendingObstacle[];
  /**
   * whether a user, or the restore of a backup, has stopped all sending of the account. `PATCH /account` with
   * `sending_stopped: false` resumes it; after a restore, first decide at `/restored` about what waits, because it
   * may have gone out since the backup
   */
  sending_stopped: boolean;
  /** reason; `restored` after a restore; null if none was given */
  stop_reason: string | null;
  /** whether a STOP file in the data directory stops the whole installation */
  stop_file: boolean;
  /** sending rate */
  rate: SendingRate;
  /** connections to mail servers */
  connections: ConnectionCount;
  /** queued messages */
  queue: SendQueue;
  /** groups of recipient domains with a reduced rate, because their servers asked for it */
  groups: ThrottledGroup[];
  /** sending domains that are being warmed up */
  warm_up: WarmUp[];
  /** transports of email, the default one first */
  transports: TransportState[];
  /** whether results of sending can be recorded */
  storage: StorageUsage;
  /** delivery status of SMS */
  sms: SmsStatus;
}

/** An email design. */
export interface Design {
  /** sections from top to bottom */
  sections?: DesignSection[];
  /** colours, fonts and logo; default: those of the brand */
  theme?: DesignTheme | null;
}

/** A section of a design. */
export type DesignSection = KnownSection | OtherSection;

/** Default look of the sections of a design. */
export interface DesignTheme {
  /** brand colour. Buttons, links and symbols. */
  brand_color?: string | number | boolean | null;
  /** text colour */
  text_color?: string | number | boolean | null;
  /** background colour. Around the sections. */
  bg_color?: string | number | boolean | null;
  /** heading font */
  font_heading?: string | number | boolean | null;
  /** body font */
  font_body?: string | number | boolean | null;
  /** button shape */
  button_shape?: string | number | boolean | null;
  /** logo */
  logo_url?: string | number | boolean | null;
  /** width */
  width?: string | number | boolean | null;
}

/** A value that a proposal changes: its name, and its texts before and after; empty for no value. */
export interface Difference {
  /** name of the value */
  label: string;
  /** the value now; empty if there is none */
  before: string;
  /** the value once the proposal is approved; empty if there is none */
  after: string;
}

/** A section of the type `divider`. */
export interface DividerSection {
  /** section type */
  type: "divider";
  /** properties; `GET /templates/spec` lists their defaults and limits */
  props?: DividerSectionProps | null;
  /** your identifier of the section */
  id?: string | number | null;
  /** styles of the surrounding box; `props` take precedence */
  styles?: DividerSectionStyles | null;
}

/** properties; `GET /templates/spec` lists their defaults and limits */
export interface DividerSectionProps {
  /** colour */
  color?: string | number | boolean | null;
  /** width */
  width?: string | number | boolean | null;
  /** padding */
  padding?: string | number | boolean | null;
  /** thickness */
  thickness?: string | number | boolean | null;
  /** style */
  style?: string | number | boolean | null;
  /** alignment */
  align?: string | number | boolean | null;
  /** hide on */
  hide_on?: string | number | boolean | null;
  /** show only to. Segment filters. */
  show_if?: Filter[] | null;
  /** section name */
  name?: string | number | boolean | null;
}

/** styles of the surrounding box; `props` take precedence */
export interface DividerSectionStyles {
  /** background */
  background_color?: string | number | boolean | null;
  /** padding. One to four pixel values, 0 to 96. */
  padding?: string | number | boolean | null;
}

/** A DNS record of a sending domain: what to enter, and what the last check found. */
export interface DnsRecord {
  /** type */
  record_type: "CNAME" | "MX" | "TXT";
  /** full name of the record */
  name: string;
  /** value to enter */
  value: string;
  /** priority of an MX record; empty for others */
  priority: string;
  /** `valid` if the last check found the record in DNS, `unknown` before a check */
  valid: "invalid" | "unknown" | "valid";
  /** purpose of the record */
  purpose: "dkim" | "dkim_next" | "dkim_previous" | "dkim_second" | "dmarc" | "ownership" | "return_path" | "spf" | "tracking";
  /** whether the record is required for verification */
  required: boolean;
  /** values found in DNS */
  found: string[];
  /** problem; null if there is none */
  problem: string | null;
  /** when the record was last checked */
  checked_at: string | null;
}

/** A request to create a sending domain. */
export interface DomainCreate {
  /** domain name */
  domain: DomainName;
}

/** The results at one mailbox provider, or, with a null `name`, at all providers that are too small to be listed. */
export interface DomainFigures {
  /** name of the provider; null for all smaller ones together */
  name: string | null;
  /** domains of the provider to which messages were sent */
  domains: string[];
  /** path of the list of recipients; null for several providers together */
  people: string | null;
  /** number of recipients */
  audience: number;
  /** accepted by the next hop: sent, delivered, bounced and complained */
  accepted: number;
  /** accepted, and later reported as undeliverable */
  bounced: number;
  /** rejected permanently, or given up after retries */
  failed: number;
  /** reported as spam */
  complained: number;
  /** number of people who opened */
  opened: number;
  /** number of people who clicked a link */
  clicked: number;
}

/** The object `domain` of a request to create a sending domain. */
export interface DomainName {
  /** domain name without scheme and port; internationalised names are allowed */
  name: string;
}

/** A predefined email in the style of the account's brand. */
export interface EmailStarter {
  /** key of the starter */
  name: string;
  /** label in the user interface */
  label: string;
  /** description */
  description: string;
  /** subject line, with merge tags */
  subject: string;
  /** preview text that mailboxes show after the subject line */
  preheader: string;
  /** design */
  design: Design;
}

/** Opens or clicks: the number of recipients with at least one, and the total number of opens or clicks. */
export interface EngagementFigures {
  /** number of people */
  people: RecipientCount;
  /** number of recipients with automated activity only */
  machines: RecipientCount;
  /** total number */
  total: number;
  /** number by people */
  total_human: number;
  /** number by machines, such as mailbox scanners */
  total_machine: number;
  /** number by contacts that are counted anonymously */
  unnamed: number;
}

/** Contacts to enroll in a flow: either `contact_ids`, or all current members of a segment. */
export interface EnrollWrite {
  /** ids of the contacts to add */
  contact_ids?: number[] | null;
  /** id of the segment whose current contacts are added */
  segment_id?: number | null;
  /** confirms that all contacts are meant, if nothing narrows the audience */
  confirm_send_to_all?: boolean;
}

/** The result of an enrollment: how many contacts entered, and how many could not, by reason. */
export interface EnrollmentResult {
  /** number of contacts added */
  enrolled?: number;
  /** number of contacts already in the flow */
  already_inside?: number;
  /** number of contacts that were in the flow before and cannot enter again */
  frequency?: number;
  /** number of contacts in the holdout group of the flow */
  held_out?: number;
  /** number of contacts in the control group of the account */
  control_group?: number;
}

/** The body of every response with status 400 or above. */
export interface ErrorResponse {
  /** always true */
  error: true;
  /** error code for programs */
  code: "bad_request" | "conflict" | "forbidden" | "idempotency_conflict" | "internal_error" | "invalid_credentials" | "invalid_json" | "method_not_allowed" | "not_found" | "otp_required" | "password_sign_in_off" | "payload_too_large" | "rate_limited" | "storage_unavailable" | "unauthorized" | "unavailable" | "unsupported_media_type" | "validation_error";
  /** explanation for people */
  message: string;
  /** same as in the header `X-Request-Id` */
  request_id: string;
  /**
   * errors by field: a name as it was sent, or a path such as `steps[1].yes[0].subject`; `base` for errors of no
   * single field
   */
  validation_errors?: Record<string, string[]>;
  /**
   * reason of a 422 whose fields are all valid; for a 429, the limit that was reached: `burst` or `minute`; more
   * may follow
   */
  reason?: string;
  /** where to find more information */
  hint?: string;
  /** 403: scope that the credential lacks and that a key can have */
  required_scope?: string;
  /** 403: lowest role whose users may do it, if no scope is sufficient */
  required_role?: "admin" | "author" | "editor" | "owner" | "viewer";
  /** problems that block sending, most important first */
  blockers?: SendBlocker[];
  /** `campaign_locked`: current status */
  status?: string;
  /** `invalid_transition`: current status */
  from?: string;
  /** `invalid_transition`: requested status */
  to?: string;
  /** `invalid_transition`: allowed statuses */
  allowed?: string[];
  /** `invalid_transition`: requested action, the last part of its path */
  action?: string;
  /** `invalid_transition` of an action: actions that are allowed now */
  allowed_actions?: string[];
  /** 429: number of requests that the limit allows */
  limit?: number;
  /** `recipient_suppressed`: id of the message, which is stored as skipped */
  message_id?: number;
  /** `recipient_suppressed`: why the message is skipped */
  skip_reason?: string;
  /**
   * `in_use`: objects that use it, each with its id, such as `campaign_id`, and its `name`; of an image also the
   * number of `messages`
   */
  used_by?: Record<string, unknown>[];
  /** `conflict`: when the object was last changed */
  updated_at?: string;
}

/** A batch of events. */
export interface EventBatch {
  /** up to 1,000 events; each is validated on its own */
  events: (EventWrite | null)[];
}

/** The result of a batch of events. */
export interface EventBatchResult {
  /** number of recorded events */
  created: number;
  /** number of events already known by their `idempotency_key` */
  repeated: number;
  /** events that were not recorded */
  errors: RejectedEvent[];
}

/** An event that a client submits. */
export interface EventWrite {
  /** name of the event: `^[a-z][a-z0-9_]{0,63}$`, not a name that the service records itself */
  event: string;
  /** id of the contact; this or `contact_email` */
  contact_id?: number | null;
  /** email address of the contact */
  contact_email?: string | null;
  /** create the contact of an unknown `contact_email`, without opt-in */
  create_contact?: boolean;
  /** value of the event, such as the total of an order */
  amount?: number | null;
  /** further data, as JSON of at most 32 KiB */
  data?: Record<string, unknown> | null;
  /** your id of the object that the event concerns, such as `order:4711` */
  resource_uid?: string | null;
  /** name of that object */
  resource_name?: string | null;
  /** URL of that object */
  resource_url?: string | null;
  /** IP address of the person, not of your server; stored as `privacy_ip` of the account says */
  ip?: string | null;
  /** User-Agent of the person's program; `browser`, `os` and `device_type` are read from it */
  user_agent?: string | null;
  /** URL of the page that the contact came from */
  referrer?: string | null;
  /** `utm_source` of the visited URL */
  utm_source?: string | null;
  /** `utm_medium` of the visited URL */
  utm_medium?: string | null;
  /** `utm_term` of the visited URL */
  utm_term?: string | null;
  /** `utm_content` of the visited URL */
  utm_content?: string | null;
  /** `utm_campaign` of the visited URL */
  utm_campaign?: string | null;
  /** whether it is a test; tests are captured and never counted */
  test?: boolean;
  /** whether the event starts flows; default: true unless it happened over an hour ago */
  trigger?: boolean;
  /** key that identifies repeated requests with the same event name */
  idempotency_key?: string | null;
  /** when the event happened, up to 365 days ago; default: now */
  created_at?: string | null;
}

/** The A/B test or holdout of a campaign. */
export interface Experiment {
  /** `releasing`: the winner is being given to those who wait */
  state: "decided" | "draft" | "releasing" | "testing";
  /** variants in order of their numbers; one for a holdout alone */
  variants: Variant[];
  /** share of the audience that gets the variants */
  test_share: number;
  /** what decides */
  metric: "clicks" | "event" | "opens";
  /** name of the event that is counted */
  event: string | null;
  /** whether the amounts of the events are compared */
  by_amount: boolean;
  /** minutes from the first message to the end of the test */
  decide_after_minutes: number;
  /** who decides */
  decided_by: "person" | "service";
  /** what the service does at the end without a winner */
  too_close: "leader" | "person";
  /** whether better variants get more of the later batches */
  uneven: boolean;
  /** share of the audience that gets nothing and is measured */
  holdout: number;
  /** when the test ends; null before the send */
  ends_at: string | null;
  /** number of the variant that those who waited get */
  winner: number | null;
  /** `service`, or the user or API key that chose the winner */
  chosen_by: string | null;
  /** when it was decided */
  chosen_at: string | null;
}

/** What the counts say now. */
export interface ExperimentDecision {
  /**
   * `winner`: the leader is better; `too_close`: the difference is under 5 %, or the test is over; `too_early`: too
   * few conversions; `needs_more`: not clear yet
   */
  code: "needs_more" | "too_close" | "too_early" | "winner";
  /** number of the best variant so far */
  leader: number;
  /** number of the variant that is hardest to beat */
  runner_up: number;
  /** leader minus runner-up, per recipient */
  difference: ConfidenceInterval;
  /** the same as a part of the runner-up's value */
  ratio: ConfidenceInterval;
}

/** The state of an A/B test or holdout: counts that add up, and the conclusion. */
export interface ExperimentResult {
  /** `releasing`: messages are being given to those who wait */
  state: "decided" | "draft" | "releasing" | "testing";
  /** what decides */
  metric: "clicks" | "event" | "opens";
  /** name of the event that is counted */
  event: string | null;
  /** whether the amounts of the events are compared */
  by_amount: boolean;
  /** when the test ends; null before the send */
  ends_at: string | null;
  /** whether a person has to choose the winner now */
  is_waiting_for_person: boolean;
  /** number of the variant that those who waited get */
  winner: number | null;
  /** `service`, or the user or API key that chose the winner */
  chosen_by: string | null;
  /** when it was decided */
  chosen_at: string | null;
  /** what the counts say; null without a comparison */
  decision: ExperimentDecision | null;
  /** counts of each variant */
  variants: VariantResult[];
  /** number of recipients who wait for the winner */
  waiting: number;
  /** number of contacts who are held out */
  held_out: number;
  /** number of contacts who could not get the campaign when it was sent */
  skipped: number;
  /**
   * number of contacts in the audience: the sum of all of them, and of those who waited when the campaign was
   * cancelled
   */
  audience: number;
  /** whether all sums are right */
  adds_up: boolean;
  /** the effect of sending; null without a holdout */
  holdout: HoldoutFigures | null;
  /** what the test can find; null for a holdout alone */
  sample_size: SampleSize | null;
}

/** An A/B test or a holdout in a request. */
export interface ExperimentWrite {
  /** the variants in order; replaces the list. Two to five for an A/B test, none or one for a holdout alone */
  variants?: VariantWrite[];
  /** share of the audience that gets the variants; the rest, without the holdout, waits for the winner */
  test_share?: number;
  /** what decides: recipients who clicked, opened (estimated, so with a warning), or have an event */
  metric?: "clicks" | "event" | "opens";
  /** name of the counted event; required for `event` and for a holdout */
  event?: string | null;
  /** compare amounts of events, not how many recipients have one */
  by_amount?: boolean;
  /** minutes from the first message to the end of the test */
  decide_after_minutes?: number;
  /** `service`: sends the winner as soon as it is clear; `person`: waits for a decision */
  decided_by?: "person" | "service";
  /** at the end without a winner, `leader` sends the best variant, `person` waits */
  too_close?: "leader" | "person";
  /** send the test in batches, and give better variants more of the later ones */
  uneven?: boolean;
  /** share of the audience that gets nothing and is measured */
  holdout?: number;
}

/** A condition on contacts. */
export interface Filter {
  /**
   * name of the field: contact_first_name, contact_last_name, contact_email, contact_phone_number, contact_source,
   * contact_country, contact_language, contact_verification_status, contact_suppression_reason,
   * contact_data.<path>, contact_tag, contact_subscribed_email, contact_subscribed_phone, contact_verified,
   * contact_enriched, contact_suppressed, contact_created_at, contact_updated_at, contact_last_interacted_at,
   * contact_unsubscribed_at, email_last_sent_at, email_last_opened_at, email_last_clicked_at, contact_list,
   * contact_segment, contact_flow, campaign_sent, campaign_opened, campaign_clicked, email_sent_count,
   * email_open_count, email_click_count, email_soft_bounce_count, sms_sent_count, event, group, or a field of
   * Contact
   */
  name: string;
  /** predicate */
  predicate: "all" | "any" | "between" | "blank" | "cont" | "end" | "eq" | "false" | "gt" | "gteq" | "in" | "lt" | "lteq" | "none" | "not_cont" | "not_end" | "not_eq" | "not_in" | "not_performed" | "not_start" | "not_within_days" | "performed" | "present" | "start" | "true" | "within_days";
  /** value to compare with, of the type that the field and the predicate require */
  value?: string | number | boolean | unknown[] | Record<string, unknown> | null;
}

/** A field of contacts that a filter can test. */
export interface FilterField {
  /** name */
  name: string;
  /** type of the field, which determines its predicates */
  type: string;
  /** label in the user interface */
  label: string;
  /** section in which the field is offered */
  section: string;
  /** aliases of the field */
  aliases: string[];
  /** allowed values, if there are few */
  choices: string[];
  /** kind of objects whose ids are the values */
  of: string | null;
}

/** A filter as sent, whether it matches the contact, and the contact's value. */
export interface FilterResult {
  /** name of the filter */
  name: string;
  /** predicate */
  predicate: string;
  /** value as sent */
  value: unknown;
  /** description as a sentence */
  sentence: string;
  /** whether the filter matches */
  matches: boolean;
  /** actual value of the contact */
  actual: unknown;
  /** filters of the group */
  rows: FilterResult[];
}

/** The number of contacts that match one filter. */
export interface FilterShare {
  /** number of contacts that match this filter alone */
  count: number;
  /** true if the number is an estimate */
  estimated: boolean;
}

/** All fields and predicates from which filters can be built, and their limits. */
export interface FilterSpec {
  /** fields that filters can use */
  fields: FilterField[];
  /** predicates by type */
  types: Record<string, PredicateSpec[]>;
  /** limits */
  limits: Record<string, number>;
}

/** A blocker or warning of preflight; docs/decisions.md#3 lists the codes. */
export interface Finding {
  /** reason code, as in errors */
  code: string;
  /** explanation for people */
  message: string;
  /** path of the field with the problem */
  field: string;
}

/** An automation: a trigger and steps. */
export interface Flow {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the account */
  account_id: number;
  /** status */
  status: "active" | "archived" | "draft" | "paused";
  /** approval state of the current content */
  approval_state: "approved" | "pending_review" | "rejected";
  /** note of the user who rejected it */
  approval_note: string | null;
  /** since when it waits for approval; null if it does not */
  asked_at: string | null;
  /** name */
  name: string;
  /** goal of the flow; the name of an event ends a run when that event happens to the contact */
  goal: string | null;
  /** custom data; `scripts` are test scripts saved with the flow */
  data: Record<string, unknown>;
  /** true if the flow was activated by a test key; its messages never leave the machine */
  test: boolean;
  /** version of the flow; every change of an active flow creates a new one */
  version: number;
  /** trigger and audience of the flow */
  trigger: FlowTrigger;
  /** number of times that it was triggered */
  triggered_count: number;
  /** when it was last triggered; null for never */
  last_triggered_at: string | null;
  /** steps in order */
  steps: FlowStep[];
  /** number of messages ever accepted by the next hop, without tests; it never decreases */
  sent_count: number;
  /** runs and messages of all time, without tests */
  stats: FlowStats;
  /** when the flow was paused; null if it is not paused */
  paused_at: string | null;
  /**
   * why the service paused the flow: `slow_conditions`: checking its conditions on events took too long; null if a
   * user paused it, or if it is not paused
   */
  pause_reason: "slow_conditions" | null;
  /** when the object was created */
  created_at: string;
  /** when the object was last changed */
  updated_at: string;
  /** templates of its steps; `action_id` is the id of the step */
  templates: Template[];
  /** true if there are edits in the browser that are not published; the flow is returned as published */
  unpublished_changes: boolean;
}

/** An updated flow, and the current results of its saved simulations (`scripts`). */
export interface FlowChanged {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the account */
  account_id: number;
  /** status */
  status: "active" | "archived" | "draft" | "paused";
  /** approval state of the current content */
  approval_state: "approved" | "pending_review" | "rejected";
  /** note of the user who rejected it */
  approval_note: string | null;
  /** since when it waits for approval; null if it does not */
  asked_at: string | null;
  /** name */
  name: string;
  /** goal of the flow; the name of an event ends a run when that event happens to the contact */
  goal: string | null;
  /** custom data; `scripts` are test scripts saved with the flow */
  data: Record<string, unknown>;
  /** true if the flow was activated by a test key; its messages never leave the machine */
  test: boolean;
  /** version of the flow; every change of an active flow creates a new one */
  version: number;
  /** trigger and audience of the flow */
  trigger: FlowTrigger;
  /** number of times that it was triggered */
  triggered_count: number;
  /** when it was last triggered; null for never */
  last_triggered_at: string | null;
  /** steps in order */
  steps: FlowStep[];
  /** number of messages ever accepted by the next hop, without tests; it never decreases */
  sent_count: number;
  /** runs and messages of all time, without tests */
  stats: FlowStats;
  /** when the flow was paused; null if it is not paused */
  paused_at: string | null;
  /**
   * why the service paused the flow: `slow_conditions`: checking its conditions on events took too long; null if a
   * user paused it, or if it is not paused
   */
  pause_reason: "slow_conditions" | null;
  /** when the object was created */
  created_at: string;
  /** when the object was last changed */
  updated_at: string;
  /** templates of its steps; `action_id` is the id of the step */
  templates: Template[];
  /** true if there are edits in the browser that are not published; the flow is returned as published */
  unpublished_changes: boolean;
  /** results of the test scripts saved with the flow */
  scripts: ScriptResult[];
}

/** A new flow; all fields are optional. */
export interface FlowCreate {
  /** name */
  name?: string;
  /** goal of the flow; the name of an event ends a run when that event happens to the contact */
  goal?: string | null;
  /** trigger and audience of the flow */
  trigger?: FlowTriggerWrite | null;
  /** steps in order */
  steps?: FlowStepWrite[] | null;
  /** custom data; `scripts` are test scripts saved with the flow */
  data?: Record<string, unknown> | null;
  /** default: `draft`; `active` activates the flow at once, if nothing blocks it */
  status?: "active" | "draft" | "live";
  /** key of the flow starter to begin from; the other keys of the request override it */
  starter?: string;
}

/** The holdout group of a flow, compared with the contacts who entered; null while there is no figure yet. */
export interface FlowHoldout {
  /** share of the contacts who would enter that gets nothing */
  share: number;
  /** since when it is measured; null: always */
  since: string | null;
  /** name of the event that is counted; null without one */
  event: string | null;
  /** number of contacts who entered */
  recipients: number;
  /** number of them who have the event within 30 days */
  converted: number;
  /** number of contacts who were held out */
  held_out: number;
  /** number of them who have the event within 30 days */
  held_out_converted: number;
  /** rate of the event of those who entered */
  rate: number;
  /** rate of the event of the held-out */
  held_out_rate: number;
  /** difference of the rates */
  difference: ConfidenceInterval;
  /** number of conversions that the flow caused */
  people: ConfidenceInterval;
  /** the difference as a part of the held-out rate */
  lift: ConfidenceInterval;
}

/** A change of a flow; `steps` replaces all steps. */
export interface FlowPatch {
  /** name */
  name?: string;
  /** goal of the flow; the name of an event ends a run when that event happens to the contact */
  goal?: string | null;
  /** trigger and audience of the flow */
  trigger?: FlowTriggerWrite | null;
  /** steps in order */
  steps?: FlowStepWrite[] | null;
  /** custom data; `scripts` are test scripts saved with the flow */
  data?: Record<string, unknown> | null;
  /** changes the status, as the actions do; `live` is `active` */
  status?: "active" | "archived" | "draft" | "live" | "paused";
  /** `updated_at` as last read; if the object has been changed since then, the response is 409 */
  updated_at?: string;
}

/** A replay of a flow against the events of the past: its progress, and its result once it is complete. */
export interface FlowReplay {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the flow */
  flow_id: number;
  /** `waiting` while another replay runs first; `none` if there was none */
  state: "cancelled" | "complete" | "failed" | "none" | "running" | "waiting";
  /** share that is done, from 0 to 1 */
  progress: number;
  /** number of past days that are replayed */
  days: number;
  /** end of the replayed time */
  until: string | null;
  /** decides random splits and the sample */
  seed: number;
  /** event that counts as an order; null: each event with an amount */
  order_event: string | null;
  /** price of a part of an SMS */
  sms_price: number | null;
  /** why it failed: `conditions_too_slow`, `too_long` or `failed`; null if it did not */
  error: string | null;
  /** null until the replay is complete */
  result: ReplayResult | null;
  /** when it started */
  started_at: string | null;
  /** when it ended */
  ended_at: string | null;
  /** when it was asked for */
  created_at: string | null;
}

/** The report of a flow; all figures are from the same moment. */
export interface FlowReport {
  /** id of the flow */
  flow_id: number;
  /** period of the report, in days */
  range: "30d" | "7d" | "all";
  /** start of the period; null for all time */
  since: string | null;
  /** runs and messages of all time */
  stats: FlowStats;
  /** results of the runs that started in the period */
  runs: RunFigures;
  /** results by step, in the order of the flow */
  steps: StepFigures[];
  /** the effect of the flow; null without a holdout group */
  holdout: FlowHoldout | null;
}

/** A contact's run through a flow. `step_id` is the current or last step. */
export interface FlowRun {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the account */
  account_id: number;
  /** id of the flow */
  flow_id: number;
  /** name of the flow */
  flow_name: string;
  /** version of the flow; every change of an active flow creates a new one */
  version: number;
  /** id of the contact; null once it is deleted */
  contact_id: number | null;
  /** `live` while the run is active */
  status: "completed" | "exited" | "ignored" | "live";
  /** why the run ended early, or why the trigger started no run */
  exit_reason: string | null;
  /** id of the current or last step; null if there is none */
  step_id: number | null;
  /** id of the event that started the run; null if the contact was added manually */
  event_id: number | null;
  /** number of flows before this one, each started by an event of the flow before */
  chain_depth: number;
  /** whether it is a test; tests are captured and never counted */
  test: boolean;
  /** when the run continues; null once it has ended */
  due_at: string | null;
  /** when the run ended */
  ended_at: string | null;
  /** when the object was created */
  created_at: string;
  /** when the object was last changed */
  updated_at: string;
}

/** A run with the data of the event that started it, and the steps that it has entered, in order. */
export interface FlowRunDetail {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the account */
  account_id: number;
  /** id of the flow */
  flow_id: number;
  /** name of the flow */
  flow_name: string;
  /** version of the flow; every change of an active flow creates a new one */
  version: number;
  /** id of the contact; null once it is deleted */
  contact_id: number | null;
  /** `live` while the run is active */
  status: "completed" | "exited" | "ignored" | "live";
  /** why the run ended early, or why the trigger started no run */
  exit_reason: string | null;
  /** id of the current or last step; null if there is none */
  step_id: number | null;
  /** id of the event that started the run; null if the contact was added manually */
  event_id: number | null;
  /** number of flows before this one, each started by an event of the flow before */
  chain_depth: number;
  /** whether it is a test; tests are captured and never counted */
  test: boolean;
  /** when the run continues; null once it has ended */
  due_at: string | null;
  /** when the run ended */
  ended_at: string | null;
  /** when the object was created */
  created_at: string;
  /** when the object was last changed */
  updated_at: string;
  /** data of the event that started the run */
  event_data: Record<string, unknown>;
  /** steps of the run, oldest first */
  history: RunStep[];
}

/** The step types and the events from which a flow can be built, and their limits. */
export interface FlowSpec {
  /** step types */
  steps: StepKind[];
  /** events that can start a flow */
  events: KnownEvent[];
  /** keys of a trigger */
  trigger: Record<string, unknown>;
  /** limits */
  limits: Record<string, number>;
}

/** A predefined flow. `POST /flows` accepts its `key` as `starter`, or its name, trigger and steps. */
export interface FlowStarter {
  /** identifier of the starter in `POST /flows` */
  key: string;
  /** label in the user interface */
  label: string;
  /** description */
  description: string;
  /** name of the new flow */
  name: string;
  /** trigger */
  trigger: FlowTriggerWrite;
  /** steps */
  steps: FlowStepWrite[];
  /** custom data; `scripts` are the simulations that show the flow */
  data: Record<string, unknown>;
}

/** All predefined flows. */
export interface FlowStarters {
  /** flow starters */
  starters: FlowStarter[];
}

/** The total numbers of runs and messages of a flow, without tests. */
export interface FlowStats {
  /** contacts that entered */
  entered: number;
  /** active runs */
  active: number;
  /** completed runs */
  completed: number;
  /** runs that ended early */
  exited: number;
  /** number of recipients */
  audience: number;
  /** not yet final: queued, held or sending */
  pending: number;
  /** accepted by the next hop, with no report since */
  sent: number;
  /** reported as delivered */
  delivered: number;
  /** accepted, and later reported as undeliverable */
  bounced: number;
  /** reported as spam */
  complained: number;
  /** rejected permanently, or given up after retries */
  failed: number;
  /** skipped, each for a reason */
  skipped: number;
  /** cancelled before they were sent */
  cancelled: number;
  /** unconfirmed: it cannot be known whether the next hop accepted them */
  uncertain: number;
  /** accepted by the next hop: sent, delivered, bounced and complained */
  accepted: number;
}

/** A step of a flow, with the common keys and the keys of its type. */
export interface FlowStep {
  /** identifier of the step in runs and reports */
  id: number;
  /** type of the step; derived from its keys if absent */
  type: "email" | "sms" | "wait" | "wait_until" | "split" | "split_value" | "random_split" | "emit_event" | "list_add" | "list_remove" | "tag_add" | "tag_remove" | "contact_update" | "unsubscribe" | "notify" | "http_request" | "go_to" | "exit";
  /** subject line, with merge tags */
  subject: string;
  /** content: HTML or plain text of an email (the text part beside a design), or the text of an SMS */
  body: string;
  /** preview text that mailboxes show after the subject line */
  preheader: string;
  /** duration in seconds */
  duration: number;
  /** filters that choose the branch; they may also refer to the event and the run */
  filters: Filter[];
  /** steps for contacts that match */
  yes: FlowStep[];
  /** steps for contacts that do not match */
  no: FlowStep[];
  /** name of the event that the step records */
  event_name: string;
  /** whether the recorded event includes the data of the event that started the run */
  forward_event_data: boolean;
  /** id of the template with the content; null if there is none */
  template_id: number | null;
  /** sender name; null for that of the account */
  from_name?: string;
  /** sender address; null for that of the account */
  from_email?: string;
  /** address for replies; null for the sender */
  reply_to?: string;
  /** design: sections from top to bottom, and the theme */
  design?: Design;
  /** whether the message is sent without consent, footer and tracking, as receipts are */
  transactional?: boolean;
  /** UTM parameters of the links; absent for those of the account */
  utm?: Utm;
  /** further data of the recorded event */
  event_data?: Record<string, unknown>;
  /** id of the list to join or leave */
  contact_list_id?: number;
  /** JSON merge patch (RFC 7396) for the contact's `data` */
  data_merge?: Record<string, unknown>;
  /** channel that the contact is unsubscribed from */
  channel?: "email" | "sms";
}

/** A step of a flow. */
export interface FlowStepWrite {
  /** id of an existing step; absent for a new one */
  id?: number | null;
  /** type of the step; derived from its keys if absent */
  type?: "email" | "sms" | "wait" | "wait_until" | "split" | "split_value" | "random_split" | "emit_event" | "list_add" | "list_remove" | "tag_add" | "tag_remove" | "contact_update" | "unsubscribe" | "notify" | "http_request" | "go_to" | "exit" | null;
  /** subject line of an email, with merge tags */
  subject?: string | null;
  /** HTML or text of an email; without a subject, the text of an SMS */
  body?: string | null;
  /** preview text that mailboxes show after the subject line */
  preheader?: string | null;
  /** sender name; default: that of the account */
  from_name?: string | null;
  /** sender address; default: that of the account */
  from_email?: string | null;
  /** address for replies; default: the sender */
  reply_to?: string | null;
  /** design of an email */
  design?: Design | null;
  /** UTM parameters of the links of a message; null or absent for those of the account, all values null for none */
  utm?: UtmWrite | null;
  /** whether the message is sent without consent, footer and tracking */
  transactional?: boolean | null;
  /** id of the template with the content; read-only */
  template_id?: number | null;
  /** seconds to wait */
  duration?: number | null;
  /** filters that choose the branch, `yes` if all match, or that the event to wait for must match */
  filters?: Filter[] | null;
  /** steps for contacts that match */
  yes?: FlowStepWrite[] | null;
  /** steps for contacts that do not match */
  no?: FlowStepWrite[] | null;
  /**
   * field whose value chooses the branch, as filters name it, such as `data.plan`, `event.size` (of the event that
   * started the run) or `country`
   */
  field?: string | null;
  /**
   * what decides which branch of `random_split` is the best: contacts who clicked, or who have the event
   * `event_name`; absent: no test
   */
  metric?: "clicks" | "event" | null;
  /** whether the amounts of the events are compared, not who has one */
  by_amount?: boolean | null;
  /**
   * whether better branches get more of the later contacts (Thompson sampling), from the second day on; the shares
   * are those of the beginning
   */
  uneven?: boolean | null;
  /** who chooses the winner of `random_split`: the service as soon as it is clear (default), or a person */
  decided_by?: "service" | "person" | null;
  /**
   * branches of `split_value`, of which a contact takes the first that has its value, or of `random_split`, whose
   * shares add up to 100
   */
  branches?: FlowStepWriteBranche[] | null;
  /** steps for contacts that take none of the `branches` */
  else?: FlowStepWrite[] | null;
  /** name of an event to record or wait for, `^[a-z][a-z0-9_]{0,63}$` */
  event_name?: string | null;
  /** data of that event */
  event_data?: Record<string, unknown> | null;
  /** whether that event includes the data of the event that started the run */
  forward_event_data?: boolean | null;
  /** id of the list to join or leave, depending on `type` */
  contact_list_id?: number | null;
  /** channel to unsubscribe from; default: `email` */
  channel?: "email" | "sms" | null;
  /**
   * what to wait for: an hour of the day (`at`, `weekdays`), a date of the contact (`path`, `offset_days`, `at`),
   * or an event of the contact (`event_name`, `filters`, `timeout`); a date and an event have the branches `yes`
   * (it came) and `no`
   */
  until?: "time" | "date" | "event" | null;
  /** hour of the day, such as `09:00`, the default */
  at?: string | null;
  /** only on these days; absent for all */
  weekdays?: ("mon" | "tue" | "wed" | "thu" | "fri" | "sat" | "sun")[] | null;
  /**
   * whose time zone; default: `contact`, which is `data.time_zone`, else the zone of the phone number, of the
   * country, or of the account, the first that is known
   */
  time_zone?: "contact" | "account" | null;
  /** custom field with the date, such as `data.renewal`, or `created_at` */
  path?: string | null;
  /** days after the date; negative: before it */
  offset_days?: number | null;
  /** seconds to wait for the event, or to try the request, at most; a request: up to 259,200, default 3,600 */
  timeout?: number | null;
  /** how `notify` tells it: `email`, the default, or `slack` */
  via?: "email" | "slack" | null;
  /** id of the user of the account whom `notify` emails */
  user_id?: number | null;
  /**
   * incoming webhook of Slack, or of a program that takes the same requests, to which `notify` posts; stored
   * encrypted and never returned. Absent, the stored one is kept
   */
  slack_url?: string | null;
  /** method of `http_request`; default: `POST` */
  method?: "POST" | "PUT" | "GET" | null;
  /** URL of `http_request`; it may have merge tags after its host */
  url?: string | null;
  /** headers of `http_request`: values by name */
  headers?: Record<string, unknown> | null;
  /**
   * headers of `http_request` that are stored encrypted. Responses have null as their values; null keeps the stored
   * value, as long as scheme, host and port of `url` stay the same
   */
  secret_headers?: Record<string, unknown> | null;
  /**
   * JSON body of `http_request`; its texts may have merge tags. A text that is only one tag keeps the type of its
   * value
   */
  payload?: Record<string, unknown> | unknown[] | null;
  /**
   * whether `http_request` is signed as webhooks are (Standard Webhooks); true without `signing_secret` keeps the
   * stored secret
   */
  signed?: boolean | null;
  /** secret that signs `http_request`; stored encrypted and never returned */
  signing_secret?: string | null;
  /**
   * values of the JSON response of `http_request` to store in the contact's `data`: paths, such as
   * `result.items.0.price`, by key
   */
  save_to_contact?: Record<string, unknown> | null;
  /** values of the JSON response of `http_request` to store with the event that started the run: paths by key */
  save_to_run?: Record<string, unknown> | null;
  /** note in the message of `notify` */
  note?: string | null;
  /** `id`, as sent, of the step that `go_to` leads to */
  step_id?: number | null;
  /** how often a run jumps there at most; default: 1. Then it continues */
  max_jumps?: number | null;
  /** tag to add or remove, depending on `type`; all other tags of the contact stay */
  tag?: string | null;
  /** JSON merge patch (RFC 7396) for the contact's `data` */
  data_merge?: Record<string, unknown> | null;
}

export interface FlowStepWriteBranche {
  /** key of an existing branch; absent for a new one */
  key?: string | null;
  /** values of `field`, regardless of case; a number also matches as text */
  values?: (string | number | boolean)[] | null;
  /** name of a branch of `random_split` */
  name?: string | null;
  /** share of a branch of `random_split`, in percent */
  share?: number | null;
  /** steps of the branch */
  steps?: FlowStepWrite[] | null;
}

/** The event that starts a flow, and its conditions. */
export interface FlowTrigger {
  /** event that starts the flow; `manual` if none is chosen yet, with which the flow cannot be activated */
  event: string;
  /** id of a segment to which the contact must belong; without an event, entering the segment starts the flow */
  segment_id: number | null;
  /** id of the list that the contact joins or leaves */
  contact_list_id: number | null;
  /** conditions of the trigger */
  data: FlowTriggerData;
}

/** The conditions of a flow's trigger. */
export interface FlowTriggerData {
  /** how often a contact may start the flow */
  frequency?: "once" | "every_time" | FlowTriggerDataFrequency | null;
  /** filters that event and contact must match */
  where?: Filter[] | null;
  /** keywords of an incoming SMS that start the flow */
  keywords?: string[] | null;
  /** tag that starts the flow when a contact gets it */
  tag?: string | null;
  /** `date_reached`: custom field with the date, such as `data.renewal` */
  path?: string | null;
  /** `date_reached`: whether the date returns each year */
  yearly?: boolean | null;
  /** `date_reached`: days after the date; negative: before it */
  offset_days?: number | null;
  /** `date_reached`: hour of the day, such as `09:00` */
  at?: string | null;
  /** how many contacts may begin in an hour */
  max_per_hour?: number | null;
  /** share of contacts (0.01 to 0.5) that does not enter and is compared */
  holdout?: number | null;
  /** event by which that group is compared; default: the goal */
  holdout_event?: string | null;
  /** whether contacts in the account's control group do not enter */
  respect_control_group?: boolean | null;
  [key: string]: unknown;
}

export interface FlowTriggerDataFrequency {
  /** seconds between two runs */
  min_gap_seconds: number;
}

/** The trigger of a flow. */
export interface FlowTriggerWrite {
  /** event that starts the flow; with `manual`, null or empty, the flow cannot be activated */
  event?: string | null;
  /** id of a segment to which the contact must belong; without an event, entering it starts the flow */
  segment_id?: number | null;
  /** id of the list that the contact joins or leaves */
  contact_list_id?: number | null;
  /** conditions of the trigger */
  data?: FlowTriggerData | null;
}

/** A section of the type `footer`. */
export interface FooterSection {
  /** section type */
  type: "footer";
  /** properties; `GET /templates/spec` lists their defaults and limits */
  props?: FooterSectionProps | null;
  /** your identifier of the section */
  id?: string | number | null;
  /** styles of the surrounding box; `props` take precedence */
  styles?: FooterSectionStyles | null;
}

/** properties; `GET /templates/spec` lists their defaults and limits */
export interface FooterSectionProps {
  /** unsubscribe link text */
  unsubscribe_text?: string | number | boolean | null;
  /** preferences link */
  preferences?: string | number | boolean | null;
  /** view-in-browser link */
  view_in_browser?: string | number | boolean | null;
  /** text */
  text?: string | number | boolean | null;
  /** links */
  links?: (FooterSectionPropsLink | null)[] | null;
  /** alignment */
  align?: string | number | boolean | null;
  /** hide on */
  hide_on?: string | number | boolean | null;
  /** show only to. Segment filters. */
  show_if?: Filter[] | null;
  /** section name */
  name?: string | number | boolean | null;
}

export interface FooterSectionPropsLink {
  /** text */
  text?: string | number | boolean | null;
  /** link */
  href?: string | number | boolean | null;
}

/** styles of the surrounding box; `props` take precedence */
export interface FooterSectionStyles {
  /** background */
  background_color?: string | number | boolean | null;
  /** padding. One to four pixel values, 0 to 96. */
  padding?: string | number | boolean | null;
}

/** The first character of a text that is not in the GSM-7 alphabet, and its Unicode name. */
export interface ForcingCharacter {
  /** character */
  character: string;
  /** Unicode name of the character */
  name: string;
}

/** A sign-up form; `url` is its hosted page. */
export interface Form {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the account */
  account_id: number;
  /** name */
  name: string;
  /** language of the form, of its confirmations, and of new contacts; null for that of the browser */
  language: string | null;
  /** ids of the lists that contacts join */
  list_ids: number[];
  /** origins of the sites that may submit the form and read the response, such as `https://example.org` */
  origins: string[];
  /**
   * fields of the form: `email`, `phone`, `first_name`, `last_name`, `language` or keys of `data`, each as a name
   * or an object
   */
  fields: (string | FormField)[];
  /** whether contacts confirm their address through a link in an email */
  double_opt_in: boolean;
  /** URL to which the browser is redirected after submission; null for the built-in page */
  redirect_url: string | null;
  /** consent text, stored as evidence */
  consent_text: string | null;
  /** heading of the form; null for its name */
  title: string | null;
  /** text below the heading */
  intro: string | null;
  /** text of the button; null for the built-in text */
  button_text: string | null;
  /** heading after submission; null for the built-in heading */
  thanks_title: string | null;
  /** text after submission; null for the built-in text */
  thanks_text: string | null;
  /** ids of the public lists that visitors may choose from, in order */
  topic_ids: number[];
  /** whether visitors must choose at least one of `topic_ids` */
  topics_required: boolean;
  /** public key that identifies the form in submissions */
  public_key: string;
  /** URL of the form's own page */
  url: string;
  /** number of submissions */
  submissions_count: number;
  /** number of submissions with a confirmed address */
  confirmed_count: number;
  /** when the object was created */
  created_at: string;
  /** when the object was last changed */
  updated_at: string;
}

/** A field of a form: one of `CONTACT_FIELDS`, or a key of the custom data. */
export interface FormField {
  /** `email`, `phone`, `first_name`, `last_name`, `language`, or a key of `data` */
  name: string;
  /** label of the field */
  label?: string | null;
  /** whether the field is required */
  required?: boolean;
  /** kind of a field of `data`; default `text` */
  type?: "checkbox" | "checkboxes" | "date" | "hidden" | "number" | "radio" | "select" | "text" | "textarea" | null;
  /** options of a `select`, `radio` or `checkboxes` field, in order */
  options?: string[] | null;
  /** help text below the field */
  help?: string | null;
  /** example shown while the field is empty */
  placeholder?: string | null;
  /** value of a `hidden` field, unless its `query_parameter` has one */
  value?: string | null;
  /** parameter of the page's URL that a `hidden` field is read from, such as `utm_source` */
  query_parameter?: string | null;
}

/** A change of a form: an omitted field is unchanged, and null resets a field to its default. */
export interface FormPatch {
  /** name */
  name?: string;
  /** language of the form, of its confirmations, and of new contacts; null for that of the browser */
  language?: string | null;
  /** ids of the lists that contacts join */
  list_ids?: number[] | null;
  /** origins of the sites that may submit the form and read the response, such as `https://example.org` */
  origins?: string[] | null;
  /**
   * fields of the form: `email`, `phone`, `first_name`, `last_name`, `language` or keys of `data`, each as a name
   * or an object
   */
  fields?: (string | FormField)[] | null;
  /** whether contacts confirm their address through a link in an email */
  double_opt_in?: boolean | null;
  /** URL to which the browser is redirected after submission; null for the built-in page */
  redirect_url?: string | null;
  /** consent text, stored as evidence */
  consent_text?: string | null;
  /** heading of the form; null for its name */
  title?: string | null;
  /** text below the heading */
  intro?: string | null;
  /** text of the button; null for the built-in text */
  button_text?: string | null;
  /** heading after submission; null for the built-in heading */
  thanks_title?: string | null;
  /**
   * text after submission; null for the built-in text. With double opt-in, the request to look into the inbox
   * follows
   */
  thanks_text?: string | null;
  /** ids of the public lists that visitors may choose from, in order */
  topic_ids?: number[] | null;
  /** whether visitors must choose at least one of `topic_ids` */
  topics_required?: boolean | null;
}

/** A new form. */
export interface FormWrite {
  /** name */
  name: string;
  /** language of the form, of its confirmations, and of new contacts; null for that of the browser */
  language?: string | null;
  /** ids of the lists that contacts join */
  list_ids?: number[] | null;
  /** origins of the sites that may submit the form and read the response, such as `https://example.org` */
  origins?: string[] | null;
  /**
   * fields of the form: `email`, `phone`, `first_name`, `last_name`, `language` or keys of `data`, each as a name
   * or an object
   */
  fields?: (string | FormField)[] | null;
  /** whether contacts confirm their address through a link in an email */
  double_opt_in?: boolean | null;
  /** URL to which the browser is redirected after submission; null for the built-in page */
  redirect_url?: string | null;
  /** consent text, stored as evidence */
  consent_text?: string | null;
  /** heading of the form; null for its name */
  title?: string | null;
  /** text below the heading */
  intro?: string | null;
  /** text of the button; null for the built-in text */
  button_text?: string | null;
  /** heading after submission; null for the built-in heading */
  thanks_title?: string | null;
  /**
   * text after submission; null for the built-in text. With double opt-in, the request to look into the inbox
   * follows
   */
  thanks_text?: string | null;
  /** ids of the public lists that visitors may choose from, in order */
  topic_ids?: number[] | null;
  /** whether visitors must choose at least one of `topic_ids` */
  topics_required?: boolean | null;
}

/** A maximum number of marketing messages for one contact within a number of days. */
export interface FrequencyCap {
  /** maximum number of messages */
  messages: number;
  /** number of days in which they count */
  days: number;
}

/** A section of the type `gallery`. */
export interface GallerySection {
  /** section type */
  type: "gallery";
  /** properties; `GET /templates/spec` lists their defaults and limits */
  props?: GallerySectionProps | null;
  /** your identifier of the section */
  id?: string | number | null;
  /** styles of the surrounding box; `props` take precedence */
  styles?: GallerySectionStyles | null;
}

/** properties; `GET /templates/spec` lists their defaults and limits */
export interface GallerySectionProps {
  /** images */
  items?: (GallerySectionPropsItem | null)[] | null;
  /** columns */
  columns?: string | number | boolean | null;
  /** alignment */
  align?: string | number | boolean | null;
  /** hide on */
  hide_on?: string | number | boolean | null;
  /** show only to. Segment filters. */
  show_if?: Filter[] | null;
  /** section name */
  name?: string | number | boolean | null;
}

export interface GallerySectionPropsItem {
  /** image */
  src?: string | number | boolean | null;
  /** alt text */
  alt?: string | number | boolean | null;
  /** link */
  href?: string | number | boolean | null;
}

/** styles of the surrounding box; `props` take precedence */
export interface GallerySectionStyles {
  /** background */
  background_color?: string | number | boolean | null;
  /** padding. One to four pixel values, 0 to 96. */
  padding?: string | number | boolean | null;
}

/** A section of the type `header`. */
export interface HeaderSection {
  /** section type */
  type: "header";
  /** properties; `GET /templates/spec` lists their defaults and limits */
  props?: HeaderSectionProps | null;
  /** your identifier of the section */
  id?: string | number | null;
  /** styles of the surrounding box; `props` take precedence */
  styles?: HeaderSectionStyles | null;
}

/** properties; `GET /templates/spec` lists their defaults and limits */
export interface HeaderSectionProps {
  /** logo. Leave empty to use the logo of your brand. */
  logo_url?: string | number | boolean | null;
  /** logo alt text */
  logo_alt?: string | number | boolean | null;
  /** logo width */
  logo_width?: string | number | boolean | null;
  /** text instead of a logo */
  wordmark_text?: string | number | boolean | null;
  /** background */
  background_color?: string | number | boolean | null;
  /** links */
  links?: (HeaderSectionPropsLink | null)[] | null;
  /** layout */
  layout?: string | number | boolean | null;
  /** alignment */
  align?: string | number | boolean | null;
  /** hide on */
  hide_on?: string | number | boolean | null;
  /** show only to. Segment filters. */
  show_if?: Filter[] | null;
  /** section name */
  name?: string | number | boolean | null;
}

export interface HeaderSectionPropsLink {
  /** text */
  text?: string | number | boolean | null;
  /** link */
  href?: string | number | boolean | null;
}

/** styles of the surrounding box; `props` take precedence */
export interface HeaderSectionStyles {
  /** background */
  background_color?: string | number | boolean | null;
  /** padding. One to four pixel values, 0 to 96. */
  padding?: string | number | boolean | null;
}

/** A section of the type `heading`. */
export interface HeadingSection {
  /** section type */
  type: "heading";
  /** properties; `GET /templates/spec` lists their defaults and limits */
  props?: HeadingSectionProps | null;
  /** your identifier of the section */
  id?: string | number | null;
  /** styles of the surrounding box; `props` take precedence */
  styles?: HeadingSectionStyles | null;
}

/** properties; `GET /templates/spec` lists their defaults and limits */
export interface HeadingSectionProps {
  /** text */
  text?: string | number | boolean | null;
  /** level */
  level?: string | number | boolean | null;
  /** colour */
  color?: string | number | boolean | null;
  /** size */
  size?: string | number | boolean | null;
  /** alignment */
  align?: string | number | boolean | null;
  /** hide on */
  hide_on?: string | number | boolean | null;
  /** show only to. Segment filters. */
  show_if?: Filter[] | null;
  /** section name */
  name?: string | number | boolean | null;
}

/** styles of the surrounding box; `props` take precedence */
export interface HeadingSectionStyles {
  /** background */
  background_color?: string | number | boolean | null;
  /** padding. One to four pixel values, 0 to 96. */
  padding?: string | number | boolean | null;
}

/** A section of the type `hero`. */
export interface HeroSection {
  /** section type */
  type: "hero";
  /** properties; `GET /templates/spec` lists their defaults and limits */
  props?: HeroSectionProps | null;
  /** your identifier of the section */
  id?: string | number | null;
  /** styles of the surrounding box; `props` take precedence */
  styles?: HeroSectionStyles | null;
}

/** properties; `GET /templates/spec` lists their defaults and limits */
export interface HeroSectionProps {
  /** image above the text */
  image_url?: string | number | boolean | null;
  /** background image */
  background_url?: string | number | boolean | null;
  /** title */
  title?: string | number | boolean | null;
  /** subtitle */
  subtitle?: string | number | boolean | null;
  /** button text */
  cta_text?: string | number | boolean | null;
  /** button link */
  cta_url?: string | number | boolean | null;
  /** image overlay */
  overlay?: string | number | boolean | null;
  /** height with a background image */
  height?: string | number | boolean | null;
  /** alignment */
  align?: string | number | boolean | null;
  /** hide on */
  hide_on?: string | number | boolean | null;
  /** show only to. Segment filters. */
  show_if?: Filter[] | null;
  /** section name */
  name?: string | number | boolean | null;
}

/** styles of the surrounding box; `props` take precedence */
export interface HeroSectionStyles {
  /** background */
  background_color?: string | number | boolean | null;
  /** padding. One to four pixel values, 0 to 96. */
  padding?: string | number | boolean | null;
}

/** The contacts who were held out, compared with all others since the start; the rates count the event. */
export interface HoldoutFigures {
  /** number of contacts who got the campaign or wait for it */
  recipients: number;
  /** number of them who have the event */
  converted: number;
  /** number of contacts who got nothing */
  held_out: number;
  /** number of them who have the event */
  held_out_converted: number;
  /** rate of the event without the held-out */
  rate: number;
  /** rate of the event of the held-out */
  held_out_rate: number;
  /** difference of the rates */
  difference: ConfidenceInterval;
  /** number of conversions that the campaign caused */
  people: ConfidenceInterval;
  /** the difference as a part of the held-out rate */
  lift: ConfidenceInterval;
  /** end of the period in which events are counted */
  ends_at: string | null;
}

/** A section of the type `html`. */
export interface HtmlSection {
  /** section type */
  type: "html";
  /** properties; `GET /templates/spec` lists their defaults and limits */
  props?: HtmlSectionProps | null;
  /** your identifier of the section */
  id?: string | number | null;
  /** styles of the surrounding box; `props` take precedence */
  styles?: HtmlSectionStyles | null;
}

/** properties; `GET /templates/spec` lists their defaults and limits */
export interface HtmlSectionProps {
  /** hTML. Scripts, forms and frames are removed. */
  html?: string | number | boolean | null;
  /** plain-text version. Leave empty to create it from the HTML. */
  plain_text?: string | number | boolean | null;
  /** alignment */
  align?: string | number | boolean | null;
  /** hide on */
  hide_on?: string | number | boolean | null;
  /** show only to. Segment filters. */
  show_if?: Filter[] | null;
  /** section name */
  name?: string | number | boolean | null;
}

/** styles of the surrounding box; `props` take precedence */
export interface HtmlSectionStyles {
  /** background */
  background_color?: string | number | boolean | null;
  /** padding. One to four pixel values, 0 to 96. */
  padding?: string | number | boolean | null;
}

/** An account at a provider that is linked to the signed-in user. */
export interface Identity {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the provider */
  provider_id: number;
  /** name of the provider */
  provider: string;
  /** address that the provider named last; empty if it named none */
  email: string;
  /** when the user last signed in with it; null for never */
  last_used_at: string | null;
  /** when it was linked */
  created_at: string;
}

/** A section of the type `image`. */
export interface ImageSection {
  /** section type */
  type: "image";
  /** properties; `GET /templates/spec` lists their defaults and limits */
  props?: ImageSectionProps | null;
  /** your identifier of the section */
  id?: string | number | null;
  /** styles of the surrounding box; `props` take precedence */
  styles?: ImageSectionStyles | null;
}

/** properties; `GET /templates/spec` lists their defaults and limits */
export interface ImageSectionProps {
  /** image */
  src?: string | number | boolean | null;
  /** alt text */
  alt?: string | number | boolean | null;
  /** decorative image. Screen readers skip it. */
  decorative?: string | number | boolean | null;
  /** link */
  href?: string | number | boolean | null;
  /** width */
  width?: string | number | boolean | null;
  /** corner radius */
  border_radius?: string | number | boolean | null;
  /** dark mode image */
  dark_src?: string | number | boolean | null;
  /** alignment */
  align?: string | number | boolean | null;
  /** hide on */
  hide_on?: string | number | boolean | null;
  /** show only to. Segment filters. */
  show_if?: Filter[] | null;
  /** section name */
  name?: string | number | boolean | null;
}

/** styles of the surrounding box; `props` take precedence */
export interface ImageSectionStyles {
  /** background */
  background_color?: string | number | boolean | null;
  /** padding. One to four pixel values, 0 to 96. */
  padding?: string | number | boolean | null;
}

/** An import of a file and its result. */
export interface Import {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the account */
  account_id: number;
  /** kind of objects to import */
  resource: "contacts" | "suppressions";
  /** progress */
  status: "cancelled" | "complete" | "failed" | "pending" | "processing";
  /** current phase; null if there is none */
  phase: string | null;
  /** whether the import only reports what it would do */
  dry_run: boolean;
  /** file name */
  filename: string;
  /** size in bytes */
  bytes: number;
  /** detected file format */
  format: "csv" | "jsonl";
  /** product from which the file appears to be exported; null if unknown */
  product: string | null;
  /** columns of the file */
  columns: ImportColumn[];
  /** options of the import */
  options: ImportOptions;
  /** total number of rows */
  total: number;
  /** number of processed rows */
  processed: number;
  /** number of created contacts */
  created: number;
  /** number of rows that updated a contact, including `repeated` */
  updated: number;
  /** number of rows that updated a contact of an earlier row of the same file */
  repeated: number;
  /** number of unchanged contacts */
  skipped: number;
  /** number of rows with errors; `results.csv` lists them */
  failed: number;
  /**
   * rows that were imported without one of their values, or with a date stored as text; `results.csv` lists them
   * with the reason
   */
  warnings: number;
  /** state of the contacts after the import, each counted once */
  arriving: ImportArriving;
  /** number of contacts that `undo` removed or restored */
  restored: number;
  /** those of them that `undo` removed; for suppressions, addresses no longer suppressed */
  removed: number;
  /** contacts that `undo` did not remove */
  left_in_place: ImportLeftInPlace;
  /** progress, from 0 to 1 */
  progress: number;
  /** why the whole import failed; null if it did not */
  error: string | null;
  /** until when the import can be undone; null if it cannot */
  undo_until: string | null;
  /** when the import was undone; null if it was not */
  undone_at: string | null;
  /** when the import was completed */
  completed_at: string | null;
  /** when the object was created */
  created_at: string;
  /** when the object was last changed */
  updated_at: string;
}

/** How many contacts of the file are subscribed, unsubscribed or suppressed after the import, and why. */
export interface ImportArriving {
  /** contacts whose address is subscribed */
  subscribed: number;
  /** contacts whose address is not subscribed */
  unsubscribed: number;
  /** contacts whose address is suppressed */
  suppressed: number;
  /**
   * why contacts are not subscribed: the `file` opts them out, they opted out `before`, the file only says that
   * they are not subscribed (`inactive`), it says neither yes nor no (`unstated`), the import opts in nobody
   * (`not_opted_in`) or no phone numbers (`sms_not_opted_in`, contacts without an email address), or the reason of
   * the suppression
   */
  reasons: Record<string, number>;
}

/** A column of the file: the field to which it is mapped, sample values, and the format of dates or numbers. */
export interface ImportColumn {
  /** name */
  name: string;
  /** field to which the column is mapped; empty if it is not imported */
  target: string;
  /** values of the first rows */
  samples: string[];
  /**
   * date format of the column: unambiguous (`clear`), day first (`dmy`), month first (`mdy`), either (`ambiguous`),
   * or both (`mixed`); null if it holds no dates. Ambiguous and mixed dates are stored as text, others as ISO 8601
   */
  dates?: "ambiguous" | "clear" | "dmy" | "mdy" | "mixed" | null;
  /**
   * decimal mark of a column of numbers that are converted, such as `1.234,50 €`: comma, point, none needed
   * (`clear`), either (`ambiguous`), or both (`mixed`); null if no value needs it
   */
  numbers?: "," | "." | "ambiguous" | "clear" | "mixed" | null;
  /** in a column of consent: rows that say neither yes nor no in any such column */
  unstated?: number;
}

/** The form fields of an upload, in addition to the file; `options` is JSON (see ImportOptions). */
export interface ImportForm {
  /** kind of objects to import; default: `contacts` */
  resource?: "contacts" | "suppressions";
  /** options as JSON (see ImportOptions) */
  options?: string;
}

/** How many contacts that the import created were kept when it was undone, by reason. */
export interface ImportLeftInPlace {
  /**
   * contacts that were changed, named by another import or used for events since; for suppressions: addresses that
   * were suppressed again since
   */
  changed: number;
  /** contacts that were sent a message since */
  messaged: number;
  /** contacts that were added to another list since */
  in_another_list: number;
}

/** The options of an import. */
export interface ImportOptions {
  /**
   * fields for columns, by column name; null skips a column; columns not listed are mapped by their name; a column
   * of last names whose values are like `Last, First` is a full name
   */
  map?: Record<string, string | null>;
  /** ids of the lists that all imported contacts join */
  list_ids?: number[];
  /** names of further lists; missing lists are created */
  list_names?: string[];
  /** what to do with existing contacts: `merge` updates them, `skip` leaves them unchanged */
  on_conflict?: "merge" | "skip";
  /** whether the addresses are opted in; never lifts an opt-out made by the contact */
  opt_in?: boolean;
  /** whether phone numbers are opted in to SMS; default: as `opt_in` */
  opt_in_phone?: boolean | null;
  /**
   * whether `opt_in` includes rows that say neither yes nor no: their cells in the columns of consent are empty or
   * unreadable
   */
  opt_in_unstated?: boolean;
  /** where the contact consented and to which text, stored as evidence */
  consent_source?: string | null;
  /** whether the import starts flows as if each contact had been added individually */
  trigger_flows?: boolean;
  /** two-letter country code for phone numbers without a country code; default: that of the account; null for none */
  default_country?: string | null;
  /**
   * order of day and month in dates such as 03/04/2026, for columns whose values do not show it; without it, these
   * are stored as text
   */
  date_order?: "dmy" | "mdy" | null;
  /**
   * decimal mark of numbers such as 1.234 or 1,234, for columns whose values do not show it; default: that of the
   * file's other columns, else of `default_country`
   */
  decimal_mark?: "," | "." | null;
  /**
   * types of columns that go to `data`, by column name: `text` keeps every value as it is, `number` converts those
   * that are numbers, `date` converts dates, and the day numbers of spreadsheets such as 45123; other columns are
   * numbers or dates if their values are
   */
  column_types?: Record<string, "date" | "number" | "text">;
}

/** An incoming SMS. */
export interface IncomingMessage {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the account */
  account_id: number;
  /** id of the contact; null if there is none or it was deleted */
  contact_id: number | null;
  /** phone number of the sender; null once it is erased */
  from: string | null;
  /** number or sender name to which it was sent */
  to: string | null;
  /** text of the message */
  body: string | null;
  /** classification of the message */
  kind: "help" | "keyword" | "message" | "refusal" | "start" | "stop";
  /** keyword with which the message begins */
  keyword: string | null;
  /** whether the message opted its sender out */
  opted_out: boolean;
  /** name of the provider */
  provider: string;
  /** id of the message at the provider */
  provider_id: string | null;
  /** id of the last message sent to this number before */
  answered_message_id: number | null;
  /** id of the automatic reply to a keyword */
  reply_message_id: number | null;
  /** when a user reviewed the message; null if none has */
  seen_at: string | null;
  /** whether it is a test; tests are captured and never counted */
  test: boolean;
  /** when the object was created */
  created_at: string;
}

/** An invitation to the account that was not accepted yet. */
export interface Invitation {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the account */
  account_id: number;
  /** invited email address, in lower case */
  email: string;
  /** built-in role, or the id of an own role */
  role: string;
  /** `expired` if the link is no longer valid, because of its age or because the sender left */
  state: "expired" | "pending";
  /** id of the user who sent it last */
  invited_by: number;
  /** when it was sent last */
  sent_at: string;
  /** until when its link is valid */
  expires_at: string;
  /** when the object was created */
  created_at: string;
}

/** The fields of a new invitation. */
export interface InvitationWrite {
  /** email address to invite */
  email: string;
  /** built-in role, or the id or name of an own role */
  role: string;
  /** for how many days the link is valid */
  days?: number;
}

/** The fields of a new API key. */
export interface KeyWrite {
  /** name of the key, such as the program that uses it */
  name: string;
  /**
   * `full`, `read`, `send`, `draft`, or a comma-separated list of scopes, such as `contacts:write,events:write`;
   * default: `full`, for an agent `draft`
   */
  scope?: string;
  /** true for a test key: everything that it sends is captured and counted nowhere */
  test?: boolean;
  /**
   * true for the key of an AI agent, which reads, drafts and proposes; its scopes are those of `draft` or some of
   * them
   */
  agent?: boolean;
  /** recipients by SMTP within an hour; 0: no limit; default: that of the installation */
  smtp_hourly_limit?: number | null;
}

/** An event that can start a flow. */
export interface KnownEvent {
  /** name */
  name: string;
  /** group of the event */
  group: string;
  /** description in words */
  words: string;
}

/** A section of a known type. */
export type KnownSection = ColumnsSection | FooterSection | HeaderSection | ProductGridSection | GallerySection | ListSection | CouponSection | ProductSection | TextSection | SplitSection | HeroSection | SocialSection | ImageSection | ButtonSection | HeadingSection | QuoteSection | DividerSection | SpacerSection | VideoSection | HtmlSection;

/** The recipients with a language, and the translation that they get. */
export interface LanguageCount {
  /** language of the contacts; null if it is unknown */
  language: string | null;
  /** number of recipients with this language */
  recipients: number;
  /** language of the texts they get; null for the original */
  translation: string | null;
}

/** The ledger of a campaign: each member of the audience is counted in exactly one of the terms. */
export interface LedgerFigures {
  /** number of recipients */
  audience: RecipientCount;
  /** accepted by the next hop: sent, delivered, bounced and complained */
  accepted: RecipientCount;
  /** number of recipients reached, the basis of rates */
  delivered_to: number;
  /** terms of the ledger */
  terms: LedgerTerm[];
  /** sum of the terms */
  sum: number;
  /** whether the sum equals the audience, as it always does */
  adds_up: boolean;
}

/** The number of recipients in one state, with the API path that lists them. */
export interface LedgerTerm {
  /** name of the term */
  name: string;
  /** number */
  count: number;
  /** path of the list of these contacts */
  people: string;
}

/** The request body for lifting a suppression: why the suppression is lifted, which is stored as evidence. */
export interface Lift {
  /** why the suppression is lifted; required in the body or in the query */
  reason?: string;
}

/** The state of the link check, which runs in the background. */
export interface LinkFacts {
  /** progress of the link check */
  status: "complete" | "running" | "waiting";
  /** number of links that work */
  fine: number;
  /** links that do not work */
  broken: CheckedLink[];
  /** links that were not checked, or whose server rejects automated requests */
  unchecked: CheckedLink[];
}

/** The clicks of one link. */
export interface LinkFigures {
  /** number of the link, starting at 1 */
  number: number;
  /** URL of the link */
  url: string;
  /** text of the link */
  words: string;
  /** whether clicks on the link are tracked */
  counted: boolean;
  /** number of people who clicked the link, and their share of all who clicked */
  clicked: RecipientCount;
  /** total number */
  total: number;
  /** number by people */
  total_human: number;
  /** number by machines, such as mailbox scanners */
  total_machine: number;
}

/** The fields of a new list, which is static or a mirror of a segment. */
export interface ListCreate {
  /** name of the list, unique in the account regardless of case */
  name: string;
  /** id of the segment that the list follows; null for a static list */
  segment_id?: number | null;
  /** ids of the members; replaces the existing members */
  contact_ids?: number[] | null;
  /** whether members must confirm their address before they are sent marketing */
  double_opt_in?: boolean;
  /** whether the list is shown on the preference page */
  public?: boolean;
}

/** The id and name of a list. */
export interface ListName {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** name */
  name: string;
}

/** The changes to a list; fields that are not given stay unchanged, and `contact_ids` replaces the members. */
export interface ListPatch {
  /** name of the list, unique in the account regardless of case */
  name?: string;
  /** id of the segment to follow; null makes the list static and keeps its members */
  segment_id?: number | null;
  /** ids of the members; replaces the existing members */
  contact_ids?: number[] | null;
  /** whether members must confirm their address before they are sent marketing */
  double_opt_in?: boolean;
  /** whether the list is shown on the preference page */
  public?: boolean;
}

/** A section of the type `list`. */
export interface ListSection {
  /** section type */
  type: "list";
  /** properties; `GET /templates/spec` lists their defaults and limits */
  props?: ListSectionProps | null;
  /** your identifier of the section */
  id?: string | number | null;
  /** styles of the surrounding box; `props` take precedence */
  styles?: ListSectionStyles | null;
}

/** properties; `GET /templates/spec` lists their defaults and limits */
export interface ListSectionProps {
  /** items */
  items?: (ListSectionPropsItem | null)[] | null;
  /** style */
  style?: string | number | boolean | null;
  /** alignment */
  align?: string | number | boolean | null;
  /** hide on */
  hide_on?: string | number | boolean | null;
  /** show only to. Segment filters. */
  show_if?: Filter[] | null;
  /** section name */
  name?: string | number | boolean | null;
}

export interface ListSectionPropsItem {
  /** symbol. An emoji or another character. */
  icon?: string | number | boolean | null;
  /** title */
  title?: string | number | boolean | null;
  /** text */
  text?: string | number | boolean | null;
}

/** styles of the surrounding box; `props` take precedence */
export interface ListSectionStyles {
  /** background */
  background_color?: string | number | boolean | null;
  /** padding. One to four pixel values, 0 to 96. */
  padding?: string | number | boolean | null;
}

/** The credentials of a user, at the top level or within `user`. */
export interface Login {
  /** email address */
  email: string;
  /** password */
  password: string;
  /** code of the second factor or a recovery code; required if a second factor is set up */
  otp?: string | null;
  /** account that the token is for, if the user is in several; default: the one with the smallest id */
  account_id?: number | null;
}

/** When marketing email may be sent, in the recipient's time zone; at other times it waits. */
export interface MarketingCalendar {
  /** days of the week */
  days: ("fri" | "mon" | "sat" | "sun" | "thu" | "tue" | "wed")[];
  /** start of the allowed hours, such as `08:00` */
  from: string;
  /** end of the allowed hours, later than their start; `24:00` is the end of the day */
  to: string;
  /** dates on which nothing is sent, such as `2026-12-25` */
  holidays?: string[];
}

/** The contact that is merged into the contact of the URL, and then deleted. */
export interface MergeWrite {
  /** id of the contact to merge into this one; it is deleted */
  contact_id: number;
}

/** An email or SMS to one address. */
export interface Message {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the account */
  account_id: number;
  /** number of attempts */
  attempts: number;
  /** id of the contact; null if there is none or it was deleted */
  contact_id: number | null;
  /** id of the campaign; null if there is none */
  campaign_id: number | null;
  /** id of the flow; null if there is none */
  flow_id: number | null;
  /** id of the flow step that sent the message; null if there is none */
  step_id: number | null;
  /** id of the template of the message; null if its content was given in the request */
  template_id: number | null;
  /** number of SMS parts; null for email */
  segments: number | null;
  /** `email` or `sms` */
  channel: "email" | "sms";
  /**
   * status: `queued`, `held` and `sending` are pending, all others final; a report or a retry may still change a
   * final status
   */
  status: "bounced" | "cancelled" | "complained" | "delivered" | "failed" | "held" | "queued" | "sending" | "sent" | "skipped" | "uncertain";
  /** transport of the message */
  provider: string;
  /** kind of source of the message */
  source_type: "campaign" | "flow" | "system" | "test" | "transactional";
  /** recipient; null once erased */
  to: string | null;
  /** sender; null until the message is rendered */
  from: string | null;
  /** address for replies; null for the sender */
  reply_to: string | null;
  /**
   * subject as sent, null for SMS; without the scope `contacts:read` as submitted, with its merge tags, and null
   * for campaigns and flows
   */
  subject: string | null;
  /** why the message was skipped, such as `unsubscribed` or `suppressed_hard_bounce`; more may follow */
  skip_reason: string | null;
  /** name of the campaign or flow */
  source_name: string | null;
  /** id of the message at the provider */
  provider_id: string | null;
  /** `Idempotency-Key` of the request */
  idempotency_key: string | null;
  /** Message-ID header */
  internet_message_id: string | null;
  /** whether the message is sent without consent, footer and tracking, as receipts are */
  transactional: boolean;
  /** whether it is a test; tests are captured and never counted */
  test: boolean;
  /** tags of the message */
  tags: Record<string, unknown>;
  /** last rejection; null if there is none */
  error: MessageError | null;
  /** time of the next attempt; null if there is none */
  next_attempt_at: string | null;
  /** when the message was sent */
  sent_at: string | null;
  /** when the message was reported as delivered */
  delivered_at: string | null;
  /** when a person first opened the message */
  opened_at: string | null;
  /** when a person first clicked a link */
  clicked_at: string | null;
  /**
   * number of the variant in the A/B test of its campaign; 0: waiting for the winner, -1: held out; null without a
   * test
   */
  variant: number | null;
  /** when the message was reported as undeliverable */
  bounced_at: string | null;
  /** when the object was created */
  created_at: string;
  /** when the object was last changed */
  updated_at: string;
}

/** A file that is attached to a message. */
export interface MessageAttachment {
  /** file name */
  filename: string;
  /** MIME type */
  content_type: string;
  /** id of an inline image in the HTML; null for other files */
  content_id: string | null;
  /** size in bytes */
  size: number;
}

/** A batch of messages, each of which is checked and queued on its own; an invalid one does not stop the others. */
export interface MessageBatch {
  /** up to 500 messages, with files of at most 25 MB together */
  messages: (MessageWrite | null)[];
}

/** The results of a batch of messages. */
export interface MessageBatchResult {
  /** number of messages that were queued, by this or an earlier request */
  queued: number;
  /** number of messages that were not queued */
  rejected: number;
  /** a result for each message, in the order of the request */
  results: BatchResult[];
}

/** A message with its content and events, and all recipients of its request. */
export interface MessageDetail {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the account */
  account_id: number;
  /** number of attempts */
  attempts: number;
  /** id of the contact; null if there is none or it was deleted */
  contact_id: number | null;
  /** id of the campaign; null if there is none */
  campaign_id: number | null;
  /** id of the flow; null if there is none */
  flow_id: number | null;
  /** id of the flow step that sent the message; null if there is none */
  step_id: number | null;
  /** id of the template of the message; null if its content was given in the request */
  template_id: number | null;
  /** number of SMS parts; null for email */
  segments: number | null;
  /** `email` or `sms` */
  channel: "email" | "sms";
  /**
   * status: `queued`, `held` and `sending` are pending, all others final; a report or a retry may still change a
   * final status
   */
  status: "bounced" | "cancelled" | "complained" | "delivered" | "failed" | "held" | "queued" | "sending" | "sent" | "skipped" | "uncertain";
  /** transport of the message */
  provider: string;
  /** kind of source of the message */
  source_type: "campaign" | "flow" | "system" | "test" | "transactional";
  /** recipient; null once erased */
  to: string | null;
  /** sender; null until the message is rendered */
  from: string | null;
  /** address for replies; null for the sender */
  reply_to: string | null;
  /**
   * subject as sent, null for SMS; without the scope `contacts:read` as submitted, with its merge tags, and null
   * for campaigns and flows
   */
  subject: string | null;
  /** why the message was skipped, such as `unsubscribed` or `suppressed_hard_bounce`; more may follow */
  skip_reason: string | null;
  /** name of the campaign or flow */
  source_name: string | null;
  /** id of the message at the provider */
  provider_id: string | null;
  /** `Idempotency-Key` of the request */
  idempotency_key: string | null;
  /** Message-ID header */
  internet_message_id: string | null;
  /** whether the message is sent without consent, footer and tracking, as receipts are */
  transactional: boolean;
  /** whether it is a test; tests are captured and never counted */
  test: boolean;
  /** tags of the message */
  tags: Record<string, unknown>;
  /** last rejection; null if there is none */
  error: MessageError | null;
  /** time of the next attempt; null if there is none */
  next_attempt_at: string | null;
  /** when the message was sent */
  sent_at: string | null;
  /** when the message was reported as delivered */
  delivered_at: string | null;
  /** when a person first opened the message */
  opened_at: string | null;
  /** when a person first clicked a link */
  clicked_at: string | null;
  /**
   * number of the variant in the A/B test of its campaign; 0: waiting for the winner, -1: held out; null without a
   * test
   */
  variant: number | null;
  /** when the message was reported as undeliverable */
  bounced_at: string | null;
  /** when the object was created */
  created_at: string;
  /** when the object was last changed */
  updated_at: string;
  /** all recipients, that of `to` first */
  recipients: MessageRecipient[];
  /** attached files */
  attachments: MessageAttachment[];
  /**
   * HTML content as sent; null for SMS, for messages that were never rendered, and, without the scope
   * `contacts:read`, for messages to a contact
   */
  html: string | null;
  /** plain text content as sent; null, without the scope `contacts:read`, for messages to a contact */
  text: string | null;
  /** custom headers */
  headers: Record<string, string>;
  /** latest events of the message, newest first, at most 100 */
  events: RecordedEvent[];
}

/** The last error that a mail server or SMS provider reported for a message. */
export interface MessageError {
  /**
   * last failure of the message: `temporary`, `throttled` or `unreachable` (tried again); `client_rejected`,
   * `sender_rejected` or `unauthenticated` (login, sender or authentication rejected); `refused` or `permanent`
   * (recipient or message rejected), `expired` (retries ended), `returned` (bounced later), `uncertain` or
   * `in_doubt` (reply lost)
   */
  code: string;
  /** SMTP reply code */
  smtp: number | null;
  /** enhanced status code (RFC 3463) */
  enhanced: string | null;
  /** response of the server */
  text: string | null;
}

/** The messages of a step: their statuses in the ledger, opens, clicks, and the reasons of skipped ones. */
export interface MessageFigures {
  /** number of recipients */
  audience: RunCount;
  /** not yet final: queued, held or sending */
  pending: RunCount;
  /** accepted by the next hop: sent, delivered, bounced and complained */
  accepted: RunCount;
  /** number of people who opened */
  opened: RunCount;
  /** number of people who clicked a link */
  clicked: RunCount;
  /** skipped messages, by reason */
  skipped: NumberByReason;
  /** terms of the ledger for these messages */
  terms: Record<string, number>;
}

/** One recipient of a message to several recipients. */
export interface MessageRecipient {
  /** id of the message to this recipient */
  id: number;
  /** how the recipient was given */
  kind: "bcc" | "cc" | "to";
  /** address of the recipient; null once erased */
  address: string | null;
  /** status of the message to this recipient */
  status: "bounced" | "cancelled" | "complained" | "delivered" | "failed" | "held" | "queued" | "sending" | "sent" | "skipped" | "uncertain";
  /** why the recipient gets no message, such as `suppressed_hard_bounce` */
  skip_reason: string | null;
}

/** The submitted content of a single message. */
export interface MessageText {
  /** id of the message; null if there is none */
  message_id: number;
  /** subject line, with merge tags */
  subject: string | null;
  /** content: HTML or plain text of an email (the text part beside a design), or the text of an SMS */
  body: string | null;
  /** content as plain text */
  text: string | null;
  /** sender name; null for that of the account */
  from_name: string | null;
  /** custom headers */
  headers: Record<string, unknown>;
  /** values for merge tags */
  data: Record<string, unknown>;
}

/** A request to send a single message. */
export interface MessageWrite {
  /** email address; for SMS, a phone number with country code, such as +44 7700 900123 */
  to: string;
  /** channel; default: `email` */
  channel?: "email" | "sms";
  /** subject line, with merge tags */
  subject?: string | null;
  /** HTML content; for SMS, text of up to 1,600 characters */
  body?: string | null;
  /** HTML content, with merge tags; instead of `body`, and not with a template */
  html?: string | null;
  /** plain text content; default: generated from the HTML */
  text?: string | null;
  /** id of a template to use instead of subject and body */
  template_id?: number | null;
  /** values for merge tags such as `{{ data.order }}` */
  data?: Record<string, unknown> | null;
  /**
   * addresses that get a copy and that all recipients see; together with `to` and `bcc` at most 50, and fewer if
   * the content has more than 100 KB; only for transactional messages
   */
  cc?: string[] | null;
  /** addresses that get a copy and that no other recipient sees; as `cc` */
  bcc?: string[] | null;
  /** sender, such as `ana@example.com` or `Ana Cruz <ana@example.com>`; instead of `from_email` and `from_name` */
  from?: string | null;
  /** sender address; null for that of the account */
  from_email?: string | null;
  /** sender name; null for that of the account */
  from_name?: string | null;
  /** address for replies; null for the sender */
  reply_to?: string | null;
  /** tags for the message */
  tags?: Record<string, unknown> | null;
  /**
   * custom headers: `X-…`, `In-Reply-To`, `References`, `Importance`, `Auto-Submitted`, and of transactional
   * messages `List-…`
   */
  headers?: Record<string, string> | null;
  /** files of at most 25 MB together; only for email */
  attachments?: AttachmentWrite[] | null;
  /** when to send; the message is `held` until then */
  send_at?: string | null;
  /** same as the header `Idempotency-Key`, which takes precedence */
  idempotency_key?: string | null;
  /** default: true; false makes it a marketing message, with consent check, footer, list headers and tracking */
  transactional?: boolean;
  /** alias of `channel`; beside it, both must be the same */
  channelType?: "email" | "sms";
}

/** A merge tag without a default, and the recipients who have no value for it. */
export interface MissingValue {
  /** name of the merge tag */
  name: string;
  /** number of contacts without a value */
  count?: number;
  /** ids of the first of these contacts */
  contact_ids?: number[];
}

/** A number of runs, the API path that lists them, and the numbers by reason. */
export interface NumberByReason {
  /** number */
  count: number;
  /** path of the list of these contacts */
  people: string;
  /** reasons, most frequent first */
  reasons: ReasonCount[];
}

/** A date of a repeating campaign that is over: what was sent then, or why nothing was. */
export interface Occurrence {
  /** date and time of the repetition */
  due_at: string;
  /**
   * `missed`: too late, after a downtime; `unchanged`: the content was not changed since the last send; `blocked`:
   * a finding of the preflight, which made the campaign a draft
   */
  outcome: "blocked" | "missed" | "sent" | "unchanged";
  /** code of the finding of the preflight; null without one */
  reason: string | null;
  /** id of the campaign that was sent; null if nothing was */
  campaign_id: number | null;
}

/** The onboarding steps of an account, and how many of them are completed. */
export interface Onboarding {
  /** onboarding steps */
  steps: OnboardingSteps;
  /** number of completed steps */
  progress: OnboardingProgress;
}

/** The number of completed onboarding steps. */
export interface OnboardingProgress {
  /** number of completed steps */
  completed: number;
  /** total number of steps */
  total: number;
}

/** The onboarding steps, and whether each is done. */
export interface OnboardingSteps {
  /** true if the brand has a colour */
  brand_setup: boolean;
  /** true if a sending domain is verified */
  domain_verified: boolean;
  /** true if there is at least one contact */
  first_contact: boolean;
  /** true if there is at least one campaign */
  first_draft: boolean;
  /** true if a campaign was sent */
  first_send: boolean;
}

/** A user's decision whether an incoming SMS is an opt-out. */
export interface OptOutReview {
  /** true if the message is an opt-out; opts its sender out */
  opt_out?: boolean;
}

/**
 * A section without a type, which is derived from the keys of `props`, or of an unknown type, which is stored and
 * blocks sending.
 */
export interface OtherSection {
  /** section type */
  type?: string | null;
  /** properties */
  props?: Record<string, unknown> | null;
  /** your identifier of the section */
  id?: string | number | null;
  /** styles of the surrounding box; `props` take precedence */
  styles?: OtherSectionStyles | null;
}

/** styles of the surrounding box; `props` take precedence */
export interface OtherSectionStyles {
  /** background */
  background_color?: string | number | boolean | null;
  /** padding. One to four pixel values, 0 to 96. */
  padding?: string | number | boolean | null;
}

/** A passkey of the signed-in user. */
export interface Passkey {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** name that the user gave the passkey */
  name: string;
  /** host name that the passkey was created for; it works nowhere else */
  host: string;
  /** whether its provider may copy it to other devices of the user */
  synced: boolean;
  /** when the user last signed in with it; null for never */
  last_used_at: string | null;
  /** when it was added */
  created_at: string;
}

/** The name of a passkey. */
export interface PasskeyPatch {
  /** name of the passkey */
  name: string;
}

/** The password of the signed-in user, which a removal needs. */
export interface PasskeyRemoval {
  /** current password of the signed-in user */
  current_password: string;
}

/** A predicate that a field type supports, and the kind of value that it takes. */
export interface PredicateSpec {
  /** name of the predicate */
  predicate: string;
  /** kind of the value */
  takes: string;
  /** whether contacts without a value match too */
  negative: boolean;
  /** description in words */
  words: string;
}

/** All blockers and warnings of a draft, and facts for the decision to send. */
export interface Preflight {
  /** true if the campaign can be sent */
  ok: boolean;
  /** problems that block sending, most important first */
  blockers: Finding[];
  /** warnings, which do not block */
  warnings: Finding[];
  /**
   * facts to check before sending: audience, sendable and skipped contacts, transport, size, links, and the result
   * of rendering for all recipients
   */
  facts: PreflightFacts;
}

/** Facts for the decision to send. */
export interface PreflightFacts {
  /** number of contacts in the audience */
  audience: number;
  /** number of contacts that may receive it */
  sendable: number;
  /** number of contacts that may not receive it, by reason */
  skipped: Record<string, number>;
  /** transport; `capture` keeps messages on this machine */
  transport: string;
  /** size of the HTML for a sample contact, in bytes; 0 for SMS */
  html_bytes: number;
  /** facts for SMS only */
  sms?: SmsFacts;
  /** result of the link check */
  links?: LinkFacts;
  /** result of rendering for all recipients */
  rehearsal?: RehearsalFacts;
  /** recipients by language, the largest number first; at most 100 languages */
  languages?: LanguageCount[];
}

/** A rendered message, with warnings about its content. */
export interface Preview {
  /** HTML content; empty for SMS */
  html: string;
  /** content as plain text */
  text: string;
  /** warnings, which do not block */
  warnings: PreviewWarning[];
  /** size of the HTML in bytes */
  bytes: number;
  /** details of the text as an SMS; null for email */
  sms?: SmsPreview | null;
}

/** The content of a message to preview, and the values to show in it. */
export interface PreviewRequest {
  /** design to render */
  document: Design;
  /** subject line, with merge tags */
  subject?: string | null;
  /** preview text that mailboxes show after the subject line */
  preheader?: string | null;
  /** sender name; null for that of the account */
  from_name?: string | null;
  /** content: HTML or plain text of an email (the text part beside a design), or the text of an SMS */
  body?: string | null;
  /** id of the contact whose values are shown; absent for sample values */
  contact_id?: number | null;
  /** values for merge tags such as `{{ data.order }}` */
  data?: Record<string, unknown> | null;
  /** channel; default: `email` */
  channel?: "email" | "sms";
  /** whether to show it as a message that needs no consent, without an unsubscribe link */
  transactional?: boolean;
  /** translations of the texts by language and id of the text */
  translations?: Record<string, Record<string, TextTranslation>> | null;
  /** language to show; absent for the language of the contact */
  language?: string | null;
}

/** A warning about the content of a message; it does not prevent sending. */
export interface PreviewWarning {
  /** warning code for programs */
  code: string;
  /** explanation for people */
  message: string;
  /** name of the field */
  field: string;
}

/** A reason why messages were not delivered. */
export interface ProblemFigures {
  /** key of the problem in filters */
  key: string;
  /** status of the messages */
  status: string;
  /** reason code of the messages */
  reason: string | null;
  /** response of the server */
  text: string | null;
  /** class of the rejection */
  class: string | null;
  /** explanation of the problem */
  meaning: string | null;
  /** help text */
  help: string | null;
  /** number */
  count: number;
  /** path of the list of these contacts */
  people: string;
}

/** A section of the type `product_grid`. */
export interface ProductGridSection {
  /** section type */
  type: "product_grid";
  /** properties; `GET /templates/spec` lists their defaults and limits */
  props?: ProductGridSectionProps | null;
  /** your identifier of the section */
  id?: string | number | null;
  /** styles of the surrounding box; `props` take precedence */
  styles?: ProductGridSectionStyles | null;
}

/** properties; `GET /templates/spec` lists their defaults and limits */
export interface ProductGridSectionProps {
  /** products */
  items?: (ProductGridSectionPropsItem | null)[] | null;
  /** alignment */
  align?: string | number | boolean | null;
  /** hide on */
  hide_on?: string | number | boolean | null;
  /** show only to. Segment filters. */
  show_if?: Filter[] | null;
  /** section name */
  name?: string | number | boolean | null;
}

export interface ProductGridSectionPropsItem {
  /** name */
  name?: string | number | boolean | null;
  /** price */
  price?: string | number | boolean | null;
  /** original price */
  old_price?: string | number | boolean | null;
  /** image */
  image_url?: string | number | boolean | null;
  /** link */
  href?: string | number | boolean | null;
  /** description */
  description?: string | number | boolean | null;
  /** button */
  button?: ProductGridSectionPropsItemButton | string | null;
}

/** button */
export interface ProductGridSectionPropsItemButton {
  /** text */
  text?: string | number | boolean | null;
  /** link */
  href?: string | number | boolean | null;
}

/** styles of the surrounding box; `props` take precedence */
export interface ProductGridSectionStyles {
  /** background */
  background_color?: string | number | boolean | null;
  /** padding. One to four pixel values, 0 to 96. */
  padding?: string | number | boolean | null;
}

/** A section of the type `product`. */
export interface ProductSection {
  /** section type */
  type: "product";
  /** properties; `GET /templates/spec` lists their defaults and limits */
  props?: ProductSectionProps | null;
  /** your identifier of the section */
  id?: string | number | null;
  /** styles of the surrounding box; `props` take precedence */
  styles?: ProductSectionStyles | null;
}

/** properties; `GET /templates/spec` lists their defaults and limits */
export interface ProductSectionProps {
  /** name */
  name?: string | number | boolean | null;
  /** price */
  price?: string | number | boolean | null;
  /** original price */
  old_price?: string | number | boolean | null;
  /** image */
  image_url?: string | number | boolean | null;
  /** link */
  href?: string | number | boolean | null;
  /** description */
  description?: string | number | boolean | null;
  /** button */
  button?: ProductSectionPropsButton | string | null;
  /** alignment */
  align?: string | number | boolean | null;
  /** hide on */
  hide_on?: string | number | boolean | null;
  /** show only to. Segment filters. */
  show_if?: Filter[] | null;
}

/** button */
export interface ProductSectionPropsButton {
  /** text */
  text?: string | number | boolean | null;
  /** link */
  href?: string | number | boolean | null;
}

/** styles of the surrounding box; `props` take precedence */
export interface ProductSectionStyles {
  /** background */
  background_color?: string | number | boolean | null;
  /** padding. One to four pixel values, 0 to 96. */
  padding?: string | number | boolean | null;
}

/** What an agent proposes, and what a user decided about it. */
export interface Proposal {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the account */
  account_id: number;
  /** what is proposed */
  kind: "change_flow" | "change_segment" | "change_template" | "send_campaign" | "start_flow";
  /** `open` until a user decides or the agent withdraws it */
  state: "approved" | "open" | "returned" | "withdrawn";
  /** id of the campaign, flow, segment or template */
  subject_id: number;
  /** its name when the proposal was made */
  subject_name: string;
  /** changes, as they were proposed */
  changes: Record<string, unknown>;
  /** the agent's reason */
  note: string;
  /** note of the user who returned it; null if there is none */
  answer: string | null;
  /** id of the agent's API key */
  api_key_id: number;
  /** name of the agent's API key */
  agent_name: string;
  /** id of the user who decided; null if no user did */
  decided_by: number | null;
  /** when it was decided or withdrawn */
  decided_at: string | null;
  /** when the object was created */
  created_at: string;
  /** when the object was last changed */
  updated_at: string;
}

/** A proposal with all that a user needs to decide about it, as it is now. */
export interface ProposalDetail {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the account */
  account_id: number;
  /** what is proposed */
  kind: "change_flow" | "change_segment" | "change_template" | "send_campaign" | "start_flow";
  /** `open` until a user decides or the agent withdraws it */
  state: "approved" | "open" | "returned" | "withdrawn";
  /** id of the campaign, flow, segment or template */
  subject_id: number;
  /** its name when the proposal was made */
  subject_name: string;
  /** changes, as they were proposed */
  changes: Record<string, unknown>;
  /** the agent's reason */
  note: string;
  /** note of the user who returned it; null if there is none */
  answer: string | null;
  /** id of the agent's API key */
  api_key_id: number;
  /** name of the agent's API key */
  agent_name: string;
  /** id of the user who decided; null if no user did */
  decided_by: number | null;
  /** when it was decided or withdrawn */
  decided_at: string | null;
  /** when the object was created */
  created_at: string;
  /** when the object was last changed */
  updated_at: string;
  /** of what is proposed, as it is now; the approval must name it. Empty if it was deleted */
  version: string;
  /** whether what is proposed has changed since the proposal was made */
  is_changed: boolean;
  /** values before and after; empty once it is decided */
  differences: Difference[];
  /** contacts whom it reaches; null if only a replay can say */
  people: number | null;
  /** contacts in the segment now; null for other kinds */
  people_before: number | null;
  /** parts of all SMS; null for email, or if not yet known */
  sms_parts: number | null;
  /** cost of these parts; null if no price is known */
  sms_cost: number | null;
}

/** A new proposal of an agent. */
export interface ProposalWrite {
  /** what is proposed */
  kind: "change_flow" | "change_segment" | "change_template" | "send_campaign" | "start_flow";
  /** id of the campaign, flow, segment or template */
  subject_id: number;
  /**
   * of `send_campaign`: `scheduled_at`; of the kinds that change something: the body of its PATCH, without `status`
   * and `updated_at`
   */
  changes?: Record<string, unknown>;
  /** the reason, shown to the user who decides */
  note?: string;
}

/** The fields of a provider that may be changed; fields that are not given stay unchanged. */
export interface ProviderPatch {
  /** name of the provider, as the button on the sign-in page shows it */
  name?: string;
  /** client ID that the provider has given */
  client_id?: string;
  /** client secret; never shown again; empty for a public client */
  client_secret?: string;
  /** domains of verified email addresses whose owners may join without an invitation */
  domains?: string[];
  /** role of those who join by their domain */
  role?: "admin" | "author" | "editor" | "viewer";
  /**
   * whether a second factor of the provider (`mfa` in `amr`) replaces the code of a user with two-factor
   * authentication
   */
  trust_mfa?: boolean;
  /** whether people can sign in with the provider */
  enabled?: boolean;
}

/** The fields of a new provider. */
export interface ProviderWrite {
  /** name of the provider, as the button on the sign-in page shows it */
  name: string;
  /** issuer of the provider, a URL such as `https://accounts.google.com`; it cannot be changed */
  issuer: string;
  /** client ID that the provider has given */
  client_id: string;
  /** client secret; never shown again; empty for a public client */
  client_secret?: string;
  /** domains of verified email addresses whose owners may join without an invitation */
  domains?: string[];
  /** role of those who join by their domain */
  role?: "admin" | "author" | "editor" | "viewer";
  /**
   * whether a second factor of the provider (`mfa` in `amr`) replaces the code of a user with two-factor
   * authentication
   */
  trust_mfa?: boolean;
  /** whether people can sign in with the provider */
  enabled?: boolean;
}

/** The daily period in which no marketing SMS are sent, in the recipient's time zone. */
export interface QuietHours {
  /** start of the quiet hours, such as `21:00` */
  from: string;
  /** end of the quiet hours, such as `08:00` */
  to: string;
}

/** A section of the type `quote`. */
export interface QuoteSection {
  /** section type */
  type: "quote";
  /** properties; `GET /templates/spec` lists their defaults and limits */
  props?: QuoteSectionProps | null;
  /** your identifier of the section */
  id?: string | number | null;
  /** styles of the surrounding box; `props` take precedence */
  styles?: QuoteSectionStyles | null;
}

/** properties; `GET /templates/spec` lists their defaults and limits */
export interface QuoteSectionProps {
  /** quote */
  text?: string | number | boolean | null;
  /** author name */
  author?: string | number | boolean | null;
  /** job title */
  role?: string | number | boolean | null;
  /** photo */
  photo_url?: string | number | boolean | null;
  /** alignment */
  align?: string | number | boolean | null;
  /** hide on */
  hide_on?: string | number | boolean | null;
  /** show only to. Segment filters. */
  show_if?: Filter[] | null;
  /** section name */
  name?: string | number | boolean | null;
}

/** styles of the surrounding box; `props` take precedence */
export interface QuoteSectionStyles {
  /** background */
  background_color?: string | number | boolean | null;
  /** padding. One to four pixel values, 0 to 96. */
  padding?: string | number | boolean | null;
}

/** The number of runs with one reason, and the API path that lists them. */
export interface ReasonCount {
  /** reason; null if none was given */
  reason: string | null;
  /** number */
  count: number;
  /** path of the list of these contacts */
  people: string;
}

/** A number of recipients, its rate, and the API path that lists these recipients. */
export interface RecipientCount {
  /** number */
  count: number;
  /** rate, from 0 to 1; null if the total is 0 */
  rate: number | null;
  /** path of the list of these contacts */
  people: string;
}

/** Something that happened to a contact or in the account. */
export interface RecordedEvent {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the account */
  account_id: number;
  /** the contact of the event; null: none */
  contact_id: number | null;
  /** always null: events name no user */
  user_id: number | null;
  /** name of the event */
  event: string;
  /** value of the event, such as the total of an order */
  amount: number | null;
  /** further data, as JSON of at most 32 KiB */
  data: Record<string, unknown>;
  /** key that identifies repeated requests with the same event name */
  idempotency_key: string | null;
  /** your id of the object that the event concerns, such as `order:4711` */
  resource_uid: string | null;
  /** name of that object */
  resource_name: string | null;
  /** URL of that object */
  resource_url: string | null;
  /** whether it is a test; tests are captured and never counted */
  test: boolean;
  /** true if the service recorded the event itself */
  generated: boolean;
  /** number of flows before this event, each started by an event of the flow before; at 5 it starts no flow */
  chain_depth: number;
  /** IP address of the person */
  ip: string | null;
  /** User-Agent header of the person's program */
  user_agent: string | null;
  /** read from the user agent */
  browser: string | null;
  /** read from the user agent */
  os: string | null;
  /** read from the user agent */
  device_type: string | null;
  /** URL of the page that the contact came from */
  referrer: string | null;
  /** `utm_source` of the visited URL */
  utm_source: string | null;
  /** `utm_medium` of the visited URL */
  utm_medium: string | null;
  /** `utm_term` of the visited URL */
  utm_term: string | null;
  /** `utm_content` of the visited URL */
  utm_content: string | null;
  /** `utm_campaign` of the visited URL */
  utm_campaign: string | null;
  /** when the event happened */
  created_at: string;
  /** when the event was recorded, or its data was last corrected, such as the verdict on a click */
  updated_at: string;
}

/** The state of rendering the message for all recipients, which runs in the background. */
export interface RehearsalFacts {
  /** progress */
  status: "complete" | "failed" | "running" | "waiting";
  /** number of recipients to render for */
  total: number;
  /** number of recipients rendered so far */
  done: number;
  /** number of recipients for whom rendering fails */
  failed: number;
  /** first rendering failures */
  failures: RenderFailure[];
  /** merge tags without a default for which some recipients have no value */
  lacking: MissingValue[];
  /** size of the largest email, in bytes */
  html_bytes: number;
  /** SMS parts and characters; null for email */
  sms: SmsTotals | null;
}

/** The request body of a rejection, with an optional reason. */
export interface RejectRequest {
  /** reason for the rejection, shown to the author */
  note?: string | null;
}

/** An event of a batch that was not recorded, with its errors. */
export interface RejectedEvent {
  /** position in the batch, starting at 0 */
  index: number;
  /** error code, as for a single request */
  code: string;
  /** explanation for people */
  message: string;
  /** field errors */
  validation_errors: Record<string, string[]>;
}

/** A contact whose message cannot be rendered or sent, and why. */
export interface RenderFailure {
  /** id of the contact */
  contact_id: number;
  /** why rendering fails */
  error: string;
}

/** A message as the contact would get it, or why it is not sent; `segments` is the number of parts of an SMS. */
export interface RenderedMessage {
  /** `email` or `sms` */
  channel: string;
  /** status of the message */
  status: string;
  /** why the message is skipped; null if it is not */
  skip_reason: string | null;
  /** recipient */
  to: string | null;
  /** sender of the message */
  sender: string | null;
  /** subject line, with merge tags */
  subject: string | null;
  /** HTML content; null if there is none */
  html: string | null;
  /** content as plain text */
  text: string | null;
  /** until when the message is held; null if it is not held */
  leaves_at: string | null;
  /** number of SMS parts; null for email */
  segments?: number | null;
}

/** When a campaign repeats, in the time zone of the account. */
export interface Repeat {
  /** how often it repeats */
  every: "day" | "month" | "week";
  /** time of day */
  at: string;
  /** days of the week, or the one day of `week_of_month` */
  weekdays: string[];
  /** day of the month, or the last day of a shorter month */
  day_of_month: number | null;
  /** which of the days in `weekdays` of a month */
  week_of_month: string | null;
  /** time after which it does not repeat */
  ends_at: string | null;
  /** whether a date is skipped if the content was not changed since the last send */
  only_if_changed: boolean;
  /** the next dates, at most three */
  next_at: string[];
}

/** When a campaign repeats, in the time zone of the account. */
export interface RepeatWrite {
  /** how often it repeats; a week needs `weekdays` */
  every: "day" | "month" | "week";
  /** time of day, such as `09:00` */
  at: string;
  /** days of the week, or the one day of `week_of_month` */
  weekdays?: ("fri" | "mon" | "sat" | "sun" | "thu" | "tue" | "wed")[] | null;
  /** day of the month, or the last day of a shorter month */
  day_of_month?: number | null;
  /** which of the days in `weekdays` of a month, such as the last Friday */
  week_of_month?: "first" | "fourth" | "last" | "second" | "third" | null;
  /** time after which it does not repeat */
  ends_at?: string | null;
  /** whether a date is skipped if the content was not changed since the last send */
  only_if_changed?: boolean;
}

/** A request to replay the failed deliveries of a webhook: all of them, or only those created since a time. */
export interface ReplayFailedRequest {
  /** only deliveries created since then; default: all */
  since?: string | null;
}

/** A message that a contact would have got, or not got for a reason. */
export interface ReplayMessage {
  /** id of the step */
  step_id: number;
  /** when it would have been sent */
  at: string;
  /** why it would not have been sent; null if it would */
  reason: string | null;
}

/** Orders that followed a message within the attribution window, with the sum of their amounts. */
export interface ReplayOrders {
  /** number of orders */
  orders?: number;
  /** contacts who ordered */
  people?: number;
  /** sum of the amounts of the orders */
  amount?: number;
}

/** A contact for whom the draft and the live version differ. */
export interface ReplayPerson {
  /** id of the contact */
  contact_id: number;
  /** messages of the draft */
  draft: ReplayMessage[];
  /** messages of the live version */
  live: ReplayMessage[];
}

/** A replay of a flow against the events of the last `days` days. */
export interface ReplayRequest {
  /** number of past days to replay; default: 90 */
  days?: number;
  /** decides random splits and the sample; the same seed gives the same result; default: 1 */
  seed?: number;
  /** end of the replayed time; default: now */
  until?: string | null;
  /** event that counts as an order; default: the goal of the flow, or events with an amount */
  order_event?: string | null;
  /** price of a part of an SMS */
  sms_price?: number | null;
  /** steps to replay instead of the stored ones */
  steps?: FlowStepWrite[];
}

/** The result of a replay; `live` is null for a flow that was never live, and `draft` equals it without changes. */
export interface ReplayResult {
  /** start of the replayed time */
  started_at: string;
  /** end of the replayed time */
  ended_at: string;
  /** contacts whose events may start the flow */
  matching: number;
  /** contacts whose events were replayed; fewer if they are a sample */
  replayed: number;
  /** whether the draft differs from the live version */
  is_changed: boolean;
  /** what the flow with its changes would have done */
  draft: ReplayTotals;
  /** what the live version would have done */
  live: ReplayTotals | null;
  /** contacts who would have got a message only from the draft */
  gained?: number;
  /** contacts who would have got a message only from the live version */
  lost?: number;
  /** contacts who would have got other messages, or at another time */
  changed?: number;
  /** orders that followed a message of the draft */
  orders?: ReplayOrders;
  /** orders that followed a message that the live version would not have sent */
  orders_gained?: ReplayOrders;
  /** orders that followed a message of the live version that the draft would not have sent */
  orders_lost?: ReplayOrders;
  /** for how many days after a message orders count */
  order_days?: number;
  /** steps of both versions with their counts */
  steps?: ReplayStep[];
  /** some contacts for whom the versions differ */
  sample?: ReplayPerson[];
  /** limits of the replay */
  warnings?: ReplayWarning[];
}

/** A step of the draft or of the live version, with its counts in each; null where it does not exist. */
export interface ReplayStep {
  /** id of the step */
  step_id: number;
  /** path of the step in the flow */
  path: string;
  /** type */
  type: string;
  /** properties of the step, without its branches */
  props: Record<string, unknown>;
  /** counts with the changes */
  draft?: ReplayStepCounts | null;
  /** counts in the live version */
  live?: ReplayStepCounts | null;
}

/** The contacts and messages of one step in one version. */
export interface ReplayStepCounts {
  /** how often a contact came to the step */
  entered?: number;
  /** messages sent */
  sent?: number;
  /** messages not sent */
  unsent?: number;
  /** messages that waited for the end of quiet hours */
  held?: number;
  /** contacts by how they left the step */
  outcomes?: Record<string, number>;
}

/** What one version would have done. */
export interface ReplayTotals {
  /** number of times that a contact entered the flow */
  entered?: number;
  /** runs that were completed */
  completed?: number;
  /** runs that ended early */
  exited?: number;
  /** runs that had not ended at the end of the replayed time */
  live?: number;
  /** contacts who would have got at least one message */
  people?: number;
  /** emails that would have been sent */
  emails?: number;
  /** SMS that would have been sent */
  sms?: number;
  /** parts of these SMS */
  sms_parts?: number;
  /** whether the parts are an estimate, because not every SMS was rendered */
  sms_parts_estimated?: boolean;
  /** price of these parts; null without a price */
  sms_cost?: number | null;
  /** messages that would have waited for the end of quiet hours */
  held?: number;
  /** messages that the frequency cap would have kept from being sent */
  capped?: number;
  /** messages that would not have been sent, by reason; with those of the cap */
  unsent?: Record<string, number>;
  /** entries that were refused, by reason */
  refused?: Record<string, number>;
}

/** A limit of the replay: a code, and the event, number or total that it is about. */
export interface ReplayWarning {
  /** which limit it is */
  code: "current_data" | "event_late" | "event_missing" | "imported" | "not_ready" | "random" | "reactions" | "rounded" | "sampled" | "sms_estimated" | "starts_flows" | "unfinished";
  /** name of the event that the warning is about */
  event?: string | null;
  /** time */
  at?: string | null;
  /** number that the warning is about */
  number?: number | null;
  /** of so many */
  total?: number | null;
}

/** The return of a proposal to its agent. */
export interface ReturnProposal {
  /** what to change, shown to the agent */
  note?: string | null;
}

/** A role of the account's own. */
export interface Role {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the account */
  account_id: number;
  /** name of the role, unique in the account regardless of case */
  name: string;
  /** scopes of the role, sorted */
  scopes: string[];
  /** whether users see the names and addresses of contacts, or pseudonyms instead (`masked`) */
  contact_data: "full" | "masked";
  /** users, enabled and disabled, with the role */
  user_count: number;
  /** when the object was created */
  created_at: string;
  /** when the object was last changed */
  updated_at: string;
}

/** The fields of a role that can be changed; fields that are not given stay unchanged. */
export interface RolePatch {
  /** name of the role, unique in the account regardless of case */
  name?: string;
  /** scopes of the role, as those of API keys, and `contacts:export`; a scope includes reading its area */
  scopes?: string[];
  /** whether users see the names and addresses of contacts, or pseudonyms instead (`masked`) */
  contact_data?: "full" | "masked";
}

/** The fields of a new role. */
export interface RoleWrite {
  /** name of the role, unique in the account regardless of case */
  name: string;
  /** scopes of the role, as those of API keys, and `contacts:export`; a scope includes reading its area */
  scopes: string[];
  /** whether users see the names and addresses of contacts, or pseudonyms instead (`masked`) */
  contact_data?: "full" | "masked";
}

/** The result of an action on several runs. */
export interface RunActionResult {
  /** number of changed runs */
  changed: number;
  /** ids in the request that are not active runs of this flow */
  unchanged: number[];
}

/** A number of runs, and the API path that lists them. */
export interface RunCount {
  /** number */
  count: number;
  /** path of the list of these contacts */
  people: string;
}

/** The runs of a flow by status. `ignored` counts events that triggered the flow but started no run. */
export interface RunFigures {
  /** contacts that entered */
  entered: RunCount;
  /** active runs */
  active: RunCount;
  /** completed runs */
  completed: NumberByReason;
  /** runs that ended early */
  exited: NumberByReason;
  /** triggers that started no run */
  ignored: NumberByReason;
}

/** Runs to act on: either `run_ids`, or all runs that wait in a step. */
export interface RunSelection {
  /** ids of the runs */
  run_ids?: number[] | null;
  /** alternatively, the id of a step, for all runs that wait there */
  step?: number | null;
}

/** A step that a run has entered. */
export interface RunStep {
  /** id of the step */
  step_id: number;
  /** type */
  type: string;
  /** description of the step at that time */
  summary: string;
  /** how the contact left the step, or the key of its branch; null while waiting */
  outcome: string | null;
  /** why the step was skipped or the contact exited */
  reason: string | null;
  /** id of the message; null if there is none */
  message_id: number | null;
  /** status of the message sent by the step */
  message_status: string | null;
  /** when the contact entered the step */
  entered_at: string;
  /** when the contact left the step; null while waiting */
  left_at: string | null;
}

/** What a test of this size can find, at the rate of earlier campaigns. */
export interface SampleSize {
  /** number of variants */
  variants: number;
  /** number of recipients of each variant, at present */
  recipients: number;
  /** expected rate of conversions */
  rate: number;
  /** whether the rate is that of the last 90 days, not an assumption */
  is_measured: boolean;
  /** smallest relative difference that it finds with a probability of 80 % */
  smallest_lift: number | null;
  /** recipients of each variant to find a difference of 20 % */
  needed: number | null;
}

/** The result of a script: whether all its expectations are met, and which are not. */
export interface ScriptResult {
  /** name */
  name: string;
  /** true if all expectations are met */
  passed: boolean;
  /** number of expectations */
  expected: number;
  /** expectations that are not met, in words */
  failures: string[];
  /** how the run ends */
  end: string;
}

/** A group of contacts that match filters. */
export interface Segment {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the account */
  account_id: number;
  /** name */
  name: string;
  /** filters, all of which must match; without filters, the segment holds all contacts */
  filters: Filter[];
  /** description as a sentence */
  sentence: string;
  /** number of contacts in the segment; null until first counted */
  contacts_count: number | null;
  /** when the object was created */
  created_at: string;
  /** when the object was last changed */
  updated_at: string;
}

/** The fields of a new segment; without filters, the segment contains all contacts. */
export interface SegmentCreate {
  /** name */
  name: string;
  /** filters, all of which must match; without filters, the segment holds all contacts */
  filters?: Filter[];
  /** key of the ready-made segment whose filters to use; `filters` overrides it */
  starter?: string;
}

/** Whether a contact is in a segment, and why: the segment in words, and the result of each filter. */
export interface SegmentExplanation {
  /** id of the segment */
  segment_id: number;
  /** id of the contact */
  contact_id: number;
  /** whether the contact is in the segment */
  matches: boolean;
  /** description as a sentence */
  sentence: string;
  /** results by filter, as sent */
  rows: FilterResult[];
}

/** The changes to a segment; fields that are not given stay unchanged, and `filters` replaces all filters. */
export interface SegmentPatch {
  /** name */
  name?: string;
  /** filters, all of which must match; without filters, the segment holds all contacts */
  filters?: Filter[];
}

/** A ready-made segment. `POST /segments` accepts its `key` as `starter`, or its filters. */
export interface SegmentStarter {
  /** identifier of the starter in `POST /segments` */
  key: string;
  /** name to give to the new segment */
  name: string;
  /** description */
  description: string;
  /** filters */
  filters: Filter[];
}

/** All ready-made segments. */
export interface SegmentStarters {
  /** ready-made segments */
  starters: SegmentStarter[];
}

/** A problem that prevents sending. */
export interface SendBlocker {
  /** reason code; that of the first blocker is the `reason` */
  code: string;
  /** explanation for people */
  message: string;
  /** path of the field; empty if there is none */
  field: string;
}

/** An hour of the day at which recipients get a campaign, on their own clocks. */
export interface SendHour {
  /** hour of the day, from 0 to 23 */
  hour: number;
  /** number of recipients who get it at this hour */
  recipients: number;
  /** number of their messages that are still open */
  waiting: number;
  /** number of these recipients who clicked */
  clicked: number;
}

/** A moment at which a campaign leaves, with the time zones whose local time it is. */
export interface SendMoment {
  /** when these recipients get it */
  at: string;
  /** their time zones */
  time_zones: string[];
  /** number of these recipients */
  recipients: number;
  /** number of their messages that are still open */
  waiting: number;
}

/** The numbers of queued messages of the account, and the age of the oldest due message. */
export interface SendQueue {
  /** number of queued messages */
  waiting: number;
  /** number of queued messages that are due */
  due: number;
  /** number of messages being sent */
  in_hand: number;
  /** when the oldest due message became due; null if none is due */
  oldest_due_at: string | null;
  /** age of the oldest due message, in seconds */
  oldest_age_seconds: number;
}

/** Changes to a campaign that are applied together with its send, and options of the send. */
export interface SendRequest {
  /** when to send; a time in the past or null sends now */
  scheduled_at?: string | null;
  /**
   * when to send, such as `2026-12-01T09:00`, on the clock of each recipient; replaces `repeat` and `scheduled_at`,
   * which is then the first moment at which it is that time anywhere. null: no local time
   */
  local_time?: string | null;
  /**
   * until which hour of the day of `local_time` to send, such as `20`, to each recipient at the best hour of their
   * own from `local_time` on, by their clicks. It needs a `local_time` at a full hour in the same request. null:
   * all get it at `local_time`
   */
  best_hour_until?: number | null;
  /** changes of the audience before sending */
  trigger_attributes?: TriggerWrite;
  /** changes of the content before sending */
  template_attributes?: Content;
  /** confirms that all contacts are meant, if nothing narrows the audience */
  confirm_send_to_all?: boolean;
  /**
   * number of seconds before the first message is sent, in which the send can be undone; a later `scheduled_at`
   * takes precedence
   */
  hold_seconds?: number;
  /** alias of `trigger_attributes.contact_list_id`; beside it, both must be the same */
  contact_list_id?: number | null;
  /** alias of `trigger_attributes.segment_id`; beside it, both must be the same */
  segment_id?: number | null;
  /** alias of `trigger_attributes.data.contact_list_ids`; beside it, both must be the same */
  contact_list_ids?: number[];
  /** alias of `trigger_attributes.data.exclude_contact_list_ids`; beside it, both must be the same */
  exclude_contact_list_ids?: number[];
  /** alias of `trigger_attributes.data.exclude_segment_ids`; beside it, both must be the same */
  exclude_segment_ids?: number[];
  /** alias of `trigger_attributes.data.audience_type`; beside it, both must be the same */
  audience_type?: "all_contacts" | null;
}

/** When a campaign with a local time leaves in which time zone: fixed when it is sent, before that a forecast. */
export interface SendTimes {
  /** time on the clock of each recipient; null for other campaigns */
  local_time: string | null;
  /** until which hour it is sent at the best hour of each recipient; null: none */
  best_hour_until: number | null;
  /** whether the campaign was sent, so that the times are fixed */
  is_fixed: boolean;
  /** when the first recipients get it; null without recipients */
  first_at: string | null;
  /** when the last recipients get it; null without recipients */
  last_at: string | null;
  /** moments in order */
  times: SendMoment[];
  /** hours of the day in order; without recipients, none */
  hours: SendHour[];
  /** where the time zones come from; null once it was sent */
  sources: ZoneSources | null;
  /** number of recipients whose local time had passed at the start, and who get it at once */
  late_recipients: number;
  /** number of recipients whose local time had passed for longer, and who get it a day later */
  next_day_recipients: number;
}

/** The number of members that may receive marketing, by channel. */
export interface SendableCount {
  /** number of contacts that can be sent email */
  email: number;
  /** number of contacts that can be sent SMS */
  sms: number;
}

/** A domain from which email may be sent, with its DNS records. */
export interface SendingDomain {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** domain in lower case */
  name: string;
  /** always `smtp` */
  provider: string;
  /** `verified` once the required records are in DNS */
  status: "failed" | "pending" | "verified";
  /** DNS records to enter */
  dns_records: DnsRecord[] | null;
  /** warning about a domain that works but needs attention; null for none */
  attention: string | null;
  /** since when the domain needs attention */
  attention_since: string | null;
  /** when the domain was verified */
  verified_at: string | null;
  /** when the domain stopped being verified; null if it did not */
  failed_at: string | null;
  /** when DNS was last checked */
  checked_at: string | null;
  /** when DNS is checked next; null if no check is planned */
  next_check_at: string | null;
  /** when the object was created */
  created_at: string;
  /** when the object was last changed */
  updated_at: string;
}

/** A condition that prevents or delays sending. */
export interface SendingObstacle {
  /** code for programs */
  code: string;
  /** the same as a sentence */
  text: string;
  /** start of the period */
  since: string | null;
  /** end of the period; null if unknown */
  until: string | null;
}

/** The rate limits of the installation, and the numbers of messages that the account sent recently. */
export interface SendingRate {
  /** maximum number per second; 0 for no limit */
  per_second: number;
  /** maximum number per hour; 0 for no limit */
  per_hour: number;
  /** number sent in the last minute */
  last_minute: number;
  /** number sent in the last hour */
  last_hour: number;
}

/** The message to the recipient `to` of a request, with all recipients of the request. */
export interface SentMessage {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the account */
  account_id: number;
  /** number of attempts */
  attempts: number;
  /** id of the contact; null if there is none or it was deleted */
  contact_id: number | null;
  /** id of the campaign; null if there is none */
  campaign_id: number | null;
  /** id of the flow; null if there is none */
  flow_id: number | null;
  /** id of the flow step that sent the message; null if there is none */
  step_id: number | null;
  /** id of the template of the message; null if its content was given in the request */
  template_id: number | null;
  /** number of SMS parts; null for email */
  segments: number | null;
  /** `email` or `sms` */
  channel: "email" | "sms";
  /**
   * status: `queued`, `held` and `sending` are pending, all others final; a report or a retry may still change a
   * final status
   */
  status: "bounced" | "cancelled" | "complained" | "delivered" | "failed" | "held" | "queued" | "sending" | "sent" | "skipped" | "uncertain";
  /** transport of the message */
  provider: string;
  /** kind of source of the message */
  source_type: "campaign" | "flow" | "system" | "test" | "transactional";
  /** recipient; null once erased */
  to: string | null;
  /** sender; null until the message is rendered */
  from: string | null;
  /** address for replies; null for the sender */
  reply_to: string | null;
  /**
   * subject as sent, null for SMS; without the scope `contacts:read` as submitted, with its merge tags, and null
   * for campaigns and flows
   */
  subject: string | null;
  /** why the message was skipped, such as `unsubscribed` or `suppressed_hard_bounce`; more may follow */
  skip_reason: string | null;
  /** name of the campaign or flow */
  source_name: string | null;
  /** id of the message at the provider */
  provider_id: string | null;
  /** `Idempotency-Key` of the request */
  idempotency_key: string | null;
  /** Message-ID header */
  internet_message_id: string | null;
  /** whether the message is sent without consent, footer and tracking, as receipts are */
  transactional: boolean;
  /** whether it is a test; tests are captured and never counted */
  test: boolean;
  /** tags of the message */
  tags: Record<string, unknown>;
  /** last rejection; null if there is none */
  error: MessageError | null;
  /** time of the next attempt; null if there is none */
  next_attempt_at: string | null;
  /** when the message was sent */
  sent_at: string | null;
  /** when the message was reported as delivered */
  delivered_at: string | null;
  /** when a person first opened the message */
  opened_at: string | null;
  /** when a person first clicked a link */
  clicked_at: string | null;
  /**
   * number of the variant in the A/B test of its campaign; 0: waiting for the winner, -1: held out; null without a
   * test
   */
  variant: number | null;
  /** when the message was reported as undeliverable */
  bounced_at: string | null;
  /** when the object was created */
  created_at: string;
  /** when the object was last changed */
  updated_at: string;
  /** all recipients, that of `to` first */
  recipients: MessageRecipient[];
  /** attached files */
  attachments: MessageAttachment[];
}

/** A change of how people of the account may sign in. */
export interface SignInPatch {
  /** false: a password alone is not enough; only owners may change it, after an owner has signed in with a provider */
  password: boolean;
}

/** An OpenID Connect provider that people of the account sign in with; its client secret is never returned. */
export interface SignInProvider {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the account */
  account_id: number;
  /** name of the provider, as the button on the sign-in page shows it */
  name: string;
  /** issuer of the provider; it cannot be changed */
  issuer: string;
  /** client ID that the provider has given */
  client_id: string;
  /** whether a client secret is stored */
  has_client_secret: boolean;
  /** domains of verified addresses whose owners may join without an invitation */
  domains: string[];
  /** role of those who join by their domain */
  role: "admin" | "author" | "editor" | "viewer";
  /** whether a second factor of the provider replaces the code of the user */
  trust_mfa: boolean;
  /** whether people can sign in with the provider */
  enabled: boolean;
  /** redirect URI to register at the provider */
  redirect_uri: string;
  /** URL that begins a sign-in with the provider */
  sign_in_url: string;
  /** when the object was created */
  created_at: string;
  /** when the object was last changed */
  updated_at: string;
}

/** The result of a test of a provider. */
export interface SignInProviderTest {
  /** whether endpoints, keys, client ID and secret are right */
  ok: boolean;
  /** what is wrong; null if nothing is */
  error: string | null;
}

/** How people of the account may sign in. */
export interface SignInSettings {
  /** whether a password is enough to sign in */
  password: boolean;
}

/** A new JWT. */
export interface SignedIn {
  /** JWT, shown in this response only */
  token: string;
  /** when the token expires */
  expires_at: string;
  /** the user who signed in */
  user: SignedInUser;
}

/** The user who signed in, to whom a new token belongs. */
export interface SignedInUser {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** email address */
  email: string;
  /** name */
  name: string;
  /** role of the user: a built-in name, or the id of an own role */
  role: string;
}

/** An event to simulate for a captured message; `link` is the number of the clicked link, from 1. */
export interface SimulateEventRequest {
  /** event to simulate */
  action: "bounce" | "click" | "complain" | "deliver" | "fail" | "help" | "open" | "reply" | "soft_bounce" | "start" | "stop" | "unsubscribe";
  /** number of the link to click, starting at 1 */
  link?: number;
  /** text of the reply */
  text?: string;
}

/** A request to simulate a flow with one contact. */
export interface SimulateRequest {
  /** id of the contact; absent for a sample contact */
  contact_id?: number | null;
  /** properties of the sample contact */
  contact?: ContactWrite | null;
  /** start of the simulation; default: now */
  start_at?: string | null;
  /** data of the event that starts the flow */
  event?: Record<string, unknown> | null;
  /** assumed events */
  events?: Assumption[] | null;
  /** key of the branch that the contact takes at a random split, by the id of the step */
  branches?: Record<string, string> | null;
  /** latest end of the simulation */
  until?: string | null;
  /** responses of HTTP requests, by step; default: 200 without a body */
  responses?: SimulatedResponse[] | null;
  /** steps to simulate instead of the stored ones */
  steps?: FlowStepWrite[];
}

/** The contact of a simulation, real or a sample contact. */
export interface SimulatedContact {
  /** id of the contact; null for a sample contact */
  id: number | null;
  /** name of the contact */
  name: string;
}

/** The response that a simulation plays for a step that makes an HTTP request. */
export interface SimulatedResponse {
  /** id of the step */
  step: number;
  /** HTTP status; 0: no response in time */
  status?: number;
  /** decoded JSON of the response */
  body?: unknown;
}

/** The result of a simulation of a flow with one contact; nothing was sent or recorded. */
export interface Simulation {
  /** id of the flow */
  flow_id: number;
  /** live version that was simulated; null if the flow is not active or other steps were tried */
  version: number | null;
  /** contact of the simulation */
  contact: SimulatedContact;
  /** time zone for times of day */
  time_zone: string;
  /** when the simulation begins */
  started_at: string;
  /** end of the period; null if unknown */
  until: string;
  /** how the run ends */
  end: SimulationEnd;
  /** entries, oldest first */
  timeline: SimulationEntry[];
  /** limits of the simulation */
  notes: string[];
  /** whole result as text */
  text?: string;
}

/** The end of a simulation; the status is `live` if the contact is still in the flow at the latest end. */
export interface SimulationEnd {
  /** how the run ends */
  status: "completed" | "exited" | "live";
  /** why the contact exited; null if it did not */
  reason: string | null;
  /** when the run ends; null if it does not */
  at: string | null;
  /** id of the step at which it ends; null if there is none */
  step_id: number | null;
  /** description as a sentence */
  description: string;
}

/** An entry in the timeline of a simulation, such as a step that was executed. */
export interface SimulationEntry {
  /** time of the entry */
  at: string;
  /** kind */
  kind: "assumed" | "enter" | "goal" | "message" | "recorded" | "starts" | "step";
  /** description as a sentence */
  description: string;
  /** id of the step; null if there is none */
  step_id?: number | null;
  /** path of the step in the flow */
  path?: string | null;
  /** type */
  type?: string | null;
  /** how the contact left the step, or `waits` */
  outcome?: string | null;
  /** reason */
  reason?: string | null;
  /** label of the branch that the contact took */
  branch?: string | null;
  /** until when the contact waits */
  until?: string | null;
  /** name of the event */
  event?: string | null;
  /** data of the event */
  data?: Record<string, unknown> | null;
  /** for a branch, the result of each filter */
  filters?: SplitReason[];
  /** events that a branch checks, which can be assumed to try the other branch */
  checked_events?: string[];
  /** message that the step creates or that is sent */
  message?: RenderedMessage | null;
}

/** Sender, opt-out text and number of parts of an SMS. */
export interface SmsFacts {
  /** sender; null if none is chosen */
  from: string | null;
  /** opt-out text at the end; null for none */
  opt_out_hint: string | null;
  /** total number of SMS parts; null if not yet known */
  parts: number | null;
  /** whether the count is exact, from rendering every message; null if nothing is known yet */
  is_exact: boolean | null;
}

/** The figures that only the report of an SMS campaign has. */
export interface SmsFigures {
  /** number of accepted SMS parts */
  parts: number;
  /** results by country */
  countries: CountryFigures[];
}

/** A preview of an SMS: its number of parts, its alphabet, and the character that forces UCS-2. */
export interface SmsPreview {
  /** text as it would arrive */
  body: string;
  /** number of SMS parts; null for email */
  segments: number;
  /** alphabet of the SMS */
  alphabet: "GSM-7" | "UCS-2";
  /** number of characters */
  characters: number;
  /** number of units of the alphabet */
  units: number;
  /** number of units left in the last part */
  left: number;
  /** character that requires the larger alphabet; null if there is none */
  forcing: ForcingCharacter | null;
  /** problem; null if there is none */
  problem: string | null;
}

/** The delivery status of SMS. */
export interface SmsStatus {
  /** transport for SMS */
  transport: string;
  /** true unless an obstacle stops all SMS */
  open: boolean;
  /** reasons why all or some SMS wait */
  obstacles: SendingObstacle[];
  /** sending rate */
  rate: SendingRate;
  /** connections to the provider */
  connections: ConnectionCount;
  /** queued messages */
  queue: SendQueue;
  /** senders with a reduced rate, because the provider asked for it */
  senders: ThrottledSender[];
}

/** The totals over the SMS of a campaign. */
export interface SmsTotals {
  /** total number of SMS parts */
  parts?: number;
  /** whether every SMS was rendered; otherwise `parts` is an estimate from those that were */
  is_exact?: boolean;
  /** number of recipients by number of parts */
  by_parts?: Record<string, number>;
  /** number of recipients whose SMS contains characters outside GSM-7 */
  ucs2?: number;
  /** characters outside GSM-7 */
  forcing?: UnicodeCharacter[];
  /** number of characters of the longest SMS */
  characters?: number;
  /** number of recipients by country of their phone number */
  countries?: Record<string, number>;
  /** number of fixed-line numbers */
  fixed_lines?: number;
  /** number of recipients that are skipped because of their number or consent, by reason */
  refused?: Record<string, number>;
  /** number of recipients in quiet hours at the start, whose SMS are sent when those end */
  resting?: number;
}

/** Progress of the audience snapshot; `total` is null until the audience is counted. */
export interface SnapshotProgress {
  /** number of recipients stored so far */
  done: number;
  /** total number of recipients; null until they are counted */
  total: number | null;
}

/** A section of the type `social`. */
export interface SocialSection {
  /** section type */
  type: "social";
  /** properties; `GET /templates/spec` lists their defaults and limits */
  props?: SocialSectionProps | null;
  /** your identifier of the section */
  id?: string | number | null;
  /** styles of the surrounding box; `props` take precedence */
  styles?: SocialSectionStyles | null;
}

/** properties; `GET /templates/spec` lists their defaults and limits */
export interface SocialSectionProps {
  /** links. Leave empty to use the links of your brand. */
  links?: (SocialSectionPropsLink | null)[] | null;
  /** style */
  style?: string | number | boolean | null;
  /** size */
  size?: string | number | boolean | null;
  /** alignment */
  align?: string | number | boolean | null;
  /** hide on */
  hide_on?: string | number | boolean | null;
  /** show only to. Segment filters. */
  show_if?: Filter[] | null;
  /** section name */
  name?: string | number | boolean | null;
}

export interface SocialSectionPropsLink {
  /** platform */
  platform?: string | number | boolean | null;
  /** link */
  url?: string | number | boolean | null;
}

/** styles of the surrounding box; `props` take precedence */
export interface SocialSectionStyles {
  /** background */
  background_color?: string | number | boolean | null;
  /** padding. One to four pixel values, 0 to 96. */
  padding?: string | number | boolean | null;
}

/** A section of the type `spacer`. */
export interface SpacerSection {
  /** section type */
  type: "spacer";
  /** properties; `GET /templates/spec` lists their defaults and limits */
  props?: SpacerSectionProps | null;
  /** your identifier of the section */
  id?: string | number | null;
  /** styles of the surrounding box; `props` take precedence */
  styles?: SpacerSectionStyles | null;
}

/** properties; `GET /templates/spec` lists their defaults and limits */
export interface SpacerSectionProps {
  /** height */
  height?: string | number | boolean | null;
  /** alignment */
  align?: string | number | boolean | null;
  /** hide on */
  hide_on?: string | number | boolean | null;
  /** show only to. Segment filters. */
  show_if?: Filter[] | null;
  /** section name */
  name?: string | number | boolean | null;
}

/** styles of the surrounding box; `props` take precedence */
export interface SpacerSectionStyles {
  /** background */
  background_color?: string | number | boolean | null;
  /** padding. One to four pixel values, 0 to 96. */
  padding?: string | number | boolean | null;
}

/** A filter of a split, and whether it matches the contact; `rows` are the filters of a group. */
export interface SplitReason {
  /** name of the filter */
  name: string;
  /** predicate */
  predicate: string;
  /** value of the filter */
  value: unknown;
  /** description as a sentence */
  sentence: string;
  /** whether the filter matches */
  matches: boolean;
  /** whether this filter determined the result */
  decided: boolean;
  /** actual value of the contact */
  actual: unknown;
  /** the same as text */
  actual_text: string;
  /** filters of the group */
  rows: SplitReason[];
}

/** The size that a test needs to find a branch that is better by 20 % with a probability of 80 %. */
export interface SplitSample {
  /** number of branches that are compared */
  variants: number;
  /** expected rate of conversions */
  rate: number;
  /** whether the rate is that of the last 90 days, not an assumption */
  is_measured: boolean;
  /** contacts that each branch needs; null if more than a billion */
  needed: number | null;
  /** contacts a day who came to the step in the last 30 days, or the flow */
  per_day: number;
  /** days until the smallest branch has them; null without contacts */
  days: number | null;
}

/** A section of the type `split`. */
export interface SplitSection {
  /** section type */
  type: "split";
  /** properties; `GET /templates/spec` lists their defaults and limits */
  props?: SplitSectionProps | null;
  /** your identifier of the section */
  id?: string | number | null;
  /** styles of the surrounding box; `props` take precedence */
  styles?: SplitSectionStyles | null;
}

/** properties; `GET /templates/spec` lists their defaults and limits */
export interface SplitSectionProps {
  /** image */
  src?: string | number | boolean | null;
  /** alt text */
  alt?: string | number | boolean | null;
  /** image position */
  side?: string | number | boolean | null;
  /** widths. Ratio of image to text. */
  ratio?: string | number | boolean | null;
  /** title */
  title?: string | number | boolean | null;
  /** text */
  text?: string | number | boolean | null;
  /** button */
  button?: SplitSectionPropsButton | string | null;
  /** alignment */
  align?: string | number | boolean | null;
  /** hide on */
  hide_on?: string | number | boolean | null;
  /** show only to. Segment filters. */
  show_if?: Filter[] | null;
  /** section name */
  name?: string | number | boolean | null;
}

/** button */
export interface SplitSectionPropsButton {
  /** text */
  text?: string | number | boolean | null;
  /** link */
  href?: string | number | boolean | null;
}

/** styles of the surrounding box; `props` take precedence */
export interface SplitSectionStyles {
  /** background */
  background_color?: string | number | boolean | null;
  /** padding. One to four pixel values, 0 to 96. */
  padding?: string | number | boolean | null;
}

/** The test of a random split: counts, the conclusion, and the winner. */
export interface SplitTestResult {
  /** `decided`: all take the winner */
  state: "decided" | "testing";
  /** what decides */
  metric: "clicks" | "event";
  /** name of the event that is counted */
  event: string | null;
  /** whether the amounts of the events are compared */
  by_amount: boolean;
  /** whether better branches get more of the later contacts */
  uneven: boolean;
  /** who decides */
  decided_by: "person" | "service";
  /** since when runs are counted */
  started_at: string | null;
  /** key of the branch that all take */
  winner: string | null;
  /** `service`, or the user or API key that chose the winner */
  chosen_by: string | null;
  /** when it was chosen */
  chosen_at: string | null;
  /** what the counts say; null without runs */
  decision: ExperimentDecision | null;
  /** counts of each branch */
  variants: SplitVariant[];
}

/** The counts of a branch in its test. */
export interface SplitVariant {
  /** number of the branch, from 1 */
  number: number;
  /** key of the branch */
  key: string;
  /** its name, by default its letter */
  name: string;
  /** share of the contacts who come to the step now that take it, 0 to 1 */
  share: number;
  /** number of runs that took it in the test, which are compared */
  test_recipients: number;
  /** number of those that did what is counted */
  converted: number;
  /** sum of the amounts of their events; 0 if amounts are not compared */
  amount: number;
  /** what is compared: `converted` or `amount`, per run */
  value: number;
  /** probability that it is the best; null without a comparison */
  chance: number | null;
  /** expected loss per run of choosing it; null without a comparison */
  loss: number | null;
}

/** The number of contacts and messages of one step, by what happened to them. */
export interface StepCount {
  /** id of the step */
  step_id: number;
  /** path of the step in the flow */
  path: string;
  /** type */
  type: string;
  /** description of the step */
  summary: string;
  /** contacts that entered */
  entered?: number;
  /** contacts that continued, for steps without branches */
  on?: number;
  /** contacts that continued with the `yes` branch */
  yes?: number;
  /** contacts that continued with the `no` branch */
  no?: number;
  /** contacts that continued, by branch */
  branches?: BranchCount[];
  /** contacts for which the step was skipped */
  skipped?: number;
  /** contacts that exited the flow at the step */
  exited?: number;
  /** contacts that wait at the step */
  waiting?: number;
  /** number of messages sent */
  sent?: number;
  /** number of messages not sent */
  unsent?: number;
  /** why contacts were skipped or exited and why messages were not sent, with counts */
  reasons?: Record<string, number>;
}

/** A key of a step, as a form shows it. */
export interface StepField {
  /** name */
  name: string;
  /** label in the user interface */
  label: string;
  /** type */
  type: string;
  /** whether the field is required before the flow can be activated */
  required: boolean;
  /** help text */
  help: string;
}

/** The visits of a step: `entered` is the sum of `waiting`, `went_on` and `left`. */
export interface StepFigures {
  /** id of the step */
  id: number;
  /** type of the step */
  type: string;
  /** description of the step */
  summary: string;
  /** path of the step in the flow; null if it was removed */
  path: string | null;
  /** whether the step was removed but has contacts, or had some */
  removed: boolean;
  /** contacts that entered */
  entered: RunCount;
  /** entered contacts that wait at the step */
  waiting: RunCount;
  /** all contacts that wait at the step, whenever they entered */
  waiting_now: RunCount;
  /** contacts that continued */
  went_on: RunCount;
  /** contacts that continued with the `yes` branch; null without branches */
  yes: RunCount | null;
  /** contacts that continued with the `no` branch; null without branches */
  no: RunCount | null;
  /** contacts that continued, by branch */
  branches: BranchFigures[];
  /** contacts for which the step was skipped */
  skipped: NumberByReason;
  /** contacts that exited the flow at the step */
  left: NumberByReason;
  /** messages sent by the step; null if it sends none */
  messages: MessageFigures | null;
  /** the test of a `random_split`, of all time; null without one */
  test?: SplitTestResult | null;
  /** what the test of a `random_split` needs, also before it is live; else null */
  sample_size?: SplitSample | null;
}

/** A step type: the keys that identify it, and all keys that it supports. */
export interface StepKind {
  /** type */
  type: string;
  /** label in the user interface */
  label: string;
  /** name of the icon */
  icon: string;
  /** keys that identify a step of this type */
  claims: string[];
  /** all keys of the step */
  keys: string[];
  /** keys of the branches */
  branches: string[];
  /** fields of the step */
  fields: StepField[];
}

/** Whether the database can be written. */
export interface StorageUsage {
  /** true if results can be recorded */
  ok: boolean;
  /** problem; null if there is none */
  text: string | null;
}

/** A copy in the store. */
export interface StoredCopy {
  /** name of the copy, for `campanero restore` */
  name: string;
  /** moment that the data in the copy has */
  taken_at: string;
  /** size in bytes */
  size: number;
  /** false if it has only what changed since the full copy before it */
  full: boolean;
}

/** An address that gets no messages. */
export interface Suppression {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** channel that is suppressed */
  channel: "email" | "sms";
  /** suppressed address; null if it was erased and only its hash is stored */
  address: string | null;
  /** reason */
  reason: "complaint" | "erased" | "hard_bounce" | "manual" | "soft_bounce" | "stop_keyword";
  /** origin of the suppression */
  source: string | null;
  /** response of the server that rejected the message */
  diagnostic: string | null;
  /** note of the person who added it */
  note: string | null;
  /** when the object was created */
  created_at: string;
  /** when the suppression expires; null for never */
  expires_at: string | null;
}

/** An address to suppress, with a reason. */
export interface SuppressionWrite {
  /** email address or phone number */
  address: string;
  /** channel to suppress; default: that of the address */
  channel?: "email" | "phone" | "sms";
  /** reason; default: `manual` */
  reason?: "complaint" | "hard_bounce" | "manual" | "soft_bounce";
  /** response of the server that rejected the message, if there is one */
  diagnostic?: string | null;
  /** note of the person who added it */
  note?: string | null;
  /** when the suppression expires; only for `manual` */
  expires_at?: string | null;
}

/** The content of an email or SMS: subject, body and design. */
export interface Template {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** name */
  name: string | null;
  /** id of the flow to whose step the template belongs; null for a standalone template or one of a campaign */
  flow_id: number | null;
  /** id of the step to which the template belongs; null if there is none */
  action_id: number | null;
  /** channel; cannot be changed */
  channel: "email" | "sms";
  /** subject line, with merge tags */
  subject: string | null;
  /** content: HTML or plain text of an email (the text part beside a design), or the text of an SMS */
  body: string | null;
  /** preview text that mailboxes show after the subject line */
  preheader: string | null;
  /** sender name; null for that of the account */
  from_name: string | null;
  /** sender address; null for that of the account */
  from_email: string | null;
  /** address for replies; null for the sender */
  reply_to: string | null;
  /** design: sections from top to bottom, and the theme */
  design: Design;
  /** merge tags in the template, by name: `default`, `sample`, `required` */
  variables: Record<string, unknown>;
  /** languages that it is translated into, besides the original */
  languages: string[];
  /** when the object was created */
  created_at: string;
  /** when the object was last changed */
  updated_at: string;
}

/** A new template, as the API documents it; all fields are optional. */
export interface TemplateCreate {
  /** subject line, with merge tags */
  subject?: string | null;
  /** content: HTML or plain text of an email (the text part beside a design), or the text of an SMS */
  body?: string | null;
  /** preview text that mailboxes show after the subject line */
  preheader?: string | null;
  /** sender name; null for that of the account */
  from_name?: string | null;
  /** sender address; null for that of the account */
  from_email?: string | null;
  /** address for replies; null for the sender */
  reply_to?: string | null;
  /** design; replaces the whole existing design. Default: one without sections */
  design?: Design | null;
  /** name */
  name?: string | null;
  /** channel; cannot be changed */
  channel?: "email" | "sms";
  /** `updated_at` as last read; if the object has been changed since then, the response is 409 */
  updated_at?: string;
  /** alias of `channel`; beside it, both must be the same */
  channelType?: "email" | "sms";
}

/** The section types of designs, the tags and filters of merge tags, and predefined emails. */
export interface TemplateSpec {
  /** section types and their properties */
  kinds: Record<string, unknown>[];
  /** properties of the theme */
  theme: Record<string, unknown>[];
  /** properties that all sections have */
  common: Record<string, unknown>[];
  /** properties allowed in `styles` */
  styles: Record<string, unknown>[];
  /** names of theme colours */
  colours: string[];
  /** limits */
  limits: Record<string, unknown>;
  /** merge language: tags, filters, roots */
  merge: Record<string, string[]>;
  /** starter designs */
  starters: EmailStarter[];
}

/** The translation of a template into a language, with its texts in reading order. */
export interface TemplateTranslation {
  /** tag of the language (RFC 5646) */
  language: string;
  /** number of texts that are translated */
  translated: number;
  /** number of texts that have changed since they were translated */
  changed: number;
  /** number of texts that are not translated */
  missing: number;
  /** last change of the template, for `updated_at` of a PUT */
  updated_at: string;
  /** texts of the template in reading order */
  texts: TranslatedText[];
}

/** A new or changed template; `updated_at` as last read makes the update fail if the template has changed since. */
export interface TemplateWrite {
  /** subject line, with merge tags */
  subject?: string | null;
  /** content: HTML or plain text of an email (the text part beside a design), or the text of an SMS */
  body?: string | null;
  /** preview text that mailboxes show after the subject line */
  preheader?: string | null;
  /** sender name; null for that of the account */
  from_name?: string | null;
  /** sender address; null for that of the account */
  from_email?: string | null;
  /** address for replies; null for the sender */
  reply_to?: string | null;
  /** design; replaces the whole existing design */
  design?: Design | null;
  /** name */
  name?: string | null;
  /** channel; cannot be changed */
  channel?: "email" | "sms";
  /** `updated_at` as last read; if the object has been changed since then, the response is 409 */
  updated_at?: string;
}

/** The recipients of a test, and the values to show in it. */
export interface TestRequest {
  /** one email address; a list is an alias of `emails` */
  email?: string | string[] | null;
  /** up to five email addresses */
  emails?: string[] | null;
  /** one phone number; a list is an alias of `phones` */
  phone?: string | string[] | null;
  /** up to five phone numbers */
  phones?: string[] | null;
  /** id of the contact whose values are shown, and who is the recipient if no address is given */
  contact_id?: number | null;
  /** values for merge tags such as `{{ data.order }}` */
  data?: Record<string, unknown> | null;
  /** language of the test; absent for the language of the contact */
  language?: string | null;
}

/** The result of a test for one recipient: the id of the queued message, or the error. */
export interface TestResult {
  /** recipient */
  to: string;
  /** email address; null for SMS */
  email: string | null;
  /** phone number; null for email */
  phone: string | null;
  /** true if the test was queued */
  success: boolean;
  /** id of the message; null if there is none */
  message_id: number | null;
  /** error; null if there is none */
  error: string | null;
}

/** The results of a test by recipient, and warnings about unfinished content. */
export interface TestSendResult {
  /** number of tests queued */
  sent: number;
  /** results by recipient */
  results: TestResult[];
  /** warnings, which do not block */
  warnings: PreviewWarning[];
}

/** A section of the type `text`. */
export interface TextSection {
  /** section type */
  type: "text";
  /** properties; `GET /templates/spec` lists their defaults and limits */
  props?: TextSectionProps | null;
  /** your identifier of the section */
  id?: string | number | null;
  /** styles of the surrounding box; `props` take precedence */
  styles?: TextSectionStyles | null;
}

/** properties; `GET /templates/spec` lists their defaults and limits */
export interface TextSectionProps {
  /** text */
  content?: string | number | boolean | null;
  /** colour */
  color?: string | number | boolean | null;
  /** size */
  size?: string | number | boolean | null;
  /** line height */
  line_height?: string | number | boolean | null;
  /** alignment */
  align?: string | number | boolean | null;
  /** hide on */
  hide_on?: string | number | boolean | null;
  /** show only to. Segment filters. */
  show_if?: Filter[] | null;
  /** section name */
  name?: string | number | boolean | null;
}

/** styles of the surrounding box; `props` take precedence */
export interface TextSectionStyles {
  /** background */
  background_color?: string | number | boolean | null;
  /** padding. One to four pixel values, 0 to 96. */
  padding?: string | number | boolean | null;
}

/** The translation of a text (`text`), and the text of which it is a translation (`source`). */
export interface TextTranslation {
  /** text that was translated */
  source: string;
  /** translation */
  text: string;
}

/** A recipient group that is throttled because its servers asked for a lower rate. */
export interface ThrottledGroup {
  /** recipient group: domains whose mail the same organisation receives */
  group: string;
  /** transport, such as `relay` */
  provider: string;
  /** reply that asked for a lower rate */
  text: string;
  /** start of the period */
  since: string;
  /** end of the period; null if unknown */
  until: string | null;
  /** maximum number of concurrent connections */
  connections: number;
}

/** An SMS sender that is throttled because the provider asked for a lower rate. */
export interface ThrottledSender {
  /** sender */
  sender: string;
  /** name of the provider */
  provider: string;
  /** reply that asked for a lower rate */
  text: string;
  /** start of the period */
  since: string;
  /** end of the period; null if unknown */
  until: string | null;
  /** maximum number of concurrent connections */
  connections: number;
}

/** An event of a contact, or a message to the contact. */
export interface TimelineEntry {
  /** `event` or `message` */
  type: "event" | "message";
  /** id of the event or message */
  id: number;
  /** when it happened */
  created_at: string;
  /** the event; null for a message */
  event: RecordedEvent | null;
  /** the message; null for an event */
  message: Message | null;
}

/** A text of a template with its translation. */
export interface TranslatedText {
  /** id of the text: a field, or section and path (`a1b2/props.title`) */
  id: string;
  /** name of the text */
  label: string;
  /** name of its section; empty for a field of the template */
  section: string;
  /** kind of the text: `line`, `text`, `rich`, `html`, `url` or `image` */
  kind: string;
  /** text of the original */
  source: string;
  /** translation; null if there is none */
  text: string | null;
  /** state of the translation; `original`: an image without one, which needs none */
  state: "changed" | "missing" | "original" | "translated";
}

/** A language that a template is translated into, with the number of its texts by state. */
export interface TranslationCounts {
  /** tag of the language (RFC 5646) */
  language: string;
  /** number of texts that are translated */
  translated: number;
  /** number of texts that have changed since they were translated */
  changed: number;
  /** number of texts that are not translated */
  missing: number;
}

/** Translations by the id of the text. */
export interface TranslationWrite {
  /** translations by id of the text; null removes one */
  texts: Record<string, string | null>;
  /** `updated_at` as last read; if the template has changed since then, the response is 409 */
  updated_at?: string;
}

/** The results of the emails that one transport took, or whose sending it failed. */
export interface TransportFigures {
  /** key of the transport, as in messages */
  provider: string;
  /** accepted by the next hop: sent, delivered, bounced and complained */
  accepted: number;
  /** accepted, and later reported as undeliverable */
  bounced: number;
  /** rejected permanently, or given up after retries */
  failed: number;
  /** reported as spam */
  complained: number;
  /** number of people who opened */
  opened: number;
  /** number of people who clicked a link */
  clicked: number;
}

/** The state of one transport of email. */
export interface TransportState {
  /** key of the transport, as in the `provider` of messages */
  key: string;
  /** name; null for the default transport */
  name: string | null;
  /** kind of the transport, such as `relay` */
  kind: string;
  /** true unless it is paused or its hourly limit is used up */
  open: boolean;
  /** why it is not open; null if it is */
  text: string | null;
  /** when it is tried again; null if it is open */
  until: string | null;
  /** maximum number of messages that are sent at the same time */
  connections: number;
  /** maximum number per second; 0 for no limit */
  per_second: number;
  /** maximum number per hour; 0 for no limit */
  per_hour: number;
  /** warm-up; null if it has none or sent nothing today */
  warm_up: TransportWarmUp | null;
}

/** The warm-up of a transport, which limits marketing email. */
export interface TransportWarmUp {
  /** current day of the warm-up */
  day: number;
  /** number of days after which there is no limit */
  days: number;
  /** maximum number of messages today */
  cap: number;
  /** number of messages sent today */
  used: number;
  /** start of the next day */
  until: string;
}

/** The transport of each channel, such as `capture` or `relay`. */
export interface Transports {
  /** transport for email */
  email: string;
  /** transport for SMS */
  sms: string;
}

/** The trigger and audience of a campaign. */
export interface Trigger {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the hidden flow that belongs to the campaign */
  flow_id: number;
  /** event that triggers it; `manual` for a campaign */
  event: string;
  /** id of the segment to send to */
  segment_id: number | null;
  /** id of the list to send to; with a segment, only contacts in both */
  contact_list_id: number | null;
  /** further parts of the audience */
  data: CampaignTriggerData;
  /** number of times that it was triggered */
  triggered_count: number;
  /** when it was last triggered; null for never */
  last_triggered_at: string | null;
  /** when the object was created */
  created_at: string;
  /** when the object was last changed */
  updated_at: string;
}

/** The audience of a campaign; unknown keys are rejected, because ignoring them could change who gets messages. */
export interface TriggerWrite {
  /** event that triggers it; `manual` for a campaign */
  event?: string;
  /** id of the list to send to; with a segment, only contacts in both */
  contact_list_id?: number | null;
  /** id of the segment to send to */
  segment_id?: number | null;
  /** further parts of the audience */
  data?: CampaignTriggerData | null;
}

/** A character that is not in the GSM-7 alphabet, with its Unicode name and how many SMS it makes longer. */
export interface UnicodeCharacter {
  /** character */
  character: string;
  /** name */
  name: string;
  /** number of recipients whose SMS it makes longer */
  count: number;
}

/** An uploaded image. */
export interface Upload {
  /** identifier of the image, for the brand's `logo` and others */
  signed_id: string;
  /** URL of the image */
  url: string;
  /** media type, such as `image/png` */
  content_type: string;
  /** size in bytes */
  bytes: number;
  /** width in pixels; null if unknown */
  width: number | null;
  /** height in pixels; null if unknown */
  height: number | null;
  /** file name */
  filename: string;
}

/** The form fields other than the file. */
export interface UploadForm {
  /** true to keep the original width of an image that is wider than an email */
  full_size?: boolean;
}

/** A user of the account. */
export interface User {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the account */
  account_id: number;
  /** email address that the user signs in with, in lower case; unique in the installation */
  email: string;
  /** name shown to other users */
  name: string;
  /**
   * role of the user: viewers read, authors also write, editors also send, admins and owners may do everything, but
   * only owners manage owners; the id of an own role (`/roles`) as a text
   */
  role: string;
  /** name of an own role; the same as `role` for a built-in one */
  role_name: string;
  /** whether signing in requires a second factor */
  otp: boolean;
  /** when the user was disabled; null if enabled */
  disabled_at: string | null;
  /** when the user last signed in; null for never */
  last_login_at: string | null;
  /** when the object was created */
  created_at: string;
  /** when the object was last changed */
  updated_at: string;
}

/** The fields of a user that owners and admins may change; fields that are not given stay unchanged. */
export interface UserPatch {
  /** name shown to other users */
  name?: string;
  /**
   * role of the user: viewers read, authors also write, editors also send, admins and owners may do everything, but
   * only owners manage owners; or the id or name of an own role (`/roles`)
   */
  role?: string;
  /** true to disable the user, who can then no longer sign in */
  disabled?: boolean;
  /** new password of at least 10 characters; ends all sessions of the user */
  password?: string;
  /** false removes the second factor of a user who lost it; the user sets up a new one */
  otp?: false;
}

/** An active session of a user: the sign-in of a browser or of a program. */
export interface UserSession {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** `browser`, or `token` for a program */
  kind: "browser" | "token";
  /** whether it is the session of this request */
  current: boolean;
  /** name that the user gave the device; null if the user gave it none */
  name: string | null;
  /**
   * how the user signed in: `password`, `password_code`, `password_passkey`, `passkey` or `invitation`; null if the
   * session began before this was recorded
   */
  method: string | null;
  /** full IP address from which the user signed in; null if unknown */
  ip: string | null;
  /** full IP address of the last use; null if it was not used since the sign-in */
  last_ip: string | null;
  /** User-Agent header at sign-in */
  user_agent: string | null;
  /** when the session was last used, to within five minutes */
  last_seen_at: string;
  /** when the session expires; a browser session is extended by use, to 30 days at most */
  expires_at: string;
  /** when the user signed in */
  created_at: string;
}

/** The name of a session's device, which later sessions from the device have, too. */
export interface UserSessionPatch {
  /** name of the device; null or empty to remove it */
  name?: string | null;
}

/** A new user. */
export interface UserWithPassword {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the account */
  account_id: number;
  /** email address that the user signs in with, in lower case; unique in the installation */
  email: string;
  /** name shown to other users */
  name: string;
  /**
   * role of the user: viewers read, authors also write, editors also send, admins and owners may do everything, but
   * only owners manage owners; the id of an own role (`/roles`) as a text
   */
  role: string;
  /** name of an own role; the same as `role` for a built-in one */
  role_name: string;
  /** whether signing in requires a second factor */
  otp: boolean;
  /** when the user was disabled; null if enabled */
  disabled_at: string | null;
  /** when the user last signed in; null for never */
  last_login_at: string | null;
  /** when the object was created */
  created_at: string;
  /** when the object was last changed */
  updated_at: string;
  /** generated password; null if the request contained one */
  password: string | null;
}

/** The fields of a new user; without `password`, a password is generated and returned in the response only. */
export interface UserWrite {
  /** email address that the user signs in with, in lower case; unique in the installation */
  email: string;
  /**
   * role of the user: viewers read, authors also write, editors also send, admins and owners may do everything, but
   * only owners manage owners; or the id or name of an own role (`/roles`)
   */
  role: string;
  /** name shown to other users; default: the part of the email address before the `@` */
  name?: string;
  /** password of at least 10 characters; if absent, one is generated and returned in this response only */
  password?: string;
}

/** The UTM parameters of links; one that is null is not added. */
export interface Utm {
  /** `utm_source`, such as `newsletter` */
  source: string | null;
  /** `utm_medium`, such as `email` */
  medium: string | null;
  /** `utm_campaign`, such as `{{ campaign.name }}` */
  campaign: string | null;
  /** `utm_term` */
  term: string | null;
  /** `utm_content` */
  content: string | null;
}

/** The UTM parameters of links; one without a value is not added. */
export interface UtmWrite {
  /** `utm_source`, such as `newsletter` */
  source?: string | null;
  /** `utm_medium`, such as `email` */
  medium?: string | null;
  /** `utm_campaign`, such as `{{ campaign.name }}` */
  campaign?: string | null;
  /** `utm_term` */
  term?: string | null;
  /** `utm_content` */
  content?: string | null;
}

/** A variant of an A/B test. */
export interface Variant {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** number from 1; variant 1 is the campaign's own content */
  number: number;
  /** name */
  name: string | null;
  /** id of the template with its own texts; for variant 1 the campaign's */
  template_id: number;
  /** subject line, with merge tags */
  subject: string | null;
  /** preview text that mailboxes show after the subject line */
  preheader: string | null;
  /** sender name; null for that of the account */
  from_name: string | null;
  /** sender address; null for that of the account */
  from_email: string | null;
  /** address for replies; null for the sender */
  reply_to: string | null;
  /** whether it has a body or design of its own */
  has_own_content: boolean;
  /** minutes from the start of the campaign to its first message */
  send_after_minutes: number;
}

/** The counts of a variant. `recipients` is the sum of `statuses`. */
export interface VariantResult {
  /** number of the variant, from 1 */
  number: number;
  /** its name, by default its letter */
  name: string;
  /** fields that it has itself; `content`: body and design */
  differences: string[];
  /** number of recipients, with those who got it as the winner */
  recipients: number;
  /** number of its messages by status */
  statuses: Record<string, number>;
  /** number of recipients who opened it (estimated) */
  opened: number;
  /** number of recipients who clicked */
  clicked: number;
  /** number of recipients in the test, which are compared */
  test_recipients: number;
  /** number of those who did what is counted */
  converted: number;
  /** sum of the amounts of their events; 0 if amounts are not compared */
  amount: number;
  /** what is compared: `converted` or `amount`, per recipient */
  value: number;
  /** probability that it is the best; null before the send */
  chance: number | null;
  /** expected loss per recipient of choosing it */
  loss: number | null;
}

/** A variant in a request. */
export interface VariantWrite {
  /** id of the variant to keep; without it, a new variant is added */
  id?: number;
  /** name for reports; null: A, B and so on */
  name?: string | null;
  /** subject; null: that of the campaign */
  subject?: string | null;
  /** preview text; null: that of the campaign */
  preheader?: string | null;
  /** From name; null: that of the campaign */
  from_name?: string | null;
  /** From address; null: that of the campaign */
  from_email?: string | null;
  /** Reply-To; null: that of the campaign */
  reply_to?: string | null;
  /** body; null, with an empty design: the content of the campaign */
  body?: string | null;
  /** design; null, without a body: the content of the campaign */
  design?: Design | null;
  /** minutes from the start of the campaign to the first message of this variant */
  send_after_minutes?: number;
}

/** A section of the type `video`. */
export interface VideoSection {
  /** section type */
  type: "video";
  /** properties; `GET /templates/spec` lists their defaults and limits */
  props?: VideoSectionProps | null;
  /** your identifier of the section */
  id?: string | number | null;
  /** styles of the surrounding box; `props` take precedence */
  styles?: VideoSectionStyles | null;
}

/** properties; `GET /templates/spec` lists their defaults and limits */
export interface VideoSectionProps {
  /** link */
  href?: string | number | boolean | null;
  /** thumbnail */
  thumbnail?: string | number | boolean | null;
  /** show play button */
  play_badge?: string | number | boolean | null;
  /** caption */
  caption?: string | number | boolean | null;
  /** alignment */
  align?: string | number | boolean | null;
  /** hide on */
  hide_on?: string | number | boolean | null;
  /** show only to. Segment filters. */
  show_if?: Filter[] | null;
  /** section name */
  name?: string | number | boolean | null;
}

/** styles of the surrounding box; `props` take precedence */
export interface VideoSectionStyles {
  /** background */
  background_color?: string | number | boolean | null;
  /** padding. One to four pixel values, 0 to 96. */
  padding?: string | number | boolean | null;
}

/** A new sending domain in warm-up: direct delivery from the domain has a daily limit, which grows over time. */
export interface WarmUp {
  /** sending domain */
  domain: string;
  /** current day of the warm-up */
  day: number;
  /** number of days after which there is no limit */
  days: number;
  /** maximum number of messages today */
  cap: number;
  /** number of messages sent today */
  used: number;
  /** end of the period; null if unknown */
  until: string;
}

/** A URL to which events are posted. */
export interface Webhook {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the account */
  account_id: number;
  /** URL to which events are posted */
  url: string;
  /** names of the events to send; empty for all */
  events: string[];
  /** whether events are sent to the webhook */
  enabled: boolean;
  /** number of deliveries that wait or are in progress */
  pending_count: number;
  /** since when all deliveries have failed; null if the last one succeeded */
  failing_since: string | null;
  /** when the service disabled the webhook */
  disabled_at: string | null;
  /** reason */
  disabled_reason: "failing" | "gone" | null;
  /** until when the previous secret also signs; null if it does not */
  old_secret_until: string | null;
  /** when the object was created */
  created_at: string;
  /** when the object was last changed */
  updated_at: string;
}

/** The delivery of one event to one webhook, with the response to the last attempt. */
export interface WebhookDelivery {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the webhook */
  webhook_id: number;
  /** id of the event */
  event_id: number;
  /** name of the event; null once the event is deleted */
  event: string | null;
  /** status */
  status: "cancelled" | "delivered" | "failed" | "pending";
  /** number of attempts */
  attempts: number;
  /** response status; null if there was no response */
  response_status: number | null;
  /** beginning of the response body */
  response_text: string | null;
  /** why there was no response; null if there was one */
  error: string | null;
  /** duration in milliseconds */
  duration_ms: number | null;
  /** time of the next attempt; null if there is none */
  next_attempt_at: string | null;
  /** time of the last attempt; null if there was none */
  last_attempt_at: string | null;
  /** when the object was created */
  created_at: string;
  /** when the object was last changed */
  updated_at: string;
}

/** A change of a webhook; absent fields are left unchanged. */
export interface WebhookPatch {
  /** URL to which events are posted */
  url?: string;
  /** names of the events to send; empty or containing `*` for all */
  events?: string[] | null;
  /** whether events are sent to the webhook */
  enabled?: boolean | null;
}

/** The result of sending failed deliveries again. */
export interface WebhookReplayResult {
  /** number of deliveries to repeat */
  replayed: number;
}

/** A request to send a test event to a webhook. */
export interface WebhookTest {
  /** name of the event to send; default: one to which the webhook subscribes */
  event?: string | null;
}

/** The response of a webhook to a sample event. */
export interface WebhookTestResult {
  /** true if the delivery was accepted */
  ok: boolean;
  /** response status; null if there was no response */
  response_status: number | null;
  /** beginning of the response body */
  response_text: string | null;
  /** why there was no response; null if there was one */
  error: string | null;
  /** duration in milliseconds */
  duration_ms: number | null;
  /** sample event that was sent */
  event: RecordedEvent;
}

/** A webhook with its new secret, which is shown once. */
export interface WebhookWithSecret {
  /** unique id; ids ascend and are never reused */
  id: number;
  /** id of the account */
  account_id: number;
  /** URL to which events are posted */
  url: string;
  /** names of the events to send; empty for all */
  events: string[];
  /** whether events are sent to the webhook */
  enabled: boolean;
  /** number of deliveries that wait or are in progress */
  pending_count: number;
  /** since when all deliveries have failed; null if the last one succeeded */
  failing_since: string | null;
  /** when the service disabled the webhook */
  disabled_at: string | null;
  /** reason */
  disabled_reason: "failing" | "gone" | null;
  /** until when the previous secret also signs; null if it does not */
  old_secret_until: string | null;
  /** when the object was created */
  created_at: string;
  /** when the object was last changed */
  updated_at: string;
  /** secret with which deliveries are signed, shown in this response only */
  secret: string;
}

/** A new webhook; it receives all events if `events` is absent, null, empty or contains `*`. */
export interface WebhookWrite {
  /** URL to which events are posted */
  url: string;
  /** names of the events to send; absent or containing `*` for all */
  events?: string[] | null;
  /** whether events are sent to the webhook */
  enabled?: boolean | null;
}

/** The number of recipients by where their time zone comes from: the first of these that is known. */
export interface ZoneSources {
  /** from the custom field `time_zone` */
  data: number;
  /** from the phone number */
  phone: number;
  /** from the country */
  country: number;
  /** unknown, so that of the account */
  account: number;
}

/** Parameters of `listMessages`. */
export interface ListMessagesQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
  /** only messages from this kind of source */
  source_type?: "campaign" | "flow" | "system" | "test" | "transactional";
  /** only those of this channel */
  channel?: "email" | "sms";
  /** only those with this status */
  status?: "bounced" | "cancelled" | "complained" | "delivered" | "failed" | "held" | "queued" | "sending" | "sent" | "skipped" | "uncertain";
  /** only messages to exactly this recipient */
  to?: string;
  /** only messages to this contact */
  contact_id?: number;
  /** only messages of this campaign */
  campaign_id?: number;
  /** only messages of this flow */
  flow_id?: number;
  /** true: only tests; false: no tests */
  test?: boolean;
  /** only those created at or after this time; a date begins at 00:00 in the account's time zone */
  created_after?: string;
  /** only those created before this time; a date begins at 00:00 in the account's time zone */
  created_before?: string;
}

/** Parameters of `listContactConversation`. */
export interface ListContactConversationQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
}

/** Parameters of `listIncoming`. */
export interface ListIncomingQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
  /** only messages of this kind */
  kind?: "help" | "keyword" | "message" | "refusal" | "start" | "stop";
  /** only those of this contact */
  contact_id?: number;
  /** only messages from exactly this number */
  from?: string;
  /** true: only refusals in free text that no user has reviewed; false: all others */
  unseen?: boolean;
  /** only those created at or after this time; a date begins at 00:00 in the account's time zone */
  created_after?: string;
  /** only those created before this time; a date begins at 00:00 in the account's time zone */
  created_before?: string;
}

/** Parameters of `listCampaigns`. */
export interface ListCampaignsQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
  /** only campaigns with this status; `live` is `active`, `cancelled` and `scheduled` select by `phase` */
  status?: "active" | "cancelled" | "completed" | "draft" | "live" | "paused" | "scheduled";
  /** only campaigns in this phase */
  phase?: "cancelled" | "completed" | "draft" | "holding" | "paused" | "scheduled" | "sending";
  /** only those of this channel */
  channel?: "email" | "sms";
  /** search words for name and subject */
  search?: string;
  /** only campaigns with this approval state */
  approval_state?: "approved" | "pending_review" | "rejected";
  /** true: only campaigns that wait for approval; false: only others */
  awaiting_approval?: boolean;
}

/** Parameters of `listCampaignRecipients`. */
export interface ListCampaignRecipientsQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
  /** only those with this status */
  status?: "bounced" | "cancelled" | "complained" | "delivered" | "failed" | "held" | "queued" | "sending" | "sent" | "skipped" | "uncertain";
  /** only messages opened by people, only by machines, or never opened though delivered */
  opened?: "machines" | "never" | "people";
  /** only messages clicked by people, only by machines, or never clicked though delivered */
  clicked?: "machines" | "never" | "people";
  /** only messages in which the link with this number was clicked */
  link?: number;
  /** only recipients at this mailbox provider */
  domain?: string;
  /** only recipients in the country with this two-letter code */
  country?: string;
  /** only messages with this problem, by its `key` */
  problem?: string;
  /** true: only messages that are not yet final; false: only final ones */
  pending?: boolean;
  /** true: only messages accepted by the next hop; false: only others */
  accepted?: boolean;
  /** true: only messages that led to an opt-out; false: only others */
  unsubscribed?: boolean;
  /** true: only emails with a recorded reply; false: only others */
  replied?: boolean;
  /** only those of this contact */
  contact_id?: number;
  /** only those of this variant of an A/B test; 0: waiting for the winner, -1: held out */
  variant?: number;
}

/** Parameters of `explainCampaignRecipient`. */
export interface ExplainCampaignRecipientQuery {
  /** id of the contact to explain; required */
  contact_id: number;
}

/** Parameters of `listCampaignOccurrences`. */
export interface ListCampaignOccurrencesQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
}

/** Parameters of `listContacts`. */
export interface ListContactsQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
  /** search words: prefixes of names and of email addresses and their parts, or digits of phone numbers */
  search?: string;
  /** same as `search` */
  q?: string;
  /** same as `search` */
  query?: string;
  /** only contacts in this list */
  list_id?: number;
  /** only contacts with this tag */
  tag?: string;
  /** only contacts in this segment */
  segment_id?: number;
  /** only contacts with exactly this source */
  source?: string;
  /** true: only contacts subscribed by email; false: only others */
  subscribed_email?: boolean;
  /** true: only contacts subscribed by phone; false: only others */
  subscribed_phone?: boolean;
  /** true: only contacts that can be sent marketing email; false: only others */
  sendable_email?: boolean;
  /** true: only contacts that can be sent marketing SMS; false: only others */
  sendable_phone?: boolean;
  /**
   * only contacts in this state. Each contact is in one state, that of its email addresses, or of its phone numbers
   * if it has no email address: `subscribed`, `suppressed`, `unsubscribed` (opted out), or `not_subscribed` (never
   * opted in). Of several addresses, one that is subscribed and not suppressed decides, then one that is suppressed
   */
  status?: "not_subscribed" | "subscribed" | "suppressed" | "unsubscribed";
  /** only those created at or after this time; a date begins at 00:00 in the account's time zone */
  created_after?: string;
  /** only those created before this time; a date begins at 00:00 in the account's time zone */
  created_before?: string;
  /** only contacts changed at or after this time or date */
  updated_after?: string;
  /** only contacts changed before this time or date */
  updated_before?: string;
}

/** Parameters of `searchContacts`. */
export interface SearchContactsQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
  /** search words, as in `search` of the list of contacts; required */
  q: string;
}

/** Parameters of `deleteContact`. */
export interface DeleteContactQuery {
  /** true to remove all traces of the contact and suppress its addresses */
  erase?: boolean;
}

/** Parameters of `listContactTimeline`. */
export interface ListContactTimelineQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
}

/** Parameters of `listContactConsents`. */
export interface ListContactConsentsQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
}

/** Parameters of `listSuppressions`. */
export interface ListSuppressionsQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
  /** only suppressions with this reason */
  reason?: "complaint" | "erased" | "hard_bounce" | "manual" | "soft_bounce" | "stop_keyword";
  /** only those of this channel */
  channel?: "email" | "phone" | "sms";
  /** only exactly this address */
  address?: string;
  /** part of the address */
  search?: string;
  /** only those created at or after this time; a date begins at 00:00 in the account's time zone */
  created_after?: string;
  /** only those created before this time; a date begins at 00:00 in the account's time zone */
  created_before?: string;
}

/** Parameters of `liftSuppression`. */
export interface LiftSuppressionQuery {
  /** why the suppression is lifted; required in the body or in the query */
  reason?: string;
}

/** Parameters of `listLists`. */
export interface ListListsQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
  /** search words for the name */
  search?: string;
}

/** Parameters of `listSegments`. */
export interface ListSegmentsQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
  /** search words for the name */
  search?: string;
}

/** Parameters of `explainSegment`. */
export interface ExplainSegmentQuery {
  /** id of the contact to explain; required */
  contact_id: number;
}

/** Parameters of `listImports`. */
export interface ListImportsQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
  /** only imports of this kind */
  resource?: "contacts" | "suppressions";
  /** only those with this status */
  status?: "cancelled" | "complete" | "failed" | "pending" | "processing";
}

/** Parameters of `createImport`. */
export interface CreateImportQuery {
  /** true to only report what would be done */
  dry_run?: boolean;
}

/** Parameters of `exportContactsCsv`. */
export interface ExportContactsCsvQuery {
  /** search words: prefixes of names and of email addresses and their parts, or digits of phone numbers */
  search?: string;
  /** same as `search` */
  q?: string;
  /** same as `search` */
  query?: string;
  /** only contacts in this list */
  list_id?: number;
  /** only contacts with this tag */
  tag?: string;
  /** only contacts in this segment */
  segment_id?: number;
  /** only contacts with exactly this source */
  source?: string;
  /** true: only contacts subscribed by email; false: only others */
  subscribed_email?: boolean;
  /** true: only contacts subscribed by phone; false: only others */
  subscribed_phone?: boolean;
  /** true: only contacts that can be sent marketing email; false: only others */
  sendable_email?: boolean;
  /** true: only contacts that can be sent marketing SMS; false: only others */
  sendable_phone?: boolean;
  /**
   * only contacts in this state. Each contact is in one state, that of its email addresses, or of its phone numbers
   * if it has no email address: `subscribed`, `suppressed`, `unsubscribed` (opted out), or `not_subscribed` (never
   * opted in). Of several addresses, one that is subscribed and not suppressed decides, then one that is suppressed
   */
  status?: "not_subscribed" | "subscribed" | "suppressed" | "unsubscribed";
  /** only those created at or after this time; a date begins at 00:00 in the account's time zone */
  created_after?: string;
  /** only those created before this time; a date begins at 00:00 in the account's time zone */
  created_before?: string;
  /** only contacts changed at or after this time or date */
  updated_after?: string;
  /** only contacts changed before this time or date */
  updated_before?: string;
  /** whether a CSV file begins with a byte order mark */
  bom?: boolean;
}

/** Parameters of `exportContactsJsonl`. */
export interface ExportContactsJsonlQuery {
  /** search words: prefixes of names and of email addresses and their parts, or digits of phone numbers */
  search?: string;
  /** same as `search` */
  q?: string;
  /** same as `search` */
  query?: string;
  /** only contacts in this list */
  list_id?: number;
  /** only contacts with this tag */
  tag?: string;
  /** only contacts in this segment */
  segment_id?: number;
  /** only contacts with exactly this source */
  source?: string;
  /** true: only contacts subscribed by email; false: only others */
  subscribed_email?: boolean;
  /** true: only contacts subscribed by phone; false: only others */
  subscribed_phone?: boolean;
  /** true: only contacts that can be sent marketing email; false: only others */
  sendable_email?: boolean;
  /** true: only contacts that can be sent marketing SMS; false: only others */
  sendable_phone?: boolean;
  /**
   * only contacts in this state. Each contact is in one state, that of its email addresses, or of its phone numbers
   * if it has no email address: `subscribed`, `suppressed`, `unsubscribed` (opted out), or `not_subscribed` (never
   * opted in). Of several addresses, one that is subscribed and not suppressed decides, then one that is suppressed
   */
  status?: "not_subscribed" | "subscribed" | "suppressed" | "unsubscribed";
  /** only those created at or after this time; a date begins at 00:00 in the account's time zone */
  created_after?: string;
  /** only those created before this time; a date begins at 00:00 in the account's time zone */
  created_before?: string;
  /** only contacts changed at or after this time or date */
  updated_after?: string;
  /** only contacts changed before this time or date */
  updated_before?: string;
  /** whether a CSV file begins with a byte order mark */
  bom?: boolean;
}

/** Parameters of `exportEventsCsv`. */
export interface ExportEventsCsvQuery {
  /** only events of this name */
  event?: string;
  /** only events of this contact */
  contact_id?: number;
  /** only those created at or after this time; a date begins at 00:00 in the account's time zone */
  created_after?: string;
  /** only those created before this time; a date begins at 00:00 in the account's time zone */
  created_before?: string;
  /** only events with exactly this `resource_uid` */
  resource_uid?: string;
  /** only events with this `resource_name` */
  resource_name?: string;
  /** true: only tests; false: no tests */
  test?: boolean;
  /** whether a CSV file begins with a byte order mark */
  bom?: boolean;
}

/** Parameters of `exportEventsJsonl`. */
export interface ExportEventsJsonlQuery {
  /** only events of this name */
  event?: string;
  /** only events of this contact */
  contact_id?: number;
  /** only those created at or after this time; a date begins at 00:00 in the account's time zone */
  created_after?: string;
  /** only those created before this time; a date begins at 00:00 in the account's time zone */
  created_before?: string;
  /** only events with exactly this `resource_uid` */
  resource_uid?: string;
  /** only events with this `resource_name` */
  resource_name?: string;
  /** true: only tests; false: no tests */
  test?: boolean;
  /** whether a CSV file begins with a byte order mark */
  bom?: boolean;
}

/** Parameters of `exportMessagesCsv`. */
export interface ExportMessagesCsvQuery {
  /** only messages from this kind of source */
  source_type?: "campaign" | "flow" | "system" | "test" | "transactional";
  /** only those of this channel */
  channel?: "email" | "sms";
  /** only those with this status */
  status?: "bounced" | "cancelled" | "complained" | "delivered" | "failed" | "held" | "queued" | "sending" | "sent" | "skipped" | "uncertain";
  /** only messages to exactly this recipient */
  to?: string;
  /** only messages to this contact */
  contact_id?: number;
  /** only messages of this campaign */
  campaign_id?: number;
  /** only messages of this flow */
  flow_id?: number;
  /** true: only tests; false: no tests */
  test?: boolean;
  /** only those created at or after this time; a date begins at 00:00 in the account's time zone */
  created_after?: string;
  /** only those created before this time; a date begins at 00:00 in the account's time zone */
  created_before?: string;
  /** whether a CSV file begins with a byte order mark */
  bom?: boolean;
}

/** Parameters of `exportMessagesJsonl`. */
export interface ExportMessagesJsonlQuery {
  /** only messages from this kind of source */
  source_type?: "campaign" | "flow" | "system" | "test" | "transactional";
  /** only those of this channel */
  channel?: "email" | "sms";
  /** only those with this status */
  status?: "bounced" | "cancelled" | "complained" | "delivered" | "failed" | "held" | "queued" | "sending" | "sent" | "skipped" | "uncertain";
  /** only messages to exactly this recipient */
  to?: string;
  /** only messages to this contact */
  contact_id?: number;
  /** only messages of this campaign */
  campaign_id?: number;
  /** only messages of this flow */
  flow_id?: number;
  /** true: only tests; false: no tests */
  test?: boolean;
  /** only those created at or after this time; a date begins at 00:00 in the account's time zone */
  created_after?: string;
  /** only those created before this time; a date begins at 00:00 in the account's time zone */
  created_before?: string;
  /** whether a CSV file begins with a byte order mark */
  bom?: boolean;
}

/** Parameters of `exportFlowRunsCsv`. */
export interface ExportFlowRunsCsvQuery {
  /** only those with this status */
  status?: "completed" | "exited" | "ignored" | "live";
  /** only runs that reached this step */
  step?: number;
  /** with `step`: only runs that left it with this outcome, or wait there */
  outcome?: string;
  /** with `step`: only runs whose message from it has this status */
  message?: "accepted" | "any" | "clicked" | "opened" | "pending" | "bounced" | "cancelled" | "complained" | "delivered" | "failed" | "held" | "queued" | "sending" | "sent" | "skipped" | "uncertain";
  /** with `step`: why it was skipped or left; otherwise why the run ended; empty for no reason */
  reason?: string;
  /** only those of this contact */
  contact_id?: number;
  /** true: only tests; false: no tests */
  test?: boolean;
  /** only runs that started at or after this time, or reached the step, if one is given */
  since?: string;
  /** whether a CSV file begins with a byte order mark */
  bom?: boolean;
}

/** Parameters of `listForms`. */
export interface ListFormsQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
  /** text that the name contains */
  search?: string;
}

/** Parameters of `listTemplates`. */
export interface ListTemplatesQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
  /** true: only templates that belong to no campaign or flow; false: only others */
  standalone?: boolean;
  /** only those of this channel */
  channel?: "email" | "sms";
  /** search words for name and subject */
  search?: string;
}

/** Parameters of `listTemplateTranslations`. */
export interface ListTemplateTranslationsQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
}

/** Parameters of `listFlows`. */
export interface ListFlowsQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
  /** only those with this status */
  status?: "active" | "archived" | "draft" | "live" | "paused";
  /** only flows that this event starts */
  event?: string;
  /** search words for the name */
  search?: string;
}

/** Parameters of `listFlowScriptResults`. */
export interface ListFlowScriptResultsQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
}

/** Parameters of `getFlowReport`. */
export interface GetFlowReportQuery {
  /** period of the report, in days */
  range?: "30d" | "7d" | "all";
}

/** Parameters of `listFlowRuns`. */
export interface ListFlowRunsQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
  /** only those with this status */
  status?: "completed" | "exited" | "ignored" | "live";
  /** only runs that reached this step */
  step?: number;
  /** with `step`: only runs that left it with this outcome, or wait there */
  outcome?: string;
  /** with `step`: only runs whose message from it has this status */
  message?: "accepted" | "any" | "clicked" | "opened" | "pending" | "bounced" | "cancelled" | "complained" | "delivered" | "failed" | "held" | "queued" | "sending" | "sent" | "skipped" | "uncertain";
  /** with `step`: why it was skipped or left; otherwise why the run ended; empty for no reason */
  reason?: string;
  /** only those of this contact */
  contact_id?: number;
  /** true: only tests; false: no tests */
  test?: boolean;
  /** only runs that started at or after this time, or reached the step, if one is given */
  since?: string;
}

/** Parameters of `listContactRuns`. */
export interface ListContactRunsQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
  /** only those with this status */
  status?: "completed" | "exited" | "ignored" | "live";
}

/** Parameters of `listCaptured`. */
export interface ListCapturedQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
  /** search words for recipient, subject and SMS text */
  search?: string;
  /** only those of this channel */
  channel?: "email" | "sms";
  /** only those of this message */
  message_id?: number;
}

/** Parameters of `listDomains`. */
export interface ListDomainsQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
}

/** Parameters of `listUsers`. */
export interface ListUsersQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
  /** true: only disabled users; false: only enabled users */
  disabled?: boolean;
  /** only users with this role */
  role?: string;
}

/** Parameters of `listApiKeys`. */
export interface ListApiKeysQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
}

/** Parameters of `listAuditEntries`. */
export interface ListAuditEntriesQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
  /** only entries of this user or key, such as `user:7` or `key:3` */
  actor?: string;
  /** only entries with this action, such as `campaign_send` */
  action?: string;
  /** only entries about this object, such as `campaign:3` */
  subject?: string;
  /** only those created at or after this time; a date begins at 00:00 in the account's time zone */
  created_after?: string;
  /** only those created before this time; a date begins at 00:00 in the account's time zone */
  created_before?: string;
}

/** Parameters of `listOwnSessions`. */
export interface ListOwnSessionsQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
}

/** Parameters of `listOwnPasskeys`. */
export interface ListOwnPasskeysQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
}

/** Parameters of `listSignInProviders`. */
export interface ListSignInProvidersQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
}

/** Parameters of `listOwnIdentities`. */
export interface ListOwnIdentitiesQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
}

/** Parameters of `listRoles`. */
export interface ListRolesQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
}

/** Parameters of `deleteRole`. */
export interface DeleteRoleQuery {
  /** role that the users and invitations get: a built-in name, or an id or name of an own role */
  replacement?: string | null;
}

/** Parameters of `listInvitations`. */
export interface ListInvitationsQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
}

/** Parameters of `listProposals`. */
export interface ListProposalsQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
  /** only proposals in this state */
  state?: "approved" | "open" | "returned" | "withdrawn";
  /** only proposals of this kind */
  kind?: "change_flow" | "change_segment" | "change_template" | "send_campaign" | "start_flow";
}

/** Parameters of `listEvents`. */
export interface ListEventsQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
  /** only events of this name */
  event?: string;
  /** only events of this contact */
  contact_id?: number;
  /** only those created at or after this time; a date begins at 00:00 in the account's time zone */
  created_after?: string;
  /** only those created before this time; a date begins at 00:00 in the account's time zone */
  created_before?: string;
  /** only events with exactly this `resource_uid` */
  resource_uid?: string;
  /** only events with this `resource_name` */
  resource_name?: string;
  /** true: only tests; false: no tests */
  test?: boolean;
}

/** Parameters of `listWebhooks`. */
export interface ListWebhooksQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
  /** true: only enabled webhooks; false: only disabled ones */
  enabled?: boolean;
}

/** Parameters of `listWebhookDeliveries`. */
export interface ListWebhookDeliveriesQuery {
  /** page number, starting at 1 */
  page?: number;
  /** number of objects per page; above 100 counts as 100 */
  limit?: number;
  /** same as `limit`, which takes precedence */
  per_page?: number;
  /** same as `limit`; both `limit` and `per_page` take precedence */
  per?: number;
  /** only those with this status */
  status?: "cancelled" | "delivered" | "failed" | "pending";
  /** only deliveries of events with this name */
  event?: string;
  /** only deliveries of this event */
  event_id?: number;
}

export interface SubmitFormBody {
  /** email address; this or `phone` is required */
  email?: string;
  /** phone number, such as `+14155550123` */
  phone?: string;
  /** first name, if the form has this field */
  first_name?: string;
  /** last name, if the form has this field */
  last_name?: string;
  /** must be empty: the field is hidden, and only bots fill it in */
  website?: string;
  /** values of the other fields, by name; an array for `checkboxes` */
  data?: Record<string, unknown>;
  /** ids of the lists that the contact chose from the form's `topic_ids`; others are ignored */
  topics?: number[];
}

export interface SubmitFormResult {
  /** always true; reveals nothing about the address */
  accepted: true;
  /**
   * `email` with the domain of a large mailbox provider, if its own is probably a typo of it, such as gmail.con;
   * ask the visitor. The address is accepted as it is.
   */
  suggested_email: string | null;
}

export interface GetHealthzResult {
  /** always `ok` */
  status: "ok";
}

export interface GetReadyzResult {
  /** always `ready` */
  status: "ready";
}
