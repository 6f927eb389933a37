// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { Account } from "./resources/account.js";
import { Agents } from "./resources/agents.js";
import { ApiKeys } from "./resources/apiKeys.js";
import { Audit } from "./resources/audit.js";
import { Backups } from "./resources/backups.js";
import { Brand } from "./resources/brand.js";
import { Campaigns } from "./resources/campaigns.js";
import { Capture } from "./resources/capture.js";
import { Contacts } from "./resources/contacts.js";
import { Delivery } from "./resources/delivery.js";
import { Domains } from "./resources/domains.js";
import { Events } from "./resources/events.js";
import { Exports } from "./resources/exports.js";
import { Flows } from "./resources/flows.js";
import { Forms } from "./resources/forms.js";
import { Imports } from "./resources/imports.js";
import { Incoming } from "./resources/incoming.js";
import { Invitations } from "./resources/invitations.js";
import { Lists } from "./resources/lists.js";
import { Messages } from "./resources/messages.js";
import { Proposals } from "./resources/proposals.js";
import { Roles } from "./resources/roles.js";
import { Segments } from "./resources/segments.js";
import { Service } from "./resources/service.js";
import { SignIn } from "./resources/signIn.js";
import { SignInProviders } from "./resources/signInProviders.js";
import { Suppressions } from "./resources/suppressions.js";
import { Templates } from "./resources/templates.js";
import { Uploads } from "./resources/uploads.js";
import { User } from "./resources/user.js";
import { Users } from "./resources/users.js";
import { Webhooks } from "./resources/webhooks.js";
import { Transport } from "./transport.js";

/** A client of one service with one API key. See `TransportOptions` for its options. */
export class Campanero extends Transport {
  /** Single messages, and all messages with their content and status. */
  readonly messages = new Messages(this);
  /** A message to many contacts, sent now or at a given time: drafts, sends, reports. */
  readonly campaigns = new Campaigns(this);
  /** People with their addresses, consent, consent records and history. */
  readonly contacts = new Contacts(this);
  /** Incoming SMS. */
  readonly incoming = new Incoming(this);
  /** Addresses to which the account sends nothing. */
  readonly suppressions = new Suppressions(this);
  /** Downloads of contacts, events and messages. */
  readonly exports = new Exports(this);
  /** Groups of contacts by membership. */
  readonly lists = new Lists(this);
  /** Groups of contacts defined by filters. */
  readonly segments = new Segments(this);
  /** Imports of contacts and suppressions from files. */
  readonly imports = new Imports(this);
  /** Sign-up forms. */
  readonly forms = new Forms(this);
  /** Content of messages: subject, body and design; previews and test sends. */
  readonly templates = new Templates(this);
  /** Images for designs and the brand. */
  readonly uploads = new Uploads(this);
  /** Automations: an event starts them; steps wait, branch and send. */
  readonly flows = new Flows(this);
  /** Look and tone of the account's messages. */
  readonly brand = new Brand(this);
  /** Sending domains and their DNS records. */
  readonly domains = new Domains(this);
  /** The account: settings, capabilities and blockers. */
  readonly account = new Account(this);
  /** Backups of the installation, for its first account. */
  readonly backups = new Backups(this);
  /** Current state of sending. */
  readonly delivery = new Delivery(this);
  /** Messages captured instead of sent: all messages of a new installation, and those sent with test keys. */
  readonly capture = new Capture(this);
  /** Events recorded by the service or by clients. */
  readonly events = new Events(this);
  /** URLs to which events are posted. */
  readonly webhooks = new Webhooks(this);
  /** Users of the account, for its owner and admins. */
  readonly users = new Users(this);
  /** The signed-in user: name, password, second factor, sessions, identities at providers. */
  readonly user = new User(this);
  /** How people of the account may sign in. */
  readonly signIn = new SignIn(this);
  /** OpenID Connect providers of the account, for its owner and admins. */
  readonly signInProviders = new SignInProviders(this);
  /** Roles of the account besides the built-in ones, for its owner and admins. */
  readonly roles = new Roles(this);
  /** Invitations to the account by email, for its owner and admins. */
  readonly invitations = new Invitations(this);
  /** API keys of the account, for its owner and admins. */
  readonly apiKeys = new ApiKeys(this);
  /** What agents propose, and what users decide about it. */
  readonly proposals = new Proposals(this);
  /** API keys of AI agents, and the switch that stops them. */
  readonly agents = new Agents(this);
  /** Audit log, for the account's owner and admins. */
  readonly audit = new Audit(this);
  /** Health and description of the service. */
  readonly service = new Service(this);
}
