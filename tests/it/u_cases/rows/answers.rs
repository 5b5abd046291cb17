//! U23 to U33: malformed or unusual answers and connections.

use super::super::multi_step_cases;
use super::super::row::{AccountsAfter, Row, row};

const ONE_IMAGE: &str = "streams make exactly one image (n = 1 by the rules); surplus images are U23";

pub(super) fn rows() -> Vec<Row> {
    [streams(), bodies(), connections()].concat()
}

/// U23 and U24: malformed or unusual events.
fn streams() -> Vec<Row> {
    vec![
        row("U23", "twice, out of order, unknown, surplus")
            .plain(&[
                "sse events=c,c",
                "sse events=p,c,p",
                "sse events=p7,c",
                "sse events=x,p,x,c,x",
                "sse events=p,p,p,p,p,c",
            ])
            .streamed(&["events=c,c", "events=p,c,p", "events=p7,c", "events=x,p,x,c,x", "events=p,p,p,p,p,c"]),
        row("U23", "two objects in one event")
            .plain(&["sse events=twin"])
            .streamed(&["events=p,twin"])
            .good_or_broken(),
        row("U24", "33 MB in one line")
            .plain(&["sse b64=33000000 reads=65536", "sse b64=33000000 reads=1460 framing=close"])
            .streamed(&["b64=33000000 reads=65536", "b64=33000000 reads=1460 framing=close"]),
        row("U24", "odd framing, byte by byte")
            .plain(&[
                "sse reads=1",
                "sse reads=7 lines=crlf",
                "sse lines=cr",
                "sse frames=no-space,bom",
                "sse shape=pretty lines=crlf reads=7",
                "sse frames=no-end framing=close",
                "sse revised=escapes reads=1",
                "sse frames=extra,data-first",
            ])
            .streamed(&[
                "reads=1",
                "reads=7 lines=crlf",
                "lines=cr",
                "frames=no-space,bom",
                "shape=pretty lines=crlf reads=7",
                "frames=no-end framing=close",
                "revised=escapes reads=1",
                "frames=extra,data-first",
            ]),
    ]
}

/// U25 to U29: malformed or unusual bodies and statuses.
fn bodies() -> Vec<Row> {
    vec![
        row("U25", "a body or line without an end")
            // The pace is slow enough for a machine with two cores and a build without optimisation.
            .plain(&["endless=image b64=100000 pace=5", "endless=image framing=chunked", "endless=before"])
            .streamed(&["plain endless=image b64=100000 pace=5", "plain endless=image", "events=p,flood pace=5"])
            .breaks()
            .slow()
            .custom_steps(multi_step_cases::endless_answer),
        row("U26", "compressed, or said to be")
            .with_scripts(&["coding=gzip", "label=gzip", "label=br", "coding=bomb", "plain coding=gzip"])
            .good_or_broken(),
        row("U26", "a compressed error")
            .with_scripts(&["status=500 coding=gzip"])
            .other_accounts("=")
            .fails_with_502(&["failed", "interrupted"])
            .calls(1..=2),
        row("U27", "redirects")
            .with_scripts(&[
                "status=301 body=none location=http://{target}/v1/images/generations",
                "status=302 body=none location=http://localhost:1/v1/images/generations",
                "status=302 body=none location=file:///etc/passwd",
                "status=307 body=none location=http://{target}/v1/images/generations",
                "status=307 body=none location=//{target}/",
                "status=308 body=none location=https://{target}/v1/images/generations",
                "status=308 body=none location=/v1/images/generations",
            ])
            .fails_with_502(&["interrupted", "failed"]),
        row("U28", "another count than n")
            .with_scripts(&["images=1", "images=4", "images=6"])
            .not_streamed(ONE_IMAGE)
            .custom_steps(multi_step_cases::other_image_count),
        row("U29", "usage missing or nonsense, odd values")
            .with_scripts(&[
                "usage=none",
                "usage=null",
                "usage=zero",
                "usage=negative",
                "usage=float",
                "usage=text",
                "usage=huge",
                "usage=partial",
                "usage=list",
                "odd=created,created_at",
                "odd=quality",
                "odd=background",
            ])
            .invalid_usage(),
    ]
}

/// U30 to U33: faults of connections and headers.
fn connections() -> Vec<Row> {
    vec![
        row("U30", "closed at the moment of reuse")
            .accounts(1)
            .slots_per_account(6)
            .closes_on_reuse()
            .custom_steps(multi_step_cases::connection_races),
        row("U30", "reset on reuse, after the request")
            .with_scripts(&["sour"])
            .ambiguous(&["network"])
            .custom_steps(multi_step_cases::reset_on_reuse),
        row("U31", "interim answers, then the real one").with_scripts(&[
            "interim=103",
            "interim=100",
            "interim=100,103,103",
            "interim=102",
        ]),
        row("U31", "other statuses of success")
            .with_scripts(&[
                "status=101 body=none",
                "status=204 body=none",
                "status=206 body=none",
                "status=304 body=none",
                "interim=103 hang-up",
                "interim=100 hang-up",
            ])
            .ambiguous(&["network", "no_image_data"]),
        row("U32", "one of four accounts always times out")
            .accounts(4)
            .slots_per_account(4)
            .deadline(2000)
            .with_scripts(&["stall=head"])
            .after(AccountsAfter::UsableWithin(90))
            .slow()
            .custom_steps(multi_step_cases::unresponsive_account),
        row("U33", "a flood of headers")
            .with_scripts(&["flood=10000", "flood=wide"])
            .ambiguous(&["network", "no_image_data"]),
        row("U33", "headers that are no text").with_scripts(&["flood=bytes"]).good_or_broken(),
    ]
}
