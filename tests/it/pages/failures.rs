//! A failure is understood from the page of its record: the event, the party at fault, the calls and the payment. The list
//! of records finds it by its properties, and the counts of other pages lead to it.

use serde_json::{Value, json};

use super::users::{make_key, sign_in_ada, sign_in_ben};
use super::visitor::{Visitor, unescaped};
use crate::kit::{Account, Call, FakeUpstream, Gateway, RefusingPort, request};

const NOTHING: &str = "Nothing was paid.";
const REQUEST: &str = "The request";
const UPSTREAM: &str = "The upstream, or the network to it";
const SETTINGS: &str = "The accounts or settings of the gateway";

fn two_accounts(upstream: &FakeUpstream) -> [Account; 2] {
    [Account::for_upstream("first", upstream), Account::for_upstream("second", upstream).with_free_tier()]
}

/// The text of a page without its tags, with single spaces.
fn text_of(html: &str) -> String {
    let text = html.split('<').map(|piece| piece.split_once('>').map_or(piece, |(_, text)| text));
    let text = text.collect::<Vec<_>>().join(" ");
    unescaped(&text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The explanation at the top of the page of a record.
#[track_caller]
fn explanation(visitor: &mut Visitor<'_>, record: &Value) -> String {
    let id = record["request_id"].as_str().expect("an id");
    let html = visitor.get(&format!("/records/{id}")).text();
    let notice = html.split("<section class=\"notice why").nth(1).unwrap_or_else(|| panic!("no explanation: {html}"));
    text_of(&format!("<{}", notice.split("</section>").next().unwrap_or_default()))
}

/// Checks that the only record is explained with all of these words.
#[track_caller]
fn check_explanation(gateway: &Gateway, words: &[&str]) {
    let record = gateway.final_records(1).remove(0);
    let text = explanation(&mut sign_in_ada(gateway), &record);
    for word in words {
        assert!(text.contains(word), "{word} is missing: {text}\n{record}");
    }
}

#[test]
fn each_failure_says_what_happened_who_is_to_blame_and_what_was_paid() {
    for (script, words) in [
        (
            "status=500",
            ["The upstream reported that it had failed.", UPSTREAM, NOTHING, "because two calls had failed"],
        ),
        ("status=401", ["refused the credentials", SETTINGS, NOTHING, "no other account could be asked"]),
        ("status=402", ["used up their quota", SETTINGS, NOTHING, "no other account could be asked"]),
        (
            "status=429 retry-after=40",
            ["accepts no more requests", UPSTREAM, NOTHING, "the first can be asked again at"],
        ),
        ("status=404", ["does not offer this model", SETTINGS, NOTHING, "after an admin has changed"]),
        ("status=400 body=policy", ["refused the content", REQUEST, NOTHING, "Change the request"]),
        ("status=400 body=parameter", ["rejected the request", REQUEST, NOTHING, "Invalid value: 'low'."]),
        (
            "status=504 body=html",
            ["did not answer in time", UPSTREAM, "may have been paid for: at most $", "second image"],
        ),
        (
            "hang-up",
            ["The connection to the upstream broke", UPSTREAM, "may have been paid for: at most $", "(no answer)"],
        ),
    ] {
        let upstream = FakeUpstream::start();
        let gateway = Gateway::with("", &two_accounts(&upstream));
        assert!(gateway.scripted(script).status >= 400, "{script}");
        check_explanation(&gateway, &words);
    }
}

#[test]
fn failures_without_a_call_and_after_the_answer_are_explained_too() {
    let upstream = FakeUpstream::start();
    let filter = "[[groups]]\nname = \"default\"\n[groups.filter]\nwords = [\"zeppelin\"]\n";
    let gateway = Gateway::with(filter, &two_accounts(&upstream));
    assert_eq!(gateway.generate(json!({"prompt": "a zeppelin"})).status, 502);
    check_explanation(
        &gateway,
        &["The prompt filter of the group", REQUEST, NOTHING, "The gateway called no account."],
    );

    let closed = RefusingPort::new();
    let gateway = Gateway::with("", &[Account::with_base_url("only", closed.base_url())]);
    assert_eq!(gateway.generate(json!({})).status, 502);
    check_explanation(&gateway, &["No upstream could be reached.", UPSTREAM, NOTHING, "only (no answer)"]);

    let strict = "[[groups]]\nname = \"default\"\ndelivery = \"fail\"\n";
    let gateway = Gateway::with(strict, &two_accounts(&upstream));
    assert_eq!(gateway.generate(json!({"size": "1024x1024", "prompt": "a harbour [[size=640x480]]"})).status, 502);
    check_explanation(&gateway, &["another size or format", UPSTREAM, "It was paid for: $", "an image had been made"]);
}

#[test]
fn a_job_whose_process_was_killed_is_explained() {
    let upstream = FakeUpstream::start();
    let mut gateway = Gateway::with("", &two_accounts(&upstream));
    std::thread::scope(|scope| {
        // The call gets no answer, because the process is killed first.
        let call = gateway.call(json!({"prompt": "a harbour [[gate=never]]"}));
        let address = gateway.address();
        scope.spawn(move || drop(call.try_send(address)));
        upstream.wait_until("the account is asked", |attempts| attempts.len() == 1);
        gateway.kill();
    });
    gateway.start();
    check_explanation(
        &gateway,
        &["The gateway stopped before the request was finished.", "At fault The gateway", "may have been paid for"],
    );
    upstream.open_gate("never");
}

#[test]
fn a_timeline_shows_each_call_and_what_followed() {
    let upstream = FakeUpstream::start();
    upstream.always_for_token("sk-upstream-first", "status=429 delay=20");
    upstream.always_for_token("sk-upstream-second", "status=500");
    let gateway = Gateway::with("", &two_accounts(&upstream));
    let mut ada = sign_in_ada(&gateway);
    let mut ben = sign_in_ben(&mut ada);
    let (_, secret) = make_key(&mut ben, "phone");
    let answer = Call::generation().key(&secret).json(&request(json!({}))).send(gateway.address());
    assert!(answer.status >= 400, "{}", answer.text());
    let record = gateway.final_records(1).remove(0);
    let starts: Vec<_> = (0..2).map(|index| record["attempts"][index]["start_ms"].as_u64()).collect();
    assert!(starts[0].is_some() && starts[1] >= starts[0].map(|start| start + 20), "{record}");
    let path = format!("/records/{}", record["request_id"].as_str().expect("an id"));
    let html = ada.get(&path).text();
    assert_eq!(html.matches("<rect class=\"bad\"").count(), 2, "{html}");
    let text = text_of(&html);
    for word in ["Asked another account", "Gave up", "first (HTTP 429) → second (HTTP 500)"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    // A member sees the calls, but neither the accounts nor the words of the upstream.
    let html = ben.get(&path).text();
    let text = text_of(&html);
    for word in ["The gateway made 2 calls to upstreams.", "Made another call", "Gave up", "At fault"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    for word in [">first<", ">second<", "provider-canary", "req_upstream_", "can be asked"] {
        assert!(!html.contains(word), "{word}: {html}");
    }
}

/// The ids of the records that a page lists.
fn listed(visitor: &mut Visitor<'_>, path: &str) -> Vec<String> {
    let html = visitor.get(path).text();
    let links = html.split("<a href=\"/records/").skip(1).filter_map(|rest| rest.split('"').next());
    links.map(str::to_owned).collect()
}

#[test]
fn the_list_is_filtered_by_the_error_the_model_and_the_account() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with("", &two_accounts(&upstream));
    gateway.generate(json!({"model": "gpt-image-2-2026-04-21"})).ok_json();
    assert!(gateway.scripted("status=400 body=policy").status >= 400);
    assert!(gateway.scripted("hang-up").status >= 400);
    let records = gateway.final_records(3);
    let ids: Vec<&str> = records.iter().filter_map(|record| record["request_id"].as_str()).collect();
    let [succeeded, refused, broken] = ids[..] else { panic!("{records:?}") };
    let mut ada = sign_in_ada(&gateway);
    let mut ben = sign_in_ben(&mut ada);
    for (query, expected) in [
        ("", vec![broken, refused, succeeded]),
        ("state=unsuccessful", vec![broken, refused]),
        ("state=refused", vec![refused]),
        ("error_reason=content_refused", vec![refused]),
        ("error_reason=network&state=interrupted", vec![broken]),
        ("error_code=upstream_error", vec![broken, refused]),
        ("error_code=upstream_error&error_reason=quota", vec![]),
        ("model=gpt-image-2-2026-04-21", vec![succeeded]),
        ("model=gpt-image-2-2026-04-21&state=unsuccessful", vec![]),
        ("account=first", vec![broken, refused, succeeded]),
        ("account=second", vec![]),
        ("group=default&account=first&model=gpt-image-2-2026-04-21", vec![succeeded]),
    ] {
        assert_eq!(listed(&mut ada, &format!("/records?{query}")), expected, "{query}");
        let csv = ada.get(&format!("/records.csv?{query}")).text();
        assert_eq!(csv.lines().count(), expected.len() + 1, "{query}: {csv}");
    }
    // Each filter in use has a link that removes it and keeps the others.
    let html = ada.get("/records?state=failed&end_user=a+%26+b&before=").text();
    for link in ["href=\"/records?end_user=a+%26+b\"", "href=\"/records?state=failed\""] {
        assert!(unescaped(&html).contains(link), "{link}: {html}");
    }
    let errors = ada.get("/records").text();
    for word in [">Content refused</td>", ">Network error</td>", "<td>–</td>"] {
        assert!(errors.contains(word), "{word}: {errors}");
    }
    // A member cannot learn by a filter which account served a request.
    let page = ben.get("/records?account=first").text();
    assert!(page.contains("No records yet") && !page.contains("name=\"account\""), "{page}");
}

#[test]
fn counts_lead_to_their_records_and_rejected_requests_are_shown() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with("", &two_accounts(&upstream));
    let mut ada = sign_in_ada(&gateway);
    let (key, secret) = make_key(&mut ada, "laptop");
    let send = |fields: Value| Call::generation().key(&secret).json(&request(fields)).send(gateway.address());
    send(json!({})).ok_json();
    assert!(send(json!({"prompt": "a harbour [[status=400 body=policy]]"})).status >= 400);
    send(json!({"size": "3x3"})).error_object(400);
    gateway.final_records(2);
    let page = crate::kit::eventually("the rejected request is counted", || {
        let page = ada.get(&key).text();
        text_of(&page).contains("Rejected 1").then_some(page)
    });
    assert!(text_of(&page).contains("HTTP 400, 401, 404"), "{page}");
    let id = key.trim_start_matches("/keys/");
    for (link, count) in [(format!("/records?key={id}"), 2), (format!("/records?key={id}&state=unsuccessful"), 1)] {
        assert!(unescaped(&page).contains(&format!("<a href=\"{link}\">{count}</a>")), "{link}: {page}");
        assert_eq!(listed(&mut ada, &link).len(), count, "{link}");
    }
    let usage = unescaped(&ada.get("/usage").text());
    for count in [1, 2] {
        let links: Vec<&str> = usage
            .split("<a href=\"")
            .filter_map(|link| link.split_once(&format!("\">{count}</a>")))
            .map(|(link, _)| link)
            .filter(|link| link.starts_with("/records?"))
            .collect();
        assert!(links.len() >= 3, "{links:?}");
        for link in links {
            assert_eq!(listed(&mut ada, link).len(), count, "{link}");
        }
    }
}
