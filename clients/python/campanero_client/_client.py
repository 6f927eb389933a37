"""The clients, with a property for each resource.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from campanero_client._transport import AsyncTransport, Transport

if TYPE_CHECKING:
    from campanero_client.resources.account import Account, AsyncAccount
    from campanero_client.resources.agents import Agents, AsyncAgents
    from campanero_client.resources.api_keys import ApiKeys, AsyncApiKeys
    from campanero_client.resources.audit import AsyncAudit, Audit
    from campanero_client.resources.backups import AsyncBackups, Backups
    from campanero_client.resources.brand import AsyncBrand, Brand
    from campanero_client.resources.campaigns import AsyncCampaigns, Campaigns
    from campanero_client.resources.capture import AsyncCapture, Capture
    from campanero_client.resources.contacts import AsyncContacts, Contacts
    from campanero_client.resources.delivery import AsyncDelivery, Delivery
    from campanero_client.resources.domains import AsyncDomains, Domains
    from campanero_client.resources.events import AsyncEvents, Events
    from campanero_client.resources.exports import AsyncExports, Exports
    from campanero_client.resources.flows import AsyncFlows, Flows
    from campanero_client.resources.forms import AsyncForms, Forms
    from campanero_client.resources.imports import AsyncImports, Imports
    from campanero_client.resources.incoming import AsyncIncoming, Incoming
    from campanero_client.resources.invitations import AsyncInvitations, Invitations
    from campanero_client.resources.lists import AsyncLists, Lists
    from campanero_client.resources.messages import AsyncMessages, Messages
    from campanero_client.resources.proposals import AsyncProposals, Proposals
    from campanero_client.resources.roles import AsyncRoles, Roles
    from campanero_client.resources.segments import AsyncSegments, Segments
    from campanero_client.resources.service import AsyncService, Service
    from campanero_client.resources.sign_in import AsyncSignIn, SignIn
    from campanero_client.resources.sign_in_providers import AsyncSignInProviders, SignInProviders
    from campanero_client.resources.suppressions import AsyncSuppressions, Suppressions
    from campanero_client.resources.templates import AsyncTemplates, Templates
    from campanero_client.resources.uploads import AsyncUploads, Uploads
    from campanero_client.resources.user import AsyncUser, User
    from campanero_client.resources.users import AsyncUsers, Users
    from campanero_client.resources.webhooks import AsyncWebhooks, Webhooks


class Campanero(Transport):
    """A client of one service, for one API key; threads may share it. See Transport for the parameters."""

    @cached_property
    def messages(self) -> Messages:
        """Single messages, and all messages with their content and status."""
        from campanero_client.resources.messages import Messages  # loaded when used

        return Messages(self)

    @cached_property
    def campaigns(self) -> Campaigns:
        """A message to many contacts, sent now or at a given time: drafts, sends, reports."""
        from campanero_client.resources.campaigns import Campaigns  # loaded when used

        return Campaigns(self)

    @cached_property
    def contacts(self) -> Contacts:
        """People with their addresses, consent, consent records and history."""
        from campanero_client.resources.contacts import Contacts  # loaded when used

        return Contacts(self)

    @cached_property
    def incoming(self) -> Incoming:
        """Incoming SMS."""
        from campanero_client.resources.incoming import Incoming  # loaded when used

        return Incoming(self)

    @cached_property
    def suppressions(self) -> Suppressions:
        """Addresses to which the account sends nothing."""
        from campanero_client.resources.suppressions import Suppressions  # loaded when used

        return Suppressions(self)

    @cached_property
    def exports(self) -> Exports:
        """Downloads of contacts, events and messages."""
        from campanero_client.resources.exports import Exports  # loaded when used

        return Exports(self)

    @cached_property
    def lists(self) -> Lists:
        """Groups of contacts by membership."""
        from campanero_client.resources.lists import Lists  # loaded when used

        return Lists(self)

    @cached_property
    def segments(self) -> Segments:
        """Groups of contacts defined by filters."""
        from campanero_client.resources.segments import Segments  # loaded when used

        return Segments(self)

    @cached_property
    def imports(self) -> Imports:
        """Imports of contacts and suppressions from files."""
        from campanero_client.resources.imports import Imports  # loaded when used

        return Imports(self)

    @cached_property
    def forms(self) -> Forms:
        """Sign-up forms."""
        from campanero_client.resources.forms import Forms  # loaded when used

        return Forms(self)

    @cached_property
    def templates(self) -> Templates:
        """Content of messages: subject, body and design; previews and test sends."""
        from campanero_client.resources.templates import Templates  # loaded when used

        return Templates(self)

    @cached_property
    def uploads(self) -> Uploads:
        """Images for designs and the brand."""
        from campanero_client.resources.uploads import Uploads  # loaded when used

        return Uploads(self)

    @cached_property
    def flows(self) -> Flows:
        """Automations: an event starts them; steps wait, branch and send."""
        from campanero_client.resources.flows import Flows  # loaded when used

        return Flows(self)

    @cached_property
    def brand(self) -> Brand:
        """Look and tone of the account's messages."""
        from campanero_client.resources.brand import Brand  # loaded when used

        return Brand(self)

    @cached_property
    def domains(self) -> Domains:
        """Sending domains and their DNS records."""
        from campanero_client.resources.domains import Domains  # loaded when used

        return Domains(self)

    @cached_property
    def account(self) -> Account:
        """The account: settings, capabilities and blockers."""
        from campanero_client.resources.account import Account  # loaded when used

        return Account(self)

    @cached_property
    def backups(self) -> Backups:
        """Backups of the installation, for its first account."""
        from campanero_client.resources.backups import Backups  # loaded when used

        return Backups(self)

    @cached_property
    def delivery(self) -> Delivery:
        """Current state of sending."""
        from campanero_client.resources.delivery import Delivery  # loaded when used

        return Delivery(self)

    @cached_property
    def capture(self) -> Capture:
        """Messages captured instead of sent: all messages of a new installation, and those sent with test keys."""
        from campanero_client.resources.capture import Capture  # loaded when used

        return Capture(self)

    @cached_property
    def events(self) -> Events:
        """Events recorded by the service or by clients."""
        from campanero_client.resources.events import Events  # loaded when used

        return Events(self)

    @cached_property
    def webhooks(self) -> Webhooks:
        """URLs to which events are posted."""
        from campanero_client.resources.webhooks import Webhooks  # loaded when used

        return Webhooks(self)

    @cached_property
    def users(self) -> Users:
        """Users of the account, for its owner and admins."""
        from campanero_client.resources.users import Users  # loaded when used

        return Users(self)

    @cached_property
    def user(self) -> User:
        """The signed-in user: name, password, second factor, sessions, identities at providers."""
        from campanero_client.resources.user import User  # loaded when used

        return User(self)

    @cached_property
    def sign_in(self) -> SignIn:
        """How people of the account may sign in."""
        from campanero_client.resources.sign_in import SignIn  # loaded when used

        return SignIn(self)

    @cached_property
    def sign_in_providers(self) -> SignInProviders:
        """OpenID Connect providers of the account, for its owner and admins."""
        from campanero_client.resources.sign_in_providers import SignInProviders  # loaded when used

        return SignInProviders(self)

    @cached_property
    def roles(self) -> Roles:
        """Roles of the account besides the built-in ones, for its owner and admins."""
        from campanero_client.resources.roles import Roles  # loaded when used

        return Roles(self)

    @cached_property
    def invitations(self) -> Invitations:
        """Invitations to the account by email, for its owner and admins."""
        from campanero_client.resources.invitations import Invitations  # loaded when used

        return Invitations(self)

    @cached_property
    def api_keys(self) -> ApiKeys:
        """API keys of the account, for its owner and admins."""
        from campanero_client.resources.api_keys import ApiKeys  # loaded when used

        return ApiKeys(self)

    @cached_property
    def proposals(self) -> Proposals:
        """What agents propose, and what users decide about it."""
        from campanero_client.resources.proposals import Proposals  # loaded when used

        return Proposals(self)

    @cached_property
    def agents(self) -> Agents:
        """API keys of AI agents, and the switch that stops them."""
        from campanero_client.resources.agents import Agents  # loaded when used

        return Agents(self)

    @cached_property
    def audit(self) -> Audit:
        """Audit log, for the account's owner and admins."""
        from campanero_client.resources.audit import Audit  # loaded when used

        return Audit(self)

    @cached_property
    def service(self) -> Service:
        """Health and description of the service."""
        from campanero_client.resources.service import Service  # loaded when used

        return Service(self)


class AsyncCampanero(AsyncTransport):
    """A client of one service, for async code. See AsyncTransport for the parameters."""

    @cached_property
    def messages(self) -> AsyncMessages:
        """Single messages, and all messages with their content and status."""
        from campanero_client.resources.messages import AsyncMessages  # loaded when used

        return AsyncMessages(self)

    @cached_property
    def campaigns(self) -> AsyncCampaigns:
        """A message to many contacts, sent now or at a given time: drafts, sends, reports."""
        from campanero_client.resources.campaigns import AsyncCampaigns  # loaded when used

        return AsyncCampaigns(self)

    @cached_property
    def contacts(self) -> AsyncContacts:
        """People with their addresses, consent, consent records and history."""
        from campanero_client.resources.contacts import AsyncContacts  # loaded when used

        return AsyncContacts(self)

    @cached_property
    def incoming(self) -> AsyncIncoming:
        """Incoming SMS."""
        from campanero_client.resources.incoming import AsyncIncoming  # loaded when used

        return AsyncIncoming(self)

    @cached_property
    def suppressions(self) -> AsyncSuppressions:
        """Addresses to which the account sends nothing."""
        from campanero_client.resources.suppressions import AsyncSuppressions  # loaded when used

        return AsyncSuppressions(self)

    @cached_property
    def exports(self) -> AsyncExports:
        """Downloads of contacts, events and messages."""
        from campanero_client.resources.exports import AsyncExports  # loaded when used

        return AsyncExports(self)

    @cached_property
    def lists(self) -> AsyncLists:
        """Groups of contacts by membership."""
        from campanero_client.resources.lists import AsyncLists  # loaded when used

        return AsyncLists(self)

    @cached_property
    def segments(self) -> AsyncSegments:
        """Groups of contacts defined by filters."""
        from campanero_client.resources.segments import AsyncSegments  # loaded when used

        return AsyncSegments(self)

    @cached_property
    def imports(self) -> AsyncImports:
        """Imports of contacts and suppressions from files."""
        from campanero_client.resources.imports import AsyncImports  # loaded when used

        return AsyncImports(self)

    @cached_property
    def forms(self) -> AsyncForms:
        """Sign-up forms."""
        from campanero_client.resources.forms import AsyncForms  # loaded when used

        return AsyncForms(self)

    @cached_property
    def templates(self) -> AsyncTemplates:
        """Content of messages: subject, body and design; previews and test sends."""
        from campanero_client.resources.templates import AsyncTemplates  # loaded when used

        return AsyncTemplates(self)

    @cached_property
    def uploads(self) -> AsyncUploads:
        """Images for designs and the brand."""
        from campanero_client.resources.uploads import AsyncUploads  # loaded when used

        return AsyncUploads(self)

    @cached_property
    def flows(self) -> AsyncFlows:
        """Automations: an event starts them; steps wait, branch and send."""
        from campanero_client.resources.flows import AsyncFlows  # loaded when used

        return AsyncFlows(self)

    @cached_property
    def brand(self) -> AsyncBrand:
        """Look and tone of the account's messages."""
        from campanero_client.resources.brand import AsyncBrand  # loaded when used

        return AsyncBrand(self)

    @cached_property
    def domains(self) -> AsyncDomains:
        """Sending domains and their DNS records."""
        from campanero_client.resources.domains import AsyncDomains  # loaded when used

        return AsyncDomains(self)

    @cached_property
    def account(self) -> AsyncAccount:
        """The account: settings, capabilities and blockers."""
        from campanero_client.resources.account import AsyncAccount  # loaded when used

        return AsyncAccount(self)

    @cached_property
    def backups(self) -> AsyncBackups:
        """Backups of the installation, for its first account."""
        from campanero_client.resources.backups import AsyncBackups  # loaded when used

        return AsyncBackups(self)

    @cached_property
    def delivery(self) -> AsyncDelivery:
        """Current state of sending."""
        from campanero_client.resources.delivery import AsyncDelivery  # loaded when used

        return AsyncDelivery(self)

    @cached_property
    def capture(self) -> AsyncCapture:
        """Messages captured instead of sent: all messages of a new installation, and those sent with test keys."""
        from campanero_client.resources.capture import AsyncCapture  # loaded when used

        return AsyncCapture(self)

    @cached_property
    def events(self) -> AsyncEvents:
        """Events recorded by the service or by clients."""
        from campanero_client.resources.events import AsyncEvents  # loaded when used

        return AsyncEvents(self)

    @cached_property
    def webhooks(self) -> AsyncWebhooks:
        """URLs to which events are posted."""
        from campanero_client.resources.webhooks import AsyncWebhooks  # loaded when used

        return AsyncWebhooks(self)

    @cached_property
    def users(self) -> AsyncUsers:
        """Users of the account, for its owner and admins."""
        from campanero_client.resources.users import AsyncUsers  # loaded when used

        return AsyncUsers(self)

    @cached_property
    def user(self) -> AsyncUser:
        """The signed-in user: name, password, second factor, sessions, identities at providers."""
        from campanero_client.resources.user import AsyncUser  # loaded when used

        return AsyncUser(self)

    @cached_property
    def sign_in(self) -> AsyncSignIn:
        """How people of the account may sign in."""
        from campanero_client.resources.sign_in import AsyncSignIn  # loaded when used

        return AsyncSignIn(self)

    @cached_property
    def sign_in_providers(self) -> AsyncSignInProviders:
        """OpenID Connect providers of the account, for its owner and admins."""
        from campanero_client.resources.sign_in_providers import AsyncSignInProviders  # loaded when used

        return AsyncSignInProviders(self)

    @cached_property
    def roles(self) -> AsyncRoles:
        """Roles of the account besides the built-in ones, for its owner and admins."""
        from campanero_client.resources.roles import AsyncRoles  # loaded when used

        return AsyncRoles(self)

    @cached_property
    def invitations(self) -> AsyncInvitations:
        """Invitations to the account by email, for its owner and admins."""
        from campanero_client.resources.invitations import AsyncInvitations  # loaded when used

        return AsyncInvitations(self)

    @cached_property
    def api_keys(self) -> AsyncApiKeys:
        """API keys of the account, for its owner and admins."""
        from campanero_client.resources.api_keys import AsyncApiKeys  # loaded when used

        return AsyncApiKeys(self)

    @cached_property
    def proposals(self) -> AsyncProposals:
        """What agents propose, and what users decide about it."""
        from campanero_client.resources.proposals import AsyncProposals  # loaded when used

        return AsyncProposals(self)

    @cached_property
    def agents(self) -> AsyncAgents:
        """API keys of AI agents, and the switch that stops them."""
        from campanero_client.resources.agents import AsyncAgents  # loaded when used

        return AsyncAgents(self)

    @cached_property
    def audit(self) -> AsyncAudit:
        """Audit log, for the account's owner and admins."""
        from campanero_client.resources.audit import AsyncAudit  # loaded when used

        return AsyncAudit(self)

    @cached_property
    def service(self) -> AsyncService:
        """Health and description of the service."""
        from campanero_client.resources.service import AsyncService  # loaded when used

        return AsyncService(self)
