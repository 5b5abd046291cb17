//! The Model Context Protocol at `/mcp`: the tools, their results, and what they cost.

mod messages;

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::{
    Account, Answer, Call, FakeUpstream, Gateway, Program, StubServer, alpha_png, eventually, format_and_size, sha256,
};

/// The largest result: 25,000 tokens of four bytes.
const RESULT_MAX_BYTES: usize = 100_000;

/// A message to the server, without a key.
fn message(method: &str, params: Value) -> Call {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    Call::post("/mcp").header("accept", "application/json, text/event-stream").json(&body)
}

fn tool_call(gateway: &Gateway, name: &str, arguments: Value) -> Call {
    message("tools/call", json!({"name": name, "arguments": arguments})).key(gateway.secret())
}

/// Calls a tool, and returns its result.
#[track_caller]
fn call_tool(gateway: &Gateway, name: &str, arguments: Value) -> Value {
    result(&tool_call(gateway, name, arguments).send(gateway.address()))
}

#[track_caller]
fn result(answer: &Answer) -> Value {
    assert!(answer.body.len() <= RESULT_MAX_BYTES, "{} bytes", answer.body.len());
    let body = answer.json();
    assert_eq!(
        (answer.status, &body["jsonrpc"], &body["id"]),
        (200, &json!("2.0"), &json!(1)),
        "{:.500}",
        answer.text()
    );
    body["result"].clone()
}

/// The values of the first image of a result.
#[track_caller]
fn first_image(result: &Value) -> Value {
    assert_eq!(
        (&result["isError"], &result["structuredContent"]["status"]),
        (&json!(false), &json!("completed")),
        "{result:.500}"
    );
    result["structuredContent"]["images"][0].clone()
}

fn fetch(gateway: &Gateway, image: &Value) -> Answer {
    let url = image["url"].as_str().expect("a link");
    let path = url.strip_prefix(&format!("http://{}", gateway.address())).expect("a link to the gateway");
    Call::get(path).without_document_check().send(gateway.address())
}

/// The blocks of a result with this type.
fn blocks<'a>(result: &'a Value, kind: &str) -> Vec<&'a Value> {
    result["content"].as_array().expect("content").iter().filter(|block| block["type"] == kind).collect()
}

#[test]
fn a_client_that_initializes_sees_the_tools() {
    let gateway = Gateway::simulated();
    let params =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "it", "version": "1"}});
    let info = result(&message("initialize", params).key(gateway.secret()).send(gateway.address()));
    assert_eq!((&info["protocolVersion"], &info["serverInfo"]["name"]), (&json!("2025-06-18"), &json!("imagate")));
    let tools = result(&message("tools/list", json!({})).key(gateway.secret()).send(gateway.address()));
    let names: Vec<&str> =
        tools["tools"].as_array().expect("tools").iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(names, ["generate_image", "edit_image", "fetch_image", "list_image_models"]);
    let models = call_tool(&gateway, "list_image_models", json!({}));
    assert_eq!(models["structuredContent"]["models"][0]["id"], "gpt-image-2");
}

#[test]
fn a_generated_image_is_a_small_preview_and_a_link_to_the_file() {
    let gateway = Gateway::simulated();
    let result = call_tool(&gateway, "generate_image", json!({"prompt": "a cube", "size": "1536x1024"}));
    let image = first_image(&result);
    let file = fetch(&gateway, &image);
    assert_eq!(format_and_size(&file.body), ("png".to_owned(), "1536x1024".to_owned()));
    assert_eq!((image["bytes"].as_u64(), &image["size"]), (Some(file.body.len() as u64), &json!("1536x1024")));
    let previews = blocks(&result, "image");
    let preview = STANDARD.decode(previews[0]["data"].as_str().expect("base64")).expect("base64");
    assert_eq!((previews.len(), format_and_size(&preview)), (1, ("jpeg".to_owned(), "512x341".to_owned())));
    let links = blocks(&result, "resource_link");
    assert_eq!((links.len(), &links[0]["uri"], &links[0]["mimeType"]), (1, &image["url"], &json!("image/png")));
    let records = gateway.final_records(1);
    assert_eq!((records.len(), &records[0]["operation"]), (1, &json!("create_image")));
    assert!(!gateway.output().contains(image["url"].as_str().expect("a link")), "the log has a link");
}

#[test]
fn ten_images_have_ten_previews_in_one_small_answer() {
    let gateway = Gateway::simulated();
    let result = call_tool(&gateway, "generate_image", json!({"prompt": "cubes", "n": 10, "quality": "low"}));
    first_image(&result);
    assert_eq!((blocks(&result, "image").len(), blocks(&result, "resource_link").len()), (10, 10));
}

#[test]
fn equal_calls_make_one_image_and_another_variation_makes_another() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let call = |arguments| first_image(&call_tool(&gateway, "generate_image", arguments))["id"].clone();
    let first = call(json!({"prompt": "a cube", "size": "1024x1024"}));
    assert_eq!(call(json!({"size": "1024x1024", "prompt": "a cube", "model": null})), first);
    assert_eq!(upstream.attempt_count(), 1);
    let other = call(json!({"prompt": "a cube", "size": "1024x1024", "variation": 2}));
    assert_ne!(other, first);
    assert_eq!(upstream.attempt_count(), 2);
    let sent = &upstream.received_attempts()[1];
    assert!(!String::from_utf8_lossy(&sent.body).contains("variation"), "the variation is not sent to the upstream");
}

#[test]
fn a_client_with_a_short_time_limit_pays_once_and_gets_its_image() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let call = || tool_call(&gateway, "generate_image", json!({"prompt": "a cube [[gate=open]]"}));
    for repeats in 0..3 {
        let connection = call().dispatch(gateway.address()).expect("a connection");
        upstream.wait_until("the attempt has begun", |attempts| !attempts.is_empty());
        gateway.wait_until_busy(1);
        drop(connection);
        gateway.wait_until_busy(0);
        assert_eq!(upstream.attempt_count(), 1, "after {repeats} repeats");
    }
    upstream.open_gate("open");
    let image = first_image(&result(&call().send(gateway.address())));
    assert_eq!(fetch(&gateway, &image).status, 200);
    assert_eq!(upstream.attempt_count(), 1);
    let records = gateway.final_records(1);
    assert_eq!((records.len(), &records[0]["state"]), (1, &json!("succeeded")));
}

#[test]
fn an_image_that_takes_long_is_fetched_later() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with("answer_deadline = \"1s\"\n", &[Account::for_upstream("only", &upstream)]);
    let running = call_tool(&gateway, "generate_image", json!({"prompt": "a cube [[gate=open]]"}));
    assert_eq!((&running["isError"], &running["structuredContent"]["status"]), (&json!(false), &json!("in_progress")));
    let id = running["structuredContent"]["images"][0]["id"].clone();
    let fetched = std::thread::scope(|scope| {
        let fetching = scope.spawn(|| call_tool(&gateway, "fetch_image", json!({"id": id})));
        gateway.wait_until_busy(1);
        upstream.open_gate("open");
        fetching.join().expect("a result")
    });
    assert_eq!(first_image(&fetched)["id"], id);
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn an_earlier_image_is_edited_by_its_id_and_only_with_the_same_key() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let image = first_image(&call_tool(&gateway, "generate_image", json!({"prompt": "a cube"})));
    let file = fetch(&gateway, &image).body;
    let edit = json!({"prompt": "make it red", "images": [image["id"], STANDARD.encode(&*alpha_png(64, 64))]});
    first_image(&call_tool(&gateway, "edit_image", edit.clone()));
    let sent = &upstream.received_attempts()[1];
    let digests: Vec<_> = sent.files().iter().map(|part| part.digest.clone()).collect();
    assert_eq!(digests, [sha256(&file), sha256(&alpha_png(64, 64))], "the stored image is sent, byte for byte");
    let other = gateway.make_key("other")["secret"].as_str().expect("a secret").to_owned();
    for (name, arguments, param) in
        [("edit_image", edit, "images[0]"), ("fetch_image", json!({"id": image["id"]}), "id")]
    {
        let call = message("tools/call", json!({"name": name, "arguments": arguments})).key(&other);
        let refused = eventually("the new key is valid", || {
            let answer = call.clone().send(gateway.address());
            (answer.status != 401).then(|| result(&answer))
        });
        assert_eq!(
            (&refused["isError"], &refused["structuredContent"]["param"]),
            (&json!(true), &json!(param)),
            "{refused}"
        );
    }
    assert_eq!(upstream.attempt_count(), 2);
}

#[test]
fn a_refused_call_names_the_argument_and_costs_nothing() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for (name, arguments, param) in [
        ("generate_image", json!({}), "prompt"),
        ("generate_image", json!({"prompt": "a cube", "size": "17x17"}), "size"),
        ("generate_image", json!({"prompt": "a cube", "stream": true}), "stream"),
        ("generate_image", json!({"prompt": "a cube", "colour": "red"}), "colour"),
        ("edit_image", json!({"prompt": "a cube"}), "images"),
        ("edit_image", json!({"prompt": "a cube", "images": ["/etc/passwd"]}), "images[0]"),
        ("edit_image", json!({"prompt": "a cube", "images": ["https://example.com/a.png"]}), "images[0]"),
        ("fetch_image", json!({"id": "img_0123456789abcdef01234567_0"}), "id"),
        ("fetch_image", json!({"id": "../a"}), "id"),
        ("list_image_models", json!({"page": 2}), "page"),
    ] {
        let refused = call_tool(&gateway, name, arguments.clone());
        assert_eq!(
            (&refused["isError"], &refused["structuredContent"]["param"]),
            (&json!(true), &json!(param)),
            "{name} {arguments}: {refused}"
        );
        assert!(!blocks(&refused, "text").is_empty());
    }
    let failed = call_tool(&gateway, "generate_image", json!({"prompt": "a cube [[status=500]]"}));
    assert_eq!((&failed["isError"], &failed["structuredContent"]["code"]), (&json!(true), &json!("upstream_error")));
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn a_number_of_images_that_no_model_makes_is_named_and_not_taken_for_a_full_disk() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for number in ["18446744073709551615", "1000000000000", "11", "0"] {
        let arguments = format!(r#"{{"prompt": "a cube", "n": {number}}}"#);
        let arguments: Value = serde_json::from_str(&arguments).expect("JSON");
        let result = call_tool(&gateway, "generate_image", arguments);
        assert_eq!(
            (&result["isError"], &result["structuredContent"]["param"]),
            (&json!(true), &json!("n")),
            "{result}"
        );
    }
    assert_eq!(upstream.accepted(), 0);
}

#[test]
fn a_caller_that_waits_at_the_end_of_a_stop_is_told_what_to_do() {
    let upstream = FakeUpstream::start();
    let accounts = [Account::for_upstream("only", &upstream)];
    let mut gateway = Gateway::with("drain_timeout = \"500ms\"", &accounts);
    let address = gateway.address();
    let call = tool_call(&gateway, "generate_image", json!({"prompt": "a cube [[gate=never]]"}));
    let caller = std::thread::spawn(move || call.try_send(address));
    upstream.wait_until("the job runs", |attempts| attempts.len() == 1);
    gateway.terminate();
    let answer = caller.join().expect("a caller").expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let result = result(&answer);
    assert_eq!((&result["isError"], &result["structuredContent"]["code"]), (&json!(true), &json!("upstream_error")));
    let text = result["content"][0]["text"].as_str().expect("a text");
    assert!(text.contains("give another 'variation'"), "{text}");
    assert!(gateway.server().wait(crate::kit::TEST_TIMEOUT).success());
}

#[test]
fn without_a_key_or_from_the_page_of_another_site_nothing_is_answered() {
    let gateway = Gateway::simulated();
    let list = || message("tools/list", json!({}));
    let refused = list().send(gateway.address());
    assert_eq!(
        (refused.error_object(401)["code"].as_str(), refused.header("www-authenticate")),
        (Some("INVALID_API_KEY"), Some("Bearer"))
    );
    let own = format!("http://{}", gateway.address());
    for (origin, status) in [("http://evil.example", 403), ("null", 403), (own.as_str(), 200)] {
        let answer = list().key(gateway.secret()).header("origin", origin).send(gateway.address());
        assert_eq!(answer.status, status, "{origin}");
    }
    let foreign = list().key(gateway.secret()).header("origin", "http://evil.example").send(gateway.address());
    let error = foreign.error_object(403);
    let message = error["message"].as_str().expect("a message");
    assert!(message.contains("'http://evil.example'") && message.contains("'cors_origins'"), "{message}");
    let rebound = list().key(gateway.secret()).header("origin", "http://evil.example").header("host", "evil.example");
    assert_eq!(rebound.send(gateway.address()).status, 403, "a name that was bound to the address of the gateway");
    assert_eq!(Call::get("/mcp").key(gateway.secret()).send(gateway.address()).status, 405, "there are no sessions");
}

#[test]
fn only_the_models_that_the_group_allows_are_listed_and_the_first_is_the_default() {
    let upstream = FakeUpstream::start();
    let top =
        "[[models]]\nid = \"sketch-1\"\n[[groups]]\nname = \"default\"\n[groups.limits]\nmodels = [\"sketch-1\"]\n";
    let gateway = Gateway::with(top, &[Account::for_upstream("only", &upstream)]);
    let listed = call_tool(&gateway, "list_image_models", json!({}));
    let models = listed["structuredContent"]["models"].as_array().expect("models");
    assert_eq!(models.iter().map(|model| &model["id"]).collect::<Vec<_>>(), [&json!("sketch-1")], "{listed:.500}");
    first_image(&call_tool(&gateway, "generate_image", json!({"prompt": "a cube"})));
    assert_eq!(upstream.received_attempts()[0].fields()["model"], "sketch-1");
}

#[test]
fn the_command_answers_every_call_that_came_before_the_end_of_its_input() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let input = gateway.home().join("input.jsonl");
    let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}
    }});
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let calls = ["a cube", "a ball"].into_iter().zip(1..).map(|(prompt, id)| {
        let arguments = json!({"name": "generate_image", "arguments": {"prompt": prompt}});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": arguments})
    });
    let lines: Vec<String> = [initialize, initialized].into_iter().chain(calls).map(|line| line.to_string()).collect();
    std::fs::write(&input, lines.join("\n") + "\n").expect("a file");
    let command = gateway.program().args(["mcp"]).env("IMAGATE_BASE_URL", gateway.base_url());
    let output = command.env("IMAGATE_API_KEY", gateway.secret()).stdin(&input).run();
    let answers: Vec<Value> =
        output.ok_stdout().lines().map(|line| serde_json::from_str(line).expect("a message")).collect();
    for id in 1..=2 {
        let answer = answers.iter().find(|answer| answer["id"] == id).expect("an answer to every call");
        first_image(&answer["result"]);
    }
    assert_eq!(upstream.attempt_count(), 2);
}

#[test]
fn the_command_sends_the_headers_that_were_given() {
    let seen = Arc::<Mutex<Vec<[Option<String>; 2]>>>::default();
    let headers = Arc::clone(&seen);
    let server = StubServer::start(move |request| {
        let values = ["x-project", "authorization"].map(|name| request.header(name).map(str::to_owned));
        headers.lock().expect("the headers").push(values);
        let message: Value = serde_json::from_slice(&request.body).ok()?;
        let result =
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}});
        Some((200, json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string()))
    });
    let home = TempDir::new().expect("a directory");
    let input = home.path().join("input.jsonl");
    let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}
    }});
    std::fs::write(&input, format!("{initialize}\n")).expect("a file");
    for (words, authorization) in [
        (&["--header", "X-Project: p-1"][..], "Bearer sk-test"),
        (&["--header", "X-Project: p-1", "--header", "Authorization: Basic eA=="], "Basic eA=="),
    ] {
        let command = Program::new(home.path()).args(["mcp", "--api-key", "sk-test"]).args(words);
        let base_url = format!("http://{}/v1", server.address());
        let output = command.args(["--base-url", &base_url]).stdin(&input).run();
        assert!(output.ok_stdout().contains("serverInfo"), "{output:#?}");
        let expected = ["p-1", authorization].map(|value| Some(value.to_owned()));
        assert_eq!(seen.lock().expect("the headers").drain(..).next(), Some(expected), "{words:?}");
    }
}

#[test]
fn a_call_repeated_under_other_settings_leads_to_the_earlier_image() {
    let upstream = FakeUpstream::start();
    let alias = "[[models]]\nid = \"draft\"\nalias_of = \"gpt-image-2\"\n";
    let mut gateway = Gateway::with(alias, &[Account::for_upstream("only", &upstream)]);
    gateway.keep_address();
    let call = |gateway: &Gateway, variation: u32| {
        let arguments = json!({"prompt": "a cube", "model": "draft", "quality": "low", "variation": variation});
        call_tool(gateway, "generate_image", arguments)
    };
    let first = first_image(&call(&gateway, 1));
    gateway.terminate();
    let config = std::fs::read_to_string(gateway.config()).expect("a configuration");
    std::fs::write(
        gateway.config(),
        config.replace("alias_of = \"gpt-image-2\"", "alias_of = \"sketch-1\"\n[[models]]\nid = \"sketch-1\""),
    )
    .expect("a configuration");
    gateway.start_again();
    let repeated = call(&gateway, 1);
    assert_eq!((&repeated["isError"], &repeated["structuredContent"]["images"][0]["id"]), (&json!(true), &first["id"]));
    let text = blocks(&repeated, "text")[0]["text"].as_str().expect("a text");
    assert!(text.contains("fetch_image") && !text.contains("Idempotency-Key"), "{text}");
    assert_eq!(first_image(&call_tool(&gateway, "fetch_image", json!({"id": first["id"]})))["id"], first["id"]);
    assert_eq!(upstream.attempt_count(), 1);
    first_image(&call(&gateway, 2));
    assert_eq!(upstream.attempt_count(), 2);
}

#[test]
fn a_result_and_a_failure_state_what_dialects_have_changed() {
    let upstream = FakeUpstream::start();
    let dialect = "[[groups]]\nname = \"default\"\ndialects = [\"sizes\"]\n";
    let gateway = Gateway::with(dialect, &[Account::for_upstream("only", &upstream)]);
    for (prompt, n, is_error) in [("a cube", 1, false), ("a cube [[status=500]]", 1, true), ("a cube", 99, true)] {
        let result = call_tool(&gateway, "generate_image", json!({"prompt": prompt, "n": n, "size": "512x512"}));
        assert_eq!(result["isError"], is_error, "{result:.500}");
        let texts = blocks(&result, "text");
        let stated = texts.iter().filter(|text| text["text"] == "Changed in the request: size 512x512->1024x1024");
        assert_eq!(stated.count(), 1, "{result:.500}");
    }
}
