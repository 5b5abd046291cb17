//! The admin API for keys, users and groups: what members see, secrets that are shown once, the audit trail, and
//! refusals that name the field and change nothing.

mod tokens;

use serde_json::{Value, json};

use crate::kit::{Account, Answer, Call, FakeUpstream, Gateway, eventually, request};

const TOKEN: &str = "admin-token-canary-0123456789abcdef";
const KEYS: &str = "/admin/v1/keys";
const USERS: &str = "/admin/v1/users";
const TOKENS: &str = "/admin/v1/tokens";
const GROUPS: &str = "/admin/v1/groups";
const AUDIT: &str = "/admin/v1/audit";

fn open() -> (FakeUpstream, Gateway) {
    open_with("")
}

fn open_with(settings: &str) -> (FakeUpstream, Gateway) {
    let upstream = FakeUpstream::start();
    let secrets = [("IT_ADMIN", TOKEN), ("IMAGATE_LOG", "trace")];
    let accounts = [Account::for_upstream("only", &upstream)];
    let gateway =
        Gateway::with_secrets(&format!("{settings}\nadmin_token = {{ env = \"IT_ADMIN\" }}"), &accounts, &secrets);
    (upstream, gateway)
}

fn ask(gateway: &Gateway, token: &str, call: Call) -> Answer {
    let answer = call.key(token).send(gateway.address());
    assert_eq!(answer.header("cache-control"), Some("no-store"), "{answer:?}");
    answer
}

#[track_caller]
fn good(gateway: &Gateway, call: Call) -> Value {
    ask(gateway, TOKEN, call).ok_json()
}

#[track_caller]
fn text(value: &Value, at: &str) -> String {
    value.pointer(at).and_then(Value::as_str).unwrap_or_else(|| panic!("{at} in {value}")).to_owned()
}

/// The code and the field of a refusal.
#[track_caller]
fn refused(answer: &Answer, status: u16) -> (String, Option<String>) {
    let error = answer.error_object(status);
    (text(&error, "/code"), error["param"].as_str().map(str::to_owned))
}

/// Makes a user, and returns a token of that user.
fn user(gateway: &Gateway, name: &str, role: &str) -> String {
    good(gateway, Call::post(USERS).json(&json!({"name": name, "role": role})));
    let made = good(gateway, Call::post(TOKENS).json(&json!({"name": "test", "user": name})));
    text(&made, "/secret")
}

fn generate(gateway: &Gateway, key: &str) -> Answer {
    Call::generation().json(&request(json!({}))).key(key).send(gateway.address())
}

fn ids(list: &Value) -> Vec<String> {
    list["data"].as_array().expect("a list").iter().map(|item| text(item, "/id")).collect()
}

/// The number of entries in the audit trail.
fn audit_count(gateway: &Gateway) -> u64 {
    good(gateway, Call::get(&format!("{AUDIT}?limit=1")))["total"].as_u64().expect("a count")
}

#[test]
fn a_member_makes_a_key_and_sees_what_it_used_and_nothing_of_others() {
    let (_upstream, gateway) = open();
    let (kim, lee) = (user(&gateway, "kim", "member"), user(&gateway, "lee", "member"));
    let made = ask(&gateway, &kim, Call::post(KEYS).json(&json!({"name": "laptop"}))).ok_json();
    let key = &made["key"];
    assert_eq!((&key["user_name"], &key["group"], &key["state"]), (&json!("kim"), &json!("default"), &json!("active")));
    assert_eq!((&key["requests"], &key["images"]), (&json!(0), &json!(0)));
    let answer = generate(&gateway, &text(&made, "/secret"));
    answer.ok_json();
    let id = text(key, "/id");
    let record = format!("/admin/v1/records/{}", answer.header("x-request-id").expect("an id"));
    let seen = ask(&gateway, &kim, Call::get(&record)).ok_json();
    assert_eq!(
        (&seen["state"], &seen["key_name"], &seen["account"]),
        (&json!("succeeded"), &json!("laptop"), &Value::Null)
    );
    assert_eq!(seen["attempts"][0]["account"], Value::Null, "accounts are not for members");
    assert_eq!(good(&gateway, Call::get(&record))["attempts"][0]["account"], "only");
    let seen = ask(&gateway, &kim, Call::get(&format!("{KEYS}/{id}"))).ok_json();
    assert_eq!((&seen["requests"], &seen["images"]), (&json!(1), &json!(1)));
    let usage = ask(&gateway, &kim, Call::get("/admin/v1/usage")).ok_json();
    assert_eq!((&usage["totals"]["images"], &usage["keys"][0]["key"]), (&json!(1), &json!(id)));
    assert_eq!(ids(&ask(&gateway, &kim, Call::get(KEYS)).ok_json()), std::slice::from_ref(&id));
    for list in [KEYS, TOKENS, "/admin/v1/records"] {
        let seen = ask(&gateway, &lee, Call::get(list)).ok_json().to_string();
        assert!(!seen.contains("kim") && !seen.contains(&id), "{list}: {seen}");
    }
    assert_eq!(ask(&gateway, &lee, Call::get("/admin/v1/usage")).ok_json()["totals"]["requests"], 0);
    assert_eq!(ask(&gateway, &kim, Call::get("/admin/v1/me")).ok_json()["user"]["name"], "kim");
}

#[test]
fn a_secret_and_a_link_occur_in_one_answer_only() {
    let (_upstream, gateway) = open();
    let key = good(&gateway, Call::post(KEYS).json(&json!({"name": "k", "user": "admin"})));
    let rotated = good(&gateway, Call::post(&format!("{KEYS}/{}/rotate", text(&key, "/key/id"))).json(&json!({})));
    let token = good(&gateway, Call::post(TOKENS).json(&json!({"name": "t", "user": "admin"})));
    let invited = good(&gateway, Call::post(USERS).json(&json!({"name": "kim"})));
    let reset = good(&gateway, Call::post(&format!("{USERS}/kim/reset")));
    let secrets: Vec<String> = [(&key, "/secret"), (&rotated, "/secret"), (&token, "/secret")]
        .map(|(answer, at)| text(answer, at).rsplit('-').next().expect("a secret part").to_owned())
        .into_iter()
        .chain(
            [(&invited, "/link/path"), (&reset, "/path")]
                .map(|(answer, at)| text(answer, at)["/invitation/".len()..].to_owned()),
        )
        .collect();
    for path in [KEYS, TOKENS, USERS, AUDIT, "/admin/v1/me", &format!("{KEYS}/{}", text(&key, "/key/id"))] {
        let body = good(&gateway, Call::get(path)).to_string();
        assert!(secrets.iter().all(|secret| !body.contains(secret)), "{path}: {body}");
    }
    eventually("the gateway logs an answer", || gateway.output().contains("answered").then_some(()));
    assert!(secrets.iter().all(|secret| secret.len() > 20 && !gateway.output().contains(secret)), "a secret is logged");
}

#[test]
fn a_link_has_a_url_if_the_public_url_is_set() {
    let (_upstream, gateway) = open_with("public_url = \"https://images.example.com\"");
    let invited = good(&gateway, Call::post(USERS).json(&json!({"name": "kim"})));
    let (path, url) = (text(&invited, "/link/path"), text(&invited, "/link/url"));
    assert_eq!(url, format!("https://images.example.com{path}"));
    let (_upstream, gateway) = open();
    let invited = good(&gateway, Call::post(USERS).json(&json!({"name": "kim"})));
    assert_eq!((&invited["link"]["url"], &invited["link"]["purpose"]), (&Value::Null, &json!("invitation")));
}

#[test]
fn the_old_secret_works_only_during_the_grace_period() {
    let (_upstream, gateway) = open();
    let key = good(&gateway, Call::post(KEYS).json(&json!({"name": "k", "user": "admin"})));
    let rotate = format!("{KEYS}/{}/rotate", text(&key, "/key/public_id"));
    let second = good(&gateway, Call::post(&rotate).json(&json!({"grace_seconds": 3600})));
    assert_eq!(second["key"]["id"], key["key"]["id"]);
    assert!(second["key"]["previous_until"].is_string(), "{second}");
    for secret in [&key, &second] {
        generate(&gateway, &text(secret, "/secret")).ok_json();
    }
    let third = good(&gateway, Call::post(&rotate).json(&json!({"grace_seconds": 0})));
    assert_eq!(third["key"]["previous_until"], Value::Null);
    for secret in [&key, &second] {
        assert_eq!(generate(&gateway, &text(secret, "/secret")).error_object(401)["code"], "INVALID_API_KEY");
    }
    generate(&gateway, &text(&third, "/secret")).ok_json();
}

#[test]
fn changes_of_a_key_or_a_user_apply_at_once() {
    let (_upstream, gateway) = open();
    user(&gateway, "kim", "member");
    let made = good(&gateway, Call::post(KEYS).json(&json!({"name": "k", "user": "kim"})));
    let (secret, path) = (text(&made, "/secret"), format!("{KEYS}/{}", text(&made, "/key/id")));
    let state = |change: Value, path: &str| {
        good(&gateway, Call::patch(path).json(&change));
        text(&good(&gateway, Call::get(&format!("{KEYS}/{}", text(&made, "/key/id")))), "/state")
    };
    assert_eq!(state(json!({"enabled": false}), &path), "disabled");
    assert_eq!(generate(&gateway, &secret).error_object(401)["code"], "INVALID_API_KEY");
    assert_eq!(state(json!({"enabled": true, "name": "back"}), &path), "active");
    generate(&gateway, &secret).ok_json();
    assert_eq!(state(json!({"enabled": false}), &format!("{USERS}/kim")), "user_disabled");
    assert_eq!(good(&gateway, Call::get(&format!("{KEYS}?state=user_disabled")))["total"], 1);
    let refusal = eventually("the key of a disabled user is refused", || {
        Some(generate(&gateway, &secret)).filter(|answer| answer.status == 401)
    });
    assert_eq!(refusal.error_object(401)["code"], "INVALID_API_KEY");
    assert_eq!(state(json!({"enabled": true}), &format!("{USERS}/kim")), "active");
    assert_eq!(good(&gateway, Call::delete(&path))["deleted"], true);
    assert_eq!(generate(&gateway, &secret).error_object(401)["code"], "INVALID_API_KEY");
    let gone = ask(&gateway, TOKEN, Call::get(&path));
    assert_eq!(refused(&gone, 404), ("key_not_found".to_owned(), None));
}

#[test]
fn the_expiry_of_a_key_can_be_set_and_removed_but_not_past() {
    let (_upstream, gateway) = open();
    let end = "2099-01-01T00:00:00.000Z";
    let made = good(
        &gateway,
        Call::post(KEYS).json(&json!({"name": "k", "user": "admin", "expires_at": "2099-01-01T02:00:00+02:00"})),
    );
    assert_eq!(text(&made, "/key/expires_at").parse::<chrono::DateTime<chrono::Utc>>().ok(), end.parse().ok());
    let path = format!("{KEYS}/{}", text(&made, "/key/id"));
    let endless = good(&gateway, Call::patch(&path).json(&json!({"never_expires": true})));
    assert_eq!(endless["expires_at"], Value::Null);
    let both = ask(&gateway, TOKEN, Call::patch(&path).json(&json!({"never_expires": true, "expires_at": end})));
    assert_eq!(refused(&both, 400).1.as_deref(), Some("never_expires"));
    let past =
        ask(&gateway, TOKEN, Call::patch(&path).json(&json!({"name": "other", "expires_at": "2020-01-01T00:00:00Z"})));
    assert_eq!(refused(&past, 400).1.as_deref(), Some("expires_at"));
    assert_eq!(good(&gateway, Call::get(&path))["name"], "k", "the whole change is refused");
}

#[test]
fn the_audit_trail_names_who_what_when_and_from_where() {
    let (_upstream, gateway) = open();
    let kim = user(&gateway, "kim", "member");
    let made = ask(&gateway, &kim, Call::post(KEYS).json(&json!({"name": "laptop"}))).ok_json();
    let path = format!("{KEYS}/{}", text(&made, "/key/id"));
    ask(&gateway, &kim, Call::patch(&path).json(&json!({"enabled": false}))).ok_json();
    good(&gateway, Call::delete(&path));
    let trail = good(&gateway, Call::get(&format!("{AUDIT}?target={}", text(&made, "/key/id"))));
    let rows: Vec<[String; 4]> = trail["data"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|row| ["/action", "/actor_kind", "/actor_name", "/address"].map(|at| text(row, at)))
        .collect();
    let settings = text(&good(&gateway, Call::get(&format!("{AUDIT}?action=user.invite"))), "/data/0/actor_name");
    let row = |action: &str, kind: &str, name: &str| [action, kind, name, "127.0.0.1"].map(str::to_owned);
    let expected = [
        row("key.delete", "settings", &settings),
        row("key.disable", "token", "kim"),
        row("key.create", "token", "kim"),
    ];
    assert_eq!(rows, expected);
    assert_eq!(trail["data"][0]["target_name"], "laptop");
    let first = good(&gateway, Call::get(&format!("{AUDIT}?limit=1&actor=kim")));
    assert_eq!((&first["has_more"], &first["total"]), (&json!(true), &json!(2)));
    let next = good(&gateway, Call::get(&format!("{AUDIT}?actor=kim&before={}", first["data"][0]["seq"])));
    assert_eq!((&next["has_more"], &next["data"][0]["action"]), (&json!(false), &json!("key.create")));
}

#[test]
fn a_field_at_fault_is_named_and_nothing_has_changed() {
    let (_upstream, gateway) = open();
    user(&gateway, "kim", "member");
    let made = good(&gateway, Call::post(KEYS).json(&json!({"name": "k", "user": "kim"})));
    let key = format!("{KEYS}/{}", text(&made, "/key/id"));
    let rotate = format!("{key}/rotate");
    let (kim, before) = (format!("{USERS}/kim"), audit_count(&gateway));
    let long = "n".repeat(129);
    let bodies = [
        (Call::post(KEYS), json!({"user": "kim"}), 400, Some("name")),
        (Call::post(KEYS), json!({"name": "k"}), 400, Some("user")),
        (Call::post(KEYS), json!({"name": " ", "user": "kim"}), 400, Some("name")),
        (Call::post(KEYS), json!({"name": long, "user": "kim"}), 400, Some("name")),
        (Call::post(KEYS), json!({"name": "a\u{7}", "user": "kim"}), 400, Some("name")),
        (Call::post(KEYS), json!({"name": "k", "user": "kim", "group": "none"}), 400, Some("group")),
        (Call::post(KEYS), json!({"name": "k", "user": "nobody"}), 404, Some("user")),
        (Call::post(KEYS), json!({"name": "k", "user": "kim", "expires_at": "soon"}), 400, Some("expires_at")),
        (
            Call::post(KEYS),
            json!({"name": "k", "user": "kim", "expires_at": "2020-01-01T00:00:00Z"}),
            400,
            Some("expires_at"),
        ),
        (Call::post(KEYS), json!({"name": "k", "user": "kim", "role": "admin"}), 400, Some("role")),
        (Call::patch(&key), json!({}), 400, None),
        (Call::patch(&key), json!({"enabled": "yes"}), 400, Some("enabled")),
        (Call::patch(&key), json!({"name": "\n", "enabled": false}), 400, Some("name")),
        (Call::post(&rotate), json!({"grace_seconds": -1}), 400, Some("grace_seconds")),
        (Call::post(&rotate), json!({"grace_seconds": 2_592_001}), 400, Some("grace_seconds")),
        (Call::post(USERS), json!({"name": "kim"}), 409, Some("name")),
        (Call::post(USERS), json!({"name": "lee", "role": "owner"}), 400, Some("role")),
        (Call::post(USERS), json!({"name": "lee", "groups": ["none"]}), 400, Some("groups")),
        (Call::patch(&kim), json!({"groups": [1]}), 400, Some("groups[0]")),
        (Call::patch(&kim), json!({"enabled": false, "groups": ["none"]}), 400, Some("groups")),
        (Call::patch(&kim), json!({"name": "lee"}), 400, Some("name")),
        (Call::post(TOKENS), json!({"name": "t"}), 400, Some("user")),
        (Call::post(TOKENS), json!({"name": "", "user": "kim"}), 400, Some("name")),
        (Call::post(GROUPS), json!({"name": "default"}), 409, Some("name")),
    ];
    for (call, body, status, param) in bodies {
        let answer = ask(&gateway, TOKEN, call.json(&body));
        assert_eq!(refused(&answer, status).1.as_deref(), param, "{body}: {}", answer.text());
    }
    assert_eq!(audit_count(&gateway), before, "nothing has changed");
}

#[test]
fn an_invalid_query_parameter_is_named_in_the_error() {
    let (_upstream, gateway) = open();
    let before = audit_count(&gateway);
    let queries = [
        ("keys?serch=a", "serch"),
        ("keys?limit=0", "limit"),
        ("keys?limit=many", "limit"),
        ("keys?state=tired", "state"),
        ("keys?limit=1&limit=2", "limit"),
        ("users?role=owner", "role"),
        ("records?since=yesterday", "since"),
        ("usage?until=2026-13-01", "until"),
        ("audit?before=x", "before"),
        ("me?verbose=1", "verbose"),
        ("accounts?limit=5", "limit"),
    ];
    for (query, param) in queries {
        let answer = ask(&gateway, TOKEN, Call::get(&format!("/admin/v1/{query}")));
        assert_eq!(refused(&answer, 400).1.as_deref(), Some(param), "{query}");
    }
    let posted =
        ask(&gateway, TOKEN, Call::post(&format!("{KEYS}?name=k")).json(&json!({"name": "k", "user": "admin"})));
    assert_eq!(refused(&posted, 400).1.as_deref(), Some("name"));
    assert_eq!(audit_count(&gateway), before, "nothing has changed");
}

#[test]
fn a_name_that_differs_by_case_only_is_taken() {
    let (_upstream, gateway) = open();
    user(&gateway, "kim", "member");
    for name in ["Kim", "KIM", "ｋｉｍ"] {
        let made = ask(&gateway, TOKEN, Call::post(USERS).json(&json!({"name": name})));
        assert_eq!(refused(&made, 409).0, "user_exists", "{name}");
    }
    assert_eq!(good(&gateway, Call::get(&format!("{USERS}/KIM")))["name"], "kim");
}

#[test]
fn a_member_has_keys_in_the_groups_that_an_admin_allows() {
    let (_upstream, gateway) = open();
    let kim = user(&gateway, "kim", "member");
    good(&gateway, Call::post(GROUPS).json(&json!({"name": "artists"})));
    let new_key = || Call::post(KEYS).json(&json!({"name": "k", "group": "artists"}));
    assert_eq!(refused(&ask(&gateway, &kim, new_key()), 400).1.as_deref(), Some("group"));
    good(&gateway, Call::patch(&format!("{USERS}/kim")).json(&json!({"groups": ["artists"]})));
    let made = ask(&gateway, &kim, new_key()).ok_json();
    let seen = ask(&gateway, &kim, Call::get(GROUPS)).ok_json();
    assert_eq!(seen["data"], json!([{"name": "artists", "source": "store"}]));
    let used = ask(&gateway, TOKEN, Call::delete(&format!("{GROUPS}/artists")));
    assert_eq!(refused(&used, 409).0, "group_in_use");
    good(&gateway, Call::delete(&format!("{KEYS}/{}", text(&made, "/key/id"))));
    assert_eq!(good(&gateway, Call::delete(&format!("{GROUPS}/artists")))["deleted"], true);
    let unknown = ask(&gateway, TOKEN, Call::delete(&format!("{GROUPS}/artists")));
    assert_eq!(refused(&unknown, 404).0, "group_not_found");
}

#[test]
fn the_pages_of_a_list_are_complete_and_do_not_overlap() {
    let (_upstream, gateway) = open();
    user(&gateway, "kim", "member");
    for count in 0..5 {
        good(&gateway, Call::post(KEYS).json(&json!({"name": format!("page-{count}"), "user": "kim"})));
    }
    let all = ids(&good(&gateway, Call::get(&format!("{KEYS}?user=kim"))));
    assert_eq!(all.len(), 5);
    let (mut seen, mut before) = (Vec::new(), String::new());
    loop {
        let page = good(&gateway, Call::get(&format!("{KEYS}?search=PAGE-&limit=2&before={before}")));
        assert_eq!(page["total"], 5);
        seen.extend(ids(&page));
        before = seen.last().expect("a key").clone();
        if page["has_more"] == false {
            break;
        }
    }
    assert_eq!(seen, all);
}

#[test]
#[cfg(feature = "admin")]
fn the_generated_client_makes_a_key_and_reads_what_it_used() {
    use imagate::admin::{connect, types};
    let (_upstream, gateway) = open();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let admin = connect(&format!("http://{}", gateway.address()), TOKEN).expect("a client");
        let name = |text: &str| types::UserName::try_from(text).expect("a name");
        let invited =
            admin.create_user().body(types::NewUser::builder().name(name("kim"))).send().await.expect("a user");
        assert!(invited.link.path.expose().starts_with("/invitation/"), "the answer contains the link");
        assert!(
            !format!("{invited:?}").contains(invited.link.path.expose()),
            "the debug output must not contain the link"
        );
        let new =
            types::NewKey::builder().name(types::KeyName::try_from("laptop").expect("a name")).user("kim".to_owned());
        let made = admin.create_key().body(new).send().await.expect("a key");
        let secret = made.secret.expose().to_owned();
        let address = gateway.address();
        let generated = tokio::task::spawn_blocking(move || {
            Call::generation().json(&request(json!({}))).key(&secret).send(address).status
        });
        assert_eq!(generated.await.expect("an answer"), 200);
        let limit = types::PageLimit::new(1).expect("a limit");
        let records = admin.list_records().key(&made.key.id).limit(limit).send().await.expect("records");
        assert_eq!((records.data.len(), records.has_more), (1, false));
        let usage = admin.retrieve_usage().user("kim").send().await.expect("counts");
        assert_eq!(usage.totals.images, 1);
        let found = admin.list_keys().search("LAPTOP").state(types::KeyState::Active).send().await.expect("keys");
        assert_eq!(found.data.first().map(|key| (key.requests, key.images)), Some((1, 1)));
    });
}
