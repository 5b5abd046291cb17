"""The command line `open-image`."""

import pathlib

from kit import API_KEY, BASE_URL, MASK, PICTURE, PROMPT, RETRY_PROMPT, WRONG_SIZE, error, feature, png, run


def draw(prompt, size, *options):
    extra = f'{{"size":"{size}"}}'
    output = run("open-image", "--prompt", prompt, "--extra", extra, *options, OPENAI_API_KEY=API_KEY, OPENAI_BASE_URL=BASE_URL)
    return png(pathlib.Path(output.split()[-1]).read_bytes(), size)


@feature("generation")
def _():
    return draw(PROMPT, "1536x1024")


@feature("edit")
def _():
    return draw("add a boat", "1024x1024", "--input-image", PICTURE, "--mask", MASK)


@error("size")
def _():
    return draw(PROMPT, WRONG_SIZE)


@feature("retry")
def _():
    return draw(RETRY_PROMPT, "1024x1024")
