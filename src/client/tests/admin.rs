//! Tests of the admin client against a scripted server.

use serde_json::{Value, json};

use super::{answer, run, serve, unused_base_url};
use crate::client::admin::{Client, builder, connect, types};
use crate::client::{Error, ErrorKind, Retry};
use crate::testing::{Answer, StubServer};

const TOKEN: &str = "sk-adm-test-0123456789";

fn admin(server: &StubServer) -> Client {
    connect(&server.base_url(), TOKEN).unwrap()
}

fn key(state: &str) -> Value {
    json!({
        "id": "key_1", "public_id": "sk-img-a", "name": "n", "user": "usr_1", "group": "default", "state": state,
        "created_at": "2026-11-21T03:00:00.000Z", "requests": 1, "images": 2, "user_name": null, "expires_at": null,
        "last_used_at": null, "disabled_at": null, "locked": "frozen", "latest_end": null, "previous_until": null,
        "shade": "blue",
    })
}

fn list_error(reaction: Answer) -> Error {
    let server = serve([reaction]);
    run(admin(&server).list_keys().send()).unwrap_err()
}

#[test]
fn unknown_words_and_members_of_an_answer_are_kept() {
    let list = json!({"object": "page", "data": [key("paused"), key("active")], "has_more": false, "total": 2});
    let server = serve([answer(200, &list)]);
    let keys = run(admin(&server).list_keys().send()).unwrap();
    assert_eq!((keys.data[0].state.known(), keys.data[0].state.to_string().as_str()), (None, "paused"));
    assert_eq!(keys.data[1].state, types::KeyState::Active);
    assert_eq!((keys.object.to_string().as_str(), &keys.data[0].extra["shade"]), ("page", &json!("blue")));
    let request = server.requests().remove(0);
    assert_eq!(request.header("authorization"), Some(&*format!("Bearer {TOKEN}")));
    assert_eq!(request.header("user-agent"), Some(concat!("imagate/", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn a_shared_component_of_an_answer_is_open_too() {
    let account = json!({
        "id": "acc_1", "name": "a", "source": "file", "kind": "api_key", "tier": "gold", "state": "enabled",
        "created_at": "2026-11-21T03:00:00.000Z", "protocol": "videos", "settings": {"protocol": "videos", "new": 1},
    });
    let server = serve([answer(200, &account)]);
    let account = run(admin(&server).retrieve_account().name("a").send()).unwrap();
    let settings = account.settings.unwrap();
    assert_eq!((account.tier.to_string().as_str(), &settings.extra["new"]), ("gold", &json!(1)));
}

#[test]
fn an_error_is_that_of_the_sdk_and_never_has_the_token() {
    let body = json!({"error": {
        "message": format!("no key {TOKEN}"), "type": "server_error", "param": "user", "code": "brand_new", "more": 1,
    }});
    let error = list_error(answer(418, &body).header("x-request-id", "r-1"));
    let parts = (error.kind(), error.status(), error.code(), error.param(), error.request_id());
    assert_eq!(parts, (ErrorKind::Answer, Some(418), Some("brand_new"), Some("user"), Some("r-1")));
    assert_eq!(error.message(), "no key [redacted]");
    assert!(!format!("{error} {error:?}").contains(TOKEN), "{error:?}");
}

#[test]
fn an_answer_that_is_no_json_is_an_error_with_its_status() {
    for (status, message) in [
        (404, "the answer is not that of a gateway: check the address"),
        (302, "the answer is not that of a gateway, and redirects are not followed: check the address"),
        (204, "the answer is not that of a gateway, and redirects are not followed: check the address"),
        (500, "the answer gives no reason"),
    ] {
        let error = list_error(Answer::new(status, if status == 204 { "" } else { "<html>no</html>" }));
        assert_eq!((error.status(), error.message()), (Some(status), message));
        assert!(error.to_string().ends_with(&format!("(status {status})")), "{error}");
    }
    let error = list_error(Answer::new(200, "<html>yes</html>"));
    assert_eq!((error.kind(), error.body()), (ErrorKind::Unintelligible, Some("<html>yes</html>")));
}

#[test]
fn a_call_that_reads_is_sent_again_and_a_change_is_not() {
    let list = json!({"object": "list", "data": [], "has_more": false, "total": 0});
    let server = serve([answer(503, &json!({})), answer(200, &list)]);
    assert_eq!(run(admin(&server).list_keys().send()).unwrap().total, 0);
    let server = serve([answer(503, &json!({})), answer(200, &key("active"))]);
    let change = types::KeyUpdate::builder().enabled(false);
    let error = run(admin(&server).update_key().id("key_1").body(change).send()).unwrap_err();
    assert_eq!((error.status(), server.requests().len()), (Some(503), 1));
}

#[test]
fn without_a_listener_the_error_names_the_address() {
    let address = unused_base_url();
    let client = builder(&address, TOKEN).retry(Retry::NONE);
    let error = run(client.build().unwrap().retrieve_me().send()).unwrap_err();
    assert!(
        error.is_connect() && error.message().contains(address.trim_start_matches("http://").trim_end_matches("/v1")),
        "{error}"
    );
}

#[test]
fn a_token_goes_over_plain_http_only_to_this_machine_or_if_allowed() {
    let build = |allow| builder("http://gateway.example", TOKEN).allow_http(allow).build().err();
    let error = build(false).unwrap().to_string();
    assert!(error.contains("https") && !error.contains(TOKEN), "{error}");
    assert!(build(true).is_none());
    assert!(!format!("{:?}", builder("http://gateway.example", TOKEN)).contains(TOKEN));
    assert_eq!(connect("https://gateway.example", " ").unwrap_err().to_string(), "the admin token is empty");
}

#[test]
fn the_question_mark_works_with_names_and_calls() {
    async fn create(client: &Client) -> Result<String, Error> {
        let new = types::NewKey::builder().name(types::KeyName::try_from("laptop")?);
        Ok(client.create_key().body(new).send().await?.key.id)
    }
    let server = serve([answer(200, &json!({"key": key("active"), "secret": "sk-img-secret"}))]);
    assert_eq!(run(create(&admin(&server))).unwrap(), "key_1");
}
