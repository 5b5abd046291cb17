//! Data that an upstream has made belongs to one account and one user: reasoning and earlier responses are sent only to
//! the account that made them, a conversation stays with its account, and nobody may name the context of another user.

use serde_json::{Value, json};

use super::response_body;
use crate::kit::{Account, AccountFault, Answer, Call, CiphertextUpstream, Gateway, eventually};

fn account(name: &str, upstream: &CiphertextUpstream) -> Account {
    Account::with_base_url(name, upstream.base_url()).with_responses_protocol()
}

fn send(gateway: &Gateway, secret: &str, headers: &[(&str, &str)], fields: &Value) -> Answer {
    let call = headers.iter().fold(Call::post("/v1/responses"), |call, (name, value)| call.header(name, value));
    call.key(secret).json(&response_body(fields)).send(gateway.address())
}

/// Sends a request that must succeed; returns the response and the account that served it.
#[track_caller]
fn respond(
    gateway: &Gateway,
    upstream: &CiphertextUpstream,
    headers: &[(&str, &str)],
    fields: &Value,
) -> (Value, String) {
    upstream.take_asked();
    let answer = send(gateway, gateway.secret(), headers, fields);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let served = upstream.take_asked().pop().expect("a request");
    (answer.json(), served)
}

/// The input of the next turn of a client that lets the upstream store nothing.
fn next_input(response: &Value) -> Value {
    let mut items = vec![json!({"role": "user", "content": "one"})];
    items.extend(response["output"].as_array().expect("items").iter().cloned());
    items.push(json!({"role": "user", "content": "two"}));
    json!({"input": items, "store": false})
}

/// Begins a conversation at `second`, although `first` has the higher priority, and waits until `first` serves again.
fn begin_at_second(gateway: &Gateway, upstream: &CiphertextUpstream, headers: &[(&str, &str)]) -> Value {
    upstream.set_fault("first", Some(AccountFault::Throttled));
    let (response, served) = respond(gateway, upstream, headers, &json!({}));
    assert_eq!(served, "second");
    upstream.set_fault("first", None);
    eventually("the first account serves again", || {
        (respond(gateway, upstream, &[], &json!({})).1 == "first").then_some(())
    });
    response
}

fn two_accounts(upstream: &CiphertextUpstream) -> Gateway {
    Gateway::with("", &[account("first", upstream).with_line("priority = 1"), account("second", upstream)])
}

#[test]
fn reasoning_goes_to_the_account_that_made_it() {
    let upstream = CiphertextUpstream::start();
    let gateway = two_accounts(&upstream);
    for headers in [&[("session_id", "s")][..], &[]] {
        let mut response = begin_at_second(&gateway, &upstream, headers);
        for _ in 0..4 {
            let (next, served) = respond(&gateway, &upstream, headers, &next_input(&response));
            assert_eq!(served, "second", "{headers:?}");
            response = next;
        }
    }
}

#[test]
fn the_other_accounts_are_asked_once_for_reasoning_of_an_unknown_account() {
    let upstream = CiphertextUpstream::start();
    let gateway = two_accounts(&upstream);
    let with_reasoning = |maker: &str| {
        let item = json!({"type": "reasoning", "summary": [], "encrypted_content": CiphertextUpstream::ciphertext_of(maker, 1)});
        json!({"input": [item, {"role": "user", "content": "go on"}], "store": false})
    };
    for omits_codes in [false, true] {
        if omits_codes {
            upstream.omit_codes();
        }
        upstream.take_asked();
        assert_eq!(send(&gateway, gateway.secret(), &[], &with_reasoning("second")).status, 200);
        let asked = || upstream.take_asked();
        assert_eq!(asked(), ["first", "second"]);
        let refused = send(&gateway, gateway.secret(), &[], &with_reasoning("third"));
        let error = refused.error_object(400);
        assert_eq!((&error["code"], refused.should_retry()), (&json!("invalid_encrypted_content"), Some("false")));
        assert_eq!(asked(), ["first", "second"], "each account is asked once");
    }
    // The refusals say nothing about the accounts.
    assert_eq!(respond(&gateway, &upstream, &[], &json!({})).1, "first");
}

#[test]
fn a_caller_whose_account_cools_down_waits_and_does_not_lose_the_conversation() {
    let upstream = CiphertextUpstream::start();
    let gateway = two_accounts(&upstream);
    let response = begin_at_second(&gateway, &upstream, &[]);
    upstream.set_fault("second", Some(AccountFault::Throttled));
    let answer = send(&gateway, gateway.secret(), &[], &next_input(&response));
    assert_eq!((answer.status, answer.should_retry()), (429, Some("true")), "{}", answer.text());
    upstream.set_fault("second", None);
    eventually("the conversation goes on", || {
        let answer = send(&gateway, gateway.secret(), &[], &next_input(&response));
        assert_ne!(answer.status, 400, "{}", answer.text());
        (answer.status == 200).then_some(())
    });
}

#[test]
fn a_conversation_stays_with_its_account_whatever_names_it() {
    let upstream = CiphertextUpstream::start();
    let gateway = Gateway::with("", &["a", "b", "c", "d"].map(|name| account(name, &upstream)));
    let serving = |headers: &[(&str, &str)], fields: &Value| respond(&gateway, &upstream, headers, fields).1;
    for number in 0..4 {
        let id = format!("conv_{number}");
        let by_header = ["session-id", "session_id", "thread-id", "conversation_id"]
            .map(|name| (vec![(name, id.as_str())], json!({})));
        let by_member =
            [json!({"prompt_cache_key": id}), json!({"conversation": id}), json!({"conversation": {"id": id}})]
                .map(|fields| (Vec::new(), fields));
        for (headers, fields) in by_header.into_iter().chain(by_member) {
            let first = serving(&headers, &fields);
            for _ in 0..5 {
                assert_eq!(serving(&headers, &fields), first, "{headers:?} {fields}");
            }
        }
    }
}

#[test]
fn a_recovered_account_of_higher_priority_does_not_take_a_conversation_back() {
    let upstream = CiphertextUpstream::start();
    let gateway = two_accounts(&upstream);
    let headers = [("thread-id", "t")];
    begin_at_second(&gateway, &upstream, &headers);
    for _ in 0..4 {
        assert_eq!(respond(&gateway, &upstream, &headers, &json!({})).1, "second");
    }
}

/// Creates a key, and returns its secret.
fn key_of(gateway: &Gateway, user: &str, name: &str) -> String {
    let key = gateway.run_command(&["key", "create", "--name", name, "--user", user, "--json"]).json();
    key["secret"].as_str().expect("a secret").to_owned()
}

/// The requests that name this stored thing, each with the parameter that has the id.
fn requests_that_name(id: &str) -> Vec<(&'static str, Value)> {
    let item = |item: Value| json!({"input": [item, {"role": "user", "content": "x"}]});
    let file = |part: Value| json!({"input": [{"role": "user", "content": [part]}]});
    vec![
        ("previous_response_id", json!({ "previous_response_id": id })),
        ("conversation", json!({ "conversation": id })),
        ("conversation.id", json!({"conversation": {"id": id}})),
        ("input[0].id", item(json!({"type": "item_reference", "id": id}))),
        ("input[0].content[0].file_id", file(json!({"type": "input_file", "file_id": id}))),
        ("input[0].content[0].file_id", file(json!({"type": "input_image", "file_id": id}))),
        ("tools[0].container", json!({"tools": [{"type": "code_interpreter", "container": id}]})),
        ("tools[0].vector_store_ids[0]", json!({"tools": [{"type": "file_search", "vector_store_ids": [id]}]})),
        ("prompt.id", json!({"prompt": {"id": id}})),
        (
            "prompt_cache_options.comparison_response_id",
            json!({"prompt_cache_options": {"comparison_response_id": id}}),
        ),
    ]
}

#[test]
fn nobody_names_what_an_account_stores_for_another_user() {
    let upstream = CiphertextUpstream::start();
    let gateway = Gateway::with("", &[account("only", &upstream)]);
    let (eve, mallory) = (key_of(&gateway, "eve", "e"), key_of(&gateway, "mallory", "m"));
    let eves_other_key = key_of(&gateway, "eve", "e2");
    let response = send(&gateway, &eve, &[], &json!({})).ok_json();
    let (id, message) = (response["id"].as_str().expect("an id"), response["output"][1]["id"].as_str().expect("an id"));
    upstream.take_asked();
    // Unknown ids and those of another user are refused in the same words, before anything is sent.
    for (param, fields) in requests_that_name("conv_of_nobody") {
        let error = send(&gateway, &mallory, &[], &fields).error_object(400);
        assert_eq!(error["param"], param, "{fields}");
        let (unknown, foreign) = (error["message"].clone(), requests_that_name(id));
        let (_, foreign) =
            foreign.into_iter().find(|(name, other)| *name == param && same_members(other, &fields)).expect("a twin");
        let error = send(&gateway, &mallory, &[], &foreign).error_object(400);
        assert_eq!((&error["param"], &error["message"]), (&json!(param), &unknown));
    }
    let reasoning = next_input(&response);
    assert_eq!(send(&gateway, &mallory, &[], &reasoning).error_object(400)["param"], "input[1]");
    assert!(upstream.take_asked().is_empty(), "nothing was sent");
    // Every key of the same user may name them.
    for secret in [&eve, &eves_other_key] {
        for fields in [
            json!({ "previous_response_id": id }),
            json!({"input": [{"type": "item_reference", "id": message}, {"role": "user", "content": "x"}]}),
            reasoning.clone(),
        ] {
            let answer = send(&gateway, secret, &[], &fields);
            assert_eq!(answer.status, 200, "{fields}: {}", answer.text());
        }
    }
}

/// True if two bodies have the same form, whatever their ids are.
fn same_members(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, value)| other.get(name).is_some_and(|other| same_members(value, other)))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same_members(one, other))
        }
        (Value::String(one), Value::String(other)) => {
            one == other || [one, other].iter().any(|text| text.starts_with("resp_") || text.starts_with("conv_"))
        }
        _ => one == other,
    }
}

#[test]
fn a_group_can_allow_unknown_context_but_not_that_of_another_user() {
    let upstream = CiphertextUpstream::start();
    let settings = "[[groups]]\nname = \"default\"\nstored_context = \"any\"";
    let gateway = Gateway::with(settings, &[account("only", &upstream)]);
    let (eve, mallory) = (key_of(&gateway, "eve", "e"), key_of(&gateway, "mallory", "m"));
    let response = send(&gateway, &eve, &[], &json!({})).ok_json();
    let id = response["id"].as_str().expect("an id");
    for (_, fields) in requests_that_name("conv_before_the_gateway") {
        let answer = send(&gateway, &mallory, &[], &fields);
        assert_eq!(answer.status, 200, "{fields}: {}", answer.text());
    }
    for (param, fields) in requests_that_name(id) {
        assert_eq!(send(&gateway, &mallory, &[], &fields).error_object(400)["param"], param);
    }
}

#[test]
fn the_only_account_of_the_only_user_continues_responses_from_before_the_gateway() {
    let upstream = CiphertextUpstream::start();
    let gateway = Gateway::with("", &[account("only", &upstream)]);
    let continue_response = || send(&gateway, gateway.secret(), &[], &json!({"previous_response_id": "resp_before"}));
    assert_eq!(continue_response().status, 200);
    // With a second user, it may be that user's response.
    key_of(&gateway, "eve", "e");
    eventually("the key is known", || (continue_response().status == 400).then_some(()));
}
