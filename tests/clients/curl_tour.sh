#!/bin/sh
# A tour of the API with curl and nothing else but the tools of every system.
#
# Two gateways are given by the environment: SIMULATED_* draws its own images, SCRIPTED_* has a fake upstream behind it
# that obeys a directive in the prompt. PICTURES is a folder with files to edit. One line per check; exit 1 when one
# failed.

set -u
failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# call WHICH PATH CURL-ARGUMENTS...: the body goes to $work/body, the headers to $work/head, the status is printed.
call() {
    which=$1 path=$2
    shift 2
    eval "base=\$${which}_BASE_URL key=\${KEY:-\$${which}_API_KEY}"
    curl -sS -N --max-time 60 -D "$work/head" -o "$work/body" -w '%{http_code}' -H "Authorization: Bearer $key" "$@" "$base$path"
}

# check NAME STATUS-FOUND STATUS-EXPECTED WORDS...: each word must stand in the body.
check() {
    name=$1 found=$2 expected=$3
    shift 3
    bad=''
    [ "$found" = "$expected" ] || bad="status $found"
    grep -qi '^x-request-id: .' "$work/head" || bad="$bad, no request id"
    for word in "$@"; do
        grep -qF -- "$word" "$work/body" || bad="$bad, no $word"
    done
    if [ -z "$bad" ]; then
        echo "ok     $name"
    else
        failed=$((failed + 1))
        echo "FAILED $name: $bad"
        head -c 600 "$work/body"
        echo
    fi
}

# images COUNT: how many PNG files stand in the body.
images() {
    tr ',{[' '\n\n\n' <"$work/body" | sed -n 's/^ *"b64_json" *: *"\([^"]*\)".*/\1/p' >"$work/images"
    count=0
    while read -r image; do
        printf %s "$image" | base64 -d >"$work/image" && [ "$(head -c 4 "$work/image" | tail -c 3)" = PNG ] && count=$((count + 1))
    done <"$work/images"
    [ "$count" = "$1" ] || {
        failed=$((failed + 1))
        echo "FAILED $count images of $1"
    }
}

json='Content-Type: application/json'
head='{"model":"gpt-image-2","prompt":"a red cube"'

check 'generate' "$(call SIMULATED /images/generations -H "$json" -d "$head,\"n\":2,\"size\":\"1024x1024\",\"quality\":\"low\"}")" 200 '"size":"1024x1024"' '"usage"'
images 2
check 'generate with a chunked body' "$(call SIMULATED /images/generations -H "$json" -H 'Transfer-Encoding: chunked' -d "$head}")" 200 '"b64_json":"'
check 'models' "$(call SIMULATED /models)" 200 '"object":"list"'

set -- -F model=gpt-image-2 -F 'prompt=add a hat' -F size=1024x1024
check 'edit one image' "$(call SIMULATED /images/edits "$@" -F "image=@$PICTURES/first.png")" 200 '"size":"1024x1024"'
images 1
check 'edit several images with a mask' "$(call SIMULATED /images/edits "$@" -F n=2 -F "image[]=@$PICTURES/first.png" -F "image[]=@$PICTURES/second.jpeg" -F "image[]=@$PICTURES/third.webp;type=text/plain" -F "mask=@$PICTURES/mask.png")" 200
images 2
check 'edit with numbered images, read from a pipe' "$(call SIMULATED /images/edits "$@" -F "image[0]=@-;filename=upload" -F "image[1]=@$PICTURES/second.jpeg" <"$PICTURES/first.png")" 200
printf '%s,"images":[{"image_url":"data:image/png;base64,%s"}]}' "$head" "$(base64 <"$PICTURES/first.png" | tr -d '\n')" >"$work/edit.json"
check 'edit as JSON' "$(call SIMULATED /images/edits -H "$json" -d "@$work/edit.json")" 200 '"b64_json":"'

check 'stream a generation' "$(call SIMULATED /images/generations -H "$json" -d "$head,\"stream\":true,\"partial_images\":2}")" 200 'event: image_generation.completed' '"type":"image_generation.completed"'
check 'stream an edit' "$(call SIMULATED /images/edits "$@" -F stream=true -F "image=@$PICTURES/first.png")" 200 'event: image_edit.completed'
check 'a stream that breaks' "$(call SCRIPTED /images/generations -H "$json" -d '{"model":"gpt-image-2","prompt":"[[events=p,cut]]","stream":true,"partial_images":1,"user":"broken"}')" 200 'event: error' '"code":"upstream_error"'

check '400 names the size' "$(call SIMULATED /images/generations -H "$json" -d "$head,\"size\":\"1000x1000\"}")" 400 '"param":"size"' '"code":"invalid_request_error"'
check '400 names the mask' "$(call SIMULATED /images/edits "$@" -F "image=@$PICTURES/first.png" -F "mask=@$PICTURES/opaque.png")" 400 '"param":"mask"'
check '401 for a wrong key' "$(KEY=sk-img-nonsense call SIMULATED /images/edits "$@" -F "image=@$PICTURES/first.png")" 401 '"code":"INVALID_API_KEY"'
check '404 for an unknown model' "$(call SIMULATED /models/no-such-model)" 404 '"code":"model_not_found"'
check '415 for a form without files' "$(call SIMULATED /images/generations -d 'prompt=a')" 415 '"code":"unsupported_media_type"'
check '502 for a refusal' "$(call SCRIPTED /images/generations -H "$json" -d '{"model":"gpt-image-2","prompt":"[[status=400 body=policy]]","user":"refused"}')" 502 '"reason":"content_refused"'
check '429 for an exhausted account' "$(call SCRIPTED /images/edits -F model=gpt-image-2 -F 'prompt=[[status=429 body=usage-limit]]' -F user=usage-limit -F "image=@$PICTURES/first.png")" 429 '"type":"usage_limit_reached"'

echo "curl: $failed failed"
[ "$failed" = 0 ]
