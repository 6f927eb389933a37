// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { Paginator, segment, type RequestOptions, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** Roles of the account besides the built-in ones, for its owner and admins. */
export class Roles {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List the own roles of the account, newest first.
   *
   * Only for a signed-in owner or admin: no API key has access.
   */
  list(query: types.ListRolesQuery = {}): Paginator<types.Role> {
    return new Paginator<types.Role>(this.#transport, "/v1/my/roles", query);
  }

  /**
   * Create a role. It never includes managing users, API keys and roles, which only owners and admins do.
   *
   * With masked contact data, or without `contacts:read`, a role can read, and write drafts of campaigns, templates
   * and flows, but neither change or export contacts nor send. Only for a signed-in owner or admin: no API key has
   * access.
   */
  create(body: types.RoleWrite, options: RequestOptions = {}): Promise<types.Role> {
    return this.#transport.call("POST", "/v1/my/roles", { body, ...options });
  }

  /**
   * Get a role.
   *
   * Only for a signed-in owner or admin: no API key has access.
   */
  get(id: number, options: RequestOptions = {}): Promise<types.Role> {
    return this.#transport.call("GET", `/v1/my/roles/${segment(id)}`, { ...options });
  }

  /**
   * Update a role. The change applies at once to signed-in users, and to the apps that they connected.
   *
   * Only for a signed-in owner or admin: no API key has access.
   */
  update(id: number, body: types.RolePatch = {}, options: RequestOptions = {}): Promise<types.Role> {
    return this.#transport.call("PATCH", `/v1/my/roles/${segment(id)}`, { body, ...options });
  }

  /**
   * Delete a role. A role in use needs a `replacement`, which its users and invitations get.
   *
   * Only for a signed-in owner or admin: no API key has access.
   */
  delete(id: number, query: types.DeleteRoleQuery = {}, options: RequestOptions = {}): Promise<types.Role> {
    return this.#transport.call("DELETE", `/v1/my/roles/${segment(id)}`, { query, ...options });
  }
}
