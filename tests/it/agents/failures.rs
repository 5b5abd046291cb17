//! Turns of Codex that fail: the message for the user, and the number of requests.

use super::AgentFixture;
use super::codex::{Codex, CodexOutput};
use crate::kit::ModelStep;

/// A turn that fails, because the upstream follows this script.
struct FailedTurn {
    fixture: AgentFixture,
    output: CodexOutput,
}

// === impl FailedTurn ===

impl FailedTurn {
    #[track_caller]
    fn with(script: &str) -> Self {
        let fixture = AgentFixture::start();
        fixture.upstream.always_for_token("sk-upstream-talks", script);
        let output = Codex::with_few_retries(&fixture.proxy, fixture.gateway.secret()).exec("How is it?");
        Self { fixture, output }
    }

    /// The number of requests by Codex, and of attempts by the gateway.
    fn counts(&self) -> (usize, usize) {
        (self.fixture.proxy.requests().len(), self.fixture.upstream.attempt_count())
    }
}

/// The number of requests with `request_max_retries = 1`, and also of streams with `stream_max_retries = 1`.
const MAX_ATTEMPTS: usize = 2;

#[test]
fn codex_reports_a_wrong_key_and_nothing_is_spent() {
    let fixture = AgentFixture::start();
    fixture.upstream.set_conversation(&[ModelStep::Says("All is well.")]);
    let output = Codex::with_few_retries(&fixture.proxy, "sk-wrong").exec("How is it?");
    let failure = output.failure();
    assert!(failure.starts_with("unexpected status 401 Unauthorized: Invalid API key"), "{failure}");
    assert!(failure.contains("request id: "), "{failure}");
    assert_eq!((fixture.proxy.requests().len(), fixture.upstream.attempt_count()), (MAX_ATTEMPTS, 0));
}

#[test]
fn codex_reports_the_usage_limit_after_one_request() {
    let failed = FailedTurn::with("status=429 body=usage-limit resets-in=3600");
    let failure = failed.output.failure().replace('’', "'");
    assert!(failure.starts_with("You've hit your usage limit. Try again at "), "{failure}");
    assert_eq!(failed.counts(), (1, 1));
}

#[test]
fn codex_reports_an_invalid_parameter_after_one_request() {
    let failed = FailedTurn::with("status=400 body=parameter");
    let failure = failed.output.failure();
    assert!(failure.contains("\"invalid_request_error\"") && failure.contains("\"param\":\"quality\""), "{failure}");
    assert_eq!(failed.counts(), (1, 1));
}

#[test]
fn codex_reports_a_refusal_of_the_gateway() {
    let fixture = AgentFixture::start();
    let codex = Codex::with_provider(&fixture.proxy, fixture.gateway.secret()).with_model("gpt-image-2");
    let output = codex.exec("How is it?");
    assert!(output.failure().contains("\"param\":\"model\""), "{}", output.failure());
    assert_eq!((fixture.proxy.requests().len(), fixture.upstream.attempt_count()), (1, 0));
}

#[test]
fn codex_retries_upstream_failures_and_shows_the_request_id() {
    let failed = FailedTurn::with("status=500");
    let failure = failed.output.failure();
    assert!(failure.starts_with("unexpected status 502 Bad Gateway: Upstream request failed"), "{failure}");
    assert_eq!(failed.counts(), (MAX_ATTEMPTS * MAX_ATTEMPTS, MAX_ATTEMPTS * MAX_ATTEMPTS));
    let records = failed.fixture.gateway.final_records(MAX_ATTEMPTS * MAX_ATTEMPTS);
    let last = records[MAX_ATTEMPTS * MAX_ATTEMPTS - 1]["request_id"].as_str().expect("an id");
    assert!(failure.ends_with(&format!("request id: {last}")), "{failure} {last}");
}

#[test]
fn codex_retries_a_broken_stream_but_not_a_refused_one() {
    let broken = FailedTurn::with("events=created,text,eof");
    let failure = broken.output.failure();
    assert_eq!(failure, "stream disconnected before completion: Upstream request failed");
    assert_eq!(broken.counts(), (MAX_ATTEMPTS, MAX_ATTEMPTS));
    let refused = FailedTurn::with("events=created,text,failed-policy");
    assert_eq!(refused.output.failure(), "Upstream request failed");
    assert_eq!(refused.counts(), (1, 1));
}

/// Codex with its default number of retries, which takes half a minute.
#[test]
#[ignore = "cargo xtask tours"]
fn codex_retries_as_often_as_the_contract_says() {
    for (script, requests) in [("status=500", 30), ("status=429 body=usage-limit", 1), ("status=400 body=parameter", 1)]
    {
        let fixture = AgentFixture::start();
        fixture.upstream.always_for_token("sk-upstream-talks", script);
        let output = Codex::with_provider(&fixture.proxy, fixture.gateway.secret()).exec("How is it?");
        assert_eq!(fixture.proxy.requests().len(), requests, "{script}: {}", output.failure());
    }
    let fixture = AgentFixture::start();
    let output = Codex::with_provider(&fixture.proxy, "sk-wrong").exec("How is it?");
    assert_eq!(fixture.proxy.requests().len(), 6, "{}", output.failure());
}
