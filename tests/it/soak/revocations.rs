//! A key that is revoked on one node is refused by the other one within a second.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{SoakRun, TOKEN, open_node};
use crate::kit::{Account, Call, FakeUpstream, Gateway, PostgresDatabase, TEST_TIMEOUT, eventually, pause};

/// The time within which the other node must refuse the key.
const MAX_DELAY: Duration = Duration::from_secs(1);
/// The same if all connections to the database were cut before.
const MAX_DELAY_AFTER_CUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The status of a request that needs a valid key and costs nothing.
fn status_with(gateway: &Gateway, secret: &str) -> u16 {
    Call::get("/v1/models").key(secret).send(gateway.address()).status
}

/// Revokes the key. While the connections to the database are broken, an operator tries again.
#[track_caller]
fn revoke(gateway: &Gateway, id: &str) {
    eventually("the key is revoked", || {
        let deleted = Call::delete(&format!("/admin/v1/keys/{id}")).key(TOKEN).send(gateway.address());
        // An answer that was lost has revoked the key as well.
        (deleted.status < 300 || deleted.status == 404).then_some(())
    });
}

/// Makes a key on the first node, uses it on both, and revokes it on the first. Returns the time after which both
/// refuse it.
#[track_caller]
fn time_until_refused(nodes: [&Gateway; 2], name: &str, cut: impl FnOnce()) -> Duration {
    let new = json!({"name": name, "user": "admin"});
    let key = Call::post("/admin/v1/keys").json(&new).key(TOKEN).send(nodes[0].address()).ok_json();
    let (id, secret) = (key["key"]["id"].as_str().expect("an id"), key["secret"].as_str().expect("a secret"));
    assert_eq!(nodes.map(|node| status_with(node, secret)), [200, 200]);
    cut();
    revoke(nodes[0], id);
    let revoked = Instant::now();
    let mut elapsed = Duration::ZERO;
    for node in nodes {
        while status_with(node, secret) != 401 {
            elapsed = revoked.elapsed();
            assert!(elapsed < TEST_TIMEOUT, "a node still accepts the key");
            pause(POLL_INTERVAL);
        }
    }
    elapsed
}

#[track_caller]
fn revoke_repeatedly(mut run: SoakRun, max_delay: Duration, cut: impl Fn(&PostgresDatabase)) {
    let upstream = FakeUpstream::start();
    let Some(database) = PostgresDatabase::create() else { return };
    let nodes = [(); 2].map(|()| open_node(&database, "", &[Account::for_upstream("only", &upstream)]));
    let mut times = Vec::new();
    for round in 0..run.rounds {
        let (first, second) = (&nodes[round % 2], &nodes[(round + 1) % 2]);
        let mut random = run.random(round);
        // The revocation comes at any moment between two polls of the other node.
        pause(Duration::from_millis(random.between(0, 250)));
        times.push(time_until_refused([first, second], &format!("trial {round}"), || cut(&database)));
    }
    let late = times.iter().filter(|time| **time > max_delay).count();
    run.note("keys revoked", times.len());
    run.note(&format!("keys accepted after more than {} s", max_delay.as_secs()), late);
    run.note_times("time until both nodes refuse", times);
    run.print();
    assert!(!run.is_long || late == 0, "{late} keys were accepted for too long");
}

#[test]
fn a_revoked_key_is_refused_by_the_other_node() {
    revoke_repeatedly(SoakRun::new("revoked keys", 3, 200), MAX_DELAY, |_| {});
}

#[test]
fn a_revoked_key_is_refused_after_the_connections_to_the_database_were_cut() {
    let run = SoakRun::new("revoked keys, connections to the database cut", 3, 200);
    revoke_repeatedly(run, MAX_DELAY_AFTER_CUT, PostgresDatabase::cut_connections);
}
