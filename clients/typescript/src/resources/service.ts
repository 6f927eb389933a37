// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { Download, type RequestOptions, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** Health and description of the service. */
export class Service {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Get this document.
   *
   * No credential is required.
   */
  getOpenapi(): Download {
    return new Download(this.#transport, "/openapi.yaml", {});
  }

  /**
   * Check the health of the service.
   *
   * No credential is required.
   */
  getHealthz(options: RequestOptions = {}): Promise<types.GetHealthzResult> {
    return this.#transport.call("GET", "/healthz", { ...options });
  }

  /**
   * Check whether the service handles requests and sends messages.
   *
   * No credential is required. 503 during start and shutdown, while nothing can be stored, and if the queue does
   * not run; the message names the missing part in one word.
   */
  getReadyz(options: RequestOptions = {}): Promise<types.GetReadyzResult> {
    return this.#transport.call("GET", "/readyz", { ...options });
  }

  /**
   * Get metrics in the Prometheus text format.
   *
   * A credential of the first account gets the metrics of the whole installation. Any other credential gets the
   * metrics of its account: queue, sends, bounces, complaints, imports, flows and webhooks. Counters start at zero
   * when the service starts. Scope: `account:read`.
   */
  getMetrics(): Download {
    return new Download(this.#transport, "/metrics", {});
  }

  /**
   * Sign in and get a JWT.
   *
   * No credential is required. The token has the permissions of the user's role for 12 hours. It ends earlier with
   * a log-out, a change of password or second factor, or when the user is disabled. 401 `invalid_credentials`:
   * address, password or code are wrong. 401 `otp_required`: the code of the second factor is missing. 401
   * `password_sign_in_off`: the account allows no passwords. After ten failures within 15 minutes, by address or by
   * client, all attempts get 429.
   */
  login(body: types.Login, options: RequestOptions = {}): Promise<types.SignedIn> {
    return this.#transport.call("POST", "/v1/login", { body, ...options });
  }

  /**
   * End the session of the JWT.
   *
   * The token becomes invalid. API keys have no session and get 403; revoke the key instead.
   */
  logout(options: RequestOptions = {}): Promise<void> {
    return this.#transport.call("DELETE", "/v1/logout", { ...options });
  }
}
