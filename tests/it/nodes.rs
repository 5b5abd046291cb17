//! Two gateways that share one PostgreSQL database: what one of them knows holds on the other, and nothing is paid twice
//! or above a budget.
//!
//! The tests pass without a check if the run has no server; `cargo xtask test` starts one.

mod answers;
mod console;

use std::thread;

use serde_json::{Value, json};

use tempfile::TempDir;

use crate::kit::{
    Account, Answer, Call, FakeUpstream, Gateway, PostgresDatabase, Program, Server, eventually, request,
};

const TOKEN: &str = "admin-token-canary-0123456789abcdef";
const MASTER_KEY: &str = "5e1f0c7a9b3d2468ace013579bdf02468ace013579bdf02468ace013579bdf02";

/// Two gateways with the same settings and one database.
struct NodePair {
    first: Gateway,
    second: Gateway,
    database: PostgresDatabase,
}

impl NodePair {
    fn open(upstream: &FakeUpstream, settings: &str) -> Option<Self> {
        let database = PostgresDatabase::create()?;
        let settings = format!("admin_token = {{ env = \"IT_ADMIN\" }}\n{settings}");
        let node = || {
            let secrets =
                [("IMAGATE_DATABASE_URL", database.url()), ("IMAGATE_MASTER_KEY", MASTER_KEY), ("IT_ADMIN", TOKEN)];
            Gateway::with_secrets(&settings, &[Account::for_upstream("only", upstream).with_slots(100)], &secrets)
        };
        Some(Self { first: node(), second: node(), database })
    }
}

fn draw_with(gateway: &Gateway, secret: &str, with: Value) -> Answer {
    Call::generation().json(&request(with)).key(secret).send(gateway.address())
}

fn list_models(gateway: &Gateway, secret: &str) -> Answer {
    Call::get("/v1/models").key(secret).send(gateway.address())
}

/// A generation that can cost at most 0.00599 dollars.
fn small() -> Value {
    json!({"prompt": "a cube", "quality": "low", "size": "1024x1024"})
}

#[test]
fn a_key_of_one_node_is_valid_on_the_other_until_it_is_revoked() {
    let upstream = FakeUpstream::start();
    let Some(nodes) = NodePair::open(&upstream, "") else { return };
    let key = nodes.first.make_key("shared");
    let (id, secret) = (key["id"].as_str().expect("an id"), key["secret"].as_str().expect("a secret"));
    assert_eq!(draw_with(&nodes.second, secret, json!({})).status, 200);
    assert_eq!(nodes.first.final_records(1)[0]["key"], id, "the records are shared, too");
    let revoked = Call::delete(&format!("/admin/v1/keys/{id}")).key(TOKEN).send(nodes.first.address());
    assert!(revoked.status < 300, "{revoked:?}");
    eventually("the other node refuses the key", || (list_models(&nodes.second, secret).status == 401).then_some(()));
}

/// Nodes that get only the database and the master key, each with a new data folder.
struct NewNodes {
    home: TempDir,
    database: PostgresDatabase,
}

impl NewNodes {
    fn create() -> Option<Self> {
        let database = PostgresDatabase::create()?;
        let home = TempDir::new().expect("a directory");
        std::fs::write(home.path().join("secret"), "sk-upstream").expect("a file");
        let account = "[[accounts]]\nname = \"real\"\nkind = \"api_key\"\nbase_url = \"https://upstream.example/v1\"\n\
                       api_key = { file = \"secret\" }\n";
        std::fs::write(home.path().join("imagate.toml"), account).expect("a file");
        Some(Self { home, database })
    }

    fn program(&self, words: &[&str]) -> Program {
        let program = Program::new(self.home.path()).env("IMAGATE_DATABASE_URL", self.database.url());
        program.env("IMAGATE_MASTER_KEY", MASTER_KEY).args(words)
    }

    fn serve(&self, data_dir: &str, words: &[&str]) -> Server {
        self.program(&["serve", "--listen", "127.0.0.1:0", "--data-dir", data_dir]).args(words).serve()
    }

    /// Serves with an account in the settings file.
    fn serve_with_account(&self, data_dir: &str) -> Server {
        self.serve(data_dir, &["--config", "imagate.toml"])
    }
}

/// The first key that a server has printed.
fn printed_key(server: &Server) -> Option<String> {
    server.stdout().lines().map(str::trim).find(|line| line.starts_with("sk-img-")).map(str::to_owned)
}

#[test]
fn the_first_key_of_a_node_ends_on_every_node_with_an_account_of_another_folder() {
    let Some(nodes) = NewNodes::create() else { return };
    let (first, second) = (nodes.serve("one", &[]), nodes.serve("two", &[]));
    let secret = printed_key(&first).expect("a key");
    assert_eq!(printed_key(&second), None, "one installation has one first key");
    let statuses =
        || [&first, &second].map(|server| Call::get("/v1/models").key(&secret).send(server.address()).status);
    eventually("the key is valid on both nodes", || (statuses() == [200, 200]).then_some(()));
    let words = ["account", "add", "--data-dir", "three", "--name", "real", "--api-key-file", "secret"];
    let added = nodes.program(&words).args(["--base-url", "https://upstream.example/v1"]).run();
    let is_said = added.stderr.contains("the key that the first start printed is disabled");
    assert!(added.code == Some(0) && is_said, "{added:?}");
    eventually("the key is refused on both nodes", || (statuses() == [401, 401]).then_some(()));
}

#[test]
fn the_first_key_ends_at_a_start_of_another_node_with_an_account_of_the_file() {
    let Some(nodes) = NewNodes::create() else { return };
    let first = nodes.serve("one", &[]);
    let secret = printed_key(&first).expect("a key");
    let second = nodes.serve_with_account("two");
    assert_eq!(printed_key(&second), None);
    let refused = || [&first, &second].map(|server| Call::get("/v1/models").key(&secret).send(server.address()).status);
    eventually("the key is refused on both nodes", || (refused() == [401, 401]).then_some(()));
}

#[test]
fn a_node_without_accounts_prints_no_key_for_those_of_another_node() {
    let Some(nodes) = NewNodes::create() else { return };
    let _first = nodes.serve_with_account("one");
    assert_eq!(printed_key(&nodes.serve("two", &[])), None);
}

#[test]
fn two_nodes_stay_within_one_budget() {
    let upstream = FakeUpstream::start();
    let settings = "[[groups]]\nname = \"default\"\n[groups.limits]\nbudget_usd = 0.03\nbudget_period = \"day\"";
    let Some(nodes) = NodePair::open(&upstream, settings) else { return };
    let statuses: Vec<u16> = thread::scope(|scope| {
        let of_node = |number: usize| if number.is_multiple_of(2) { &nodes.first } else { &nodes.second };
        let threads: Vec<_> = (0..40)
            .map(|number| scope.spawn(move || draw_with(of_node(number), of_node(number).secret(), small()).status))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("an answer")).collect()
    });
    let count = |status: u16| statuses.iter().filter(|found| **found == status).count();
    assert_eq!((count(200), count(429)), (5, 35), "five times 0.00599 fit into 0.03");
    assert_eq!(upstream.attempt_count(), 5);
    let spent: f64 =
        nodes.second.final_records(5).iter().map(|record| record["cost_usd"].as_f64().expect("a cost")).sum();
    assert!(spent <= 0.03, "{spent}");
}

#[test]
fn an_unknown_cost_counts_as_the_most_on_every_node() {
    let upstream = FakeUpstream::start();
    let settings = "[[groups]]\nname = \"default\"\n[groups.limits]\nbudget_usd = 0.008\nbudget_period = \"day\"";
    let Some(nodes) = NodePair::open(&upstream, settings) else { return };
    // The model that the upstream names has no price.
    let draw = |gateway: &Gateway| {
        let fields = json!({"prompt": "a cube [[model=foreign-1]]", "quality": "low", "size": "1024x1024"});
        draw_with(gateway, gateway.secret(), fields)
    };
    assert_eq!(draw(&nodes.first).status, 200);
    assert_eq!(nodes.second.final_records(1)[0]["cost_basis"], "unknown");
    for node in [&nodes.first, &nodes.second] {
        assert_eq!(draw(node).error_object(429)["limit"], "budget_usd");
    }
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn the_money_of_a_killed_node_stays_reserved_and_is_counted_when_it_starts_again() {
    let upstream = FakeUpstream::start();
    let settings = "[[groups]]\nname = \"default\"\n[groups.limits]\nbudget_usd = 0.007\nbudget_period = \"day\"";
    let Some(mut nodes) = NodePair::open(&upstream, settings) else { return };
    let (address, secret) = (nodes.first.address(), nodes.first.secret().to_owned());
    let gated = json!({"prompt": "a cube [[gate=open]]", "quality": "low", "size": "1024x1024"});
    let caller = thread::spawn(move || Call::generation().json(&request(gated)).key(&secret).try_send(address).is_ok());
    upstream.wait_until("the job has begun", |attempts| attempts.len() == 1);
    nodes.first.kill();
    assert!(!caller.join().expect("the thread"), "its caller gets no answer");
    let refused = |nodes: &NodePair| {
        let error = draw_with(&nodes.second, nodes.second.secret(), small()).error_object(429);
        assert_eq!(error["limit"], "budget_usd");
    };
    refused(&nodes);
    nodes.first.start();
    let records = nodes.second.final_records(1);
    assert_eq!((&records[0]["state"], &records[0]["cost_basis"]), (&json!("interrupted"), &json!("estimated")));
    refused(&nodes);
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn without_its_database_a_node_refuses_paid_work_and_forgets_no_key() {
    let upstream = FakeUpstream::start();
    let Some(nodes) = NodePair::open(&upstream, "") else { return };
    let secret = nodes.first.secret().to_owned();
    assert_eq!(draw_with(&nodes.first, &secret, json!({})).status, 200);
    nodes.database.refuse_connections();
    let refused = draw_with(&nodes.first, &secret, json!({}));
    assert_eq!(refused.status, 503, "{refused:?}");
    assert_eq!(list_models(&nodes.first, &secret).status, 200, "what needs no record is served");
    let unknown = "sk-img-000000000000-00000000000000000000000000000000000000000000";
    assert_ne!(list_models(&nodes.first, unknown).status, 200);
    assert_eq!(upstream.attempt_count(), 1, "nothing was sent");
    nodes.database.accept_connections();
    eventually("paid work begins again", || (draw_with(&nodes.first, &secret, json!({})).status == 200).then_some(()));
    let records = nodes.second.final_records(2);
    assert!(records.iter().all(|record| record["state"] == "succeeded"), "{records:?}");
    assert_eq!(records.len(), upstream.attempt_count());
}

#[test]
fn an_installation_moves_from_sqlite_with_its_keys_records_and_secrets() {
    let Some(database) = PostgresDatabase::create() else { return };
    let upstream = FakeUpstream::start();
    let settings = "admin_token = { env = \"IT_ADMIN\" }\n";
    let account = [Account::for_upstream("only", &upstream)];
    let mut gateway =
        Gateway::with_secrets(settings, &account, &[("IT_ADMIN", TOKEN), ("IMAGATE_DATABASE_URL", "sqlite:")]);
    let stored = ["account", "add", "--name", "second", "--base-url"];
    let file = gateway.home().join("second.key");
    std::fs::write(&file, "sk-second").expect("a file");
    let path = file.display().to_string();
    gateway.run_command(&[&stored[..], &[&upstream.base_url(), "--api-key-file", &path]].concat()).ok_stdout();
    for prompt in ["a cube", "a cone", "a cube [[status=400 body=parameter]]"] {
        draw_with(&gateway, gateway.secret(), json!({"prompt": prompt}));
    }
    let before = gateway.final_records(3);
    gateway.set_variable("IMAGATE_DATABASE_URL", database.url());
    let running = gateway.run_command(&["migrate", "sqlite-to-postgres"]);
    assert!(running.code == Some(1) && running.stderr.contains("stop the gateway first"), "{running:?}");
    gateway.kill();
    let moved = gateway.run_command(&["migrate", "sqlite-to-postgres", "--json"]).json();
    assert_eq!((&moved["rows"]["records"], &moved["rows"]["keys"]), (&json!(3), &json!(1)), "{moved}");
    assert_eq!(gateway.run_command(&["migrate", "sqlite-to-postgres", "--json"]).json(), moved, "it can be repeated");
    gateway.start();
    assert_eq!(gateway.final_records(3), before);
    assert_eq!(draw_with(&gateway, gateway.secret(), json!({})).status, 200, "the key is still valid");
    assert_eq!(gateway.final_records(4).len(), 4);
    gateway.run_command(&["account", "test", "second"]).ok_stdout();

    let other = Gateway::with_secrets(settings, &account, &[("IT_ADMIN", TOKEN), ("IMAGATE_DATABASE_URL", "sqlite:")]);
    let mut other = other;
    other.kill();
    other.set_variable("IMAGATE_DATABASE_URL", database.url());
    let refused = other.run_command(&["migrate", "sqlite-to-postgres"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("another installation"), "{refused:?}");
}

#[test]
fn the_doctor_reads_the_shared_database() {
    let upstream = FakeUpstream::start();
    let settings = "[[groups]]\nname = \"default\"\n[groups.limits]\nbudget_usd = 5\nbudget_period = \"day\"";
    let Some(mut nodes) = NodePair::open(&upstream, settings) else { return };
    let line = |nodes: &NodePair, check: &str| {
        let output = nodes.first.run_command(&["doctor"]);
        let found = output.stdout.lines().find(|line| line[9..].starts_with(check));
        found.unwrap_or_else(|| panic!("no line for {check}: {output:?}")).to_owned()
    };
    nodes.first.kill();
    assert!(line(&nodes, "master key").starts_with("ok "));
    let accounts = line(&nodes, "accounts");
    assert!(accounts.starts_with("ok ") && accounts.contains("only "), "{accounts}");
    // An account whose text model has no price: with a budget, its requests are refused.
    let stored = ["account", "add", "--name", "second", "--protocol", "responses", "--base-url"];
    let file = nodes.first.home().join("second.key");
    std::fs::write(&file, "sk-second").expect("a file");
    let path = file.display().to_string();
    nodes.first.run_command(&[&stored[..], &[&upstream.base_url(), "--api-key-file", &path]].concat()).ok_stdout();
    let prices = line(&nodes, "prices");
    assert!(prices.starts_with("problem ") && prices.contains("group default"), "{prices}");
    nodes.first.set_variable("IMAGATE_MASTER_KEY", &"a".repeat(64));
    assert!(line(&nodes, "master key").starts_with("problem "));
}
