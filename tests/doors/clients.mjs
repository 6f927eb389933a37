// Runs calls of official clients against a server: reads {url, key, calls: [{client, ...}]} from stdin, and writes the
// list of results to stdout, {value} or {error} each.
import { readFileSync } from "node:fs";

const job = JSON.parse(readFileSync(0, "utf-8"));

// The calls of Ghost's MailgunClient (ghost/core/core/server/services/lib/mailgun-client.js), with the same options.
async function makeGhost() {
  const Mailgun = (await import("mailgun.js")).default;
  const formData = (await import("form-data")).default;
  const baseUrl = new URL(`${job.url}/v3`);
  const client = new (Mailgun.default ?? Mailgun)(formData).client({
    username: "api", key: job.key, url: baseUrl.origin, timeout: 60000,
  });
  return {
    async send({ domain, message, recipientData }) {
      const data = {
        to: Object.keys(recipientData),
        from: message.from,
        "h:Reply-To": message.replyTo,
        subject: message.subject,
        html: message.html,
        text: message.plaintext,
        "recipient-variables": JSON.stringify(recipientData),
        "h:Sender": message.from,
        "h:Auto-Submitted": "auto-generated",
        "h:X-Auto-Response-Suppress": "OOF, AutoReply",
      };
      if (recipientData[Object.keys(recipientData)[0]].list_unsubscribe) {
        data["h:List-Unsubscribe"] = "<%recipient.list_unsubscribe%>, <%tag_unsubscribe_email%>";
        data["h:List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click";
      }
      if (message.id) data["v:email-id"] = message.id;
      data["o:tag"] = ["ghost-email", "bulk-email"];
      if (message.testmode) data["o:testmode"] = true;
      if (message.track_opens) data["o:tracking-opens"] = true;
      if (message.deliveryTime) data["o:deliverytime"] = new Date(message.deliveryTime).toUTCString();
      return await client.messages.create(domain, data);
    },
    // All pages, as `fetchEvents` reads them: it passes the options again with the page.
    async events({ domain, begin, limit }) {
      const options = {
        limit: limit ?? 300, event: "delivered OR opened OR failed OR unsubscribed OR complained", tags: "bulk-email",
        begin, end: undefined, ascending: "yes",
      };
      const pages = [];
      let page = await client.events.get(domain, options);
      while (page.items.length) {
        pages.push(page.items);
        page = await client.events.get(domain, { page: page.pages.next.page, ...options });
      }
      return pages;
    },
    async remove({ domain, type, email }) {
      return await client.suppressions.destroy(domain, type, email);
    },
  };
}

async function makeResend() {
  const { Resend } = await import("resend");
  const client = new Resend(job.key, { baseUrl: `${job.url}/compat/resend` });
  return {
    send: ({ email, options }) => client.emails.send(email, options),
    batch: ({ emails, options }) => client.batch.send(emails, options),
    get: ({ id }) => client.emails.get(id),
  };
}

async function makePostmark() {
  const { ServerClient } = await import("postmark");
  const host = `${new URL(job.url).host}/compat/postmark`;
  const client = new ServerClient(job.key, { requestHost: host, useHttps: false });
  return {
    send: ({ email }) => client.sendEmail(email),
    batch: ({ emails }) => client.sendEmailBatch(emails),
  };
}

async function makeSendgrid() {
  const client = (await import("@sendgrid/mail")).default;
  console.warn = () => {}; // it warns of a key that does not begin with `SG.`
  client.setApiKey(job.key);
  client.client.setDefaultRequest("baseUrl", `${job.url}/compat/sendgrid`);
  return {
    async send({ email }) {
      const [response] = await client.send(email);
      return { status: response.statusCode, id: response.headers["x-message-id"] };
    },
  };
}

const makers = { ghost: makeGhost, resend: makeResend, postmark: makePostmark, sendgrid: makeSendgrid };
const clients = {};
const results = [];
for (const { client, call, ...options } of job.calls) {
  clients[client] ??= await makers[client]();
  try {
    results.push({ value: await clients[client][call](options) });
  } catch (error) {
    const { name, message, status, statusCode, details, code, response } = error;
    results.push({ error: { name, message, status, statusCode, details, code, body: response?.body } });
  }
}
process.stdout.write(JSON.stringify(results));
