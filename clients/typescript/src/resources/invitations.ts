// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { Paginator, segment, type RequestOptions, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** Invitations to the account by email, for its owner and admins. */
export class Invitations {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List open and expired invitations, newest first. An accepted invitation is a user.
   *
   * Only for a signed-in owner or admin: no API key has access.
   */
  list(query: types.ListInvitationsQuery = {}): Paginator<types.Invitation> {
    return new Paginator<types.Invitation>(this.#transport, "/v1/my/invitations", query);
  }

  /**
   * Invite an email address. An older invitation of the address is replaced, and its link stops working.
   *
   * While the account cannot send email, the response is 409: the link of an invitation is never in a response.
   * Only for a signed-in owner or admin: no API key has access.
   */
  create(body: types.InvitationWrite, options: RequestOptions = {}): Promise<types.Invitation> {
    return this.#transport.call("POST", "/v1/my/invitations", { body, ...options });
  }

  /**
   * Send an invitation again, with a new link that is valid as long as the last one. The old link stops working.
   *
   * Only for a signed-in owner or admin: no API key has access.
   */
  resend(id: number, options: RequestOptions = {}): Promise<types.Invitation> {
    return this.#transport.call("POST", `/v1/my/invitations/${segment(id)}/resend`, { ...options });
  }

  /**
   * Revoke an invitation. Its link stops working.
   *
   * Only for a signed-in owner or admin: no API key has access.
   */
  revoke(id: number, options: RequestOptions = {}): Promise<types.Invitation> {
    return this.#transport.call("DELETE", `/v1/my/invitations/${segment(id)}`, { ...options });
  }
}
