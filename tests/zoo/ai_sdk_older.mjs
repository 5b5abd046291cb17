// The AI SDK with the options that only other models have: `style`, and the fidelity of the input of an edit.

import { createOpenAI } from "@ai-sdk/openai";
import { generateImage } from "ai";

import { absent, apiKey, baseURL, feature, picture, png, prompt } from "./kit.mjs";

const model = createOpenAI({ baseURL, apiKey }).image("gpt-image-2");
const generate = async (text, options) =>
  png((await generateImage({ model, prompt: text, size: "1024x1024", providerOptions: { openai: options } })).image.uint8Array, "1024x1024");

await feature("generation", () => generate(prompt, { style: "vivid" }));
await feature("edit", () => generate({ text: "add a boat", images: [picture] }, { inputFidelity: "high" }));
absent("error", "as with the same provider without these options");
absent("retry", "as with the same provider without these options");
