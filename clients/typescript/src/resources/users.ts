// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { Paginator, segment, type RequestOptions, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** Users of the account, for its owner and admins. */
export class Users {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List users, newest first.
   *
   * Only for a signed-in owner or admin: no API key has access.
   */
  list(query: types.ListUsersQuery = {}): Paginator<types.User> {
    return new Paginator<types.User>(this.#transport, "/v1/my/users", query);
  }

  /**
   * Create a user. Without `password`, a password is generated and shown once.
   *
   * The email address must be unique in the whole installation. Only for a signed-in owner or admin: no API key has
   * access.
   */
  create(body: types.UserWrite, options: RequestOptions = {}): Promise<types.UserWithPassword> {
    return this.#transport.call("POST", "/v1/my/users", { body, ...options });
  }

  /**
   * Get a user.
   *
   * Only for a signed-in owner or admin: no API key has access.
   */
  get(id: number, options: RequestOptions = {}): Promise<types.User> {
    return this.#transport.call("GET", `/v1/my/users/${segment(id)}`, { ...options });
  }

  /**
   * Update a user. `disabled`, a new password or removing the second factor ends all sessions of the user.
   *
   * Only for a signed-in owner or admin: no API key has access.
   */
  update(id: number, body: types.UserPatch = {}, options: RequestOptions = {}): Promise<types.User> {
    return this.#transport.call("PATCH", `/v1/my/users/${segment(id)}`, { body, ...options });
  }

  /**
   * Disable a user. The user is kept for the audit log and can be enabled again.
   *
   * API keys that the user created keep working; `created_by` of `/api_keys` shows which those are. Only for a
   * signed-in owner or admin: no API key has access.
   */
  disable(id: number, options: RequestOptions = {}): Promise<types.User> {
    return this.#transport.call("DELETE", `/v1/my/users/${segment(id)}`, { ...options });
  }
}
