// Genkit with its plugin for OpenAI-compatible APIs. The model of its list is `gpt-image-1`, whose size it does not send.

import { genkit } from "genkit";
import { openAI } from "@genkit-ai/compat-oai/openai";

import { absent, apiKey, baseURL, decoded, error, feature, longPrompt, prompt, retryPrompt } from "./kit.mjs";

const ai = genkit({ plugins: [openAI({ apiKey, baseURL })] });
const generate = async (text) =>
  decoded((await ai.generate({ model: openAI.model("gpt-image-1"), prompt: text })).media.url);

await feature("generation", () => generate(prompt));
absent("edit", "the plugin has no edits");
await error(["Invalid 'prompt'"], () => generate(longPrompt));
await feature("retry", () => generate(retryPrompt));
