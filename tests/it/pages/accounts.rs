//! The board of the accounts and the pages of single accounts: adding, changing, testing, disabling and deleting.

use serde_json::{Value, json};

use super::browser::{Browser, WITH_SCRIPT};
use super::users::{ADA, ADAS_PASSWORD, make_key, sign_in_ada, sign_in_at, sign_in_ben};
use super::visitor::{Visitor, forms, unescaped};
use crate::kit::{Account, Answer, Call, FakeUpstream, Gateway, OutputChannel, eventually, request};

/// The secret of the accounts that the tests add. No page and no log may show it.
const SECRET: &str = "canary-upstream-secret-of-the-board";
const OTHER_SECRET: &str = "canary-upstream-secret-after-rotation";

/// The text of a page after an element with this attribute, up to the end of its row or item.
#[track_caller]
fn part<'a>(html: &'a str, start: &str, end: &str) -> &'a str {
    let rest = html.split_once(start).unwrap_or_else(|| panic!("no {start}: {html}")).1;
    rest.split(end).next().unwrap_or_default()
}

/// The row of an account on the board.
#[track_caller]
fn row(ada: &mut Visitor<'_>, name: &str) -> String {
    let html = ada.get("/accounts").text();
    let row = html.split("<tr>").find(|row| row.contains(&format!("<bdi>{name}</bdi></a>")));
    row.unwrap_or_else(|| panic!("no account {name}: {html}")).to_owned()
}

/// The path of the page of an account.
#[track_caller]
pub(super) fn account_path(ada: &mut Visitor<'_>, name: &str) -> String {
    let row = row(ada, name);
    part(&row, "href=\"", "\"").to_owned()
}

/// The fields of a new account that the upstream accepts.
fn new_account<'a>(name: &'a str, base_url: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![("name", name), ("kind", "api_key"), ("base_url", base_url), ("api_key", SECRET)]
}

#[track_caller]
fn watch(gateway: &Gateway) {
    for secret in [SECRET, OTHER_SECRET] {
        gateway.watch_secret("the secret of an account", secret, &[]);
    }
}

#[track_caller]
fn check_redirect(answer: &Answer, location: &str) {
    assert_eq!((answer.status, answer.header("location")), (303, Some(location)), "{}", answer.text());
}

/// Checks that a form was refused because of this field alone.
#[track_caller]
fn check_refused(answer: &Answer, field: &str, message: &str) {
    let text = answer.text();
    assert_eq!(answer.status, 422, "{field}: {text}");
    let error = unescaped(part(&text, &format!("id=\"{field}-error\">"), "</span>"));
    assert!(error.contains(message), "{field}: {error}");
    assert_eq!(text.matches("class=\"error\"").count(), 1, "{field}: {text}");
}

fn send(gateway: &Gateway, script: &str) -> u16 {
    let body = request(json!({ "prompt": format!("a cube [[{script}]]") }));
    Call::generation().key(gateway.secret()).json(&body).send(gateway.address()).status
}

#[test]
fn an_account_is_added_tested_changed_rotated_and_deleted() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    watch(&gateway);
    let mut ada = sign_in_ada(&gateway);
    let base_url = upstream.base_url();
    let mut fields = new_account("fresh", &base_url);
    fields.extend([("concurrency", "3"), ("large_concurrency", "1"), ("priority", "7"), ("tier", "free")]);
    let answer = ada.submit("/accounts", "/accounts", &fields);
    let path = account_path(&mut ada, "fresh");
    check_redirect(&answer, &format!("{path}?done=account-added"));
    let page = ada.get(&format!("{path}?done=account-added")).text();
    for text in ["Account added.", "0 / 3", "0 / 1", "<dd>7</dd>", "<dd>free</dd>", ">Serving<", "Database"] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let tested = ada.submit(&path, &format!("{path}/test"), &[]);
    assert_eq!(tested.status, 200);
    assert!(tested.text().contains("list of models, which costs nothing"), "{}", tested.text());
    check_redirect(
        &ada.submit(&path, &format!("{path}/change"), &[("priority", "-4"), ("concurrency", "5"), ("tier", "")]),
        &format!("{path}?done=saved"),
    );
    let page = ada.get(&path).text();
    for text in ["0 / 5", "<dd>-4</dd>", "<dd>paid</dd>"] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let secret = format!("{path}/secret");
    check_redirect(&ada.submit(&path, &secret, &[("api_key", OTHER_SECRET)]), &format!("{path}?done=account-secret"));
    let delete = format!("{path}/delete");
    check_redirect(&ada.submit(&delete, &delete, &[]), "/accounts?done=account-deleted");
    assert_eq!(ada.get(&path).status, 404);
    let trail = unescaped(&ada.get("/audit").text());
    for action in ["account.add", "account.change", "account.rotate", "account.delete"] {
        assert!(trail.contains(action), "{action}: {trail}");
    }
    assert!(trail.contains("settings: concurrency priority tier"), "{trail}");
}

#[test]
fn each_field_of_an_account_that_cannot_be_used_is_named() {
    let gateway = Gateway::simulated();
    watch(&gateway);
    let mut ada = sign_in_ada(&gateway);
    let base = new_account("typo", "https://upstream.example/v1");
    for (name, value, message) in [
        ("name", "two words", "letters, digits"),
        ("name", "", "required"),
        ("base_url", "upstream.example", "base_url"),
        ("base_url", "http://upstream.example", "https://"),
        ("base_url", "", "base_url"),
        ("api_key", "", "api_key"),
        ("api_key", "line\nbreak", "api_key"),
        ("base_url", "https://upstream.example/v1/images/generations", "write \"https://upstream.example/v1\""),
        ("api_key", "Bearer canary-upstream-secret-of-the-board", "write the key alone"),
        ("api_key", "'canary-upstream-secret-of-the-board'", "write it without them"),
        ("concurrency", "many", "concurrency"),
        ("concurrency", "0", "concurrency"),
        ("large_concurrency", "-1", "large_concurrency"),
        ("priority", "first", "priority"),
        ("priority", "1001", "priority"),
        ("host_model", "gpt-image-2", "host_model"),
        ("tier", "gratis", "Supported values"),
        ("protocol", "chat", "Supported values"),
        ("kind", "browser", "Supported values"),
        ("token_url", "https://upstream.example/token", "oauth"),
    ] {
        let answer = ada.submit("/accounts", "/accounts", &[&base[..], &[(name, value)]].concat());
        check_refused(&answer, name, message);
        let text = answer.text();
        assert!(text.contains("<details class=\"card reveal\" open>"), "{name}: {text}");
        let form = forms(&text).into_iter().find(|form| form.action == "/accounts").expect("the form");
        assert_eq!(form.value("api_key"), "", "a secret was sent back");
        if !["tier", "protocol", "kind", "api_key"].contains(&name) {
            assert_eq!(form.value(name), value);
        }
    }
    let without_group = ada.form("/accounts", "/accounts").with(&base).without("groups");
    check_refused(&ada.post("/accounts", &without_group.fields), "groups", "at least one group");
    assert!(ada.get("/accounts").text().contains("1 account<"), "a refused form added an account");
}

#[test]
fn a_form_that_is_sent_twice_adds_one_account() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    watch(&gateway);
    let mut ada = sign_in_ada(&gateway);
    let base_url = upstream.base_url();
    let form = ada.form("/accounts", "/accounts").with(&new_account("once", &base_url));
    assert_eq!(ada.post("/accounts", &form.fields).status, 303);
    let path = account_path(&mut ada, "once");
    let again = ada.post("/accounts", &form.fields);
    assert!(again.status == 409 && again.text().contains(&path), "{}", again.text());
    let taken = ada.submit("/accounts", "/accounts", &new_account("once", &base_url));
    check_refused(&taken, "name", "already in use");
    let rotate = ada.form(&path, &format!("{path}/secret")).with(&[("api_key", OTHER_SECRET)]);
    assert_eq!(ada.post(&rotate.action, &rotate.fields).status, 303);
    let again = ada.post(&rotate.action, &rotate.fields);
    assert!(again.status == 409 && again.text().contains("were not saved again"), "{}", again.text());
    // A form with settings that somebody else has changed in the meantime overwrites nothing.
    let stale = ada.form(&path, &format!("{path}/change")).with(&[("priority", "1")]);
    assert_eq!(ada.submit(&path, &stale.action, &[("priority", "2")]).status, 303);
    let refused = ada.post(&stale.action, &stale.fields);
    assert!(refused.status == 409 && refused.text().contains("changed in the meantime"), "{}", refused.text());
    assert!(ada.get(&path).text().contains("<dd>2</dd>"));
    let deleted = ada.form(&format!("{path}/delete"), &format!("{path}/delete"));
    assert_eq!(ada.post(&deleted.action, &deleted.fields).status, 303);
    assert_eq!(ada.post(&deleted.action, &deleted.fields).status, 404);
}

#[test]
fn stored_secrets_are_not_sent_to_another_address() {
    let (upstream, other) = (FakeUpstream::start(), FakeUpstream::start());
    let gateway = Gateway::with_upstream(&upstream);
    watch(&gateway);
    let mut ada = sign_in_ada(&gateway);
    let (base_url, other_url) = (upstream.base_url(), other.base_url());
    assert_eq!(ada.submit("/accounts", "/accounts", &new_account("moving", &base_url)).status, 303);
    let path = account_path(&mut ada, "moving");
    let action = format!("{path}/secret");
    let refused = ada.submit(&path, &action, &[("base_url", &other_url)]);
    check_refused(&refused, "api_key", "Enter this secret again");
    assert!(refused.text().contains(&format!("value=\"{other_url}\"")), "{}", refused.text());
    assert!(ada.submit(&path, &action, &[]).text().contains("Enter a new secret, or change the address."));
    assert!(ada.get(&path).text().contains(&base_url), "a refused form changed the address");
    let moved = ada.submit(&path, &action, &[("base_url", &other_url), ("api_key", OTHER_SECRET)]);
    check_redirect(&moved, &format!("{path}?done=account-secret"));
    assert!(ada.get(&path).text().contains(&other_url));
    assert_eq!(other.accepted(), 0, "nothing was sent");
}

#[test]
fn an_account_that_fails_every_call_does_not_look_healthy() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let name =
        gateway.run_command(&["account", "list", "--json"]).json()[0]["name"].as_str().expect("a name").to_owned();
    let mut ada = sign_in_ada(&gateway);
    assert!(row(&mut ada, &name).contains("No calls"), "{}", row(&mut ada, &name));
    assert_eq!(send(&gateway, "status=500"), 502);
    let failed = row(&mut ada, &name);
    for text in ["tag bad", "every call fails", "1 failed", "(100 %)", "Upstream error", "(500)"] {
        assert!(failed.contains(text), "{text}: {failed}");
    }
    let link = format!("/records?account={name}&amp;state=failed");
    assert!(failed.contains(&link), "{failed}");
    for _ in 0..3 {
        assert_eq!(send(&gateway, ""), 200);
    }
    let served = row(&mut ada, &name);
    for text in ["tag good", ">Serving<", "4 calls", "(25 %)", "median"] {
        assert!(served.contains(text), "{text}: {served}");
    }
    // A refused content is no failure of the account.
    send(&gateway, "status=400 body=policy");
    assert!(row(&mut ada, &name).contains("4 calls"), "{}", row(&mut ada, &name));
    assert_eq!(send(&gateway, "status=429 retry-after=600"), 429);
    let cooling = row(&mut ada, &name);
    for text in ["Cooling down", "Until <time", "data-until=\"20", "too many requests", "Rate limit"] {
        assert!(cooling.contains(text), "{text}: {cooling}");
    }
    let path = account_path(&mut ada, &name);
    check_redirect(&ada.submit(&path, &format!("{path}/enable"), &[]), &format!("{path}?done=account-enabled"));
    assert!(row(&mut ada, &name).contains(">Serving"), "the cooldown must end at once");
}

#[test]
fn a_confirmation_says_which_groups_are_left_without_service() {
    let upstream = FakeUpstream::start();
    let art = Account::for_upstream("art-only", &upstream).with_line("groups = [\"art\"]");
    let reserve = Account::for_upstream("reserve", &upstream);
    let main = Account::for_upstream("main", &upstream).with_responses_protocol();
    let gateway = Gateway::with("[[groups]]\nname = \"art\"\n", &[main, reserve, art]);
    let mut ada = sign_in_ada(&gateway);
    let answer = ada.submit("/keys", "/keys", &[("name", "brush"), ("group", "art")]);
    let secret = super::users::secret_in(&answer.text()).expect("a secret");
    gateway.watch_secret("a key", &secret, &[OutputChannel::Key]);
    let confirmation = |ada: &mut Visitor<'_>, name: &str| {
        let path = account_path(ada, name);
        unescaped(&ada.get(&format!("{path}/disable")).text())
    };
    let page = confirmation(&mut ada, "art-only");
    assert!(page.contains("<bdi>art</bdi></a> (1 key): images</li>"), "{page}");
    let page = confirmation(&mut ada, "main");
    assert!(page.contains("<bdi>default</bdi></a>") && page.contains("): responses</li>"), "{page}");
    assert!(confirmation(&mut ada, "reserve").contains("Nothing is left without service"));
    let path = account_path(&mut ada, "art-only");
    let long = "x".repeat(2000);
    check_refused(
        &ada.submit(&format!("{path}/disable"), &format!("{path}/disable"), &[("reason", &long)]),
        "reason",
        "",
    );
    let disabled =
        ada.submit(&format!("{path}/disable"), &format!("{path}/disable"), &[("reason", "the invoice is late")]);
    check_redirect(&disabled, &format!("{path}?done=account-disabled"));
    let row = row(&mut ada, "art-only");
    assert!(row.contains(">Disabled<") && row.contains("the invoice is late") && row.contains("/enable\""), "{row}");
    let call = Call::generation().key(&secret).json(&request(json!({})));
    assert_eq!(call.send(gateway.address()).status, 503);
    // An account of the settings file cannot be changed or deleted here.
    let page = ada.get(&path).text();
    assert!(page.contains("defined in the configuration file") && page.contains("imagate.toml"), "{page}");
    assert!(!page.contains("/delete\"") && !page.contains("/change\"") && !page.contains("/secret\""), "{page}");
    let csrf = ada.form(&path, &format!("{path}/enable")).value("csrf").to_owned();
    for action in ["delete", "change", "secret"] {
        let answer = ada.post(&format!("{path}/{action}"), &[("csrf".to_owned(), csrf.clone())]);
        assert!(answer.status == 409 && answer.text().contains("configuration file"), "{action}: {}", answer.text());
    }
    assert_eq!(ada.get(&format!("{path}/delete")).status, 409);
}

#[test]
fn an_account_that_is_disabled_finishes_its_calls() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let mut ada = sign_in_ada(&gateway);
    let name = "added";
    let base_url = upstream.base_url();
    watch(&gateway);
    assert_eq!(
        ada.submit("/accounts", "/accounts", &[&new_account(name, &base_url)[..], &[("priority", "9")]].concat())
            .status,
        303
    );
    let path = account_path(&mut ada, name);
    // With a shared store, a new account serves when this node has got slots of it.
    let before = eventually("the new account serves", || {
        assert_eq!(send(&gateway, ""), 200);
        let attempts = upstream.received_attempts();
        attempts.last().is_some_and(|attempt| attempt.token == SECRET).then_some(attempts.len())
    });
    std::thread::scope(|scope| {
        let running = scope.spawn(|| send(&gateway, "gate=open"));
        upstream.wait_until("a call arrives", |attempts| attempts.len() > before);
        assert!(row(&mut ada, name).contains("1 / 8"), "{}", row(&mut ada, name));
        let page = ada.get(&format!("{path}/disable")).text();
        assert!(page.contains("1 request that is in flight is finished."), "{page}");
        assert_eq!(ada.submit(&format!("{path}/disable"), &format!("{path}/disable"), &[]).status, 303);
        assert_eq!(send(&gateway, ""), 200, "another account serves");
        assert_eq!(ada.submit(&format!("{path}/delete"), &format!("{path}/delete"), &[]).status, 303);
        upstream.open_gate("open");
        assert_eq!(running.join().expect("a status"), 200, "the running call is finished");
    });
    let tokens: Vec<String> = upstream.received_attempts().into_iter().map(|attempt| attempt.token).collect();
    assert_eq!((tokens[before].as_str(), tokens.len()), (SECRET, before + 2));
    assert_ne!(tokens[before + 1], SECRET, "the second call used the other account");
}

#[test]
fn a_test_says_why_an_account_cannot_be_used() {
    let upstream = FakeUpstream::start();
    let closed = crate::kit::RefusingPort::new();
    let gateway = Gateway::with_upstream(&upstream);
    watch(&gateway);
    let mut ada = sign_in_ada(&gateway);
    let dead_url = closed.base_url();
    assert_eq!(ada.submit("/accounts", "/accounts", &new_account("dead", &dead_url)).status, 303);
    let simulator = [("name", "drawn"), ("kind", "simulator")];
    assert_eq!(ada.submit("/accounts", "/accounts", &simulator).status, 303);
    for (name, message) in [("dead", "could not be reached"), ("drawn", "has no upstream")] {
        let path = account_path(&mut ada, name);
        // A disabled account can be tested, too, and stays disabled.
        assert_eq!(ada.submit(&format!("{path}/disable"), &format!("{path}/disable"), &[]).status, 303);
        let answer = ada.submit(&path, &format!("{path}/test"), &[]);
        assert!(answer.status == 200 && answer.text().contains(message), "{name}: {}", answer.text());
        assert!(answer.text().contains(">Disabled<"), "{name}: {}", answer.text());
    }
}

#[test]
fn members_reach_nothing_of_the_accounts() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    watch(&gateway);
    let mut ada = sign_in_ada(&gateway);
    let mut ben = sign_in_ben(&mut ada);
    let base_url = upstream.base_url();
    assert_eq!(ada.submit("/accounts", "/accounts", &new_account("hers", &base_url)).status, 303);
    let path = account_path(&mut ada, "hers");
    let form = ben.form("/keys", "/keys");
    let fields =
        [("csrf".to_owned(), form.value("csrf").to_owned()), ("nonce".to_owned(), form.value("nonce").to_owned())];
    for page in ["", "/disable", "/delete"] {
        assert_eq!(ben.get(&format!("{path}{page}")).status, 403, "{page}");
    }
    for action in ["disable", "enable", "change", "secret", "test", "delete"] {
        let answer = ben.post(&format!("{path}/{action}"), &fields);
        assert!(answer.status == 403 && answer.text().contains("Admins only"), "{action}: {}", answer.text());
    }
    assert_eq!(ben.post("/accounts", &fields).status, 403);
    let accounts: Value = gateway.run_command(&["account", "list", "--json"]).json();
    assert_eq!(accounts.as_array().map(Vec::len), Some(2), "{accounts}");
    drop(make_key(&mut ben, "his"));
}

#[test]
fn the_board_follows_the_accounts_without_a_reload() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let name =
        gateway.run_command(&["account", "list", "--json"]).json()[0]["name"].as_str().expect("a name").to_owned();
    drop(sign_in_ada(&gateway));
    let browser = Browser::start();
    let tab = browser.tab(&gateway, WITH_SCRIPT);
    sign_in_at(&tab, ADA, ADAS_PASSWORD);
    tab.go("/accounts");
    tab.assert_text("No calls");
    tab.evaluate("document.getElementById('board').querySelector('a[id^=open-]').focus()");
    assert_eq!(send(&gateway, "status=429 retry-after=600"), 429);
    eventually("the board shows the cooldown", || tab.text().contains("Cooling down").then_some(()));
    assert_eq!(tab.focused().1, name, "the focus must stay on the link");
    let left = || tab.texts_of(".countdown").pop().unwrap_or_default();
    let first = left();
    assert!(first.starts_with("(9:") || first.starts_with("(10:"), "the time is shown at once: {first}");
    eventually("the time passes", || (left() != first).then_some(()));
    gateway.run_command(&["account", "disable", &name]).ok_stdout();
    eventually("the board shows the state", || tab.text().contains("Disabled").then_some(()));
    // The fields of another kind are shown only for this kind.
    tab.open_details("Add an account");
    assert_eq!(tab.count("textbox", "Token endpoint"), 0);
    tab.evaluate("document.getElementById('kind').value = 'oauth'");
    assert_eq!(tab.count("textbox", "Token endpoint"), 1);
}
