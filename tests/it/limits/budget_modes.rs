//! Budgets of responses: their cost depends on their text model. In the mode `paced` a budget is passed by at most one
//! request, whatever the upstream counts; in the mode `strict` it is never passed.

use std::thread;

use serde_json::{Value, json};

use super::TOKEN;
use crate::kit::{Account, Answer, Call, FakeUpstream, Gateway, PostgresDatabase, eventually, request};

const MASTER_KEY: &str = "5e1f0c7a9b3d2468ace013579bdf02468ace013579bdf02468ace013579bdf02";
/// A token of the text model costs two or ten millionths of a dollar, and an image token thirty.
pub(crate) const SETTINGS: &str =
    "[[prices]]\nmodel = \"gpt-5.5\"\nfrom = \"2026-01-01\"\ntext_input = 2\ntext_output = 10\n";

/// One gateway, or two nodes that share a database.
pub(crate) struct Nodes(Vec<Gateway>);

// === impl Nodes ===

impl Nodes {
    pub(crate) fn single(upstream: &FakeUpstream, settings: &str) -> Self {
        Self(vec![Self::open(upstream, settings, &[])])
    }

    /// `None` if the run has no PostgreSQL server.
    pub(crate) fn pair(upstream: &FakeUpstream, settings: &str) -> Option<Self> {
        let database = PostgresDatabase::create()?;
        let secrets = [("IMAGATE_DATABASE_URL", database.url()), ("IMAGATE_MASTER_KEY", MASTER_KEY)];
        Some(Self(vec![Self::open(upstream, settings, &secrets), Self::open(upstream, settings, &secrets)]))
    }

    fn open(upstream: &FakeUpstream, settings: &str, secrets: &[(&str, &str)]) -> Gateway {
        let top = format!("admin_token = {{ env = \"IT_ADMIN\" }}\n{settings}");
        let account = Account::for_upstream("only", upstream).with_slots(100).with_responses_protocol();
        Gateway::with_secrets(&top, &[account], &[secrets, &[("IT_ADMIN", TOKEN)]].concat())
    }

    pub(crate) fn all(&self) -> Vec<&Gateway> {
        self.0.iter().collect()
    }

    /// Makes a key with these limits.
    pub(crate) fn make_key(&self, limits: &Value) -> Value {
        let new = json!({"name": "limited", "user": "admin", "limits": limits});
        Call::post("/admin/v1/keys").json(&new).key(TOKEN).send(self.0[0].address()).ok_json()
    }

    /// Sends these requests at once, spread over the nodes.
    pub(crate) fn burst(&self, secret: &str, bodies: &[Value]) -> Vec<Answer> {
        thread::scope(|scope| {
            let threads: Vec<_> = bodies
                .iter()
                .zip(self.0.iter().cycle())
                .map(|(body, gateway)| scope.spawn(move || respond_as(gateway, secret, body)))
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("an answer")).collect()
        })
    }

    /// Returns the costs of the records of a key.
    pub(crate) fn costs_of(&self, key: &str) -> Vec<f64> {
        let output = self.0[0].run_command(&["usage", "--json", "--key", key]);
        let records = output.ok_stdout().lines().map(|line| serde_json::from_str(line).expect("a record"));
        records.map(|record: Value| record["cost_usd"].as_f64().expect("a cost")).collect()
    }

    /// Waits until nothing runs, and returns what was spent of the budget of a key.
    pub(crate) fn spent(&self, key: &Value) -> f64 {
        let path = format!("/admin/v1/keys/{}", key["key"]["id"].as_str().expect("an id"));
        let budget = eventually("nothing is reserved", || {
            let key = Call::get(&path).key(TOKEN).send(self.0[0].address()).ok_json();
            let budget = limit_usage(&key, "budget_usd");
            (budget["reserved"] == 0.0).then_some(budget)
        });
        budget["used"].as_f64().expect("an amount")
    }
}

/// The use of a limit of an object of the admin API.
#[track_caller]
pub(crate) fn limit_usage(object: &Value, name: &str) -> Value {
    let limits = object["limit_usage"].as_array().into_iter().flatten();
    limits.into_iter().find(|limit| limit["name"] == name).cloned().unwrap_or_default()
}

/// A request for a response whose upstream follows this script.
pub(crate) fn scripted_response(script: &str) -> Value {
    json!({"model": "gpt-5.5", "input": format!("a cube [[{script}]]")})
}

pub(crate) fn respond_as(gateway: &Gateway, secret: &str, body: &Value) -> Answer {
    Call::post("/v1/responses").json(body).key(secret).send(gateway.address())
}

pub(crate) fn with(mut body: Value, more: &Value) -> Value {
    body.as_object_mut().expect("an object").extend(more.as_object().expect("fields").clone());
    body
}

/// The price of the upstream's counts, in dollars.
fn price(read: u64, written: u64, image_tokens: u64) -> f64 {
    f64::from(u32::try_from(2 * read + 10 * written + 30 * image_tokens).expect("a small price")) / 1e6
}

/// Ten images where one was expected, and text that was not bounded (row 1), and many input tokens of images by
/// address (row 2).
fn bursts_stay_within_a_request_of_the_budget(nodes: &Nodes) {
    let tool = json!({"tools": [{"type": "image_generation", "size": "1024x1024", "quality": "low"}],
        "max_output_tokens": 16});
    let drawing = with(scripted_response("delay=150 read=1000 written=5000 tokens=62400"), &tool);
    let images: Vec<Value> = (0..50)
        .map(|at| json!({"type": "input_image", "image_url": format!("https://example.com/{at}.png")}))
        .collect();
    let text = json!({"type": "input_text", "text": "look [[delay=150 read=390000 written=20]]"});
    let content = [vec![text], images].concat();
    let reading = json!({"model": "gpt-5.5", "max_output_tokens": 16, "input": [{"role": "user", "content": content}]});
    for (budget, body, dearest) in [(0.5, drawing, price(1000, 5000, 62400)), (0.05, reading, price(390_000, 20, 0))] {
        let key = nodes.make_key(&json!({"budget_usd": budget}));
        let secret = key["secret"].as_str().expect("a secret");
        let answers = nodes.burst(secret, &vec![body; 8]);
        assert!(answers.iter().any(|answer| answer.status == 200), "{:?}", answers[0].text());
        answers.iter().filter(|answer| answer.status != 200).for_each(|answer| drop(answer.error_object(429)));
        let spent = nodes.spent(&key);
        assert!(spent < budget + dearest, "{spent} of {budget} was spent, and a request costs {dearest}");
    }
}

#[test]
fn a_burst_of_responses_passes_a_budget_by_at_most_one_request() {
    let upstream = FakeUpstream::start();
    bursts_stay_within_a_request_of_the_budget(&Nodes::single(&upstream, SETTINGS));
}

#[test]
fn a_burst_of_responses_passes_a_budget_by_at_most_one_request_on_two_nodes() {
    let upstream = FakeUpstream::start();
    let Some(nodes) = Nodes::pair(&upstream, SETTINGS) else { return };
    bursts_stay_within_a_request_of_the_budget(&nodes);
}

#[test]
fn a_response_without_a_price_runs_alone_and_an_image_without_one_is_refused() {
    let upstream = FakeUpstream::start();
    let nodes = Nodes::single(&upstream, "");
    let key = nodes.make_key(&json!({"budget_usd": 5.0}));
    let secret = key["secret"].as_str().expect("a secret");
    let body = scripted_response("delay=100");
    let answers = nodes.burst(secret, &vec![body.clone(); 5]);
    assert!(answers.iter().all(|answer| answer.status == 200), "{}", answers[0].text());
    assert_eq!((upstream.attempt_count(), upstream.most_at_once()), (5, 1));
    assert_eq!(nodes.spent(&key), 0.0, "the cost is unknown");
    let image = Call::generation().json(&request(json!({}))).key(secret).send(nodes.all()[0].address());
    assert_eq!(image.error_object(503)["code"], "price_unknown", "the text model of the account has no price");
}

#[test]
fn the_most_that_a_response_costs_can_be_stated() {
    let upstream = FakeUpstream::start();
    let nodes = Nodes::single(&upstream, "[[groups]]\nname = \"default\"\nmax_response_usd = 0.5");
    let key = nodes.make_key(&json!({"budget_usd": 1.1}));
    let secret = key["secret"].as_str().expect("a secret");
    thread::scope(|scope| {
        let gateway = nodes.all()[0];
        let running: Vec<_> =
            (0..2).map(|_| scope.spawn(|| respond_as(gateway, secret, &scripted_response("gate=go")).status)).collect();
        upstream.wait_until("two run together", |attempts| attempts.len() == 2);
        upstream.open_gate("go");
        running.into_iter().for_each(|thread| assert_eq!(thread.join().expect("an answer"), 200));
    });
    // The cost of both is unknown, and counts as what was stated.
    assert!((nodes.spent(&key) - 1.0).abs() < 1e-9);
}

#[test]
fn a_strict_budget_bounds_a_response_or_refuses_it() {
    let upstream = FakeUpstream::start();
    let settings = format!(
        "{SETTINGS}max_output_tokens = 5000\n[prices.tools]\nweb_search = 0.01\n[[groups]]\nname = \"default\"\nbudget_mode = \"strict\""
    );
    let nodes = Nodes::single(&upstream, &settings);
    let gateway = nodes.all()[0];
    let key = nodes.make_key(&json!({"budget_usd": 20.0}));
    let secret = key["secret"].as_str().expect("a secret");
    for (fields, sent) in [
        (json!({}), (5000, 10)),
        (json!({"max_output_tokens": 0, "max_tool_calls": 0}), (5000, 10)),
        (json!({"max_output_tokens": null, "max_tool_calls": 3}), (5000, 3)),
        (
            json!({"max_output_tokens": 16, "tools": [{"type": "web_search"}, {"type": "function", "name": "f"}]}),
            (16, 10),
        ),
    ] {
        let answer = respond_as(gateway, secret, &with(scripted_response(""), &fields));
        assert_eq!(answer.status, 200, "{fields}: {}", answer.text());
        let body = upstream.received_attempts().pop().expect("an attempt").json();
        assert_eq!((&body["max_output_tokens"], &body["max_tool_calls"]), (&json!(sent.0), &json!(sent.1)), "{fields}");
        let adapted = answer.header("x-imagate-adapted");
        assert!(adapted.is_some_and(|text| text.contains("max_tool_calls") || sent.1 == 3), "{fields}: {adapted:?}");
    }
    let sent = upstream.attempt_count();
    let content = |part: Value| json!({"input": [{"role": "user", "content": [part]}]});
    for (fields, param) in [
        (
            content(json!({"type": "input_image", "image_url": "https://example.com/a.png"})),
            "input[0].content[0].image_url",
        ),
        (content(json!({"type": "input_file", "file_id": "file_1"})), "input[0].content[0].file_id"),
        (json!({"conversation": "conv_1"}), "conversation"),
        (json!({"tools": [{"type": "code_interpreter"}]}), "tools[0].type"),
        (json!({"tools": [{"type": "something_new"}]}), "tools[0].type"),
    ] {
        let answer = respond_as(gateway, secret, &with(scripted_response(""), &fields));
        assert_eq!(answer.error_object(400)["param"], param, "{fields}");
    }
    assert_eq!(upstream.attempt_count(), sent, "nothing is sent");
    // Without a budget nothing is bounded.
    assert_eq!(respond_as(gateway, gateway.secret(), &scripted_response("")).status, 200);
    let body = upstream.received_attempts().pop().expect("an attempt").json();
    assert_eq!(body.get("max_output_tokens"), None);
}

/// Twenty turns, each with a context of 200,000 tokens.
#[test]
fn a_busy_agent_works_unhindered_in_a_monthly_budget() {
    let upstream = FakeUpstream::start();
    let nodes = Nodes::single(&upstream, SETTINGS);
    let key = nodes.make_key(&json!({"budget_usd": 12.0, "budget_period": "month"}));
    let secret = key["secret"].as_str().expect("a secret");
    let context = "word ".repeat(160_000);
    for turn in 0..20 {
        let text = format!("{context} turn {turn} [[read=200000 written=500]]");
        let body = with(scripted_response(""), &json!({"input": text}));
        let answer = respond_as(nodes.all()[0], secret, &body);
        assert_eq!(answer.status, 200, "turn {turn}: {}", answer.text());
    }
    assert!((nodes.spent(&key) - 8.1).abs() < 1e-9);
}
