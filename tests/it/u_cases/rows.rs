//! The table of cases. `tests/it/kit/upstream` explains the scripts. If a row does not apply to an operation, the row
//! gives the reason.

mod accounts;
mod answers;

use super::first_endpoint::EndpointKind;
use super::multi_step_cases;
use super::row::{AccountsAfter, Row, row};

const NO_PARTIAL: &str = "a plain answer has no partial images and has not begun at that time";
const BYTE_LIMIT: &str = "see the other row: bytes have a fixed limit of a minute, events the deadline of the group";

/// Cases that other tests cover because they need their own resolver or certificates, and cases that are scaled down.
pub(super) const COVERED_ELSEWHERE: [(&str, &str); 6] = [
    ("U02", "transport::tests::faults::nothing_is_sent_if_the_name_has_no_address (NXDOMAIN)"),
    ("U02", "transport::resolver::tests::a_lookup_that_hangs_delays_no_other_name"),
    ("U03", "transport::tests::tls::an_untrusted_upstream_receives_no_request (self-signed, wrong name)"),
    ("U03", "transport::tests::tls::nothing_is_sent_if_the_handshake_stalls_or_breaks_off"),
    ("U13", "scaled: the whole image would be 33 MB; 2 MB at the same rate run into the same rule"),
    ("U30", "scaled: connections are closed after 300 ms instead of 1 s, and reused at 270 to 330 ms"),
];

/// Every case, in the order of the failure catalogue.
pub(super) fn all() -> Vec<Row> {
    [connection_failures(), useless_answers(), stalled_answers(), accounts::rows(), answers::rows()].concat()
}

/// U01 to U03: no connection can be made.
fn connection_failures() -> Vec<Row> {
    let network = |row: Row| row.accounts(1).fails_with_502(&["failed"]).with_reasons(&["network"]).calls(0..=0);
    let tls = AccountsAfter::Unusable("an account that cannot speak TLS stays so");
    vec![
        row("U01", "connection refused, another account")
            .endpoint(EndpointKind::Refusing)
            .after(AccountsAfter::UsableWithin(70))
            .custom_steps(multi_step_cases::unreachable),
        network(row("U01", "connection refused, no other").endpoint(EndpointKind::Refusing))
            .after(AccountsAfter::UsableWithin(70))
            .custom_steps(multi_step_cases::unreachable),
        row("U02", "no answer to a SYN, another account")
            .endpoint(EndpointKind::Unresponsive)
            .after(AccountsAfter::UsableWithin(70))
            .custom_steps(multi_step_cases::unreachable),
        network(row("U02", "no answer to a SYN, no other").endpoint(EndpointKind::Unresponsive))
            .after(AccountsAfter::UsableWithin(70))
            .custom_steps(multi_step_cases::unreachable),
        row("U03", "TLS: plain HTTP behind https, another account")
            .endpoint(EndpointKind::PlainHttp)
            .custom_steps(multi_step_cases::unreachable),
        row("U03", "TLS: handshake stalls, another account")
            .endpoint(EndpointKind::SilentTls)
            .custom_steps(multi_step_cases::unreachable),
        network(row("U03", "TLS: plain HTTP behind https, no other").endpoint(EndpointKind::PlainHttp))
            .after(tls)
            .custom_steps(multi_step_cases::unreachable),
        network(row("U03", "TLS: handshake stalls, no other").endpoint(EndpointKind::SilentTls))
            .after(tls)
            .custom_steps(multi_step_cases::unreachable),
    ]
}

/// U04 to U07: a status 200 without a usable image.
fn useless_answers() -> Vec<Row> {
    let page: &[&str] =
        &["body=page", "body=html type=application/json", "body=text", "body=none", "body=html framing=close"];
    vec![
        row("U04", "200 without an image, nothing charged")
            .plain(&[
                "data=empty usage=zero",
                "data=null usage=zero",
                "data=blank usage=zero",
                "data=missing usage=zero",
            ])
            .streamed(&["plain data=empty usage=zero", "events=blank usage=zero", "events=missing usage=zero"])
            .other_accounts("=")
            .fails_with_502(&["failed", "interrupted"])
            .with_reasons(&["no_image_data"])
            .with_retry_advice("false")
            .calls(1..=2)
            .after(AccountsAfter::OneUsable),
        row("U04", "200 without an image, tokens charged")
            .plain(&[
                "data=empty tokens=1700",
                "data=null tokens=1700",
                "data=blank tokens=1700",
                "data=none tokens=1700",
            ])
            .streamed(&["plain data=empty tokens=1700", "events=blank tokens=1700", "events=missing tokens=1700"])
            .ambiguous(&["no_image_data"])
            .charged(),
        row("U05", "200 with a page or plain text").with_scripts(page).ambiguous(&["no_image_data", "network"]),
        row("U06", "cut in the middle of the base64")
            .plain(&[
                "b64=1000000 cut=50%",
                "b64=1000000 cut=50% how=reset",
                "b64=1000000 cut=100% framing=chunked",
                "b64=1000000 lack=50%",
                "cut=50%",
            ])
            .streamed(&[
                "events=half,cut b64=1000000",
                "events=half,cut b64=1000000 how=reset",
                "events=half,eof b64=1000000",
                "plain b64=1000000 cut=50%",
                "plain b64=1000000 lack=20 framing=chunked",
                "plain b64=1000000 lack=4",
                "events=half,cut",
            ])
            .breaks(),
        row("U07", "wrong length: bytes of a foreign answer")
            .plain(&["surplus=foreign-marker", "clip=100 surplus=foreign-marker"])
            .streamed(&["events=p,c surplus=foreign-marker", "plain clip=100 surplus=foreign-marker"])
            .good_or_broken()
            .custom_steps(multi_step_cases::surplus_bytes),
    ]
}

/// U08 to U13: answers that stall, end early or are too slow.
fn stalled_answers() -> Vec<Row> {
    let timeout = |row: Row| row.deadline(1500).ambiguous(&["timeout"]);
    vec![
        row("U08", "events end before the final one")
            .plain(&[
                "sse events=eof",
                "sse events=k,k,eof",
                "sse events=p,eof",
                "sse events=half,eof",
                "sse events=p,done",
            ])
            .streamed(&["events=eof", "events=k,k,eof", "events=p,eof", "events=p,half,eof", "events=p,p,done"])
            .breaks(),
        timeout(row("U09", "accepts and stays silent").with_scripts(&["stall=head"])),
        timeout(row("U10", "headers, then nothing").with_scripts(&["stall=body"])),
        row("U10", "one byte, then nothing").with_scripts(&["still=1"]).not_streamed(BYTE_LIMIT).breaks().slow(),
        row("U10", "one byte, then nothing").with_scripts(&["still=1"]).not_plain(BYTE_LIMIT).breaks().deadline(1500),
        row("U11", "429 whose body stalls, another account")
            .with_scripts(&["status=429 retry-after=20 stall=middle"])
            .calls(2..=2)
            .after(AccountsAfter::FirstInCooldown),
        row("U11", "429 whose body stalls, no other")
            .accounts(1)
            .with_scripts(&["status=429 retry-after=7 stall=body"])
            .fails_with(&[429], "rate_limit_exceeded", &["failed"])
            .with_retry_advice("true")
            .after(AccountsAfter::UsableWithin(12)),
        timeout(row("U12", "silence or heartbeats before an image"))
            .plain(&["sse events=p,stall", "sse events=murmur"])
            .streamed(&["events=stall", "events=murmur"]),
        row("U12", "silence or heartbeats after a partial image")
            .streamed(&["events=p,stall", "events=p,murmur"])
            .not_plain(NO_PARTIAL)
            .deadline(1500)
            .breaks(),
        row("U12", "slow, but each event in time")
            .plain(&["sse events=~2500,p,~2500,p,~2500,c"])
            .streamed(&["events=~2500,p,~2500,p,~2500,c"])
            .deadline(12_000),
        row("U13", "one KiB a second for ever")
            .plain(&["b64=2000000 reads=1024 pace=1000"])
            .streamed(&["events=c b64=2000000 reads=1024 pace=1000"])
            .breaks()
            .slow()
            .custom_steps(multi_step_cases::slow_body),
    ]
}
