//! What a user of Codex reads when a turn fails, and how often it asks.

use super::Stage;
use super::codex::{Codex, Told};
use crate::kit::Turn;

/// A turn that goes wrong as the script says.
struct Failed {
    stage: Stage,
    told: Told,
}

// === impl Failed ===

impl Failed {
    #[track_caller]
    fn with(script: &str) -> Self {
        let stage = Stage::set();
        stage.upstream.always_for_token("sk-upstream-talks", script);
        let told = Codex::impatient(&stage.tap, stage.gateway.secret()).exec("How is it?");
        Self { stage, told }
    }

    /// Requests of Codex, and attempts of the gateway.
    fn cost(&self) -> (usize, usize) {
        (self.stage.tap.requests().len(), self.stage.upstream.attempts())
    }
}

/// So many tries has an impatient Codex for a task, and so many for a stream of events that breaks.
const TRIES: usize = 2;

#[test]
fn codex_says_that_a_key_is_wrong_and_nothing_is_spent() {
    let stage = Stage::set();
    stage.upstream.set_conversation(&[Turn::Says("All is well.")]);
    let told = Codex::impatient(&stage.tap, "sk-wrong").exec("How is it?");
    let failure = told.failure();
    assert!(failure.starts_with("unexpected status 401 Unauthorized: Invalid API key"), "{failure}");
    assert!(failure.contains("request id: "), "{failure}");
    assert_eq!((stage.tap.requests().len(), stage.upstream.attempts()), (TRIES, 0));
}

#[test]
fn codex_says_that_the_usage_limit_is_reached_and_when_it_is_over_and_asks_once() {
    let failed = Failed::with("status=429 body=usage-limit resets-in=3600");
    let failure = failed.told.failure().replace('’', "'");
    assert!(failure.starts_with("You've hit your usage limit. Try again at "), "{failure}");
    assert_eq!(failed.cost(), (1, 1));
}

#[test]
fn codex_shows_what_is_wrong_with_a_parameter_and_asks_once() {
    let failed = Failed::with("status=400 body=parameter");
    let failure = failed.told.failure();
    assert!(failure.contains("\"invalid_request_error\"") && failure.contains("\"param\":\"quality\""), "{failure}");
    assert_eq!(failed.cost(), (1, 1));
}

#[test]
fn codex_shows_what_the_gateway_refuses_and_nothing_is_spent() {
    let stage = Stage::set();
    let codex = Codex::with_provider(&stage.tap, stage.gateway.secret()).with_model("gpt-image-2");
    let told = codex.exec("How is it?");
    assert!(told.failure().contains("\"param\":\"model\""), "{}", told.failure());
    assert_eq!((stage.tap.requests().len(), stage.upstream.attempts()), (1, 0));
}

#[test]
fn codex_tries_again_when_the_upstream_fails_and_says_the_request_id() {
    let failed = Failed::with("status=500");
    let failure = failed.told.failure();
    assert!(failure.starts_with("unexpected status 502 Bad Gateway: Upstream request failed"), "{failure}");
    assert_eq!(failed.cost(), (TRIES * TRIES, TRIES * TRIES));
    let records = failed.stage.gateway.final_records(TRIES * TRIES);
    let last = records[TRIES * TRIES - 1]["request_id"].as_str().expect("an id");
    assert!(failure.ends_with(&format!("request id: {last}")), "{failure} {last}");
}

#[test]
fn codex_takes_up_a_stream_that_breaks_and_not_one_that_is_refused() {
    let broken = Failed::with("events=created,text,eof");
    let failure = broken.told.failure();
    assert_eq!(failure, "stream disconnected before completion: Upstream request failed");
    assert_eq!(broken.cost(), (TRIES, TRIES));
    let refused = Failed::with("events=created,text,failed-policy");
    assert_eq!(refused.told.failure(), "Upstream request failed");
    assert_eq!(refused.cost(), (1, 1));
}

/// What an untouched Codex does, which takes half a minute.
#[test]
#[ignore = "cargo xtask tours"]
fn codex_asks_as_often_as_the_contract_says() {
    for (script, requests) in [("status=500", 30), ("status=429 body=usage-limit", 1), ("status=400 body=parameter", 1)]
    {
        let stage = Stage::set();
        stage.upstream.always_for_token("sk-upstream-talks", script);
        let told = Codex::with_provider(&stage.tap, stage.gateway.secret()).exec("How is it?");
        assert_eq!(stage.tap.requests().len(), requests, "{script}: {}", told.failure());
    }
    let stage = Stage::set();
    let told = Codex::with_provider(&stage.tap, "sk-wrong").exec("How is it?");
    assert_eq!(stage.tap.requests().len(), 6, "{}", told.failure());
}
