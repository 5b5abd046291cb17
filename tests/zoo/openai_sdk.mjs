// The official SDK for Node.

import OpenAI, { toFile } from "openai";

import { apiKey, baseURL, decoded, error, feature, picture, prompt, retryPrompt, wrongSize } from "./kit.mjs";

const client = new OpenAI({ baseURL, apiKey });
const model = "gpt-image-2";
const generate = async (size, text = prompt) =>
  decoded((await client.images.generate({ model, prompt: text, size })).data[0].b64_json, size);

await feature("generation", () => generate("1536x1024"));
await feature("edit", async () => {
  const image = await toFile(picture, "picture.png", { type: "image/png" });
  const answer = await client.images.edit({ model, image, prompt: "add a boat", size: "1024x1024" });
  return decoded(answer.data[0].b64_json, "1024x1024");
});
await error(["size"], () => generate(wrongSize));
await feature("retry", () => generate("1024x1024", retryPrompt));
