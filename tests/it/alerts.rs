//! Alerts: a budget that reaches its soft mark or its end is told once, by webhook and by e-mail, whatever happens to the
//! receiver or the gateway meanwhile.

mod mail_server;
mod receiver;

use serde_json::{Value, json};

use crate::kit::{Account, Answer, Call, FakeUpstream, Gateway, PostgresDatabase, eventually, request};
use mail_server::MailServer;
use receiver::{SECRET, WebhookMessage, WebhookReceiver};

const TOKEN: &str = "admin-token-canary-0123456789abcdef";
const MASTER_KEY: &str = "5e1f0c7a9b3d2468ace013579bdf02468ace013579bdf02468ace013579bdf02";
const SOFT: &str = "budget.soft_limit_reached";
const END: &str = "budget.exhausted";

/// The settings of a webhook.
fn webhook(url: &str) -> String {
    format!("[alerts.webhook]\nurl = \"{url}\"\nsecret = {{ env = \"IT_HOOK\" }}\n")
}

fn secrets() -> Vec<(&'static str, &'static str)> {
    vec![("IT_ADMIN", TOKEN), ("IT_HOOK", SECRET), ("IT_SMTP", mail_server::PASSWORD)]
}

/// A gateway with these settings of alerts.
fn open(upstream: &FakeUpstream, alerts: &str) -> Gateway {
    let top = format!("admin_token = {{ env = \"IT_ADMIN\" }}\n{alerts}");
    let gateway = Gateway::with_secrets(&top, &[Account::for_upstream("only", upstream).with_slots(9)], &secrets());
    gateway.watch_secret("the secret of the webhook", SECRET, &[]);
    gateway
}

#[track_caller]
fn ask(gateway: &Gateway, call: Call) -> Answer {
    call.key(TOKEN).send(gateway.address())
}

/// A key with these limits: its id and its secret.
fn key_with(gateway: &Gateway, name: &str, limits: &Value) -> (String, String) {
    let limit = |(limit, value): (&String, &Value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        ["--limit".to_owned(), format!("{limit}={value}")]
    };
    let limits: Vec<String> = limits.as_object().expect("limits").iter().flat_map(limit).collect();
    let mut words = vec!["key", "create", "--name", name, "--user", "ops", "--json"];
    words.extend(limits.iter().map(String::as_str));
    let made = gateway.run_command(&words).json();
    (made["id"].as_str().expect("an id").to_owned(), made["secret"].as_str().expect("a secret").to_owned())
}

/// Sends a request that costs 0.005945 dollars, and at most 0.00599.
fn draw(gateway: &Gateway, secret: &str) -> u16 {
    let fields = request(json!({"prompt": "a cube", "quality": "low", "size": "1024x1024"}));
    Call::generation().json(&fields).key(secret).send(gateway.address()).status
}

fn alerts(gateway: &Gateway) -> Vec<Value> {
    ask(gateway, Call::get("/admin/v1/alerts")).ok_json()["data"].as_array().expect("a list").clone()
}

/// Waits until the deliveries of all alerts have this state, and returns the alerts, oldest first.
#[track_caller]
fn wait_for_deliveries(gateway: &Gateway, count: usize, state: &str) -> Vec<Value> {
    eventually("the deliveries have ended", || {
        let mut alerts = alerts(gateway);
        let has_state = |alert: &Value| {
            let deliveries = alert["deliveries"].as_array().expect("deliveries");
            !deliveries.is_empty() && deliveries.iter().all(|delivery| delivery["state"] == state)
        };
        alerts.reverse();
        (alerts.len() == count && alerts.iter().all(has_state)).then_some(alerts)
    })
}

fn types(messages: &[WebhookMessage]) -> Vec<String> {
    let mut types: Vec<_> =
        messages.iter().map(|message| message.json()["type"].as_str().unwrap_or_default().to_owned()).collect();
    types.sort();
    types
}

#[test]
fn the_soft_mark_and_the_end_of_a_budget_are_posted_once_and_signed() {
    let (upstream, receiver) = (FakeUpstream::start(), WebhookReceiver::start(&[500, 200]));
    let gateway = open(&upstream, &webhook(&receiver.url()));
    let limits = json!({"budget_usd": 0.012, "budget_period": "day"});
    let (id, secret) = key_with(&gateway, "two images", &limits);
    assert_eq!(draw(&gateway, &secret), 200, "half of the budget");
    assert_eq!(draw(&gateway, &secret), 200);
    assert_eq!([draw(&gateway, &secret), draw(&gateway, &secret)], [429, 429]);
    let messages = receiver.wait_for(3);
    messages.iter().for_each(WebhookMessage::assert_signed);
    let first = &messages[0];
    let repeated = messages[1..].iter().filter(|message| message.header("webhook-id") == first.header("webhook-id"));
    assert_eq!(repeated.count(), 1, "the message that got a 500 came again with its id");
    assert_eq!(types(&messages[1..]), [END, SOFT]);
    for message in &messages {
        let body = message.json();
        assert_eq!(body["data"]["subject"], json!({"kind": "key", "id": id, "name": "two images"}));
        assert_eq!((&body["data"]["budget_usd"], &body["data"]["spent_usd"]), (&json!(0.012), &json!(0.01189)));
        assert!(body["timestamp"].is_string() && body["data"]["period_ends"].is_string(), "{body}");
        assert!(!message.body.contains("cube") && !message.body.contains(&secret), "{}", message.body);
        assert!(message.header("authorization").is_none(), "no credential of the gateway");
    }
    let stored = wait_for_deliveries(&gateway, 2, "delivered");
    let attempts: u64 = stored.iter().filter_map(|alert| alert["deliveries"][0]["attempts"].as_u64()).sum();
    assert_eq!(attempts, 3, "{stored:?}");
    let listed = gateway.run_command(&["alerts", "list"]);
    assert!(listed.ok_stdout().contains("key two images"), "{listed:?}");

    // A budget that is raised has its own marks.
    let raised = json!({"limits": {"budget_usd": 0.018, "budget_period": "day"}});
    ask(&gateway, Call::patch(&format!("/admin/v1/keys/{id}")).json(&raised)).ok_json();
    eventually("the new budget is in force", || (draw(&gateway, &secret) == 200).then_some(()));
    assert_eq!(draw(&gateway, &secret), 429);
    assert_eq!(types(&receiver.wait_for(5)[3..]), [END, SOFT]);
}

#[test]
fn an_alert_survives_the_end_of_the_process_before_it_is_raised_and_before_it_is_delivered() {
    let (upstream, receiver) = (FakeUpstream::start(), WebhookReceiver::start(&[503, 200]));
    let mut gateway = open(
        &upstream,
        &format!(
            "{}[[groups]]\nname = \"default\"\n[groups.limits]\nbudget_usd = 0.007\nbudget_period = \"day\"\n",
            webhook(&receiver.url())
        ),
    );
    let secret = gateway.secret().to_owned();
    assert_eq!(draw(&gateway, &secret), 200);
    // The crossing may not have been seen yet.
    gateway.kill();
    gateway.start();
    let first = receiver.wait_for(1);
    eventually("the failure is noted", || {
        alerts(&gateway).first()?["deliveries"][0]["last_error"].is_string().then_some(())
    });
    gateway.kill();
    gateway.start();
    let stored = wait_for_deliveries(&gateway, 1, "delivered");
    assert_eq!((&stored[0]["type"], &stored[0]["data"]["subject"]["kind"]), (&json!(SOFT), &json!("group")));
    let messages = receiver.wait_for(2);
    assert!(messages.iter().all(|message| message.header("webhook-id") == first[0].header("webhook-id")));
}

#[test]
fn a_redirect_is_not_followed_and_a_receiver_that_is_gone_gets_nothing_more() {
    let (upstream, other) = (FakeUpstream::start(), WebhookReceiver::start(&[200]));
    let receiver = WebhookReceiver::redirecting(&[302, 410], &other.url());
    let gateway = open(&upstream, &webhook(&receiver.url()));
    let (_, secret) = key_with(&gateway, "one", &json!({"budget_usd": 0.007, "budget_period": "week"}));
    assert_eq!(draw(&gateway, &secret), 200);
    let stored = wait_for_deliveries(&gateway, 1, "failed");
    let delivery = &stored[0]["deliveries"][0];
    assert_eq!(delivery["attempts"], 2, "{delivery}");
    assert!(delivery["last_error"].as_str().is_some_and(|error| error.contains("410")), "{delivery}");
    assert_eq!((receiver.wait_for(2).len(), other.count()), (2, 0));
}

#[test]
fn an_unreachable_receiver_delays_no_image_and_a_test_says_so() {
    let upstream = FakeUpstream::start();
    let closed = WebhookReceiver::start(&[]).url();
    let gateway = open(&upstream, &webhook(&closed));
    let (_, secret) = key_with(&gateway, "one", &json!({"budget_usd": 0.007, "budget_period": "day"}));
    assert_eq!(draw(&gateway, &secret), 200);
    eventually("an attempt has failed", || {
        let alerts = alerts(&gateway);
        (alerts.first()?["deliveries"][0]["last_error"].is_string()).then_some(())
    });
    assert_eq!(draw(&gateway, gateway.secret()), 200);
    let test = gateway.run_command(&["alerts", "test"]);
    assert!(test.stdout.contains("webhook: not delivered"), "{test:?}");
}

#[test]
fn a_webhook_to_a_link_local_address_is_not_called() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, &webhook("https://169.254.169.254/latest/meta-data"));
    let test = gateway.run_command(&["alerts", "test"]);
    assert!(test.stdout.contains("webhook: not delivered: the service could not be reached"), "{test:?}");
}

#[test]
fn a_test_is_signed_and_delivered_by_each_channel() {
    let (upstream, receiver, mail) = (FakeUpstream::start(), WebhookReceiver::start(&[204]), MailServer::start(0));
    let gateway = open(&upstream, &format!("{}{}", webhook(&receiver.url()), mail.settings()));
    let test = gateway.run_command(&["alerts", "test"]);
    assert_eq!(test.ok_stdout(), "webhook: delivered\nemail: delivered\n");
    let messages = receiver.wait_for(1);
    messages[0].assert_signed();
    assert_eq!(messages[0].json()["type"], "alert.test");
    assert!(mail.wait_for(1)[0].contains("Subject: imagate: test of alerts"));
    let none = open(&upstream, "").run_command(&["alerts", "test"]);
    assert!(none.stderr.contains("[alerts.webhook]"), "{none:?}");
}

#[test]
fn an_alert_is_mailed_with_a_sign_in_and_again_if_the_server_refuses_it() {
    let (upstream, mail) = (FakeUpstream::start(), MailServer::start(1));
    let gateway = open(&upstream, &mail.settings());
    let (_, secret) = key_with(&gateway, "图 \u{1f3a8} a", &json!({"budget_usd": 0.007, "budget_period": "day"}));
    assert_eq!(draw(&gateway, &secret), 200);
    let mails = mail.wait_for(1);
    for line in ["From: imagate <imagate@example.com>", "To: ops@example.com, two@example.com", "Message-ID: <alr_"] {
        assert!(mails[0].contains(line), "{line}: {}", mails[0]);
    }
    let stored = wait_for_deliveries(&gateway, 1, "delivered");
    assert_eq!(stored[0]["deliveries"][0]["attempts"], 2, "{stored:?}");
    assert!(mail.has_signed_in(), "the password was sent");
}

#[test]
fn two_nodes_post_one_message() {
    let Some(database) = PostgresDatabase::create() else { return };
    let (upstream, receiver) = (FakeUpstream::start(), WebhookReceiver::start(&[200]));
    let settings = format!(
        "admin_token = {{ env = \"IT_ADMIN\" }}\n{}[[groups]]\nname = \"default\"\n[groups.limits]\n\
         budget_usd = 0.0125\nbudget_period = \"day\"\n",
        webhook(&receiver.url())
    );
    let url = database.url();
    let node = || {
        let secrets = [secrets(), vec![("IMAGATE_DATABASE_URL", url), ("IMAGATE_MASTER_KEY", MASTER_KEY)]].concat();
        Gateway::with_secrets(&settings, &[Account::for_upstream("only", &upstream).with_slots(9)], &secrets)
    };
    let nodes = [node(), node()];
    let statuses = nodes.each_ref().map(|node| draw(node, node.secret()));
    assert_eq!(statuses, [200, 200]);
    let refused = nodes.each_ref().map(|node| draw(node, node.secret()));
    assert_eq!(refused, [429, 429]);
    wait_for_deliveries(&nodes[0], 2, "delivered");
    assert_eq!(types(&receiver.wait_for(2)), [END, SOFT]);
    let group = ask(&nodes[1], Call::get("/admin/v1/groups/default")).ok_json();
    assert_eq!(group["limit_usage"][0]["used"], json!(0.01189), "{group}");
    drop(nodes);
    assert_eq!(receiver.count(), 2);
}
