//! The cost that `batch`, `generate` and `edit` print: by the prices of the gateway, or not known; never a guess.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::run;
use crate::kit::{Account, CommandOutput, FakeUpstream, Gateway, Program, StubServer, alpha_png, image_file, pause};

/// Prices that differ from those of the program, and a model that only the operator has, without and with a price.
const PRICES: &str = "[[prices]]\nmodel = \"gpt-image-2\"\nfrom = \"2026-01-01\"\ntext_input = 10\n\
    cached_text_input = 2.5\nimage_input = 16\nimage_output = 60\n[[models]]\nid = \"brush-9\"\n[[prices]]\nmodel = \"brush-9\"\nfrom = \"2026-01-01\"\n\
    per_image = 0.04\ntext_input = 0\nimage_output = 0\n[[models]]\nid = \"free-hand\"\n";

/// The longest time that a command may take if the service does not answer the question for its prices, which is asked
/// for 3 seconds.
const LIMIT: Duration = Duration::from_secs(20);

fn event(done: &CommandOutput, name: &str) -> Value {
    let mut events = done.stderr.lines().map(|line| serde_json::from_str::<Value>(line).expect("an event"));
    events.rfind(|event| event["event"] == name).unwrap_or_else(|| panic!("no {name}: {done:#?}"))
}

fn generate(gateway: &Gateway, words: &[&str]) -> CommandOutput {
    let (base_url, key) = (gateway.base_url(), gateway.secret());
    let program = Program::new(gateway.home()).args(["generate", "a cube", "--base-url", &base_url, "--api-key", key]);
    program.args(words).run()
}

#[test]
fn a_batch_costs_what_the_gateway_records() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with(PRICES, &[Account::for_upstream("only", &upstream)]);
    std::fs::write(gateway.home().join("in.png"), &alpha_png(64, 64)[..]).expect("a file");
    let lines = [
        json!({"prompt": "a cube"}),
        json!({"prompt": "a cube", "n": 3}),
        json!({"prompt": "a cube", "model": "brush-9", "n": 2}),
        json!({"prompt": "a cube", "image": gateway.home().join("in.png")}),
        json!({"prompt": "a cube [[usage=cached]]"}),
    ];
    let input = lines.map(|line| line.to_string()).join("\n");
    let done = run(&gateway, &input, &["--progress", "jsonl", "-o", "out"]);
    let summary = event(&done, "summary");
    let records = gateway.final_records(5);
    let recorded: f64 = records.iter().map(|record| record["cost_usd"].as_f64().expect("a cost")).sum();
    // In millionths: 13 x 10 + 196 x 60, 13 x 10 + 588 x 60, 80000, 13 x 10 + 323 x 16 + 196 x 60, and of 30 text tokens
    // 5 from a cache: 25 x 10 + 5 x 2.5 + 196 x 60.
    assert!((recorded - 0.156_380_5).abs() < 1e-9, "{recorded} {records:#?}");
    assert_eq!(
        summary["cost_usd"].as_f64().map(|usd| (usd * 1e9).round()),
        Some((recorded * 1e9).round()),
        "{summary}"
    );
    assert_eq!(summary["cost_unknown"], 0, "{summary}");
    // The images of a second run are those of the first.
    let again = run(&gateway, &input, &["--json", "-o", "again"]);
    assert!(again.stderr.contains("made 5 (before: 5)") && again.stderr.contains(", cost 0 USD"), "{again:#?}");
    assert_eq!(gateway.records().iter().filter(|record| record["cost_usd"] != Value::Null).count(), 5);
}

#[test]
fn a_cost_without_a_price_is_not_known_and_the_others_are_summed() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with(PRICES, &[Account::for_upstream("only", &upstream)]);
    let unpriced = json!({"prompt": "a cube", "model": "free-hand"});
    let done = run(&gateway, &format!("{unpriced}\n"), &["-o", "one"]);
    assert!(done.code == Some(0) && done.stderr.contains(", cost not known\n"), "{done:#?}");
    let other = json!({"prompt": "a cup", "model": "free-hand"});
    let two = format!("{other}\n{}", json!({"prompt": "a cube", "model": "brush-9"}));
    let done = run(&gateway, &two, &["--json", "-o", "two"]);
    let expected = "cost 0.04 USD without the lines whose cost is not known (1)";
    assert!(done.stderr.replace('\n', " ").contains(expected), "{done:#?}");
    let mut reports: Vec<Value> = done.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    reports.sort_by_key(|report| report["line"].as_u64());
    let costs = reports.iter().map(|report| (&report["cost_usd"], &report["cost_source"])).collect::<Vec<_>>();
    assert_eq!(costs, [(&Value::Null, &Value::Null), (&json!(0.04), &json!("prices"))]);
}

#[test]
fn generate_and_edit_print_the_cost_by_the_prices_of_the_gateway() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with(PRICES, &[Account::for_upstream("only", &upstream)]);
    let done = generate(&gateway, &["--json", "--sidecar", "-o", "a.png"]);
    assert_eq!((&done.json()["cost_usd"], &done.json()["cost_source"]), (&json!(0.01189), &json!("prices")));
    assert!(done.stderr.contains(" tokens, 0.01189 USD, "), "{done:#?}");
    let sidecar = std::fs::read(gateway.home().join("a.png.json")).expect("a sidecar");
    assert_eq!(serde_json::from_slice::<Value>(&sidecar).expect("JSON")["cost_usd"], 0.01189);
    let streamed = generate(&gateway, &["--stream", "--set", "model=brush-9", "--json", "-o", "b.png"]);
    assert_eq!(streamed.json()["cost_usd"], 0.04, "{streamed:#?}");
    let unknown = generate(&gateway, &["--model", "free-hand", "-o", "c.png"]);
    assert!(unknown.code == Some(0) && unknown.stderr.contains(" tokens, cost not known, "), "{unknown:#?}");
    std::fs::write(gateway.home().join("in.png"), &alpha_png(64, 64)[..]).expect("a file");
    let (base_url, key) = (gateway.base_url(), gateway.secret());
    let words = ["edit", "a cube", "-i", "in.png", "--base-url", &base_url, "--api-key", key, "--json"];
    let edited = Program::new(gateway.home()).args(words).run();
    assert_eq!(edited.json()["cost_usd"], json!(0.017_058), "{edited:#?}");
    for record in gateway.final_records(4) {
        let expected = match record["model"].as_str() {
            Some("free-hand") => Value::Null,
            Some("brush-9") => json!(0.04),
            _ if record["operation"] == "edit_image" => json!(0.017_058),
            _ => json!(0.01189),
        };
        assert_eq!(record["cost_usd"], expected, "{record}");
    }
    let simulated = generate(&Gateway::simulated(), &["--json"]);
    assert_eq!((&simulated.json()["cost_usd"], &simulated.json()["cost_source"]), (&json!(0.0), &json!("service")));
}

/// A service that is no gateway: it makes images, and `list` answers the question for prices. Returns also the requests.
fn service(list: impl Fn() -> Option<(u16, String)> + Send + Sync + 'static) -> (StubServer, Arc<Mutex<Vec<String>>>) {
    let requests = Arc::<Mutex<Vec<String>>>::default();
    let seen = Arc::clone(&requests);
    let server = StubServer::start(move |request| {
        seen.lock().expect("the requests").push(request.path.clone());
        if request.path == "/v1/images/models" {
            return list();
        }
        let image = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, &image_file(64, 64, "png")[..]);
        let usage = json!({"input_tokens": 13, "output_tokens": 196, "total_tokens": 209,
            "input_tokens_details": {"text_tokens": 13, "image_tokens": 0}});
        Some((200, json!({"created": 1, "data": [{"b64_json": image}], "usage": usage}).to_string()))
    });
    (server, requests)
}

/// Runs a batch of three lines and a single request, and returns what they printed. Each asks for prices at most once.
fn both(list: impl Fn() -> Option<(u16, String)> + Send + Sync + 'static) -> [CommandOutput; 2] {
    let (server, requests) = service(list);
    let home = TempDir::new().expect("a directory");
    std::fs::write(home.path().join("in.jsonl"), "{\"prompt\": \"a cube\"}\n".repeat(3)).expect("the input");
    let address = format!("http://{}/v1", server.address());
    let run = |words: &[&str]| {
        let program = Program::new(home.path()).env("IMAGATE_API_KEY", "sk-test").env("IMAGATE_BASE_URL", &address);
        program.args(words).run_within(LIMIT)
    };
    let done = [run(&["batch", "in.jsonl", "-o", "out"]), run(&["generate", "a cube"])];
    let requests = requests.lock().expect("the requests").clone();
    let count = |path: &str| requests.iter().filter(|seen| *seen == path).count();
    assert_eq!((count("/v1/images/generations"), count("/v1/images/models")), (4, 2), "{requests:?}");
    done
}

#[test]
fn a_service_without_prices_costs_nobody_a_failure_or_a_guess() {
    for (status, body) in [(404, "{\"error\": {\"message\": \"no\"}}"), (200, "<html>"), (200, "{\"data\": []}")] {
        let [batch, single] = both(move || Some((status, body.to_owned())));
        assert!(batch.code == Some(0) && batch.stderr.contains("tokens 627, cost not known\n"), "{batch:#?}");
        assert!(single.code == Some(0) && single.stderr.contains("209 tokens, cost not known"), "{single:#?}");
        assert!(!batch.stderr.contains("note:") && !single.stderr.contains("note:"), "{batch:#?} {single:#?}");
    }
}

#[test]
fn a_question_for_prices_that_is_not_answered_delays_a_command_by_seconds_only() {
    let start = Instant::now();
    let failing = [
        both(|| Some((503, "{}".to_owned()))),
        both(|| None),
        both(|| {
            pause(LIMIT * 2);
            None
        }),
    ];
    for done in failing.iter().flatten() {
        assert!(done.code == Some(0) && done.stderr.contains("cost not known"), "{done:#?}");
        let text = done.stderr.replace('\n', " ");
        assert!(text.contains("note: the prices of the service are not known: "), "{done:#?}");
    }
    assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());
}

#[test]
fn images_are_written_before_prices_are_waited_for() {
    let home = TempDir::new().expect("a directory");
    let file = home.path().join("a.png");
    let awaited = file.clone();
    // The prices come only when the image is on the disk.
    let (server, _) = service(move || {
        let start = Instant::now();
        while !awaited.exists() {
            if start.elapsed() > LIMIT {
                return None;
            }
            pause(Duration::from_millis(5));
        }
        let price = json!({"billable": "per_image", "unit": "image", "usd": 0.25});
        let tokens = ["text_input", "image_output"]
            .map(|billable| json!({"billable": billable, "unit": "million_tokens", "usd": 0.0}));
        let model = json!({"id": "gpt-image-2", "prices": [price, tokens[0], tokens[1]]});
        Some((200, json!({"object": "list", "data": [model]}).to_string()))
    });
    let address = format!("http://{}/v1", server.address());
    let words = ["generate", "a cube", "-o", "a.png", "--base-url", &address, "--api-key", "sk-test"];
    let done = Program::new(home.path()).args(words).run();
    assert!(done.code == Some(0) && done.stderr.contains("209 tokens, 0.25 USD"), "{done:#?}");
}
