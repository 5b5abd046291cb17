//! Image models that an operator adds, with fields, files, sizes and formats of their own: the upstream gets exactly what
//! the settings allow, and everything else is refused before anything is sent.

use serde_json::{Value, json};

use crate::kit::{Account, Answer, Call, FakeUpstream, Form, Gateway, eventually, image_specimen};

/// A model with everything that an added model can have.
const NEXT: &str = r#"
[[models]]
id = "next-1"
qualities = ["low", "xhigh"]
formats = ["png", "gif"]
input_fidelity = ["low", "high"]
stream = false
[models.size_rules]
multiple_of = 8
min_edge = 256
max_edge = 1024
[[models.fields]]
name = "complexity"
kind = "choice"
words = ["plain", "rich"]
[[models.fields]]
name = "frame_count"
kind = "integer"
min = 1
max = 8
[[models.fields]]
name = "svg"
kind = "object"
[[models.file_parts]]
name = "markup"
[[models]]
id = "open-1"
passthrough = true
[[models]]
id = "gpt-image-1"
alias_of = "gpt-image-2"
"#;

fn start(upstream: &FakeUpstream) -> Gateway {
    let talking = Account::for_upstream("talking", upstream).with_responses_protocol();
    Gateway::with(NEXT, &[talking, Account::for_upstream("drawing", upstream)])
}

/// The last request that the upstream got, without the fields that every request has.
fn sent_fields(upstream: &FakeUpstream) -> Value {
    let mut sent = upstream.received_attempts().last().expect("a request").json();
    let fields = sent.as_object_mut().expect("an object");
    fields.remove("prompt");
    sent
}

#[test]
fn the_upstream_gets_the_fields_of_an_added_model_unchanged() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with(NEXT, &[Account::for_upstream("drawing", &upstream)]);
    let asked = json!({"model": "next-1", "size": "512x264", "quality": "xhigh", "complexity": "rich", "frame_count": 8,
        "svg": {"model": "x", "reasoning": {"effort": "high"}}, "input_fidelity": "high"});
    gateway.call(asked.clone()).without_document_check().send(gateway.address()).ok_json();
    assert_eq!(sent_fields(&upstream), asked);
    let asked = json!({"model": "open-1", "style": ["a", {"b": null}], "seed": 7});
    gateway.call(asked.clone()).without_document_check().send(gateway.address()).ok_json();
    assert_eq!(sent_fields(&upstream), asked);
}

#[test]
fn a_form_may_have_the_fields_and_files_of_its_model() {
    let upstream = FakeUpstream::start();
    let gateway = start(&upstream);
    let form = || Form::new().text("model", "next-1").text("prompt", "red").file("image", &image_specimen("png"));
    let markup = b"<markup/>".as_slice();
    gateway.edit(form().text("frame_count", "2").text("svg", r#"{"a":1}"#).file("markup", markup)).ok_json();
    let attempts = upstream.received_attempts();
    // Only the account with the image endpoints can take the file.
    assert_eq!((attempts.len(), attempts[0].path.as_str()), (1, "/v1/images/edits"));
    let texts = attempts[0].fields();
    assert_eq!((&texts["frame_count"], &texts["svg"]), (&json!("2"), &json!(r#"{"a":1}"#)));
    let file = attempts[0].parts.iter().find(|part| part.name == "markup").expect("the file");
    assert_eq!((file.filename.as_deref(), &file.head[..]), (Some("file-0"), markup));
    assert_eq!(attempts[0].files().len(), 1);
    let error = gateway.edit(form().file("markup", markup).file("markup", markup)).error_object(400);
    assert_eq!((&error["param"], &error["reason"]), (&json!("markup"), &json!("invalid_value")));
    for (model, name) in [("next-1", "style"), ("gpt-image-2", "svg"), ("gpt-image-2", "style")] {
        let form = Form::new().text("model", model).text("prompt", "red").file("image", &image_specimen("png"));
        let error = gateway.edit(form.text(name, "1")).error_object(400);
        assert_eq!((&error["param"], &error["reason"]), (&json!(name), &json!("unknown_parameter")), "{model}");
    }
    let form = Form::new().text("model", "gpt-image-2").text("prompt", "red").file("image", &image_specimen("png"));
    assert_eq!(gateway.edit(form.file("markup", markup)).error_object(400)["param"], "markup");
    assert_eq!(upstream.accepted(), 1);
}

#[test]
fn what_an_added_model_does_not_have_is_refused_and_costs_nothing() {
    let upstream = FakeUpstream::start();
    let gateway = start(&upstream);
    for (model, name, value) in [
        ("next-1", "size", json!("512x260")),
        ("next-1", "size", json!("2048x1024")),
        ("next-1", "quality", json!("high")),
        ("next-1", "output_format", json!("webp")),
        ("next-1", "complexity", json!("huge")),
        ("next-1", "frame_count", json!(9)),
        ("next-1", "svg", json!("x")),
        ("next-1", "style", json!("vivid")),
        ("next-1", "stream", json!(true)),
        ("next-1", "input_fidelity", json!("best")),
        // The documented models stay as they are.
        ("gpt-image-2", "size", json!("512x264")),
        ("gpt-image-2", "output_format", json!("gif")),
        ("gpt-image-2", "complexity", json!("rich")),
        ("gpt-image-2-2026-04-21", "style", json!("vivid")),
        ("gpt-image-2", "input_fidelity", json!("high")),
    ] {
        let body = json!({"model": model, "prompt": "red", name: value});
        let call = Call::post("/v1/images/generations").key(gateway.secret()).json(&body).without_document_check();
        let error = call.send(gateway.address()).error_object(400);
        assert_eq!(error["param"], name, "{model}: {error}");
    }
    assert_eq!(upstream.accepted(), 0);
}

#[test]
fn an_alias_is_sent_as_its_model_and_never_silent() {
    let upstream = FakeUpstream::start();
    let gateway = start(&upstream);
    let adapted = |answer: &Answer| answer.header("x-imagate-adapted").map(str::to_owned);
    let change = Some("model gpt-image-1->gpt-image-2".to_owned());
    let call = gateway.call(json!({"model": "gpt-image-1"})).without_document_check();
    let answer = call.send(gateway.address());
    answer.ok_json();
    assert_eq!((adapted(&answer), &sent_fields(&upstream)["model"]), (change.clone(), &json!("gpt-image-2")));
    let form = Form::new().text("model", "gpt-image-1").text("prompt", "red").file("image", &image_specimen("png"));
    let answer = gateway.edit(form);
    answer.ok_json();
    assert_eq!(adapted(&answer), change);
    assert_eq!(upstream.received_attempts().last().expect("an edit").fields()["model"], "gpt-image-2");
    let tool = json!({"type": "image_generation", "model": "gpt-image-1"});
    let body = json!({"model": "gpt-5.5", "input": "red", "tools": [tool]});
    let call = Call::post("/v1/responses").key(gateway.secret()).json(&body).without_document_check();
    let answer = call.send(gateway.address());
    answer.ok_json();
    assert_eq!(adapted(&answer).as_deref(), Some("tools[0].model gpt-image-1->gpt-image-2"));
    assert_eq!(sent_fields(&upstream)["tools"][0]["model"], "gpt-image-2");
    let answer = gateway.generate(json!({"model": "gpt-image-2"}));
    answer.ok_json();
    assert_eq!(adapted(&answer), None);
    let records = gateway.final_records(4);
    assert!(records.iter().all(|record| record["model"] != "gpt-image-1"), "{records:?}");
    let is_stated = |record: &&Value| {
        record["adapted"].as_str().is_some_and(|adapted| adapted.ends_with("model gpt-image-1->gpt-image-2"))
    };
    assert_eq!(records.iter().filter(is_stated).count(), 3, "{records:?}");
}

#[test]
fn an_alias_of_some_groups_exists_for_their_callers_only() {
    let upstream = FakeUpstream::start();
    let top = "[[models]]\nid = \"fast\"\nalias_of = \"gpt-image-2\"\ngroups = [\"chat\"]\n\
               [[models]]\nid = \"fast\"\nalias_of = \"gpt-image-2-2026-04-21\"\ngroups = [\"agents\"]\n\
               [[groups]]\nname = \"chat\"\n[[groups]]\nname = \"agents\"\n";
    let served = "groups = [\"chat\", \"agents\", \"default\"]";
    let talking = Account::for_upstream("talking", &upstream).with_responses_protocol().with_line(served);
    let gateway = Gateway::with(top, &[talking, Account::for_upstream("drawing", &upstream).with_line(served)]);
    let secret = |group: &str| {
        let words = ["key", "create", "--name", group, "--user", "admin", "--group", group, "--json"];
        gateway.run_command(&words).json()["secret"].as_str().expect("a secret").to_owned()
    };
    let image = image_specimen("png");
    let calls = || {
        let tool = json!({"type": "image_generation", "model": "fast"});
        [
            ("", Call::generation().json(&json!({"model": "fast", "prompt": "red"}))),
            ("", Form::new().text("model", "fast").text("prompt", "red").file("image", &image).call()),
            (
                "tools[0].",
                Call::post("/v1/responses").json(&json!({"model": "gpt-5.5", "input": "red", "tools": [tool]})),
            ),
        ]
    };
    let mut count = 0;
    for (group, model) in [("chat", "gpt-image-2"), ("agents", "gpt-image-2-2026-04-21")] {
        let secret = secret(group);
        for (path, call) in calls() {
            let answer = call.without_document_check().key(&secret).send(gateway.address());
            let change = format!("{path}model fast->{model}");
            assert_eq!((answer.status, answer.header("x-imagate-adapted")), (200, Some(&*change)), "{}", answer.text());
            let sent = upstream.received_attempts().last().expect("an attempt").fields();
            let sent = if path.is_empty() { &sent } else { &sent["tools"][0] };
            assert_eq!(sent["model"], model, "{change}");
            count += 1;
            assert_eq!(gateway.final_records(count).last().expect("a record")["adapted"], change);
        }
    }
    for (path, call) in calls() {
        let refused = call.without_document_check().key(gateway.secret()).send(gateway.address()).error_object(400);
        assert_eq!(refused["param"], format!("{path}model"), "{refused}");
        let message = refused["message"].as_str().expect("a message");
        assert!(message.contains("'gpt-image-2'") && message.matches("'fast'").count() == 1, "{message}");
    }
    assert_eq!(upstream.attempt_count(), count);
    let retrieve = |secret: &str| Call::get("/v1/models/fast").key(secret).send(gateway.address()).status;
    assert_eq!((retrieve(&secret("chat")), retrieve(gateway.secret())), (200, 404));
}

#[test]
fn a_client_finds_out_what_each_image_model_accepts() {
    let upstream = FakeUpstream::start();
    let limited = format!(
        "list_image_models = true\n{NEXT}[[groups]]\nname = \"default\"\nlimits = {{ models = [\"next-1\"] }}\n"
    );
    let gateway = Gateway::with(&limited, &[Account::for_upstream("drawing", &upstream)]);
    let get = |path: &str| Call::get(path).key(gateway.secret()).send(gateway.address()).ok_json();
    let list = get("/v1/images/models");
    let models = list["data"].as_array().expect("data");
    assert_eq!((models.len(), &models[0]["id"], &list["object"]), (1, &json!("next-1"), &json!("list")));
    let parameters = models[0]["capabilities"]["parameters"].as_array().expect("parameters");
    let parameter = |name: &str| parameters.iter().find(|parameter| parameter["name"] == name);
    assert_eq!(parameter("quality").expect("it")["values"], json!(["low", "xhigh"]));
    assert_eq!(parameter("size").expect("it")["size_rules"]["multiple_of"], 8);
    assert_eq!(parameter("markup").expect("it")["operations"], json!(["edits"]));
    assert!(parameter("stream").is_none() && models[0]["capabilities"]["supports_streaming"] == false);
    // Only an operator's choice adds image models to the list of models.
    let listed = get("/v1/models");
    let image_model = listed["data"].as_array().expect("data").iter().find(|model| model["id"] == "next-1");
    assert_eq!(image_model.expect("listed")["capabilities"], models[0]["capabilities"]);
    let plain = start(&upstream);
    let listed = Call::get("/v1/models").key(plain.secret()).send(plain.address()).ok_json();
    assert!(listed["data"].as_array().expect("data").iter().all(|model| model["id"] != "next-1"), "{listed}");
    let all = Call::get("/v1/images/models").key(plain.secret()).send(plain.address()).ok_json();
    assert_eq!(all["data"].as_array().expect("data").len(), 4);
    assert!(all["data"][0]["prices"].as_array().is_some_and(|prices| !prices.is_empty()), "{all}");
    assert_eq!(Call::get("/v1/images/models").send(plain.address()).error_object(401)["code"], "INVALID_API_KEY");
}

#[test]
fn the_api_documents_are_public_and_name_the_gateway() {
    let gateway = Gateway::simulated();
    for (path, text) in [
        ("/openapi.json", include_str!("../../openapi/gateway.json")),
        ("/admin/openapi.json", include_str!("../../openapi/admin.json")),
    ] {
        let get = |path: &str| Call::get(path).without_document_check();
        let answer = get(path).send(gateway.address());
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let origin = format!("http://{}", gateway.address());
        assert_eq!(String::from_utf8_lossy(&answer.body), text.replace("http://127.0.0.1:8080", &origin), "{path}");
        assert_eq!(answer.ok_json()["servers"][0]["url"], json!(origin));
        let tag = answer.header("etag").expect("a tag");
        let second = get(path).header("if-none-match", tag).send(gateway.address());
        assert_eq!((second.status, second.body.len()), (304, 0));
        let canonical = get(&format!("{path}?canonical=1")).send(gateway.address());
        assert_eq!(String::from_utf8_lossy(&canonical.body), text, "{path}");
    }
}

#[test]
fn the_api_document_has_the_models_and_dialects_of_the_settings() {
    let config = "public_url = \"https://images.example\"\n\
                  [[groups]]\nname = \"default\"\n\
                  dialects = [\"url\", \"models\", \"legacy-fields\", \"sizes\", \"azure\", \"gif\"]\n\
                  [[models]]\nid = \"flux-9\"\nqualities = [\"ultra\"]\nsize_rules = { max_edge = 1024 }\n\
                  [[models.fields]]\nname = \"tiling\"\nkind = \"boolean\"\n";
    let gateway = Gateway::with(config, &[]);
    let document = Call::get("/openapi.json").without_document_check().send(gateway.address()).ok_json();
    assert_eq!(document["servers"][0]["url"], "https://images.example");
    assert_eq!(document["security"], json!([{"bearer": []}, {"api_key": []}]));
    let schemas = &document["components"]["schemas"];
    for (words, word) in [
        (&schemas["ImageModel"]["anyOf"][0]["enum"], "flux-9"),
        (&schemas["Quality"]["enum"], "ultra"),
        (&schemas["OpenQuality"]["x-extensible-enum"], "ultra"),
        (&schemas["ResolvedQuality"]["x-extensible-enum"], "ultra"),
        (&schemas["Quality"]["enum"], "hd"),
        (&schemas["ResponseFormat"]["enum"], "url"),
    ] {
        assert!(words.as_array().expect("words").contains(&json!(word)), "{word}");
    }
    assert_eq!(schemas["ImageModel"]["anyOf"][1]["pattern"], "^(dall-e|gpt-image-1|chatgpt-image)([-.].*)?$");
    assert_eq!(schemas["ImageSize"].get("pattern"), None);
    let body = &schemas["ImageGenerationRequest"];
    assert_eq!((&body["required"], &body["properties"]["tiling"]["type"]), (&json!(["prompt"]), &json!("boolean")));
    let image = &schemas["Image"];
    assert_eq!((image.get("required"), &image["properties"]["url"]["type"]), (None, &json!("string")));
    let rows = document["x-imagate-models"].as_array().expect("models");
    let added = rows.iter().find(|row| row["id"] == "flux-9").expect("the row of the model");
    assert_eq!((&added["qualities"], &added["sizes"]["max_edge"]), (&json!(["ultra"]), &json!(1024)), "{added}");
    // The request that the document describes is served, and its answer is the described one.
    let request =
        json!({"model": "flux-9", "prompt": "a cube", "quality": "ultra", "tiling": true, "response_format": "url"});
    let answer = gateway.call(request).without_document_check().send(gateway.address()).ok_json();
    assert!(answer["data"][0]["url"].is_string() && answer["data"][0].get("b64_json").is_none(), "{answer}");
}

#[test]
fn the_api_document_has_the_dialects_of_single_keys() {
    let gateway = Gateway::simulated();
    let words = || {
        let document = Call::get("/openapi.json").without_document_check().send(gateway.address()).ok_json();
        document["components"]["schemas"]["ResponseFormat"]["enum"].clone()
    };
    assert_eq!(words(), json!(["b64_json"]));
    gateway.run_command(&["key", "dialects", gateway.key_id(), "--dialect", "url"]).ok_stdout();
    eventually("the dialect is in the document", || (words() == json!(["b64_json", "url"])).then_some(()));
    gateway.run_command(&["key", "disable", gateway.key_id()]).ok_stdout();
    eventually("the dialect has gone", || (words() == json!(["b64_json"])).then_some(()));
}

#[test]
fn a_probe_asks_only_what_no_upstream_can_fulfil() {
    let upstream = FakeUpstream::start();
    upstream.always_for_token(
        "sk-upstream-drawing",
        "status=400 body=parameter say=Invalid_value._Supported_values_are:_'low'_and_'xhigh'.",
    );
    let gateway = Gateway::with("", &[Account::for_upstream("drawing", &upstream)]);
    let output = gateway.run_command(&["models", "probe", "drawing", "--model", "next-1", "--field", "tiling"]);
    let table = output.ok_stdout();
    assert!(table.starts_with("[[models]]\nid = \"next-1\"\nqualities = [\"low\", \"xhigh\"]\n"), "{table}");
    assert!(table.contains("# size: not learned, the refusal names quality instead"), "{table}");
    let attempts = upstream.received_attempts();
    assert!(attempts.len() > 10, "{}", attempts.len());
    for attempt in &attempts {
        let fields = attempt.json();
        assert_eq!((attempt.path.as_str(), fields.get("prompt")), ("/v1/images/generations", None), "{fields}");
        assert!(fields.as_object().is_some_and(|fields| fields.len() > 1), "{fields}");
    }
}

#[test]
fn a_probe_stops_at_the_first_accepted_request() {
    let upstream = FakeUpstream::start();
    upstream.always_for_token("sk-upstream-drawing", "size=1024x1024 format=png");
    let gateway = Gateway::with("", &[Account::for_upstream("drawing", &upstream)]);
    let output = gateway.run_command(&["models", "probe", "drawing"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stderr.contains("ACCEPTED"), "{}", output.stderr);
    assert_eq!(upstream.received_attempts().len(), 1);
}
