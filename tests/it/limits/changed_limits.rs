//! Limits that are set, changed or removed while jobs run: when nothing runs, nothing is reserved, and the sum of the
//! records is spent. With one database file, and with two nodes that share a database.

use std::thread;

use serde_json::{Value, json};

use super::TOKEN;
use super::budget_modes::{Nodes, SETTINGS, limit_usage, respond_as, scripted_response};
use crate::kit::{Call, FakeUpstream, Gateway, eventually, request};

/// The owner of a limit, as the admin API names it.
#[derive(Clone, Copy, Debug)]
enum Owner {
    Key,
    User,
    Group,
}

// === impl Owner ===

impl Owner {
    fn path(self, key: &Value) -> String {
        match self {
            Self::Key => format!("/admin/v1/keys/{}", key["id"].as_str().expect("an id")),
            Self::User => "/admin/v1/users/kim".to_owned(),
            Self::Group => "/admin/v1/groups/default".to_owned(),
        }
    }

    /// Replaces the limits of the owner.
    #[track_caller]
    fn limit(self, gateway: &Gateway, key: &Value, limits: &Value) {
        let change = match self {
            Self::Group => json!({"policy": {"limits": limits}}),
            Self::Key | Self::User => json!({ "limits": limits }),
        };
        Call::patch(&self.path(key)).json(&change).key(TOKEN).send(gateway.address()).ok_json();
    }

    #[track_caller]
    fn budget(self, gateway: &Gateway, key: &Value) -> Value {
        limit_usage(&Call::get(&self.path(key)).key(TOKEN).send(gateway.address()).ok_json(), "budget_usd")
    }
}

fn key_of_kim(gateway: &Gateway) -> Value {
    gateway.run_command(&["key", "create", "--name", "changed", "--user", "kim", "--json"]).json()
}

fn sum_of_costs(records: &[Value]) -> f64 {
    records.iter().map(|record| record["cost_usd"].as_f64().expect("a cost")).sum()
}

/// Fifteen responses run while limits are set; an image follows, and then everything ends.
fn set_a_budget_while_jobs_run(nodes: &Nodes, upstream: &FakeUpstream, owner: Owner) {
    let gateways = nodes.all();
    let gateway = gateways[0];
    let key = key_of_kim(gateway);
    let secret = key["secret"].as_str().expect("a secret");
    let gate = format!("end-{owner:?}");
    let begun = upstream.attempt_count();
    thread::scope(|scope| {
        let script = format!("gate={gate} read=200 written=10");
        let running: Vec<_> = (0..15)
            .map(|number| {
                let (script, gateway) = (script.clone(), gateways[number % gateways.len()]);
                scope.spawn(move || respond_as(gateway, secret, &scripted_response(&script)).status)
            })
            .collect();
        upstream.wait_until("all responses run", |attempts| attempts.len() == begun + 15);
        owner.limit(gateway, &key, &json!({"budget_usd": 50.0, "images_per_day": 100}));
        let reserved = eventually("the budget is in force", || {
            let draw = Call::generation().json(&request(json!({"size": "1024x1024", "quality": "low"}))).key(secret);
            assert_eq!(draw.send(gateway.address()).status, 200);
            let budget = owner.budget(gateway, &key);
            budget["used"].as_f64().is_some_and(|used| used > 0.0).then(|| budget["reserved"].as_f64())
        });
        assert!(reserved.is_some_and(|reserved| reserved > 1.0), "{owner:?}: the running jobs count: {reserved:?}");
        upstream.open_gate(&gate);
        running.into_iter().for_each(|thread| assert_eq!(thread.join().expect("an answer"), 200));
    });
    let spent = sum_of_costs(&gateway.final_records(16));
    let budget = eventually("nothing is reserved", || {
        let budget = owner.budget(gateway, &key);
        (budget["reserved"] == 0.0).then_some(budget)
    });
    let used = budget["used"].as_f64().expect("an amount");
    // The other owners have spent what their own jobs cost, so the sum is that of all records only for the first.
    assert!(used <= spent + 1e-9, "{owner:?}: {used} of {spent}");
    let id = key["id"].as_str().expect("an id");
    let mine: Vec<Value> = gateway.records().into_iter().filter(|record| record["key"] == id).collect();
    assert!(mine.len() >= 16, "{mine:?}");
    if matches!(owner, Owner::Key) {
        assert!((used - sum_of_costs(&mine)).abs() < 1e-9, "{used} is not the sum of {mine:?}");
    }
    // The limits are removed, a job runs without them, and they are set again: nothing is forgotten.
    owner.limit(gateway, &key, &json!({}));
    eventually("the budget is removed", || {
        let object = Call::get(&owner.path(&key)).key(TOKEN).send(gateway.address()).ok_json();
        object.get("limit_usage").is_none_or(|usage| usage.as_array().is_some_and(Vec::is_empty)).then_some(())
    });
    assert_eq!(respond_as(gateway, secret, &scripted_response("read=1000 written=1")).status, 200);
    gateway.final_records(1);
    owner.limit(gateway, &key, &json!({"budget_usd": 50.0}));
    let again = eventually("what was spent counts again", || {
        let budget = owner.budget(gateway, &key);
        (budget["used"].as_f64()? > used && budget["reserved"] == 0.0).then_some(budget)
    });
    assert!((again["used"].as_f64().expect("an amount") - used - 0.00201).abs() < 1e-9, "{again} after {used}");
    owner.limit(gateway, &key, &json!({}));
}

#[test]
fn a_budget_that_is_set_while_jobs_run_counts_each_of_them_once() {
    let upstream = FakeUpstream::start();
    let nodes = Nodes::single(&upstream, SETTINGS);
    for owner in [Owner::Key, Owner::User, Owner::Group] {
        set_a_budget_while_jobs_run(&nodes, &upstream, owner);
    }
}

#[test]
fn a_budget_that_is_set_while_jobs_run_counts_each_of_them_once_on_two_nodes() {
    let upstream = FakeUpstream::start();
    let Some(nodes) = Nodes::pair(&upstream, SETTINGS) else { return };
    for owner in [Owner::Key, Owner::User, Owner::Group] {
        set_a_budget_while_jobs_run(&nodes, &upstream, owner);
    }
}
