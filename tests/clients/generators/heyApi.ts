// The journey with a client that hey-api generated: node heyApi.js URL KEY
import { client } from "./generated/hey/client.gen.js";
import { createCampaign, createContact, createList, createSegment, getCampaign, listContacts, listMessages, sendCampaign } from "./generated/hey/index.js";

declare const process: { argv: string[] };

const [, , url = "", key = ""] = process.argv;
client.setConfig({ baseUrl: url, auth: () => key, throwOnError: true });

const news = await createList({ throwOnError: true, body: { name: "By hey-api" } });
const list_ids = [news.data.id];
await createContact({ throwOnError: true, body: { email: "ann@example.org", list_ids, data: { city: "Rome", visits: 3 } } });
const segment = await createSegment({
  throwOnError: true,
  body: { name: "From Rome", filters: [{ name: "data.city", predicate: "eq", value: "Rome" }] },
});
const campaign = await createCampaign({ throwOnError: true, body: { name: "Letter" } });
const path = { id: campaign.data.id };
await sendCampaign({
  throwOnError: true,
  path,
  body: {
    trigger_attributes: { contact_list_id: news.data.id, segment_id: segment.data.id },
    template_attributes: { subject: "Hello", body: "<p>Good morning.</p>" },
  },
});
while ((await getCampaign({ throwOnError: true, path })).data.status === "active") {
  await new Promise((resolve) => setTimeout(resolve, 100));
}
const messages = await listMessages({ throwOnError: true, query: { campaign_id: campaign.data.id } });
const contacts = await listContacts({ throwOnError: true, query: { list_id: news.data.id } });
console.log(contacts.data.length, messages.data.map((message) => `${message.to} ${message.status}`).join());
