"""What the schema-driven fuzz holds against every answer, beyond what schemathesis checks by itself.

The document describes errors as 4XX and 5XX; its error table says which there really are. A 500 is none that a caller may
ever see, and a 502 cannot come from the simulator.
"""

import json
import os
import pathlib

import schemathesis
from hypothesis import strategies

DOCUMENT = json.loads(pathlib.Path(os.environ["FUZZ_DOCUMENT"]).read_text())
CALLERS = json.loads(pathlib.Path(os.environ["FUZZ_CALLERS"]).read_text())
STATUS = {row["code"]: row["status"] for row in CALLERS["x-imagate-errors"] + DOCUMENT["x-imagate-errors"]}
CODES = DOCUMENT["components"]["schemas"]["ErrorCode"]
KNOWN = set(CODES.get("enum") or CODES["x-extensible-enum"])

# Most files of the form are images, so that an edit gets beyond its first rule.
PICTURES = [path.read_bytes() for path in sorted(pathlib.Path(os.environ["PICTURES"]).iterdir())]
schemathesis.openapi.format("binary", strategies.one_of(strategies.sampled_from(PICTURES), strategies.binary(max_size=64)))


def header(response, name):
    return next(iter(response.headers.get(name) or []), None)


@schemathesis.check
def every_status_stands_in_the_error_table(ctx, response, case):
    assert header(response, "x-request-id"), "no x-request-id"
    if response.status_code == 200:
        return
    if case.path not in DOCUMENT["paths"] or case.method.lower() not in DOCUMENT["paths"][case.path]:
        # What no operation has taken is answered by the HTTP library, in a shape of its own.
        assert response.status_code in (404, 405), response.status_code
        return
    error = json.loads(response.content)["error"]
    assert error["code"] in KNOWN, f"{response.status_code} {error}"
    assert STATUS.get(error["code"]) == response.status_code, f"{response.status_code} {error}"
    assert header(response, "x-should-retry") in ("true", "false"), "no advice"
    assert response.status_code < 500, f"{response.status_code} {error}"
