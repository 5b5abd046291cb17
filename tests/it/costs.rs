//! The cost of each record: worked out by hand from the tokens of the upstream and the prices of the program, and the
//! same in every view. `charges` tests what is charged besides tokens, `most` the costs
//! that are estimated, `prices` the prices of files, commands and the API.
//!
//! The amounts in the comments are millionths of a dollar: in this unit, a price for a million tokens is that of one
//! token. The prices of the program for `gpt-image-2` are 5 for text, 1.25 for cached text, 8 for images of requests,
//! 2 for cached ones, and 30 for images of answers. The fake upstream counts 7 text tokens and one for each character of
//! the prompt, 323 image tokens for an edit, and 196 for each image of an answer.

mod charges;
mod most;
mod prices;

use serde_json::{Value, json};

use crate::kit::{Account, Answer, Call, FakeUpstream, Form, Gateway, alpha_png, eventually, request};

const TOKEN: &str = "admin-token-canary-0123456789abcdef";

/// A gateway with these top-level settings, and with an admin token.
fn open(upstream: &FakeUpstream, top: &str) -> Gateway {
    open_at(&[Account::for_upstream("only", upstream)], top)
}

/// A gateway with these accounts and top-level settings, and with an admin token.
fn open_at(accounts: &[Account], top: &str) -> Gateway {
    let top = format!("admin_token = {{ env = \"IT_ADMIN\" }}\n{top}");
    Gateway::with_secrets(&top, accounts, &[("IT_ADMIN", TOKEN)])
}

#[track_caller]
fn ask(gateway: &Gateway, call: Call) -> Answer {
    call.key(TOKEN).send(gateway.address())
}

/// The record of this end user, who has exactly one.
#[track_caller]
fn record_of<'a>(records: &'a [Value], user: &str) -> &'a Value {
    let mut found = records.iter().filter(|record| record["end_user"] == user);
    let record = found.next().unwrap_or_else(|| panic!("no record of {user}: {records:#?}"));
    assert!(found.next().is_none(), "{user} has several records");
    record
}

/// Asserts that the cost of a record is exact and of these dollars.
#[track_caller]
fn assert_exact(record: &Value, usd: f64) {
    assert_eq!((&record["cost_usd"], &record["cost_basis"]), (&json!(usd), &json!("exact")), "{record}");
    assert_eq!(record["cost_reason"], Value::Null, "{record}");
}

/// Asserts that the cost of a record is estimated for this reason, and of these dollars.
#[track_caller]
fn assert_estimated(record: &Value, usd: f64, reason: &str) {
    assert_eq!((&record["cost_usd"], &record["cost_basis"]), (&json!(usd), &json!("estimated")), "{record}");
    assert_eq!(record["cost_reason"], reason, "{record}");
}

/// Asserts that the cost of a record is unknown for this reason, which is different from zero.
#[track_caller]
fn assert_unknown(record: &Value, reason: &str) {
    assert_eq!((&record["cost_usd"], &record["cost_basis"]), (&Value::Null, &json!("unknown")), "{record}");
    assert_eq!(record["cost_reason"], reason, "{record}");
}

/// Sends an edit with one image and this script for the upstream.
fn edit(gateway: &Gateway, user: &str, script: &str) -> Answer {
    let form = Form::new().text("model", "gpt-image-2").text("prompt", &format!("a cube [[{script}]]"));
    gateway.edit(form.text("user", user).file("image[]", &alpha_png(64, 64)))
}

#[test]
fn finished_requests_cost_what_an_invoice_says() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "");
    gateway.generate(json!({"prompt": "a cube", "user": "one"})).ok_json();
    gateway.generate(json!({"prompt": "a cube", "user": "three", "n": 3})).ok_json();
    gateway.stream(json!({"prompt": "a cube [[tokens=396]]", "user": "stream", "partial_images": 2})).remaining();
    edit(&gateway, "edit", "tokens=500").ok_json();
    edit(&gateway, "cached", "usage=cached").ok_json();
    edit(&gateway, "cached sum", "usage=cached-sum").ok_json();
    let records = gateway.final_records(6);
    let record = |user| record_of(&records, user);
    // 13 x 5 + 196 x 30
    assert_exact(record("one"), 0.005_945);
    // 13 x 5 + 3 x 196 x 30
    assert_exact(record("three"), 0.017_705);
    // The tokens of intermediate images are in the count of the upstream: 28 x 5 + 396 x 30
    assert_exact(record("stream"), 0.012_02);
    // 7 + 21 text tokens: 28 x 5 + 323 x 8 + 500 x 30
    assert_exact(record("edit"), 0.017_724);
    // 5 of 30 text tokens and 200 of 323 image tokens: 25 x 5 + 5 x 1.25 + 123 x 8 + 200 x 2 + 196 x 30
    assert_exact(record("cached"), 0.007_395_25);
    let cached = json!({"image_tokens": 200, "text_tokens": 5});
    assert_eq!(record("cached")["usage"]["cached_tokens_details"], cached);
    // Of 205 cached tokens of unknown kinds, all 34 text tokens come first: 34 x 1.25 + 152 x 8 + 171 x 2 + 196 x 30
    assert_estimated(record("cached sum"), 0.007_480_5, "no_breakdown");
    for record in &records {
        let version = record["price_version"].as_str().expect("a version");
        assert!(version.starts_with("gpt-image-2@2026-04-21#"), "{version}");
    }
}

#[test]
fn requests_without_an_image_cost_nothing_and_without_a_price_their_cost_is_unknown() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "");
    let scripted =
        |user: &str, script: &str| gateway.generate(json!({"prompt": format!("a cube [[{script}]]"), "user": user}));
    scripted("policy", "status=400 body=policy").error_object(502);
    scripted("parameter", "status=400 body=parameter").error_object(400);
    gateway.generate(json!({"n": 0, "user": "never"})).error_object(400);
    scripted("unpriced", "model=sketch-9").ok_json();
    scripted("priced", "tokens=100").ok_json();
    let records = gateway.final_records(4);
    assert_eq!(records.len(), 4, "a request that is no job leaves no record");
    assert_exact(record_of(&records, "policy"), 0.0);
    assert_exact(record_of(&records, "parameter"), 0.0);
    assert_unknown(record_of(&records, "unpriced"), "no_price");
    // 7 + 21 text tokens: 28 x 5 + 100 x 30
    assert_exact(record_of(&records, "priced"), 0.003_14);

    // The sums do not pass off an unknown cost as zero.
    let usage = ask(&gateway, Call::get("/admin/v1/usage")).ok_json();
    for row in [&usage["totals"], &usage["days"][0], &usage["keys"][0]] {
        assert_eq!((&row["cost_usd"], &row["cost_unknown"]), (&json!(0.003_14), &json!(1)), "{usage}");
    }
    let of_user = ask(&gateway, Call::get("/admin/v1/usage?end_user=unpriced")).ok_json();
    assert_eq!((&of_user["totals"]["cost_usd"], &of_user["totals"]["cost_unknown"]), (&json!(0.0), &json!(1)));
    for words in [["usage", "--by", "day", "--json"], ["usage", "--by", "key", "--json"]] {
        let row = gateway.run_command(&words).json();
        assert_eq!((&row["cost_usd"], &row["cost_unknown"]), (&json!(0.003_14), &json!(1)), "{row}");
    }
    for (words, cells) in [
        (vec!["usage", "--by", "day", "--cost"], vec!["COST UNKNOWN", " 0.00314   1\n"]),
        (vec!["usage", "--by", "key", "--cost"], vec!["COST UNKNOWN", " 0.00314   1\n"]),
        (vec!["usage", "--cost"], vec!["COST USD", " 0.00314 ", " 0.00 ", " - "]),
    ] {
        let table = gateway.run_command(&words).ok_stdout().to_owned();
        assert!(cells.iter().all(|cell| table.contains(cell)), "{words:?}:\n{table}");
    }
    assert!(!gateway.run_command(&["usage"]).ok_stdout().contains("COST"));

    let shown = record_of(&records, "unpriced")["request_id"].as_str().expect("an id").to_owned();
    let shown = ask(&gateway, Call::get(&format!("/admin/v1/records/{shown}"))).ok_json();
    assert_eq!((&shown["cost_basis"], &shown["cost_reason"]), (&json!("unknown"), &json!("no_price")));
    assert!(shown.get("cost_usd").is_none(), "{shown}");
    let lines = [
        "imagate_cost_usd_total{operation=\"create_image\",group=\"default\",basis=\"exact\"} 0.00314",
        "imagate_unpriced_jobs_total{operation=\"create_image\"} 1",
    ];
    eventually("the metrics agree", || {
        let metrics = gateway.metrics_text();
        lines.iter().all(|line| metrics.lines().any(|found| found == *line)).then_some(())
    });
}

#[test]
fn csv_has_the_cost_and_its_reason() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "");
    gateway.generate(json!({"prompt": "a cube"})).ok_json();
    gateway.scripted("model=sketch-9").ok_json();
    gateway.final_records(2);
    let csv = gateway.run_command(&["usage", "--csv"]).ok_stdout().to_owned();
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let heading = lines.next().expect("a heading");
    let cells = |row: &[&str]| {
        ["cost_usd", "cost_basis", "cost_reason"].map(|name| {
            row[heading.iter().position(|found| *found == name).unwrap_or_else(|| panic!("no column {name}"))]
                .to_owned()
        })
    };
    let rows: Vec<_> = lines.map(|row| cells(&row)).collect();
    assert_eq!(rows, [["0.005945", "exact", ""], ["", "unknown", "no_price"]].map(|row| row.map(str::to_owned)));
    let days = gateway.run_command(&["usage", "--by", "day", "--csv"]).ok_stdout().to_owned();
    assert!(days.lines().next().is_some_and(|line| line.ends_with(",cost_usd,cost_unknown")), "{days}");
    assert!(days.lines().nth(1).is_some_and(|line| line.ends_with(",0.005945,1")), "{days}");
}

#[test]
fn members_see_costs_but_not_the_versions_of_prices() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "");
    let create = |path: &str, new: Value| ask(&gateway, Call::post(path).json(&new)).ok_json();
    create("/admin/v1/users", json!({"name": "member", "role": "member"}));
    let owned = json!({"name": "it", "user": "member"});
    let secret = |made: &Value| made["secret"].as_str().expect("a secret").to_owned();
    let key = secret(&create("/admin/v1/keys", owned.clone()));
    let token = secret(&create("/admin/v1/tokens", owned));
    Call::generation().key(&key).json(&request(json!({"prompt": "a cube"}))).send(gateway.address()).ok_json();
    gateway.final_records(1);
    for (token, has_version) in [(token.as_str(), false), (TOKEN, true)] {
        let shown = Call::get("/admin/v1/records").key(token).send(gateway.address()).ok_json();
        let record = &shown["data"][0];
        assert_eq!((&record["cost_usd"], &record["cost_basis"]), (&json!(0.005_945), &json!("exact")));
        assert_eq!(record.get("price_version").is_some(), has_version, "{record}");
    }
    Call::get("/admin/v1/prices").key(&token).send(gateway.address()).error_object(403);
}

#[test]
fn the_simulator_costs_nothing() {
    let gateway = Gateway::simulated();
    gateway.generate(json!({"prompt": "a cube", "n": 2, "user": "plain"})).ok_json();
    gateway.stream(json!({"prompt": "a cube", "partial_images": 1, "user": "stream"})).remaining();
    // A caller that leaves a stream of the simulator costs nothing either.
    let mut events =
        gateway.stream(json!({"prompt": "a cube", "partial_images": 3, "size": "2048x2048", "user": "left"}));
    events.next().expect("an event").expect("an image");
    drop(events);
    let records = gateway.final_records(3);
    for record in &records {
        assert_exact(record, 0.0);
        assert_eq!(record["price_version"], Value::Null, "{record}");
    }
    let total = gateway.run_command(&["usage", "--by", "day", "--json"]).json();
    assert_eq!((&total["cost_usd"], &total["cost_unknown"]), (&json!(0.0), &json!(0)));
}
