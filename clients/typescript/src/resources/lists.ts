// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { Paginator, segment, type RequestOptions, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** Groups of contacts by membership. */
export class Lists {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List contact lists, newest first.
   *
   * Scope: `contacts:read`. Open to agents.
   */
  list(query: types.ListListsQuery = {}): Paginator<types.ContactList> {
    return new Paginator<types.ContactList>(this.#transport, "/v1/my/lists", query);
  }

  /**
   * Create a list.
   *
   * Scope: `contacts:write`.
   */
  create(body: types.ListCreate, options: RequestOptions = {}): Promise<types.ContactList> {
    return this.#transport.call("POST", "/v1/my/lists", { body, ...options });
  }

  /**
   * Get a list.
   *
   * Scope: `contacts:read`. Open to agents.
   */
  get(id: number, options: RequestOptions = {}): Promise<types.ContactList> {
    return this.#transport.call("GET", `/v1/my/lists/${segment(id)}`, { ...options });
  }

  /**
   * Update a list; `contact_ids` replaces its members.
   *
   * Scope: `contacts:write`.
   */
  update(id: number, body: types.ListPatch = {}, options: RequestOptions = {}): Promise<types.ContactList> {
    return this.#transport.call("PATCH", `/v1/my/lists/${segment(id)}`, { body, ...options });
  }

  /**
   * Delete a list; its contacts are kept.
   *
   * Scope: `contacts:write`.
   */
  delete(id: number, options: RequestOptions = {}): Promise<types.ContactList> {
    return this.#transport.call("DELETE", `/v1/my/lists/${segment(id)}`, { ...options });
  }

  /**
   * Add and remove many contacts by id or email address.
   *
   * Scope: `contacts:write`.
   */
  changeMembers(id: number, body: types.BulkWrite = {}, options: RequestOptions = {}): Promise<types.BulkDone> {
    return this.#transport.call("POST", `/v1/my/lists/${segment(id)}/contacts/bulk`, { body, ...options });
  }
}
