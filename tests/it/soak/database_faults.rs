//! The database is stopped and started, its connections break in the middle of a commit, and its disk is full.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::comparison::assert_views_agree;
use super::load::{CallerOutcome, CallerResult, MixedLoad};
use super::{IN_FLIGHT, SoakRun, open_node};
use crate::kit::{
    Account, Call, DatabaseProxy, FakeUpstream, Gateway, PostgresDatabase, SmallDisk, eventually, pause, request,
};

/// The time after which a node must serve again when its database is back.
const MAX_RECOVERY: Duration = Duration::from_secs(2);
const CUTS_PER_ROUND: usize = 10;
/// The size of the disk of the database in megabytes. An empty database needs a third of it.
const DISK: usize = 24;

fn account(upstream: &FakeUpstream) -> [Account; 1] {
    [Account::for_upstream("only", upstream).with_slots(2 * IN_FLIGHT)]
}

/// Sends a generation; returns the status of its answer.
fn paid_status(node: &Gateway, secret: &str, user: &str) -> u16 {
    let fields = request(serde_json::json!({"user": user}));
    Call::generation().json(&fields).key(secret).send(node.address()).status
}

/// Asks until the node serves paid requests again. Returns the time that it took, and adds the requests to `results`.
fn time_until_served(node: &Gateway, secret: &str, name: &str, results: &mut Vec<CallerResult>) -> Duration {
    let begun = Instant::now();
    let mut number = 0;
    eventually("the node serves again", || {
        number += 1;
        let user = format!("{name}-{number}");
        let status = paid_status(node, secret, &user);
        let outcome = if status == 200 { CallerOutcome::Image } else { CallerOutcome::Error(status) };
        results.push(CallerResult { user, outcome });
        (status == 200).then_some(begun.elapsed())
    })
}

/// Panics if a request got an error other than 503, or if its connection broke.
#[track_caller]
fn assert_refused_properly(results: &[CallerResult]) {
    let is_proper = |result: &&CallerResult| matches!(result.outcome, CallerOutcome::Image | CallerOutcome::Error(503));
    assert_eq!(results.iter().filter(is_proper).count(), results.len(), "a request got another error than 503");
}

/// Checks a node without its database: a known key is served what needs no record, and nobody else is let in.
#[track_caller]
fn check_without_database(node: &Gateway, secret: &str) {
    let list_models = |secret: &str| Call::get("/v1/models").key(secret).send(node.address()).status;
    let unknown = "sk-img-000000000000-00000000000000000000000000000000000000000000";
    assert_eq!(list_models(secret), 200);
    assert!([401, 503].contains(&list_models(unknown)), "a key that nobody made");
}

#[test]
fn an_absent_database_lets_nobody_in_and_loses_nothing() {
    let mut run = SoakRun::new("database stopped and started, two nodes", 1, 20);
    let upstream = FakeUpstream::start();
    let Some(database) = PostgresDatabase::create() else { return };
    let nodes = [(); 2].map(|()| open_node(&database, "", &account(&upstream)));
    let secret = nodes[0].secret().to_owned();
    let (load, turn) = (MixedLoad::new(&secret, run.seed), AtomicUsize::new(0));
    let (mut times, mut others) = (Vec::new(), Vec::new());
    nodes.iter().for_each(|node| assert_eq!(Call::get("/v1/models").key(&secret).send(node.address()).status, 200));
    let stop_and_start = || {
        for round in 0..run.rounds {
            let mut random = run.random(round);
            let calls = upstream.attempt_count() + usize::try_from(random.between(1, 64)).expect("a number");
            upstream.wait_until("calls have begun", |attempts| attempts.len() >= calls);
            database.refuse_connections();
            let errors = load.errors();
            eventually("requests are refused", || (load.errors() > errors).then_some(()));
            nodes.iter().for_each(|node| check_without_database(node, &secret));
            pause(Duration::from_millis(random.between(0, 3000)));
            database.accept_connections();
            for (index, node) in nodes.iter().enumerate() {
                times.push(time_until_served(node, &secret, &format!("outage-{round}-{index}"), &mut others));
            }
        }
    };
    let address = |number: usize| nodes[number % 2].address();
    let send = |call: Call| call.try_send(address(turn.fetch_add(1, Ordering::Relaxed)));
    let ((), mut results) = load.run(IN_FLIGHT, send, stop_and_start);
    results.extend(others);
    let slow = times.iter().filter(|time| **time > MAX_RECOVERY).count();
    run.note("outages", run.rounds);
    run.note(&format!("nodes that needed more than {} s to serve again", MAX_RECOVERY.as_secs()), slow);
    run.note_times("time until a node served again", times);
    assert_views_agree(&mut run, &results, &upstream, &nodes[0]);
    assert_refused_properly(&results);
    assert!(!run.is_long || slow == 0, "{slow} nodes were slow to serve again");
}

#[test]
fn a_connection_that_breaks_in_a_commit_neither_loses_nor_doubles_a_record() {
    let mut run = SoakRun::new("connections that break in a commit, 10 each round", 1, 50);
    let upstream = FakeUpstream::start();
    let Some(database) = PostgresDatabase::create() else { return };
    let proxy = DatabaseProxy::in_front_of(&database);
    let secrets = [("IMAGATE_DATABASE_URL", proxy.url()), super::QUIET_LOG];
    let gateway = Gateway::with_secrets("", &account(&upstream), &secrets);
    let (load, address) = (MixedLoad::new(gateway.secret(), run.seed), gateway.address());
    let cut = || {
        for round in 0..run.rounds {
            proxy.cut_commits(CUTS_PER_ROUND, run.random(round));
            eventually("the connections are cut", || (proxy.remaining_cuts() == 0).then_some(()));
        }
    };
    let ((), results) = load.run(IN_FLIGHT, |call| call.try_send(address), cut);
    for (what, count) in ["before the server had it", "at that moment", "before its answer"].iter().zip(proxy.cuts()) {
        run.note(&format!("commits cut {what}"), count);
    }
    assert_views_agree(&mut run, &results, &upstream, &gateway);
    assert_refused_properly(&results);
}

#[test]
fn a_full_disk_of_the_database_refuses_paid_work_and_loses_nothing() {
    let mut run = SoakRun::new("full disk of the database", 1, 20);
    let upstream = FakeUpstream::start();
    let folder = std::env::temp_dir().join(format!("imagate-it-disk-{}", std::process::id()));
    let Some(disk) = SmallDisk::mount(&folder, DISK) else { return };
    let Some(database) = PostgresDatabase::create_on_disk(&folder) else { return };
    let gateway = open_node(&database, "", &account(&upstream));
    let (load, address) = (MixedLoad::new(gateway.secret(), run.seed), gateway.address());
    let (mut times, mut others) = (Vec::new(), Vec::new());
    let fill_and_clear = || {
        for round in 0..run.rounds {
            let mut random = run.random(round);
            let errors = load.errors();
            disk.fill();
            let enough = errors + usize::try_from(random.between(1, 100)).expect("a number");
            eventually("requests are refused", || (load.errors() >= enough).then_some(()));
            disk.clear();
            let name = format!("full-{round}");
            times.push(time_until_served(&gateway, gateway.secret(), &name, &mut others));
        }
    };
    let ((), mut results) = load.run(IN_FLIGHT, |call| call.try_send(address), fill_and_clear);
    results.extend(others);
    run.note("times that the disk was full", run.rounds);
    run.note_times("time until the node served again", times);
    assert_views_agree(&mut run, &results, &upstream, &gateway);
    assert_refused_properly(&results);
    drop(gateway);
    database.remove();
    drop(disk);
    std::fs::remove_dir(&folder).expect("an empty folder");
}
