//! U14 to U22: an account cannot serve a request, fails, or refuses it.

use super::super::multi_step_cases;
use super::super::row::{AccountsAfter, Row, row};

pub(super) fn rows() -> Vec<Row> {
    [rate_limits(), usage_limits(), invalid_accounts(), failures(), refusals()].concat()
}

/// U14 and U15: 429.
fn rate_limits() -> Vec<Row> {
    vec![
        row("U14", "429 with Retry-After in seconds")
            .with_scripts(&["status=429 retry-after=3"])
            .calls(2..=2)
            .after(AccountsAfter::UsableWithin(15))
            .custom_steps(multi_step_cases::throttled_with_retry_time),
        row("U14", "429 with Retry-After as a date")
            .with_scripts(&["status=429 retry-date=3"])
            .calls(2..=2)
            .after(AccountsAfter::UsableWithin(15))
            .custom_steps(multi_step_cases::throttled_with_retry_time),
        row("U14", "429 with retry-after-ms")
            .with_scripts(&["status=429 retry-ms=3000"])
            .calls(2..=2)
            .after(AccountsAfter::UsableWithin(15))
            .custom_steps(multi_step_cases::throttled_with_retry_time),
        row("U14", "429 with x-ratelimit-reset")
            .with_scripts(&["status=429 ratelimit=3s"])
            .calls(2..=2)
            .after(AccountsAfter::UsableWithin(15))
            .custom_steps(multi_step_cases::throttled_with_retry_time),
        row("U14", "429 with Retry-After, no other")
            .accounts(1)
            .with_scripts(&["status=429 retry-after=3"])
            .fails_with(&[429], "rate_limit_exceeded", &["failed"])
            .with_retry_advice("true")
            .after(AccountsAfter::UsableWithin(15)),
        row("U15", "429 without any time, three in a row")
            .accounts(1)
            .with_scripts(&["status=429"])
            .fails_with(&[429], "rate_limit_exceeded", &["failed"])
            .with_retry_advice("true")
            .after(AccountsAfter::UsableWithin(60))
            .custom_steps(multi_step_cases::throttled_without_retry_time),
    ]
}

/// U16: usage limits.
fn usage_limits() -> Vec<Row> {
    let exhausted = |row: Row| row.accounts(1).fails_with(&[429], "usage_limit_reached", &["failed"]);
    let reset = AccountsAfter::Unusable("the account is in a cooldown until the reset that the upstream stated");
    vec![
        exhausted(row("U16", "usage limit for days"))
            .with_scripts(&["status=429 body=usage-limit resets-in=354089"])
            .after(reset)
            .custom_steps(multi_step_cases::exhausted),
        exhausted(row("U16", "usage limit for three seconds"))
            .with_scripts(&["status=429 body=usage-limit resets-in=3"])
            .after(AccountsAfter::UsableWithin(15))
            .custom_steps(multi_step_cases::short_window),
        exhausted(row("U16", "usage limit, reset 0"))
            .with_scripts(&["status=429 body=usage-limit resets-raw=0"])
            .after(AccountsAfter::UsableWithin(60))
            .custom_steps(multi_step_cases::odd_window),
        exhausted(row("U16", "usage limit, reset -1"))
            .with_scripts(&["status=429 body=usage-limit resets-raw=-1"])
            .after(AccountsAfter::UsableWithin(60))
            .custom_steps(multi_step_cases::odd_window),
        exhausted(row("U16", "usage limit, reset 1e18"))
            .with_scripts(&["status=429 body=usage-limit resets-raw=1e18"])
            .after(AccountsAfter::UsableWithin(60))
            .custom_steps(multi_step_cases::odd_window),
        exhausted(row("U16", "usage limit, reset \"soon\""))
            .with_scripts(&["status=429 body=usage-limit resets-raw=\"soon\""])
            .after(AccountsAfter::UsableWithin(60))
            .custom_steps(multi_step_cases::odd_window),
        exhausted(row("U16", "usage limit, no reset"))
            .with_scripts(&["status=429 body=usage-limit"])
            .after(AccountsAfter::UsableWithin(60))
            .custom_steps(multi_step_cases::odd_window),
        row("U16", "usage limit, another account")
            .with_scripts(&["status=429 body=usage-limit resets-in=600"])
            .calls(2..=2)
            .after(AccountsAfter::FirstInCooldown),
    ]
}

/// U17 and U18: the credentials or the account are no longer valid.
fn invalid_accounts() -> Vec<Row> {
    let single_account = |row: Row| row.accounts(1).fails_with(&[502, 503], "", &["failed"]);
    let known = AccountsAfter::Unusable("the account is known to be unusable");
    vec![
        row("U17", "401, another account")
            .with_scripts(&["status=401", "status=401 body=revoked"])
            .calls(2..=2)
            .after(AccountsAfter::FirstInCooldown)
            .custom_steps(multi_step_cases::rejected_credentials),
        single_account(row("U17", "401, no other")).with_scripts(&["status=401"]).after(known),
        row("U18", "402, another account")
            .with_scripts(&["status=402"])
            .calls(2..=2)
            .after(AccountsAfter::FirstInCooldown),
        row("U18", "403, another account")
            .with_scripts(&["status=403"])
            .calls(2..=2)
            .after(AccountsAfter::FirstInCooldown),
        row("U18", "404, another account")
            .with_scripts(&["status=404"])
            .calls(2..=2)
            .after(AccountsAfter::FirstInCooldown),
        single_account(row("U18", "402, no other")).with_scripts(&["status=402"]).after(known),
        // An HTML page says nothing about the account, so the next request goes there again.
        single_account(row("U18", "403, no other"))
            .with_scripts(&["status=403 body=html"])
            .with_retry_advice("false")
            .after(AccountsAfter::FirstNotPenalized),
        single_account(row("U18", "404, no other")).with_scripts(&["status=404"]).after(known),
    ]
}

/// U19, U20 and U22: the attempt failed, or may have failed.
fn failures() -> Vec<Row> {
    vec![
        row("U19", "stated server error, another account")
            .plain(&["status=500", "status=503"])
            .streamed(&["status=500", "status=503", "events=e", "events=failed"])
            .calls(2..=2),
        row("U19", "stated server error everywhere")
            .accounts(3)
            .plain(&["status=500", "status=503"])
            .streamed(&["status=500", "events=e"])
            .other_accounts("=")
            .fails_with_502(&["failed"])
            .calls(2..=2),
        row("U19", "one account fails always")
            .with_scripts(&["status=500"])
            .after(AccountsAfter::UsableWithin(70))
            .custom_steps(multi_step_cases::moves_away),
        row("U20", "made and charged, then the connection breaks")
            .plain(&["hang-up", "hang-up how=reset", "cut=30", "cut=30 how=reset framing=chunked"])
            .streamed(&["hang-up", "hang-up how=reset", "events=cut", "plain cut=30 how=reset"])
            .ambiguous(&["network", "no_image_data"]),
        row("U20", "made and charged, then a proxy gives up")
            .with_scripts(&[
                "status=524 body=html",
                "status=504 body=html",
                "status=502 body=text",
                "status=502",
                "status=520 body=none",
                "status=500 body=html",
                "status=503 body=text",
            ])
            .ambiguous(&["network", "no_image_data", "timeout"]),
        row("U22", "dies after bytes went out")
            .plain(&["b64=2000000 cut=50%", "b64=2000000 cut=50% how=reset", "b64=2000000 lack=20 framing=chunked"])
            .streamed(&[
                "events=p,cut",
                "events=p,cut how=reset",
                "events=p,e",
                "events=p,half,cut b64=2000000",
                "events=p,e-limit",
            ])
            .breaks(),
    ]
}

/// U21: the upstream refuses the request.
fn refusals() -> Vec<Row> {
    vec![
        row("U21", "refused by status")
            .accounts(3)
            .with_scripts(&["status=400 body=policy", "status=400 body=policy-old", "status=403 body=policy"])
            .refused(),
        row("U21", "refused in a 200").accounts(3).with_scripts(&["body=policy", "body=policy-old"]).refused(),
        row("U21", "refused by an event")
            .accounts(3)
            .plain(&["sse events=e-policy", "sse events=failed-policy"])
            .streamed(&["events=e-policy", "events=k,e-policy", "events=failed-policy"])
            .refused(),
        row("U21", "words instead of an image, charged")
            .accounts(3)
            .plain(&["data=words tokens=90"])
            .streamed(&["events=words tokens=90", "plain data=words tokens=90"])
            .fails_with_502(&["refused", "failed", "interrupted"])
            .with_reasons(&["content_refused", "text_instead_of_image", "no_image_data"])
            .with_retry_advice("false")
            .charged()
            .after(AccountsAfter::FirstNotPenalized),
        row("U21", "an empty 200")
            .accounts(3)
            .with_scripts(&["body=none", "body=none framing=chunked"])
            .fails_with_502(&["refused", "interrupted"])
            .with_reasons(&["content_refused", "no_image_data", "network"])
            .with_retry_advice("false")
            .after(AccountsAfter::FirstNotPenalized),
    ]
}
