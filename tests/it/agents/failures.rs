//! Turns of Codex that fail: the message for the user, and the number of requests.

use super::AgentFixture;
use super::codex::{Codex, CodexOutput};
use crate::kit::Turn;

/// A turn that fails, because the upstream follows this script.
struct FailedTurn {
    stage: AgentFixture,
    told: CodexOutput,
}

// === impl FailedTurn ===

impl FailedTurn {
    #[track_caller]
    fn with(script: &str) -> Self {
        let stage = AgentFixture::start();
        stage.upstream.always_for_token("sk-upstream-talks", script);
        let told = Codex::with_few_retries(&stage.proxy, stage.gateway.secret()).exec("How is it?");
        Self { stage, told }
    }

    /// The number of requests by Codex, and of attempts by the gateway.
    fn counts(&self) -> (usize, usize) {
        (self.stage.proxy.requests().len(), self.stage.upstream.attempts())
    }
}

/// The number of requests with `request_max_retries = 1`, and also of streams with `stream_max_retries = 1`.
const MAX_ATTEMPTS: usize = 2;

#[test]
fn codex_reports_a_wrong_key_and_nothing_is_spent() {
    let stage = AgentFixture::start();
    stage.upstream.set_conversation(&[Turn::Says("All is well.")]);
    let told = Codex::with_few_retries(&stage.proxy, "sk-wrong").exec("How is it?");
    let failure = told.failure();
    assert!(failure.starts_with("unexpected status 401 Unauthorized: Invalid API key"), "{failure}");
    assert!(failure.contains("request id: "), "{failure}");
    assert_eq!((stage.proxy.requests().len(), stage.upstream.attempts()), (MAX_ATTEMPTS, 0));
}

#[test]
fn codex_reports_the_usage_limit_after_one_request() {
    let failed = FailedTurn::with("status=429 body=usage-limit resets-in=3600");
    let failure = failed.told.failure().replace('’', "'");
    assert!(failure.starts_with("You've hit your usage limit. Try again at "), "{failure}");
    assert_eq!(failed.counts(), (1, 1));
}

#[test]
fn codex_reports_an_invalid_parameter_after_one_request() {
    let failed = FailedTurn::with("status=400 body=parameter");
    let failure = failed.told.failure();
    assert!(failure.contains("\"invalid_request_error\"") && failure.contains("\"param\":\"quality\""), "{failure}");
    assert_eq!(failed.counts(), (1, 1));
}

#[test]
fn codex_reports_a_refusal_of_the_gateway() {
    let stage = AgentFixture::start();
    let codex = Codex::with_provider(&stage.proxy, stage.gateway.secret()).with_model("gpt-image-2");
    let told = codex.exec("How is it?");
    assert!(told.failure().contains("\"param\":\"model\""), "{}", told.failure());
    assert_eq!((stage.proxy.requests().len(), stage.upstream.attempts()), (1, 0));
}

#[test]
fn codex_retries_upstream_failures_and_shows_the_request_id() {
    let failed = FailedTurn::with("status=500");
    let failure = failed.told.failure();
    assert!(failure.starts_with("unexpected status 502 Bad Gateway: Upstream request failed"), "{failure}");
    assert_eq!(failed.counts(), (MAX_ATTEMPTS * MAX_ATTEMPTS, MAX_ATTEMPTS * MAX_ATTEMPTS));
    let records = failed.stage.gateway.final_records(MAX_ATTEMPTS * MAX_ATTEMPTS);
    let last = records[MAX_ATTEMPTS * MAX_ATTEMPTS - 1]["request_id"].as_str().expect("an id");
    assert!(failure.ends_with(&format!("request id: {last}")), "{failure} {last}");
}

#[test]
fn codex_retries_a_broken_stream_but_not_a_refused_one() {
    let broken = FailedTurn::with("events=created,text,eof");
    let failure = broken.told.failure();
    assert_eq!(failure, "stream disconnected before completion: Upstream request failed");
    assert_eq!(broken.counts(), (MAX_ATTEMPTS, MAX_ATTEMPTS));
    let refused = FailedTurn::with("events=created,text,failed-policy");
    assert_eq!(refused.told.failure(), "Upstream request failed");
    assert_eq!(refused.counts(), (1, 1));
}

/// Codex with its default number of retries, which takes half a minute.
#[test]
#[ignore = "cargo xtask tours"]
fn codex_retries_as_often_as_the_contract_says() {
    for (script, requests) in [("status=500", 30), ("status=429 body=usage-limit", 1), ("status=400 body=parameter", 1)]
    {
        let stage = AgentFixture::start();
        stage.upstream.always_for_token("sk-upstream-talks", script);
        let told = Codex::with_provider(&stage.proxy, stage.gateway.secret()).exec("How is it?");
        assert_eq!(stage.proxy.requests().len(), requests, "{script}: {}", told.failure());
    }
    let stage = AgentFixture::start();
    let told = Codex::with_provider(&stage.proxy, "sk-wrong").exec("How is it?");
    assert_eq!(stage.proxy.requests().len(), 6, "{}", told.failure());
}
