"""Columns and indexes of every table, and nothing else."""

from appliance.tables.account import Account, ApiKey, Audit, Idempotency, Session, Setting, User
from appliance.tables.acts import CrowdAct, CrowdPart
from appliance.tables.contact import (
    Channel,
    Consent,
    Contact,
    ContactList,
    ListRefusal,
    Membership,
    OptOut,
    Segment,
    Suppression,
)
from appliance.tables.content import Brand, DomainKey, Media, SendingDomain, Template, TemplateRevision
from appliance.tables.conversation import Incoming, Receipt
from appliance.tables.direct import MailPolicy, WarmUpDay
from appliance.tables.feedback import Returned, Told
from appliance.tables.flow import Campaign, Cursor, Flow, Passage, Run, SegmentMember, SegmentWatch, Step, Trigger
from appliance.tables.form import Confirmation, Form
from appliance.tables.importing import Erasure, Import, ImportChunk
from appliance.tables.installation import Installation
from appliance.tables.message import Captured, Event, Hit, Link, Message, MessageContent, Repeat
from appliance.tables.restoration import Restoration
from appliance.tables.sms_day import SmsDay
from appliance.tables.webhook import Webhook, WebhookDelivery

ALL = (
    Account, User, Session, ApiKey, Setting, Idempotency, Audit,
    Contact, Channel, Consent, Suppression, OptOut, Segment, ContactList, Membership, ListRefusal,
    Template, TemplateRevision, Brand, Media, SendingDomain, DomainKey,
    Flow, Trigger, Step, Run, Passage, Cursor, SegmentWatch, SegmentMember, Campaign,
    Message, MessageContent, Repeat, Link, Hit, Captured, Event,
    Returned, Told,
    Incoming, Receipt,
    MailPolicy, WarmUpDay, SmsDay,
    Webhook, WebhookDelivery,
    Form, Confirmation,
    Erasure, Import, ImportChunk,
    CrowdAct, CrowdPart,
    Restoration, Installation,
)  # fmt: skip

__all__ = [
    "ALL",
    "Account",
    "ApiKey",
    "Audit",
    "Brand",
    "Campaign",
    "Captured",
    "Channel",
    "Confirmation",
    "Consent",
    "Contact",
    "ContactList",
    "CrowdAct",
    "CrowdPart",
    "Cursor",
    "DomainKey",
    "Erasure",
    "Event",
    "Flow",
    "Form",
    "Hit",
    "Idempotency",
    "Import",
    "ImportChunk",
    "Incoming",
    "Installation",
    "Link",
    "ListRefusal",
    "MailPolicy",
    "Media",
    "Membership",
    "Message",
    "MessageContent",
    "OptOut",
    "Passage",
    "Receipt",
    "Repeat",
    "Restoration",
    "Returned",
    "Run",
    "Segment",
    "SegmentMember",
    "SegmentWatch",
    "SendingDomain",
    "Session",
    "Setting",
    "SmsDay",
    "Step",
    "Suppression",
    "Template",
    "TemplateRevision",
    "Told",
    "Trigger",
    "User",
    "WarmUpDay",
    "Webhook",
    "WebhookDelivery",
]
