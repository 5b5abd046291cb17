//! A node that is cut off from the database while its jobs run. Another node closes their records; when the node comes
//! back, records, usage and budget are those of the upstream.

use std::thread;

use serde_json::{Value, json};

use super::{MASTER_KEY, TOKEN};
use crate::kit::{Account, Call, DatabaseProxy, FakeUpstream, Gateway, PostgresDatabase, eventually, request};

/// The limits of the group, and an admin token.
const SETTINGS: &str = "admin_token = { env = \"IT_ADMIN\" }\n[[groups]]\nname = \"default\"\n\
                        [groups.limits]\nbudget_usd = 1.0\nbudget_period = \"day\"\n";
const JOBS: usize = 2;
/// The cost of an image of the fake upstream: 32 text tokens, and 196 image tokens. 32 x 5 + 196 x 30 millionths.
const COST: f64 = 0.006_04;

fn job(key: &str, number: usize) -> Call {
    let fields = json!({"prompt": "a cube [[gate=partition]]", "size": "3840x2160", "quality": "high"});
    Call::generation().json(&request(fields)).key(key).header("idempotency-key", &format!("job-{number}"))
}

fn records(gateway: &Gateway) -> Vec<Value> {
    gateway.final_records(JOBS)
}

fn usage_of(gateway: &Gateway, query: &str) -> Value {
    Call::get(&format!("/admin/v1/usage{query}")).key(TOKEN).send(gateway.address()).ok_json()
}

#[test]
fn jobs_of_a_node_that_was_cut_off_cost_what_the_upstream_counted() {
    let upstream = FakeUpstream::start();
    let Some(database) = PostgresDatabase::create() else { return };
    let proxy = DatabaseProxy::in_front_of(&database);
    let node = |url: &str| {
        let secrets = [("IMAGATE_DATABASE_URL", url), ("IMAGATE_MASTER_KEY", MASTER_KEY), ("IT_ADMIN", TOKEN)];
        Gateway::with_secrets(SETTINGS, &[Account::for_upstream("only", &upstream)], &secrets)
    };
    let (first, second) = (node(proxy.url()), node(database.url()));
    // A node judges others only after a minute of heartbeats.
    eventually("the second node has lived for most of a minute", || {
        let old = "SELECT count(*) FROM nodes WHERE seen_at > started_at + interval '50 seconds'";
        (database.count(old) == 2).then_some(())
    });
    let callers: Vec<_> = (0..JOBS)
        .map(|number| {
            let (call, address) = (job(first.secret(), number), first.address());
            thread::spawn(move || call.send(address))
        })
        .collect();
    upstream.wait_until("the jobs run", |attempts| attempts.len() == JOBS);
    proxy.cut_off();
    // The node looks as if it had been away for longer.
    database.run("UPDATE nodes SET seen_at = seen_at - interval '1 minute' WHERE id IN (SELECT node FROM records)");
    let closed = records(&second);
    assert!(closed.iter().all(|record| record["state"] == "interrupted"), "{closed:?}");
    assert!(
        closed.iter().all(|record| record["cost_usd"].as_f64() > Some(0.3)),
        "the most that they can cost: {closed:?}"
    );
    let before = usage_of(&second, "?group_by=account");
    assert_eq!(before["totals"]["succeeded"], 0, "{before}");
    upstream.open_gate("partition");
    proxy.reconnect();
    for caller in callers {
        let answer = caller.join().expect("the caller");
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    eventually("the outcomes of the node replace the provisional ones", || {
        records(&second).iter().all(|record| record["state"] == "succeeded").then_some(())
    });
    for record in records(&second) {
        assert_eq!((&record["cost_usd"], &record["cost_basis"]), (&json!(COST), &json!("exact")), "{record}");
        assert_eq!(record["delivered"].as_array().map(Vec::len), Some(1), "{record}");
    }
    let totals = usage_of(&second, "")["totals"].clone();
    assert_eq!((&totals["requests"], &totals["succeeded"]), (&json!(JOBS), &json!(JOBS)), "{totals}");
    assert_eq!(totals["cost_usd"], json!(2.0 * COST), "{totals}");
    // The rest of the budget allows a job that costs at most 0.4 dollars.
    assert_eq!(job(first.secret(), JOBS).send(second.address()).status, 200);
    // The answers are stored, and repeats get them without another call.
    let repeat = job(first.secret(), 0).send(second.address());
    assert_eq!((repeat.status, repeat.header("x-imagate-replayed").is_some()), (200, true));
    assert_eq!(upstream.attempt_count(), JOBS + 1);
}
