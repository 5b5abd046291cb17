"""aiperf, which measures servers: one request for each feature. It reads the images, but does not keep them.

It counts the words of prompts with a tokenizer, which it would download: a small one of this machine is enough.
"""

import json
import pathlib
import shutil

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from kit import API_KEY, BASE_URL, PICTURE, PROMPT, RETRY_PROMPT, WRONG_SIZE, error, feature, run

ARTIFACTS = pathlib.Path("artifacts").absolute()
WORDS = Tokenizer(models.WordLevel({"word": 0}, unk_token="word"))
PreTrainedTokenizerFast(tokenizer_object=WORDS, unk_token="word").save_pretrained("tokenizer")


def profile(endpoint, size, turn):
    shutil.rmtree(ARTIFACTS, ignore_errors=True)
    pathlib.Path("input.jsonl").write_text(json.dumps(turn))
    dataset = ["--input-file", "input.jsonl", "--custom-dataset-type", "single_turn", "--tokenizer", "tokenizer"]
    place = ["--url", BASE_URL.removesuffix("/v1"), "--api-key", API_KEY, "--artifact-dir", ARTIFACTS]
    load = ["--request-count", "1", "--concurrency", "1", "--extra-inputs", f"size:{size}", "--ui", "none"]
    try:
        run("aiperf", "profile", "--model", "gpt-image-2", "--endpoint-type", endpoint, *dataset, *place, *load)
    except RuntimeError:
        # The program shows the number of failures, and keeps the errors in its export.
        record = json.loads((ARTIFACTS / "profile_export.jsonl").read_text().splitlines()[0])
        raise RuntimeError(json.dumps(record["error"])) from None
    result = json.loads((ARTIFACTS / "profile_export_aiperf.json").read_text())
    return f"{result['request_count']['avg']:.0f} request measured"


@feature("generation")
def _():
    return profile("image-generation", "1536x1024", {"text": PROMPT})


@feature("edit")
def _():
    return profile("image-edit", "1024x1024", {"text": "add a boat", "image": str(PICTURE)})


@error("size")
def _():
    return profile("image-generation", WRONG_SIZE, {"text": PROMPT})


@feature("retry")
def _():
    return profile("image-generation", "1024x1024", {"text": RETRY_PROMPT})
