//! The content filter: it runs before an upstream is asked, and its refusal looks like that of an upstream.

use std::time::Duration;

use serde_json::{Value, json};

use crate::kit::{Account, Answer, FLAGGED, FakeModerator, FakeUpstream, Form, Gateway, alpha_png, eventually};

/// A gateway with these lines in `[groups.filter]`.
fn filtered(upstream: &FakeUpstream, filter: &str) -> Gateway {
    let top = format!("[[groups]]\nname = \"default\"\n[groups.filter]\n{filter}\n");
    Gateway::with_secrets(
        &top,
        &[Account::for_upstream("only", upstream)],
        &[("IT_MODERATION", "sk-moderation-canary")],
    )
}

/// The lines of `[groups.filter.moderation]` for this endpoint.
fn moderation(moderator: &FakeModerator, on_error: &str, timeout: &str) -> String {
    format!(
        "[groups.filter.moderation]\nbase_url = \"{}\"\napi_key = {{ env = \"IT_MODERATION\" }}\n\
         model = \"omni-moderation-latest\"\non_error = \"{on_error}\"\ntimeout = \"{timeout}\"\n",
        moderator.base_url()
    )
}

/// Checks that the answer looks like the refusal of an upstream, that no upstream was asked, and that the last of
/// `record_count` records is refused.
#[track_caller]
fn assert_refused(answer: &Answer, gateway: &Gateway, upstream: &FakeUpstream, record_count: usize) {
    let error = answer.error_object(502);
    let row = (&error["message"], &error["type"], &error["code"], &error["param"], &error["reason"]);
    let upstream_error = json!("upstream_error");
    assert_eq!(
        row,
        (&json!("Upstream request failed"), &upstream_error, &upstream_error, &Value::Null, &json!("content_refused"))
    );
    assert_eq!(answer.should_retry(), Some("false"));
    assert_eq!(upstream.accepted(), 0, "the upstream was asked");
    let all = gateway.final_records(record_count);
    let record = all.last().expect("a record");
    assert_eq!((all.len(), &record["state"]), (record_count, &json!("refused")), "{record}");
    assert_eq!((&record["attempts"], &record["usage"], &record["delivered"]), (&json!([]), &Value::Null, &json!([])));
    assert_eq!(record["account"], Value::Null, "no account was asked: {record}");
}

#[test]
fn a_prompt_with_a_filtered_word_is_refused_whatever_its_case() {
    let upstream = FakeUpstream::start();
    let gateway = filtered(&upstream, "words = [\"zeppelin\", \"two words\"]");
    let refused = ["a zeppelin", "A ZEPPELIN!", "the Zeppelin, at night", "zeppelin", "here are two words of it"];
    for (at, prompt) in refused.iter().enumerate() {
        assert_refused(&gateway.generate(json!({"prompt": prompt})), &gateway, &upstream, at + 1);
    }
    let lenient = gateway.generate(json!({"prompt": "a zeppelin", "moderation": "low"}));
    assert_refused(&lenient, &gateway, &upstream, refused.len() + 1);
    // Nothing that the gateway prints or logs shows the prompts.
    let said = gateway.output();
    assert!(!said.contains("at night") && !said.contains("two words of it"), "{said}");
    for prompt in ["a red cube", "zeppelins of the past are another word", "two more words"] {
        gateway.generate(json!({"prompt": prompt})).ok_json();
    }
}

#[test]
fn a_prompt_that_matches_a_pattern_is_refused() {
    let upstream = FakeUpstream::start();
    let gateway = filtered(&upstream, r"patterns = ['\bproject[ -]x\d+\b', '(?i)forbidden$']");
    for (at, prompt) in ["draw project x7 now", "project-x42", "this is Forbidden"].iter().enumerate() {
        assert_refused(&gateway.generate(json!({"prompt": prompt})), &gateway, &upstream, at + 1);
    }
    gateway.generate(json!({"prompt": "project x, forbidden for none"})).ok_json();
}

#[test]
fn edits_and_streams_are_filtered_as_well() {
    let upstream = FakeUpstream::start();
    let gateway = filtered(&upstream, "words = [\"zeppelin\"]");
    let form = Form::new().text("model", "gpt-image-2").text("prompt", "a zeppelin").file("image", &alpha_png(96, 64));
    assert_refused(&gateway.edit(form), &gateway, &upstream, 1);
    assert_refused(&gateway.generate(json!({"prompt": "a zeppelin", "stream": true})), &gateway, &upstream, 2);
}

#[test]
fn what_the_moderation_endpoint_flags_is_refused() {
    let (upstream, moderator) = (FakeUpstream::start(), FakeModerator::start());
    let gateway = filtered(&upstream, &moderation(&moderator, "closed", "5s"));
    assert_refused(&gateway.generate(json!({"prompt": format!("please {FLAGGED}")})), &gateway, &upstream, 1);
    gateway.generate(json!({"prompt": "a red cube"})).ok_json();
    let asked = moderator.calls();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[0].path, "/v1/moderations");
    assert_eq!(asked[0].authorization.as_deref(), Some("Bearer sk-moderation-canary"));
    assert_eq!(asked[0].body["model"], "omni-moderation-latest");
    assert!(asked[1].body["input"].to_string().contains("a red cube"), "{}", asked[1].body);
    assert!(!gateway.output().contains("sk-moderation-canary"));
    assert!(
        upstream
            .received_attempts()
            .iter()
            .all(|attempt| attempt.header("authorization") != Some("Bearer sk-moderation-canary"))
    );
}

#[test]
fn the_words_of_the_operator_are_checked_before_the_moderation_endpoint_is_asked() {
    let (upstream, moderator) = (FakeUpstream::start(), FakeModerator::start());
    let gateway = filtered(&upstream, &format!("words = [\"zeppelin\"]\n{}", moderation(&moderator, "closed", "5s")));
    assert_refused(&gateway.generate(json!({"prompt": "a zeppelin"})), &gateway, &upstream, 1);
    assert_eq!(moderator.calls().len(), 0);
}

/// The name of a failure, and what causes it.
type ModerationFailure = (&'static str, fn(&FakeModerator));

/// Everything that a moderation endpoint can do instead of giving a verdict.
fn moderation_failures() -> [ModerationFailure; 8] {
    [
        ("it hangs up", FakeModerator::hang_up),
        ("a 500", |moderator| moderator.always(500, "{\"error\":{\"message\":\"moderation-canary\"}}")),
        ("a 401", |moderator| moderator.always(401, "{\"error\":{\"message\":\"moderation-canary\"}}")),
        ("a 429", |moderator| moderator.always(429, "{}")),
        ("a page", |moderator| moderator.always(200, "<html>moderation-canary</html>")),
        ("no verdict", |moderator| moderator.always(200, "{\"results\":[]}")),
        ("another shape", |moderator| moderator.always(200, "{\"results\":[{\"flagged\":\"perhaps\"}]}")),
        ("it is slow", |moderator| moderator.set_delay(Duration::from_secs(3))),
    ]
}

#[test]
fn without_a_verdict_a_closed_filter_spends_nothing() {
    for (what, cause) in moderation_failures() {
        let (upstream, moderator) = (FakeUpstream::start(), FakeModerator::start());
        let gateway = filtered(&upstream, &moderation(&moderator, "closed", "500ms"));
        cause(&moderator);
        let answer = gateway.generate(json!({"prompt": "a red cube"}));
        let error = answer.error_object(answer.status);
        assert!([502, 503].contains(&answer.status), "{what}: {} {error}", answer.status);
        assert!(answer.should_retry().is_some() && !answer.text().contains("moderation-canary"), "{what}: {error}");
        assert_eq!(upstream.accepted(), 0, "{what}: the upstream was asked");
        let records = gateway.final_records(1);
        assert!(records.len() == 1 && records[0]["attempts"] == json!([]), "{what}: {records:#?}");
    }
}

#[test]
fn without_a_verdict_an_open_filter_lets_requests_pass_and_logs_it() {
    for (what, cause) in moderation_failures() {
        let (upstream, moderator) = (FakeUpstream::start(), FakeModerator::start());
        let gateway = filtered(&upstream, &moderation(&moderator, "open", "500ms"));
        cause(&moderator);
        gateway.generate(json!({"prompt": "a red cube"})).ok_json();
        assert_eq!(upstream.attempt_count(), 1, "{what}");
        let said = eventually("the log mentions the moderation", || {
            Some(gateway.output().to_lowercase()).filter(|said| said.contains("moderation"))
        });
        assert!(!said.contains("moderation-canary") && !said.contains("red cube"), "{what}: {said}");
    }
}

#[test]
fn on_error_of_the_moderation_is_required() {
    let home = tempfile::TempDir::new().expect("a directory");
    let file = home.path().join("imagate.toml");
    let text = "[[groups]]\nname = \"default\"\n[groups.filter.moderation]\nbase_url = \"http://127.0.0.1:1/v1\"\n\
                model = \"omni-moderation-latest\"\n";
    std::fs::write(&file, text).expect("a file");
    let done = crate::kit::Program::new(home.path()).args(["config", "check", "--config"]).args([&file]).run();
    assert_eq!(done.code, Some(64), "{done:#?}");
    assert!(format!("{}{}", done.stdout, done.stderr).contains("on_error"), "{done:#?}");
}

#[test]
fn a_refused_request_is_refused_again_under_the_same_idempotency_key() {
    let upstream = FakeUpstream::start();
    let gateway = filtered(&upstream, "words = [\"zeppelin\"]");
    let send = |prompt: &str| {
        gateway.call(json!({"prompt": prompt})).header("idempotency-key", "order-1").send(gateway.address())
    };
    send("a zeppelin").error_object(502);
    // The same request again gets the same refusal, and no upstream is asked for either.
    assert_eq!(send("a zeppelin").error_object(502)["reason"], "content_refused");
    assert_eq!(upstream.accepted(), 0);
}
