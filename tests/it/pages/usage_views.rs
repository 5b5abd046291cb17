//! The views of the usage: measures, periods, the comparison with the period before, and links to records.

use serde_json::{Value, json};

use super::browser::{Browser, WITH_SCRIPT};
use super::users::{make_key, sign_in_ada};
use super::visitor::unescaped;
use crate::kit::{Answer, Call, Gateway, eventually, request};

/// The addresses in a page that begin so.
fn links(html: &str, prefix: &str) -> Vec<String> {
    let links = html.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    links.map(unescaped).filter(|link| link.starts_with(prefix)).collect()
}

#[test]
fn each_measure_and_period_is_an_address_and_bars_lead_to_their_records() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let (_, secret) = make_key(&mut ada, "laptop");
    for _ in 0..3 {
        let answer = Call::generation().json(&request(json!({}))).key(&secret).send(gateway.address());
        assert_eq!(answer.status, 200);
    }
    gateway.final_records(3);
    let page = ada.get("/usage").text();
    assert!(page.contains("100.0 %"), "the success rate: {page}");
    for measure in ["requests", "images", "tokens", "cost"] {
        let link = links(&page, "/usage?").into_iter().find(|link| link.ends_with(&format!("measure={measure}")));
        let view = ada.get(&link.unwrap_or_else(|| panic!("no link to {measure}"))).text();
        assert!(view.contains("aria-current=\"true\""), "{measure}");
        assert_eq!(view.contains("class=\"legend\""), measure == "requests");
    }
    // The measure stays when the period changes, and the other way round.
    let tokens = ada.get("/usage?measure=tokens&key=none").text();
    let presets: Vec<_> = links(&tokens, "/usage?").into_iter().filter(|link| link.contains("since=")).collect();
    assert!(
        presets.len() >= 4 && presets.iter().all(|link| link.contains("measure=tokens") && link.contains("key=none"))
    );
    let bar = page.split("<a href=\"").find(|link| link.contains("tabindex=\"-1\" data-read-out=")).expect("a bar");
    let records = ada.get(&unescaped(bar.split('"').next().unwrap_or_default())).text();
    assert_eq!(records.matches("href=\"/records/").count(), 3, "{records}");
}

const GROUPINGS: [&str; 10] = ["day", "hour", "key", "user", "group", "account", "model", "size", "quality", "reason"];

/// Today in UTC.
fn today() -> String {
    chrono::Utc::now().date_naive().to_string()
}

const TOKEN: &str = "admin-token-canary-0123456789abcdef";

/// A gateway that answers by itself, with an admin token.
fn open() -> Gateway {
    Gateway::with_secrets("admin_token = { env = \"IT_ADMIN\" }", &[], &[("IT_ADMIN", TOKEN)])
}

fn ask(gateway: &Gateway, query: &str) -> Answer {
    Call::get(&format!("/admin/v1/usage?{query}")).key(TOKEN).send(gateway.address())
}

/// The groups that the admin API returns, and the whole answer.
fn groups(gateway: &Gateway, query: &str) -> (Vec<Value>, Value) {
    let usage = ask(gateway, query).ok_json();
    (usage["groups"].as_array().cloned().unwrap_or_default(), usage)
}

#[test]
fn every_grouping_shows_the_same_on_the_page_in_the_api_and_in_the_file() {
    let gateway = open();
    let mut ada = sign_in_ada(&gateway);
    let (_, secret) = make_key(&mut ada, "laptop");
    for size in ["1024x1024", "1024x1024", "1536x1024"] {
        let body = request(json!({"size": size, "quality": "low"}));
        assert_eq!(Call::generation().json(&body).key(&secret).send(gateway.address()).status, 200);
    }
    gateway.final_records(3);
    for (grouping, expected) in [
        ("size", vec![("1024x1024", 2), ("1536x1024", 1)]),
        ("quality", vec![("low", 3)]),
        ("model", vec![("gpt-image-2", 3)]),
        ("group", vec![("default", 3)]),
        ("reason", vec![]),
    ] {
        let page = ada.get(&format!("/usage?group_by={grouping}"));
        assert_eq!(page.status, 200, "{grouping}");
        let csv = ada.get(&format!("/usage.csv?group_by={grouping}")).text();
        let lines: Vec<&str> = csv.trim_start_matches('\u{feff}').lines().collect();
        assert!(lines[0].starts_with(&format!("{grouping},name,user_name,requests,")), "{csv}");
        assert_eq!(lines.len(), expected.len() + 1, "{csv}");
        for ((value, count), line) in expected.iter().zip(&lines[1..]) {
            assert!(line.starts_with(&format!("{value},,,{count},{count},0,")), "{line}");
            assert!(page.text().contains(&format!("<bdi>{value}</bdi>")), "{grouping}");
        }
        let (listed, usage) = groups(&gateway, &format!("group_by={grouping}"));
        let listed: Vec<_> = listed
            .iter()
            .map(|group| (group["value"].as_str().unwrap(), group["requests"].as_i64().unwrap()))
            .collect();
        assert_eq!(listed, expected, "{grouping}");
        assert_eq!((usage["overall"]["requests"].as_i64(), usage["undetailed_requests"].as_i64()), (Some(3), Some(0)));
        assert!(usage["overall"]["p50_ms"].as_i64().is_some_and(|time| time > 0), "{usage}");
    }
    // A group leads to its records.
    for (grouping, value, count) in [("model", "gpt-image-2", 3), ("size", "1024x1024", 2), ("quality", "low", 3)] {
        let page = ada.get(&format!("/usage?group_by={grouping}&measure=p95")).text();
        let filter = format!("{grouping}={value}");
        let link = links(&page, "/records?").into_iter().find(|link| link.contains(&filter)).expect("a link");
        assert_eq!(ada.get(&link).text().matches("href=\"/records/").count(), count, "{link}");
    }
    let hours = ada.get(&format!("/usage?group_by=hour&since={}", today())).text();
    assert!(hours.contains("data-read-out=\"") && hours.contains(":00 · "), "{hours}");
}

#[test]
fn a_problem_of_the_address_is_stated_and_nothing_is_changed_silently() {
    let gateway = open();
    let mut ada = sign_in_ada(&gateway);
    for (query, problem, kept) in [
        ("since=2026-11-21&until=2026-11-20", "The first day is after the last day.", "value=\"2026-11-21\""),
        ("since=abc", "This is not a date.", "value=\"abc\""),
        ("until=2026-13-01", "This is not a date.", "value=\"2026-13-01\""),
        ("group_by=colour", "Usage cannot be grouped by this.", ""),
        ("measure=weight", "There is no such measure.", ""),
        ("group_by=model&end_user=u", "can be grouped by day, key, user or group only", "value=\"u\""),
        ("group_by=hour&since=2026-01-01&until=2026-03-01", "at most 31 days", ""),
    ] {
        for path in ["/usage", "/usage.csv"] {
            let page = ada.get(&format!("{path}?{query}"));
            assert_eq!(page.status, 400, "{query}");
            let text = page.text();
            assert!(text.contains(problem) && text.contains(kept), "{query}: {text}");
        }
    }
    for query in
        ["group_by=colour", "measure=weight", "since=2026-11-21&until=2026-11-20", "group_by=hour&since=2020-01-01"]
    {
        assert_eq!(ask(&gateway, query).status, 400, "{query}");
    }
}

#[test]
fn replayed_answers_are_shown_as_savings() {
    let gateway = open();
    let mut ada = sign_in_ada(&gateway);
    let (_, secret) = make_key(&mut ada, "laptop");
    for _ in 0..3 {
        let call = Call::generation().json(&request(json!({}))).key(&secret).header("idempotency-key", "once");
        assert_eq!(call.send(gateway.address()).status, 200);
    }
    gateway.final_records(1);
    let replayed = || groups(&gateway, "group_by=key").1["overall"]["replayed_images"].as_i64();
    eventually("the replays are counted", || (replayed() == Some(2)).then_some(()));
    let (by_model, _) = groups(&gateway, "group_by=model");
    assert_eq!((by_model[0]["requests"].as_i64(), by_model[0]["replays"].as_i64()), (Some(1), Some(2)), "{by_model:?}");
    let page = ada.get("/usage?measure=saved").text();
    assert!(page.contains("2 images sent again"), "{page}");
}

#[test]
fn members_see_the_views_of_their_own_usage_only() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let mut ben = super::users::sign_in_ben(&mut ada);
    let (_, secret) = make_key(&mut ada, "laptop");
    assert_eq!(Call::generation().json(&request(json!({}))).key(&secret).send(gateway.address()).status, 200);
    gateway.final_records(1);
    for path in
        ["/usage?measure=cost", "/usage?measure=images&since=2020-01-01", "/usage?since=0001-01-01&until=0001-01-02"]
    {
        let page = ben.get(path);
        assert_eq!(page.status, 200, "{path}");
        assert!(!page.text().contains("<rect") && !page.text().contains("laptop"), "{path}");
    }
    for grouping in GROUPINGS {
        let page = ben.get(&format!("/usage?group_by={grouping}&since={}", today()));
        assert_eq!(page.status, if grouping == "account" { 400 } else { 200 }, "{grouping}");
        let text = page.text();
        assert!(!text.contains("<rect") && !text.contains("laptop") && !text.contains("gpt-image-2"), "{grouping}");
        let csv = ben.get(&format!("/usage.csv?group_by={grouping}&since={}", today()));
        assert_eq!((csv.status, csv.text().lines().count() < 2), (page.status, page.status == 200), "{grouping}");
        // A filter by another user is no way around it.
        assert!(!ben.get(&format!("/usage?group_by={grouping}&since={}&user=ada", today())).text().contains("<rect"));
    }
    assert!(!links(&ben.get("/usage").text(), "/usage?").iter().any(|link| link.contains("group_by=account")));
}

#[test]
fn requests_without_a_user_can_be_selected_like_those_of_a_user() {
    let gateway = open();
    let mut ada = sign_in_ada(&gateway);
    let refused = Call::generation().json(&request(json!({}))).key("sk-img-unknown").send(gateway.address());
    assert_eq!(refused.status, 401);
    let page = eventually("the refusal is counted", || {
        let page = ada.get("/usage?group_by=user").text();
        page.contains("user=usr_nobody").then_some(page)
    });
    for link in links(&page, "/") {
        assert_eq!(ada.get(&link).status, 200, "{link}");
    }
    let (counted, _) = groups(&gateway, "group_by=user&user=usr_nobody");
    assert_eq!((counted[0]["value"].as_str(), counted[0]["refused"].as_i64()), (Some("usr_nobody"), Some(1)));
    for path in ["records", "keys", "tokens"] {
        let call = Call::get(&format!("/admin/v1/{path}?user=usr_nobody")).key(TOKEN);
        assert_eq!(call.send(gateway.address()).status, 200, "{path}");
    }
}

#[test]
fn the_bars_of_a_chart_have_a_text_for_the_pointer_the_keyboard_and_touch() {
    let gateway = Gateway::simulated();
    let mut visitor = sign_in_ada(&gateway);
    let (_, secret) = make_key(&mut visitor, "laptop");
    assert_eq!(Call::generation().json(&request(json!({}))).key(&secret).send(gateway.address()).status, 200);
    gateway.final_records(1);
    let browser = Browser::start();
    let ada = browser.tab(&gateway, WITH_SCRIPT);
    for (name, value) in &visitor.cookies {
        ada.give_cookie(name, value);
    }
    for path in [
        "/usage",
        "/usage?group_by=model",
        "/usage?group_by=reason&measure=success",
        "/usage?since=2026-11-21&until=2026-11-20",
    ] {
        ada.go(path);
        assert_eq!(ada.accessibility_violations(), Vec::<Value>::new(), "{path}");
        for width in [390, 1280] {
            ada.resize(width, "light");
            assert_eq!(ada.overflow(), Vec::<String>::new(), "{path} {width}");
        }
    }
    ada.go(&format!("/usage?group_by=hour&since={}", today()));
    let focus = "(() => { const bar = document.querySelector('[data-read-out]'); bar.focus(); \
        return [document.activeElement === bar, bar.getAttribute('tabindex'), bar.getAttribute('aria-label'), \
        getComputedStyle(bar.querySelector('.read-out')).display]; })()";
    let found = ada.evaluate(focus);
    assert_eq!((&found[0], &found[1]), (&json!(true), &json!("0")), "{found}");
    assert!(found[2].as_str().is_some_and(|text| text.contains(":00 · Succeeded: 1 · Unsuccessful: 0")), "{found}");
    assert_ne!(found[3], json!("none"), "the text is visible while the bar has the focus");
    let touch = "(() => { const bar = document.querySelector('[data-read-out]'); \
        const event = new PointerEvent('click', { pointerType: 'touch', bubbles: true, cancelable: true }); \
        bar.dispatchEvent(event); return event.defaultPrevented; })()";
    assert_eq!(ada.evaluate(touch), json!(true), "the first touch shows the text");
    ada.close();
}
