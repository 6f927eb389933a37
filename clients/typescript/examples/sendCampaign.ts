// Sends a campaign to a segment and prints the status of each message: node sendCampaign.js URL KEY
import { ApiError, Campanero } from "../src/index.js";

declare const process: { argv: string[] };

const [, , url = "", key = ""] = process.argv;
const client = new Campanero(url, key);

const news = await client.lists.create({ name: "Weekly news" });
for (const [email, first_name, city] of [["anna@example.org", "Anna", "Lyon"], ["bo@example.org", "Bo", "Oslo"]] as const) {
  await client.contacts.create({ email, first_name, list_ids: [news.id], data: { city } });
}
const segment = await client.segments.create({
  name: "In Lyon",
  filters: [{ name: "data.city", predicate: "eq", value: "Lyon" }],
});

const campaign = await client.campaigns.create({ name: "October letter" });
try {
  await client.campaigns.send(campaign.id, {
    trigger_attributes: { contact_list_id: news.id, segment_id: segment.id },
    template_attributes: { subject: "Hello {{ first_name }}", body: "<p>Good morning.</p>" },
  });
} catch (error) {
  if (error instanceof ApiError) console.error(error.message, error.fields);
  throw error;
}
while ((await client.campaigns.get(campaign.id)).status === "active") {
  await new Promise((resolve) => setTimeout(resolve, 200));
}

for await (const message of client.messages.list({ campaign_id: campaign.id })) {
  console.log(message.to, message.status);
}
