//! Dialects: random requests under random dialects, and what the gateway says that it changed.
//!
//! The tests know nothing of the gateway's own list of changes: they compare the request that they sent with the one
//! that the upstream received.

mod failures;
mod gif_images;
mod image_tools;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use gif_images::gif_file;

use crate::edits::data_url;
use crate::kit::{Account, Answer, Call, FakeUpstream, Form, Gateway, Random, alpha_png};

const SEED: u64 = 22;
const REQUESTS: usize = 200;
/// The dialects that change fields.
const DIALECTS: [&str; 5] = ["sizes", "legacy-fields", "url", "models", "gif"];
const HEADER: &str = "x-imagate-adapted";
/// A script with which the upstream refuses a request and stays in use.
const REFUSAL: &str = "status=400 body=policy";

/// The ways in which images are requested.
const OPERATIONS: [&str; 4] = ["create", "edit", "form", "tool"];

/// A value of a field, or its absence, and the dialect that it needs.
type FieldValue = (Option<&'static str>, &'static str);

/// The values of each field, each with the dialect that it needs: `-` for none, and `never` if no dialect accepts it. A
/// `null` stands for an absent field.
const VALUES: [(&str, &[FieldValue]); 6] = [
    (
        "model",
        &[
            (Some("gpt-image-2"), "-"),
            (Some("dall-e-3"), "models"),
            (Some("gpt-image-1-mini"), "models"),
            (None, "legacy-fields"),
            (Some("zebra"), "never"),
        ],
    ),
    (
        "size",
        &[
            (None, "-"),
            (Some("auto"), "-"),
            (Some("1024x1024"), "-"),
            (Some("512x512"), "sizes"),
            (Some("16:9"), "sizes"),
            (Some("1920x1080"), "sizes"),
            (Some("huge"), "never"),
        ],
    ),
    (
        "quality",
        &[(None, "-"), (Some("high"), "-"), (Some("hd"), "legacy-fields"), (Some("standard"), "legacy-fields")],
    ),
    ("style", &[(None, "-"), (None, "-"), (Some("vivid"), "legacy-fields")]),
    ("input_fidelity", &[(None, "-"), (None, "-"), (Some("high"), "legacy-fields")]),
    ("response_format", &[(None, "-"), (Some("b64_json"), "-"), (Some("url"), "url")]),
];

/// A random request, with the dialects that it needs.
struct Request {
    operation: &'static str,
    fields: BTreeMap<&'static str, &'static str>,
    mask: Option<&'static str>,
    /// True if the image of an edit is a GIF file.
    is_gif: bool,
    needs: BTreeSet<&'static str>,
}

/// Keys by the dialects that they may use, each by its group or by itself.
struct Keys {
    gateway: Gateway,
    secrets: Vec<(BTreeSet<&'static str>, String)>,
}

// === impl Request ===

impl Request {
    fn random(random: &mut Random) -> Self {
        let operation = pick(random, &OPERATIONS);
        let mut request =
            Self { operation, fields: BTreeMap::new(), mask: None, is_gif: false, needs: BTreeSet::new() };
        for (field, values) in VALUES {
            // Most fields are left at a value that needs nothing, so that many requests pass.
            let (value, need) = if random.between(0, 2) == 0 { values[0] } else { pick(random, values) };
            // A tool may leave out its model, and cannot ask for links.
            if operation == "tool" && (field == "response_format" || (field == "model" && value.is_none())) {
                continue;
            }
            request.fields.extend(value.map(|value| (field, value)));
            if need != "-" {
                request.needs.insert(need);
            }
        }
        if ["edit", "form"].contains(&operation) && random.between(0, 3) == 0 {
            request.is_gif = true;
            request.needs.insert("gif");
        }
        if operation == "form" {
            request.mask = pick(random, &[None, Some("mask"), Some("mask[]")]);
            if request.mask == Some("mask[]") {
                request.needs.insert("legacy-fields");
            }
        }
        request
    }

    fn send(&self, gateway: &Gateway, secret: &str) -> Answer {
        let mask = alpha_png(64, 64);
        let image = if self.is_gif { gif_file(64, 64) } else { mask.to_vec() };
        let fields = self.fields.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
        let mut body: Map<String, Value> = fields.chain([("prompt".to_owned(), json!("a red cube"))]).collect();
        let call = match self.operation {
            "create" => Call::generation().json(&Value::Object(body)),
            "edit" => {
                body.insert("images".to_owned(), json!([{"image_url": data_url(&image)}]));
                Call::edit().json(&Value::Object(body))
            }
            "tool" => {
                body.remove("prompt");
                body.insert("type".to_owned(), json!("image_generation"));
                let body = json!({"model": "gpt-5.5", "input": "a red cube", "tools": [body]});
                Call::post("/v1/responses").json(&body)
            }
            _ => {
                let form = self.fields.iter().fold(Form::new(), |form, (name, value)| form.text(name, value));
                let form = form.text("prompt", "a red cube").file("image", &image);
                self.mask.iter().fold(form, |form, name| form.file(name, &mask)).call()
            }
        };
        call.without_document_check().key(secret).send(gateway.address())
    }

    /// The estimate of a generation.
    fn estimate(&self, gateway: &Gateway, secret: &str) -> Answer {
        let mut body = json!({"prompt": "a red cube"});
        self.fields.iter().for_each(|(name, value)| body[*name] = json!(value));
        Call::post("/v1/images/estimate").without_document_check().json(&body).key(secret).send(gateway.address())
    }

    /// True if the request leaves the form of the answer open, with a model that answers with links then.
    fn expects_links(&self) -> bool {
        let is_dall_e = self.fields.get("model").is_some_and(|model| model.starts_with("dall-e"));
        is_dall_e && self.operation != "tool" && !self.fields.contains_key("response_format")
    }

    /// The changes between this request and the fields that the upstream received, as the gateway must state them.
    fn changes(&self, received: &Value, declared: &BTreeSet<&str>) -> BTreeSet<String> {
        let mut changes = BTreeSet::new();
        let (received, path) =
            if self.operation == "tool" { (&received["tools"][0], "tools[0].") } else { (received, "") };
        for field in ["model", "size", "quality", "style", "input_fidelity"] {
            let sent = self.fields.get(field).copied();
            match (sent, received[field].as_str()) {
                (Some(old), Some(new)) if old != new => drop(changes.insert(format!("{path}{field} {old}->{new}"))),
                (None, Some(new)) => drop(changes.insert(format!("{path}{field} added {new}"))),
                (Some(_), None) => drop(changes.insert(format!("{path}{field} dropped"))),
                _ => {}
            }
        }
        let form = self.fields.get("response_format").copied();
        if form == Some("url") || (self.expects_links() && declared.contains("url")) {
            changes.insert("response_format url".to_owned());
        }
        if self.is_gif {
            let param = if self.operation == "form" { "image" } else { "images[0].image_url" };
            changes.insert(format!("{param} gif->png"));
        }
        if self.mask == Some("mask[]") {
            changes.insert("mask[]->mask".to_owned());
        }
        changes
    }
}

fn pick<T: Copy>(random: &mut Random, values: &[T]) -> T {
    values[usize::try_from(random.between(0, values.len() as u64)).expect("a small number")]
}

// === impl Keys ===

impl Keys {
    /// One key for each set of dialects. Every second set is that of a group; the others are those of the key.
    fn for_all_sets(upstream: &FakeUpstream) -> Self {
        let sets: Vec<BTreeSet<&str>> = (0..1 << DIALECTS.len())
            .map(|bits: usize| {
                DIALECTS.iter().enumerate().filter(move |(at, _)| bits >> at & 1 == 1).map(|(_, word)| *word)
            })
            .map(Iterator::collect)
            .collect();
        let of_group = |index: usize| index.is_multiple_of(2);
        let group = |index: usize| if of_group(index) { format!("set{index}") } else { "default".to_owned() };
        let mut top = String::new();
        for (index, set) in sets.iter().enumerate().filter(|(index, _)| of_group(*index)) {
            let words: Vec<_> = set.iter().collect();
            top += &format!("[[groups]]\nname = \"{}\"\ndialects = {words:?}\n", group(index));
        }
        let mut groups: Vec<_> = (0..sets.len()).map(group).collect();
        groups.sort_unstable();
        groups.dedup();
        let groups = format!("groups = {groups:?}");
        let talking = Account::for_upstream("talking", upstream).with_responses_protocol();
        let accounts = [talking, Account::for_upstream("drawing", upstream)];
        let gateway = Gateway::with(&top, &accounts.map(|account| account.with_line(&groups)));
        let secrets = sets.into_iter().enumerate().map(|(index, set)| {
            let (name, group) = (format!("k{index}"), group(index));
            let mut words = vec!["key", "create", "--name", &name, "--user", "admin", "--group", &group, "--json"];
            if !of_group(index) {
                set.iter().for_each(|word| words.extend(["--dialect", word]));
            }
            let key = gateway.run_command(&words).json();
            (set, key["secret"].as_str().expect("a secret").to_owned())
        });
        let secrets = secrets.collect();
        Self { gateway, secrets }
    }
}

#[test]
fn the_answer_and_the_record_name_exactly_what_the_dialects_changed() {
    let upstream = FakeUpstream::start();
    let Keys { gateway, secrets } = Keys::for_all_sets(&upstream);
    let mut random = Random::seeded(SEED);
    let mut stated = BTreeMap::new();
    let (mut refused, mut changed) = (0, 0);
    for number in 0..REQUESTS {
        let request = Request::random(&mut random);
        let (declared, secret) = &secrets[usize::try_from(random.between(0, secrets.len() as u64)).expect("small")];
        let before = upstream.attempt_count();
        // Some requests fail after they were adapted.
        let is_failing = random.between(0, 4) == 0;
        upstream.clear_queue();
        if is_failing {
            upstream.script_next(REFUSAL);
        }
        let answer = request.send(&gateway, secret);
        let what = format!(
            "{number}: {} {:?} {:?} {} under {declared:?}",
            request.operation, request.fields, request.mask, request.is_gif
        );
        if request.operation == "create" {
            check_estimate(&answer, &request.estimate(&gateway, secret), &what);
        }
        if !request.needs.is_subset(declared) {
            assert_eq!((answer.status, upstream.attempt_count()), (400, before), "{what}: {}", answer.text());
            check_advice(&request, declared, &answer, &what);
            assert!(!declared.is_empty() || answer.header(HEADER).is_none(), "{what}: {:?}", answer.header(HEADER));
            refused += 1;
            continue;
        }
        assert_eq!(answer.status, if is_failing { 502 } else { 200 }, "{what}: {}", answer.text());
        let received = upstream.received_attempts().pop().expect("an attempt");
        assert_eq!(received.mask().is_some(), request.mask.is_some(), "{what}");
        let expected = request.changes(&received.fields(), declared);
        let text = answer.header(HEADER).map(str::to_owned);
        let found: BTreeSet<String> = text.iter().flat_map(|text| text.split(", ")).map(str::to_owned).collect();
        assert_eq!(found, expected, "{what}");
        changed += usize::from(text.is_some());
        stated.insert(answer.header("x-request-id").expect("an id").to_owned(), text);
    }
    assert!(refused > 20 && changed > 40, "{refused} refused, {changed} changed");
    for record in gateway.final_records(stated.len()) {
        let id = record["request_id"].as_str().expect("an id");
        assert_eq!(record["adapted"].as_str(), stated[id].as_deref(), "{record}");
    }
}

/// The estimate must be that of the adapted request: refused for the same reason, and with the same changes.
#[track_caller]
fn check_estimate(answer: &Answer, estimate: &Answer, what: &str) {
    assert_eq!(estimate.header(HEADER), answer.header(HEADER), "{what}");
    assert_eq!(estimate.status == 400, answer.status == 400, "{what}: {}", estimate.text());
    if answer.status == 400 {
        assert_eq!(estimate.error_object(400), answer.error_object(400), "{what}");
    }
}

/// The refusal must name the dialects that are missing, if with them the request would pass.
#[track_caller]
fn check_advice(request: &Request, declared: &BTreeSet<&str>, answer: &Answer, what: &str) {
    let message = answer.error_object(400)["message"].as_str().expect("a message").to_owned();
    let helps = |word: &&str| request.needs.contains(word) || (*word == "url" && request.expects_links());
    let missing: Vec<_> = DIALECTS.into_iter().filter(helps).collect();
    let missing: Vec<_> = missing.into_iter().filter(|word| !declared.contains(word)).collect();
    if missing.is_empty() {
        assert!(!message.contains("dialect"), "{what}: {message}");
    }
    let is_form_field = request.fields.contains_key("style") || request.mask == Some("mask[]");
    let is_edit = ["edit", "form"].contains(&request.operation);
    if is_edit && is_form_field && missing.contains(&"legacy-fields") {
        assert!(message.contains("The dialect 'legacy-fields' accepts this parameter;"), "{what}: {message}");
    } else if !request.needs.contains("never") {
        // The rules for fields come before those for images.
        let is_image_refused = request.needs.iter().filter(|need| !declared.contains(*need)).eq(["gif"].iter());
        if is_image_refused {
            assert!(message.contains("The dialect 'gif' accepts this parameter;"), "{what}: {message}");
            return;
        }
        let words: Vec<_> = missing.iter().map(|word| format!("'{word}'")).collect();
        let subject = match words.as_slice() {
            [word] => format!("The dialect {word} accepts this request;"),
            [first @ .., last] => format!("The dialects {} and {last} accept this request;", first.join(", ")),
            [] => panic!("something must be missing"),
        };
        assert!(message.contains(&subject), "{what}: {message}");
    }
}

#[test]
fn a_replayed_answer_states_the_changes_of_the_request_that_got_it() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with(
        "[[groups]]\nname = \"default\"\ndialects = [\"sizes\"]\n",
        &[Account::for_upstream("only", &upstream)],
    );
    let send = |size: &str| {
        let call = gateway.call(json!({"size": size})).without_document_check().header("idempotency-key", "k-1");
        call.send(gateway.address())
    };
    for (size, replayed, adapted) in [
        ("512x512", "false", Some("size 512x512->1024x1024")),
        ("512x512", "true", Some("size 512x512->1024x1024")),
        ("1024x1024", "true", None),
        ("256x256", "true", Some("size 256x256->1024x1024")),
    ] {
        let answer = send(size);
        assert_eq!((answer.status, answer.header("x-imagate-replayed")), (200, Some(replayed)), "{size}");
        assert_eq!(answer.header(HEADER), adapted, "{size}");
    }
    // Another picture is another request.
    let conflict = send("16:9").error_object(400);
    assert_eq!(conflict["reason"], "idempotency_key_reused");
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn the_dialects_of_a_key_can_be_changed_by_admins_only() {
    let token = "admin-token-canary-0123456789abcdef";
    let upstream = FakeUpstream::start();
    let account = Account::for_upstream("only", &upstream);
    let gateway = Gateway::with_secrets("admin_token = { env = \"IT_ADMIN\" }\n", &[account], &[("IT_ADMIN", token)]);
    let draw = || gateway.call(json!({"size": "512x512"})).without_document_check().send(gateway.address()).status;
    assert_eq!(draw(), 400);
    let path = format!("/admin/v1/keys/{}", gateway.key_id());
    let change = |dialects: Value| Call::patch(&path).json(&json!({ "dialects": dialects })).key(token);
    let refused = change(json!(["sizes", "size"])).send(gateway.address()).error_object(400);
    assert_eq!(refused["param"], "dialects[1]");
    assert_eq!(change(json!(["sizes"])).send(gateway.address()).ok_json()["dialects"], json!(["sizes"]));
    assert_eq!(draw(), 200);
    let shown = gateway.run_command(&["key", "dialects", gateway.key_id(), "--dialect", "url", "--json"]).json();
    assert_eq!(shown["dialects"], json!(["url"]));
    crate::kit::eventually("the change is in force", || (draw() == 400).then_some(()));
}

#[test]
fn the_paths_and_the_key_header_of_azure_need_the_dialect() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let words = ["key", "create", "--name", "azure", "--user", "admin", "--dialect", "azure", "--json"];
    let azure = gateway.run_command(&words).json();
    let (azure, strict) = (azure["secret"].as_str().expect("a secret"), gateway.secret());
    let body = |with: Value| {
        let mut body = json!({"prompt": "a red cube"});
        with.as_object().expect("fields").iter().for_each(|(name, value)| body[name] = value.clone());
        body
    };
    let deployment = "/openai/deployments/gpt-image-2/images/generations?api-version=2025-04-01-preview";
    let post = |path: &str, with: Value| Call::post(path).without_document_check().json(&body(with));
    let send = |call: Call| call.send(gateway.address());
    // The header alone, the path alone, and both.
    let added = Some("model added gpt-image-2");
    let named = json!({"model": "gpt-image-2"});
    for (call, adapted) in [
        (post("/v1/images/generations", named.clone()).header("api-key", azure), None),
        (post(deployment, json!({})).key(azure), added),
        (post(deployment, json!({})).header("api-key", azure), added),
        (post(deployment, named.clone()).header("api-key", azure), None),
        (post("/openai/v1/images/generations?api-version=preview", named.clone()).header("api-key", azure), None),
    ] {
        let answer = send(call);
        assert_eq!((answer.status, answer.header(HEADER)), (200, adapted), "{}", answer.text());
    }
    let image = alpha_png(64, 64);
    let form = Form::new()
        .text("prompt", "a hat")
        .file("image", &image)
        .call_to("/openai/deployments/gpt-image-2/images/edits?api-version=2025-04-01-preview");
    let answer = send(form.without_document_check().header("api-key", azure));
    assert_eq!((answer.status, answer.header(HEADER)), (200, added), "{}", answer.text());
    let paid = upstream.attempt_count();
    assert_eq!(paid, 6);
    // A key without the dialect: the status and code are those of an unknown path and of a missing key.
    let refused = send(post(deployment, json!({})).key(strict)).error_object(404);
    assert_eq!(refused["code"], "unknown_url");
    assert!(refused["message"].as_str().expect("a message").contains("The dialect 'azure' accepts this path;"));
    let refused = send(post("/v1/images/generations", named.clone()).header("api-key", strict)).error_object(401);
    assert_eq!(refused["code"], "INVALID_API_KEY");
    assert!(refused["message"].as_str().expect("a message").contains("The dialect 'azure' accepts the header"));
    // An unknown key learns nothing of dialects.
    for path in [deployment, "/v1/images/generations"] {
        let refused = send(post(path, named.clone()).header("api-key", "sk-imagate-unknown")).error_object(401);
        assert!(!refused["message"].as_str().expect("a message").contains("dialect"), "{refused}");
    }
    // With both headers, `Authorization` counts.
    let both = post("/v1/images/generations", named).header("api-key", azure).key("sk-imagate-unknown");
    send(both).error_object(401);
    assert_eq!(upstream.attempt_count(), paid);
}
