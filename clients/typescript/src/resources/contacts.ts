// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { Paginator, segment, type RequestOptions, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** People with their addresses, consent, consent records and history. */
export class Contacts {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List SMS exchanged with a contact, newest first.
   *
   * Scope: `contacts:read`.
   */
  listConversation(id: number, query: types.ListContactConversationQuery = {}): Paginator<types.ConversationMessage> {
    return new Paginator<types.ConversationMessage>(this.#transport, `/v1/my/contacts/${segment(id)}/conversation`, query);
  }

  /**
   * List contacts, newest first.
   *
   * Scope: `contacts:read`. Open to agents.
   */
  list(query: types.ListContactsQuery = {}): Paginator<types.Contact> {
    return new Paginator<types.Contact>(this.#transport, "/v1/my/contacts", query);
  }

  /**
   * Create a contact, or update the contact that has the address (then 200).
   *
   * Scope: `contacts:write`.
   */
  create(body: types.ContactWrite = {}, options: RequestOptions = {}): Promise<types.ContactWritten> {
    return this.#transport.call("POST", "/v1/my/contacts", { body, ...options });
  }

  /**
   * Search contacts, best match first.
   *
   * Scope: `contacts:read`. Open to agents.
   */
  search(query: types.SearchContactsQuery): Paginator<types.Contact> {
    return new Paginator<types.Contact>(this.#transport, "/v1/my/contacts/search", query);
  }

  /**
   * Get a contact.
   *
   * Scope: `contacts:read`. Open to agents.
   */
  get(id: number, options: RequestOptions = {}): Promise<types.Contact> {
    return this.#transport.call("GET", `/v1/my/contacts/${segment(id)}`, { ...options });
  }

  /**
   * Update a contact.
   *
   * Scope: `contacts:write`.
   */
  update(id: number, body: types.ContactPatch = {}, options: RequestOptions = {}): Promise<types.ContactWritten> {
    return this.#transport.call("PATCH", `/v1/my/contacts/${segment(id)}`, { body, ...options });
  }

  /**
   * Delete a contact permanently; `erase` also removes all personal data. Opt-outs are kept as hashes.
   *
   * Scope: `contacts:write`.
   */
  delete(id: number, query: types.DeleteContactQuery = {}, options: RequestOptions = {}): Promise<types.Contact> {
    return this.#transport.call("DELETE", `/v1/my/contacts/${segment(id)}`, { query, ...options });
  }

  /**
   * List events and messages of a contact, newest first.
   *
   * Scope: `contacts:read`. Open to agents.
   */
  listTimeline(id: number, query: types.ListContactTimelineQuery = {}): Paginator<types.TimelineEntry> {
    return new Paginator<types.TimelineEntry>(this.#transport, `/v1/my/contacts/${segment(id)}/timeline`, query);
  }

  /**
   * List consent records of a contact, newest first.
   *
   * Scope: `contacts:read`. Open to agents.
   */
  listConsents(id: number, query: types.ListContactConsentsQuery = {}): Paginator<types.ConsentRow> {
    return new Paginator<types.ConsentRow>(this.#transport, `/v1/my/contacts/${segment(id)}/consents`, query);
  }

  /**
   * Get all stored data about a contact as one document.
   *
   * Scope: `contacts:read`.
   */
  export(id: number, options: RequestOptions = {}): Promise<types.ContactExport> {
    return this.#transport.call("GET", `/v1/my/contacts/${segment(id)}/export`, { ...options });
  }

  /**
   * Merge another contact into this one. If the consents of the two contacts differ, the stricter consent is kept.
   *
   * Scope: `contacts:write`.
   */
  merge(id: number, body: types.MergeWrite, options: RequestOptions = {}): Promise<types.Contact> {
    return this.#transport.call("POST", `/v1/my/contacts/${segment(id)}/merge`, { body, ...options });
  }

  /**
   * List runs of a contact, newest first.
   *
   * Scope: `contacts:read`. Open to agents.
   */
  listRuns(id: number, query: types.ListContactRunsQuery = {}): Paginator<types.FlowRun> {
    return new Paginator<types.FlowRun>(this.#transport, `/v1/my/contacts/${segment(id)}/runs`, query);
  }
}
