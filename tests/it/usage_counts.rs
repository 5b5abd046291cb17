//! The counts of the console and of `imagate usage` agree with the upstream, and each user sees only their own.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::kit::{Account, Answer, Call, Events, FakeUpstream, Gateway, eventually, request};

const TOKEN: &str = "admin-token-canary-0123456789abcdef";
const COUNTS: [&str; 7] =
    ["requests", "succeeded", "failed", "images", "input_tokens", "output_tokens", "total_tokens"];

fn open(upstream: &FakeUpstream) -> Gateway {
    let accounts = [Account::for_upstream("only", upstream).with_slots(8)];
    Gateway::with_secrets("admin_token = { env = \"IT_ADMIN\" }", &accounts, &[("IT_ADMIN", TOKEN)])
}

#[track_caller]
fn ask(gateway: &Gateway, token: &str, path: &str) -> Answer {
    Call::get(&format!("/admin/v1/{path}")).key(token).send(gateway.address())
}

#[track_caller]
fn get_json(gateway: &Gateway, token: &str, path: &str) -> Value {
    ask(gateway, token, path).ok_json()
}

/// The sums of these rows, count by count.
fn sums<'a>(rows: impl IntoIterator<Item = &'a Value>) -> [u64; 7] {
    rows.into_iter().fold([0; 7], |sum, row| {
        std::array::from_fn(|index| sum[index] + row[COUNTS[index]].as_u64().unwrap_or_else(|| panic!("{row}")))
    })
}

fn rows(list: &Value) -> &[Value] {
    list.as_array().expect("a list")
}

/// The counts of these records, in the order of [`COUNTS`].
fn counts_of_records(records: &[Value]) -> [u64; 7] {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    records.iter().fold([0; 7], |sum, record| {
        let succeeded = u64::from(record["state"] == "succeeded");
        let (images, usage) = (rows(&record["delivered"]).len() as u64, &record["usage"]);
        let [input, output, total] = ["input_tokens", "output_tokens", "total_tokens"].map(|name| number(&usage[name]));
        let counts = [1, succeeded, 1 - succeeded, images, input, output, total];
        std::array::from_fn(|index| sum[index] + counts[index])
    })
}

/// The images and tokens of the answers that the upstream completed.
fn counts_of_upstream(upstream: &FakeUpstream) -> [u64; 4] {
    let given = upstream.received_attempts().into_iter().filter(|attempt| attempt.completed);
    given.fold([0; 4], |sum, attempt| {
        let usage = attempt.usage.unwrap_or_default();
        let tokens = |name: &str| usage[name].as_u64().unwrap_or(0);
        let counts =
            [attempt.images.len() as u64, tokens("input_tokens"), tokens("output_tokens"), tokens("total_tokens")];
        std::array::from_fn(|index| sum[index] + counts[index])
    })
}

/// The lines that `imagate usage --json` prints with these arguments.
#[track_caller]
fn lines(gateway: &Gateway, arguments: &[&str]) -> Vec<Value> {
    let done = gateway.run_command(&[&["usage", "--json"], arguments].concat());
    done.ok_stdout().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Checks that every view of the usage agrees with the records and the upstream. Returns the usage of the admin API.
#[track_caller]
fn all_agree(gateway: &Gateway, upstream: &FakeUpstream, count: usize) -> Value {
    let records = gateway.final_records(count);
    assert_eq!(records.len(), count);
    let expected = counts_of_records(&records);
    assert_eq!(expected[3..], counts_of_upstream(upstream), "records and upstream");
    let usage = get_json(gateway, TOKEN, "usage");
    assert_eq!(sums([&usage["totals"]]), expected, "{usage}");
    assert_eq!(sums(rows(&usage["days"])), expected, "{usage}");
    assert_eq!(sums(rows(&usage["keys"])), expected, "{usage}");
    assert_eq!(sums(&lines(gateway, &["--by", "day"])), expected);
    assert_eq!(sums(&lines(gateway, &["--by", "key"])), expected);
    // The counts of each key agree too, also those in the list of keys.
    let mut by_key: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for record in &records {
        by_key.entry(record["key"].as_str().expect("a key")).or_default().push(record.clone());
    }
    let keys = get_json(gateway, TOKEN, "keys");
    for (key, records) in by_key {
        let expected = counts_of_records(&records);
        let row = rows(&usage["keys"]).iter().find(|row| row["key"] == key).expect("a row of the key");
        assert_eq!(sums([row]), expected, "{key}: {usage}");
        assert_eq!(sums([&get_json(gateway, TOKEN, &format!("usage?key={key}"))["totals"]]), expected);
        let listed = rows(&keys["data"]).iter().find(|row| row["id"] == key).expect("the key");
        let single = get_json(gateway, TOKEN, &format!("keys/{key}"));
        for shown in [listed, &single] {
            assert_eq!([&shown["requests"], &shown["images"]], [&json!(expected[0]), &json!(expected[3])], "{shown}");
        }
    }
    usage
}

/// Sends a streamed request and leaves after its first event.
fn leave(gateway: &Gateway, upstream: &FakeUpstream) {
    let before = upstream.attempt_count();
    let mut events = gateway.stream(json!({"prompt": "a cube [[events=p,murmur]]", "partial_images": 1}));
    events.next().expect("an event").expect("a partial image");
    drop(events);
    upstream.wait_until("the caller has left", |attempts| attempts[before].peer_left);
}

#[test]
fn all_counts_agree_with_records_and_upstream_after_a_kill() {
    let upstream = FakeUpstream::start();
    let mut gateway = open(&upstream);
    let second_key = gateway.make_key("other");
    gateway.generate(json!({"n": 2})).ok_json();
    gateway.scripted("tokens=1234").ok_json();
    gateway.stream(json!({})).remaining();
    let with_second_key = || Call::generation().key(second_key["secret"].as_str().expect("a secret"));
    with_second_key().json(&request(json!({"user": "=1+1"}))).send(gateway.address()).ok_json();
    Events::from_reply(
        with_second_key().json(&request(json!({"stream": true}))).open(gateway.address()).expect("a stream"),
    )
    .remaining();
    // One request is refused by the upstream, one fails there, one is left by its caller. The last request never
    // becomes a job and does not count as a request.
    assert_eq!(gateway.scripted("status=400 body=policy").status, 502);
    assert_eq!(gateway.scripted("status=400 body=parameter").status, 400);
    leave(&gateway, &upstream);
    assert_eq!(gateway.generate(json!({"n": 0})).status, 400);
    let usage = all_agree(&gateway, &upstream, 8);
    assert_eq!(sums([&usage["totals"]])[..4], [8, 5, 3, 6], "{usage}");

    // Two jobs are running when the process is killed.
    let before = upstream.attempt_count();
    let waiting: Vec<_> = (0..2)
        .map(|_| gateway.call(json!({"prompt": "a cube [[gate=never]]"})).dispatch(gateway.address()).expect("a call"))
        .collect();
    upstream.wait_until("both are running", |attempts| attempts.len() == before + 2);
    let running = get_json(&gateway, TOKEN, "records?state=running");
    assert_eq!(rows(&running["data"]).len(), 2, "{running}");
    assert_eq!(sums([&get_json(&gateway, TOKEN, "usage")["totals"]])[0], 8, "only finished jobs are counted");
    gateway.kill();
    drop(waiting);
    gateway.start();
    all_agree(&gateway, &upstream, 10);
    gateway.generate(json!({})).ok_json();
    let usage = all_agree(&gateway, &upstream, 11);
    assert_eq!(sums([&usage["totals"]])[..4], [11, 6, 5, 7], "{usage}");
    gateway.kill();
    gateway.start();
    assert_eq!(all_agree(&gateway, &upstream, 11), usage, "a kill without running jobs changes nothing");

    let csv = gateway.run_command(&["usage", "--csv"]).ok_stdout().to_owned();
    assert!(csv.contains(",'=1+1,"), "a formula reaches a spreadsheet: {csv}");
    assert_eq!(
        gateway.run_command(&["usage", "--by", "day", "--csv"]).ok_stdout().lines().next(),
        Some(&*format!("day,{},refused,cost_usd,cost_unknown", COUNTS.join(",")))
    );
}

#[test]
fn records_are_paged_filtered_and_complete() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream);
    for number in 0..5 {
        gateway.generate(json!({"user": format!("u{number}"), "quality": "low", "size": "1536x1024"})).ok_json();
    }
    gateway.scripted("status=400 body=policy");
    let expected = gateway.final_records(6);
    let mut seen = Vec::new();
    let mut path = "records?limit=4".to_owned();
    loop {
        let page = get_json(&gateway, TOKEN, &path);
        seen.extend(rows(&page["data"]).to_vec());
        let last = seen.last().expect("a record")["request_id"].as_str().expect("an id");
        if page["has_more"] == false {
            break;
        }
        path = format!("records?limit=4&before={last}");
    }
    seen.reverse();
    let ids = |records: &[Value]| records.iter().map(|record| record["request_id"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&seen), ids(&expected));
    for (shown, record) in seen.iter().zip(&expected) {
        for (name, value) in record.as_object().expect("a record") {
            let scalar = !value.is_object() && !value.is_array();
            assert!(!scalar || shown.get(name).unwrap_or(&Value::Null) == value, "{name}: {shown} for {record}");
        }
        assert_eq!(shown["usage"]["total_tokens"], record["usage"]["total_tokens"], "{shown}");
        assert_eq!(rows(&shown["delivered"]).len(), rows(&record["delivered"]).len());
        assert_eq!(shown["attempts"][0]["account"], "only", "{shown}");
        assert_eq!(shown["key_name"], "it", "{shown}");
        let id = shown["request_id"].as_str().expect("an id");
        assert_eq!(&get_json(&gateway, TOKEN, &format!("records/{id}")), shown);
    }
    let refused = get_json(&gateway, TOKEN, "records?state=refused");
    assert_eq!(ids(rows(&refused["data"])), ids(&expected[5..]));
    let none = get_json(&gateway, TOKEN, "records?until=2020-01-01T00:00:00Z");
    assert_eq!(rows(&none["data"]).len(), 0);
    for (path, status, param) in [
        ("records?before=nobody", 400, json!("before")),
        ("records?limit=501", 400, json!("limit")),
        ("records?state=tired", 400, json!("state")),
        ("records?since=yesterday", 400, json!("since")),
        ("records?user=nobody", 404, json!("user")),
        ("records?error_reason=tired", 400, json!("error_reason")),
        ("records?outcome=failed", 400, json!("outcome")),
        ("records?end_user=%ff", 400, json!("end_user")),
        ("records?end_user=a&end_user=b", 400, json!("end_user")),
        ("usage?end_user=%c3%28", 400, json!("end_user")),
        ("usage?enduser=a", 400, json!("enduser")),
        ("records/nobody", 404, Value::Null),
        ("usage?since=2026-02-30", 400, json!("since")),
        ("usage?since=2026-02-02&until=2026-02-01", 400, json!("since")),
        ("usage?user=nobody", 404, json!("user")),
    ] {
        assert_eq!(ask(&gateway, TOKEN, path).error_object(status)["param"], param, "{path}");
    }
}

#[test]
fn the_api_and_the_command_filter_by_end_user() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream);
    let long = "\u{e4}".repeat(300);
    for end_user in ["ada & co", "ben", "ada & co", &long] {
        gateway.generate(json!({"safety_identifier": end_user, "user": "hidden"})).ok_json();
    }
    let records = gateway.final_records(4);
    let ids = |records: &[Value]| records.iter().map(|record| record["request_id"].clone()).collect::<Vec<_>>();
    let expected = [records[0].clone(), records[2].clone()];
    let listed = get_json(&gateway, TOKEN, "records?end_user=ada+%26+co");
    let mut found = rows(&listed["data"]).to_vec();
    found.reverse();
    assert_eq!(ids(&found), ids(&expected));
    let printed = lines(&gateway, &["--end-user", "ada & co"]);
    assert_eq!(ids(&printed), ids(&expected));
    let usage = get_json(&gateway, TOKEN, "usage?end_user=ada+%26+co");
    assert_eq!(sums([&usage["totals"]]), counts_of_records(&expected), "{usage}");
    assert_eq!(sums(rows(&usage["days"])), counts_of_records(&expected), "{usage}");
    assert_eq!(sums(rows(&usage["keys"])), counts_of_records(&expected), "{usage}");
    for by in ["day", "key"] {
        assert_eq!(
            sums(&lines(&gateway, &["--by", by, "--end-user", "ada & co"])),
            counts_of_records(&expected),
            "{by}"
        );
    }
    let csv = gateway.run_command(&["usage", "--csv", "--end-user", "ben"]).ok_stdout().to_owned();
    assert_eq!((csv.lines().count(), csv.contains(",ben,")), (2, true), "{csv}");
    // A record keeps at most 256 bytes of the end user, and a search uses at most as many.
    let encoded = "%C3%A4".repeat(300);
    let listed = get_json(&gateway, TOKEN, &format!("records?end_user={encoded}"));
    assert_eq!(ids(rows(&listed["data"])), ids(&records[3..]));
    for unmatched in ["hidden", "ada", "ada+%26+co+", "BEN"] {
        assert_eq!(
            rows(&get_json(&gateway, TOKEN, &format!("records?end_user={unmatched}"))["data"]).len(),
            0,
            "{unmatched}"
        );
        assert_eq!(
            get_json(&gateway, TOKEN, &format!("usage?end_user={unmatched}"))["totals"]["requests"],
            0,
            "{unmatched}"
        );
    }
}

#[test]
fn the_api_and_the_command_filter_by_error_model_and_account() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream);
    gateway.generate(json!({"model": "gpt-image-2-2026-04-21", "size": "1536x1024", "quality": "low"})).ok_json();
    assert!(gateway.scripted("status=400 body=policy").status >= 400);
    let records = gateway.final_records(2);
    let ids = |records: &[Value]| records.iter().map(|record| record["request_id"].clone()).collect::<Vec<_>>();
    let (succeeded, refused) = (&records[..1], &records[1..]);
    for (query, words, expected) in [
        ("model=gpt-image-2-2026-04-21", &["--model", "gpt-image-2-2026-04-21"][..], succeeded),
        ("error_reason=content_refused", &["--error-reason", "content_refused"], refused),
        ("error_code=upstream_error", &["--error-code", "upstream_error"], refused),
        ("outcome=unsuccessful", &["--unsuccessful"], refused),
        ("outcome=succeeded", &["--state", "succeeded"], succeeded),
        ("account=only", &["--account", "only"], &records[..]),
        ("account=other", &["--account", "other"], &[]),
        ("size=1536x1024", &["--size", "1536x1024"], succeeded),
        ("size=1536x1024&quality=high", &["--size", "1536x1024", "--quality", "high"], &[]),
        ("quality=low&outcome=succeeded", &["--quality", "low", "--state", "succeeded"], succeeded),
    ] {
        let mut listed = rows(&get_json(&gateway, TOKEN, &format!("records?{query}"))["data"]).to_vec();
        listed.reverse();
        assert_eq!(ids(&listed), ids(expected), "{query}");
        assert_eq!(ids(&lines(&gateway, words)), ids(expected), "{words:?}");
    }
    let state = records[1]["state"].as_str().expect("a state");
    for (query, expected) in [
        ("state=succeeded&outcome=succeeded".to_owned(), succeeded),
        ("state=succeeded&outcome=unsuccessful".to_owned(), &[]),
        (format!("state={state}&outcome=succeeded"), &[]),
        (format!("state={state}&outcome=unsuccessful"), refused),
    ] {
        let listed = get_json(&gateway, TOKEN, &format!("records?{query}"));
        assert_eq!((ids(rows(&listed["data"])), &listed["has_more"]), (ids(expected), &json!(false)), "{query}");
    }
}

#[test]
fn a_member_sees_their_own_records_and_no_accounts() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream);
    let post = |path: &str, body: Value| {
        Call::post(&format!("/admin/v1/{path}")).key(TOKEN).json(&body).send(gateway.address()).ok_json()
    };
    post("users", json!({"name": "kim"}));
    let token = post("tokens", json!({"name": "kim's", "user": "kim"}))["secret"].as_str().expect("a token").to_owned();
    let key = post("keys", json!({"name": "laptop", "user": "kim"}));
    let secret = key["secret"].as_str().expect("a secret").to_owned();
    // The key is new; the key cache loads it by itself.
    eventually("the key is good", || {
        let answer = Call::generation().key(&secret).json(&request(json!({}))).send(gateway.address());
        (answer.status == 200).then_some(())
    });
    gateway.generate(json!({})).ok_json();
    gateway.generate(json!({})).ok_json();
    let records = gateway.final_records(3);
    let (own, foreign): (Vec<&Value>, Vec<&Value>) =
        records.iter().partition(|record| record["key"] == key["key"]["id"]);
    assert_eq!((own.len(), foreign.len()), (1, 2));

    let list = get_json(&gateway, &token, "records");
    assert_eq!(rows(&list["data"]).len(), 1, "{list}");
    let shown = &list["data"][0];
    assert_eq!(
        (&shown["request_id"], &shown["user_name"], &shown["key_name"]),
        (&own[0]["request_id"], &json!("kim"), &json!("laptop"))
    );
    let id = |record: &Value| record["request_id"].as_str().expect("an id").to_owned();
    for visible in [shown, &get_json(&gateway, &token, &format!("records/{}", id(own[0])))] {
        assert!(visible.get("account").is_none() && !visible["attempts"].to_string().contains("only"), "{visible}");
    }
    let (foreign_key, hidden) = (foreign[0]["key"].as_str().expect("a key"), id(foreign[0]));
    let refused = ask(&gateway, &token, &format!("records/{hidden}"));
    assert_eq!(refused.error_object(404)["code"], "record_not_found");
    let refused = ask(&gateway, &token, &format!("records?before={hidden}"));
    assert_eq!(refused.error_object(400)["param"], "before");
    assert_eq!(rows(&get_json(&gateway, &token, &format!("records?key={foreign_key}"))["data"]).len(), 0);
    assert_eq!(ask(&gateway, &token, "records?account=only").error_object(403)["code"], "permission_denied");
    let other_user = foreign[0]["user"].as_str().expect("a user");
    assert_eq!(ask(&gateway, &token, &format!("records?user={other_user}")).error_object(404)["param"], "user");
    assert_eq!(rows(&get_json(&gateway, &token, "records?user=kim")["data"]).len(), 1);
    assert_eq!(ask(&gateway, &token, "records?user=usr_nobody").error_object(404)["param"], "user");
    // The end user belongs to a request with another user's key, so the member does not find it.
    gateway.generate(json!({"user": "shared"})).ok_json();
    gateway.final_records(4);
    for (token, count) in [(TOKEN, 1), (token.as_str(), 0)] {
        assert_eq!(rows(&get_json(&gateway, token, "records?end_user=shared")["data"]).len(), count);
        assert_eq!(get_json(&gateway, token, "usage?end_user=shared")["totals"]["requests"], json!(count));
    }

    let usage = get_json(&gateway, &token, "usage");
    assert_eq!(
        (sums([&usage["totals"]])[0], sums(rows(&usage["days"]))[0], rows(&usage["keys"]).len()),
        (1, 1, 1),
        "{usage}"
    );
    assert_eq!(sums([&get_json(&gateway, &token, &format!("usage?key={foreign_key}"))["totals"]]), [0; 7]);
    assert_eq!(ask(&gateway, &token, &format!("usage?user={other_user}")).error_object(404)["param"], "user");
    // The admin sees the records of all users.
    assert_eq!(sums([&get_json(&gateway, TOKEN, "usage")["totals"]])[0], 4);
    assert_eq!(sums([&get_json(&gateway, TOKEN, "usage?user=kim")["totals"]])[0], 1);
    assert_eq!(get_json(&gateway, TOKEN, &format!("records/{}", id(own[0])))["account"], "only");
}

/// Such requests have no record, but are counted.
#[test]
fn requests_that_become_no_job_are_counted_by_key() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream);
    let call = Call::post("/admin/v1/keys").json(&json!({"name": "off", "user": "admin"}));
    let made = call.key(TOKEN).send(gateway.address()).ok_json();
    let [id, secret] =
        ["/key/id", "/secret"].map(|pointer| made.pointer(pointer).and_then(Value::as_str).expect("a text").to_owned());
    let disable = Call::patch(&format!("/admin/v1/keys/{id}")).json(&json!({"enabled": false}));
    disable.key(TOKEN).send(gateway.address()).ok_json();

    for with in [json!({"size": "7x7"}), json!({"model": "no-such-model"}), json!({"n": 0})] {
        assert!([400, 404].contains(&gateway.generate(with).status));
    }
    let with_same_key = |body: Value| gateway.call(body).header("idempotency-key", "once").send(gateway.address());
    with_same_key(json!({})).ok_json();
    with_same_key(json!({"n": 2})).error_object(400);
    Call::get("/v1/models/no-such-model").key(gateway.secret()).send(gateway.address()).error_object(404);
    for _ in 0..2 {
        Call::generation().key(&secret).json(&request(json!({}))).send(gateway.address()).error_object(401);
    }
    for number in 0..4 {
        let call = Call::generation().key(&format!("sk-img-nobody-{number}")).json(&request(json!({})));
        call.send(gateway.address()).error_object(401);
    }
    gateway.final_records(1);
    eventually("all refused requests are counted", || {
        (get_json(&gateway, TOKEN, "usage")["totals"]["refused"].as_u64() >= Some(11)).then_some(())
    });
    // The total above may come from a read during the writes, so the usage is read again.
    let usage = get_json(&gateway, TOKEN, "usage");
    let by_key = |id: &str| {
        let row = rows(&usage["keys"]).iter().find(|row| row["key"] == id).unwrap_or_else(|| panic!("{id}: {usage}"));
        (row["requests"].as_u64(), row["refused"].as_u64())
    };
    assert_eq!(by_key(gateway.key_id()), (Some(1), Some(5)));
    assert_eq!(by_key(&id), (Some(0), Some(2)));
    assert_eq!(by_key(""), (Some(0), Some(4)));
    assert_eq!((&usage["totals"]["requests"], &usage["days"][0]["refused"]), (&json!(1), &json!(11)));
    let table = gateway.run_command(&["usage", "--by", "key"]);
    assert!(table.ok_stdout().lines().next().is_some_and(|line| line.contains("REFUSED")), "{table:?}");
}
