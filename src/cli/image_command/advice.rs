//! The advice that follows the failure of a request.
//!
//! The error table of the API document has an advice for each code. Other services use some of the same codes in other
//! senses, so it is given only for an answer of a gateway.

use std::time::Duration;

use crate::cli::failure::CommandFailure;
use crate::client::{Client, Error};
use crate::tables;

/// The header that every error of a gateway has.
const SHOULD_RETRY: &str = "x-should-retry";

/// Converts the error of a request that this client sent or refused to send.
pub(super) fn with_advice(error: Error, client: &Client) -> CommandFailure {
    if error.is_invalid_request() && error.status().is_none() {
        return CommandFailure::Usage(refusal_text(&error));
    }
    if error.is_connect() {
        let advice = if client.is_local() {
            "start a gateway with `imagate serve`, or name the service with --base-url or IMAGATE_BASE_URL"
        } else {
            "check the address, which --base-url, IMAGATE_BASE_URL or OPENAI_BASE_URL sets, and the network"
        };
        let error = anyhow::Error::new(error);
        let message = format!("{error}: {}", error.root_cause());
        return CommandFailure::Advised(anyhow::Error::msg(message), advice.to_owned());
    }
    match advice(&error) {
        Some(advice) => CommandFailure::Advised(error.into(), advice),
        None => error.into(),
    }
}

/// Returns true if the error is the answer of a gateway.
pub(super) fn is_of_gateway(error: &Error) -> bool {
    error.meta().is_some_and(|meta| meta.header(SHOULD_RETRY).is_some())
}

/// Returns the advice for an error of a gateway.
fn advice(error: &Error) -> Option<String> {
    let row = tables::ERRORS.iter().find(|row| error.code() == Some(row.code) && is_of_gateway(error))?;
    let fixed = match (row.code, error.reason()) {
        (_, Some("content_refused")) => "change the prompt or the input image: the same ones will be refused again",
        (_, Some("text_instead_of_image")) => "say in the prompt that an image is wanted, and what it shows",
        (_, Some("timeout" | "no_image_data" | "async_upstream" | "image_by_address" | "unknown_coding")) => {
            "an image may have been charged for: a repeat may be charged again"
        }
        (_, Some("quota" | "credentials" | "model_not_offered")) => {
            "tell the operator, who sees the account in `imagate account list`"
        }
        ("no_available_accounts", _) => {
            "try again later, or ask the operator: `imagate account list` says why each account is not used"
        }
        ("usage_limit_reached" | "insufficient_quota", _) => return limit_advice(error),
        _ => row.action,
    };
    Some(fixed.to_owned())
}

/// Returns the advice for a limit that is used up; `None` if it is not known when it allows more.
fn limit_advice(error: &Error) -> Option<String> {
    let wait = wait_text(error.resets_in()?);
    Some(format!("the limit allows more in {wait}; the operator can raise it. Nothing was spent"))
}

/// Returns a wait in the largest unit that it fills, rounded up.
fn wait_text(wait: Duration) -> String {
    let seconds = wait.as_secs();
    let (count, unit) = match seconds {
        0..=120 => (seconds, "second"),
        121..=7200 => (seconds.div_ceil(60), "minute"),
        7201..=172_800 => (seconds.div_ceil(3600), "hour"),
        _ => (seconds.div_ceil(86_400), "day"),
    };
    if count == 1 { format!("1 {unit}") } else { format!("{count} {unit}s") }
}

/// Returns the message of a request that breaks a rule, with the option that sets the field.
fn refusal_text(error: &Error) -> String {
    let option = match error.param() {
        None => return error.to_string(),
        Some("prompt") => "PROMPT".to_owned(),
        Some("n") => "--count".to_owned(),
        Some("partial_images") => "--partials".to_owned(),
        Some(field) => format!("--{}", field.replace('_', "-").to_ascii_lowercase()),
    };
    format!("{option}: {}", error.message())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{Answer, StubServer};

    /// Returns the advice for an error with these members, as a gateway or another service sends it.
    fn advice_for(members: &Value, is_gateway: bool) -> Option<String> {
        let mut error = json!({"message": "No.", "type": "server_error", "param": null});
        error.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let answer = Answer::new(429, json!({ "error": error }).to_string());
        let answer = if is_gateway { answer.header(SHOULD_RETRY, "false") } else { answer };
        let server = StubServer::start([answer]).unwrap();
        let client = Client::new(&server.base_url(), "sk-test").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let error = runtime.block_on(client.images().generate("a fox")).unwrap_err();
        match with_advice(error, &client) {
            CommandFailure::Advised(_, advice) => Some(advice),
            _ => None,
        }
    }

    #[test]
    fn advice_follows_the_reason_and_only_errors_of_a_gateway() {
        let refused = json!({"code": "upstream_error", "reason": "content_refused"});
        assert!(advice_for(&refused, true).unwrap().starts_with("change the prompt"));
        assert!(advice_for(&json!({"code": "upstream_error"}), true).unwrap().starts_with("Simplify"));
        let limit = json!({"code": "insufficient_quota", "resets_in_seconds": 7201});
        assert!(advice_for(&limit, true).unwrap().starts_with("the limit allows more in 3 hours;"));
        for other in [limit, json!({"code": "insufficient_quota"}), json!({"code": "rate_limit_exceeded"})] {
            assert_eq!(advice_for(&other, false), None, "{other}");
        }
        assert_eq!(advice_for(&json!({"code": "insufficient_quota"}), true), None, "its end is not known");
    }

    #[test]
    fn a_wait_has_the_largest_unit_that_it_fills() {
        for (seconds, expected) in
            [(1, "1 second"), (120, "120 seconds"), (121, "3 minutes"), (7201, "3 hours"), (172_801, "3 days")]
        {
            assert_eq!(wait_text(Duration::from_secs(seconds)), expected);
        }
    }
}
