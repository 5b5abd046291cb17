#!/bin/sh
# curl. The only retries are those of its own option `--retry`.
set -u

key="Authorization: Bearer $ZOO_API_KEY"

report() { # feature, verdict, detail
    python3 -c 'import json, os, sys
feature, verdict, detail = sys.argv[1:]
print(json.dumps({"client": os.environ["ZOO_CLIENT"], "feature": feature, "verdict": verdict, "detail": " ".join(detail.split())[:600]}))' "$@"
}

# Prints the size of the image in the file `answer`, and fails if there is none.
size() {
    python3 -c 'import base64, json, struct
data = base64.b64decode(json.load(open("answer"))["data"][0]["b64_json"])
assert data[1:4] == b"PNG"
print("a PNG of {}x{}".format(*struct.unpack(">II", data[16:24])))' 2>/dev/null
}

verdict() { # feature
    if detail=$(size); then report "$1" pass "$detail"; else report "$1" error "$(cat answer)"; fi
}

generate() { # body, options
    body=$1
    shift
    curl -sS -o answer "$@" "$ZOO_BASE_URL/images/generations" -H "$key" -H 'Content-Type: application/json' -d "$body"
}

generate '{"model":"gpt-image-2","prompt":"a lighthouse on a cliff at dusk","size":"1536x1024"}'
verdict generation

curl -sS -o answer "$ZOO_BASE_URL/images/edits" -H "$key" -F model=gpt-image-2 -F prompt='add a boat' -F size=1024x1024 \
    -F "image=@$ZOO_PICTURES/picture.png"
verdict edit

generate '{"model":"gpt-image-2","prompt":"a lighthouse on a cliff at dusk","size":"1000x1001"}'
if grep -q '"param":"size"' answer; then report error pass "$(cat answer)"; else report error error "$(cat answer)"; fi

generate "{\"model\":\"gpt-image-2\",\"prompt\":\"a lighthouse, $ZOO_RETRY_WORD\",\"size\":\"1024x1024\"}" --retry 3
verdict retry
