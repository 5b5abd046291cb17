// Streams that break within an image, as in broken_events.py, read by the official client of Node and by eventsource-parser.

import OpenAI from "openai";
import { createParser } from "eventsource-parser";

const { IMAGES_BASE_URL, IMAGES_API_KEY, RESPONSES_BASE_URL, RESPONSES_API_KEY, PROMPTS, INPUTS } = process.env;
const tool = { type: "image_generation", size: "1024x640", quality: "low", partial_images: 1 };
const kinds = ["partial_image", "completed", "output_item.done"];
const members = ["b64_json", "partial_image_b64", "result"];

const imageBody = (prompt) => ({ model: "gpt-image-2", prompt, stream: true, partial_images: 1, size: "1024x1024" });
const responseBody = (input) => ({ model: "gpt-5", input, stream: true, tools: [tool] });

function* texts(value) {
  for (const [name, member] of Object.entries(value ?? {})) {
    if (members.includes(name) && typeof member === "string") yield member;
    else if (typeof member === "object") yield* texts(member);
  }
}

async function official(base, key, send) {
  let [images, failure] = [0, null];
  try {
    for await (const event of await send(new OpenAI({ baseURL: base, apiKey: key, maxRetries: 0 }))) {
      for (const text of texts(event)) {
        atob(text);
        images += 1;
      }
    }
  } catch (error) {
    failure = error.code ?? error.message;
  }
  return [images, failure];
}

async function parsed(base, key, path, body) {
  let [images, failure] = [0, null];
  const onEvent = ({ event, data }) => {
    try {
      if (kinds.some((kind) => event?.endsWith(kind))) {
        for (const text of texts(JSON.parse(data))) {
          atob(text);
          images += 1;
        }
      }
    } catch (error) {
      failure ??= error.message;
    }
    if (event === "error") failure = JSON.parse(data).error.code;
  };
  const parser = createParser({ onEvent });
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const answer = await fetch(base + path, { method: "POST", headers, body: JSON.stringify(body) });
  const decoder = new TextDecoder();
  for await (const piece of answer.body) parser.feed(decoder.decode(piece, { stream: true }));
  return [images, failure];
}

const show = (reader, script, [images, failure]) => console.log(JSON.stringify({ reader, script, images, failure }));

for (const prompt of JSON.parse(PROMPTS)) {
  show("openai-node", prompt, await official(IMAGES_BASE_URL, IMAGES_API_KEY, (client) => client.images.generate(imageBody(prompt))));
  show("eventsource-parser", prompt, await parsed(IMAGES_BASE_URL, IMAGES_API_KEY, "/images/generations", imageBody(prompt)));
}
for (const input of JSON.parse(INPUTS)) {
  show("openai-node", input, await official(RESPONSES_BASE_URL, RESPONSES_API_KEY, (client) => client.responses.create(responseBody(input))));
  show("eventsource-parser", input, await parsed(RESPONSES_BASE_URL, RESPONSES_API_KEY, "/responses", responseBody(input)));
}
