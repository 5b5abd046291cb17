// xsai, which has only generations.

import { generateImage } from "@xsai/generate-image";

import { absent, apiKey, baseURL, decoded, error, feature, prompt, retryPrompt, wrongSize } from "./kit.mjs";

const generate = async (size, text = prompt) =>
  decoded((await generateImage({ apiKey, baseURL: `${baseURL}/`, model: "gpt-image-2", prompt: text, size })).image.base64, size);

await feature("generation", () => generate("1536x1024"));
absent("edit", "the package has no edits");
await error(["size"], () => generate(wrongSize));
await feature("retry", () => generate("1024x1024", retryPrompt));
