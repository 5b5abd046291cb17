//! A gateway is killed again and again with requests in flight, and starts again on the same data.

use std::time::Duration;

use super::comparison::assert_views_agree;
use super::load::MixedLoad;
use super::{IN_FLIGHT, QUIET_LOG, SoakRun};
use crate::kit::{Account, FakeUpstream, Gateway, PostgresDatabase, pause};

/// The most calls of the upstream before a kill.
const MAX_CALLS: u64 = 3 * IN_FLIGHT as u64;
/// The longest time between the last of these calls and the kill, in milliseconds.
const MAX_DELAY_MILLIS: u64 = 30;

#[track_caller]
fn kill_repeatedly(mut run: SoakRun, database_url: &str) {
    let upstream = FakeUpstream::start();
    let account = Account::for_upstream("only", &upstream).with_slots(2 * IN_FLIGHT);
    let mut gateway = Gateway::with_secrets("", &[account], &[("IMAGATE_DATABASE_URL", database_url), QUIET_LOG]);
    let load = MixedLoad::new(gateway.secret(), run.seed);
    let mut results = Vec::new();
    for round in 0..run.rounds {
        let mut random = run.random(round);
        let calls = upstream.attempt_count() + usize::try_from(random.between(1, MAX_CALLS)).expect("a number");
        let delay = Duration::from_millis(random.between(0, MAX_DELAY_MILLIS));
        let address = gateway.address();
        let send_and_kill = || {
            upstream.wait_until("calls have begun", |attempts| attempts.len() >= calls);
            pause(delay);
            gateway.kill();
        };
        results.extend(load.run(IN_FLIGHT, |call| call.try_send(address), send_and_kill).1);
        gateway.start();
    }
    assert_views_agree(&mut run, &results, &upstream, &gateway);
}

#[test]
fn kills_neither_lose_nor_double_a_record_on_sqlite() {
    kill_repeatedly(SoakRun::new("SIGKILL, SQLite", 5, 200), "sqlite:");
}

#[test]
fn kills_neither_lose_nor_double_a_record_on_postgres() {
    let Some(database) = PostgresDatabase::create() else { return };
    kill_repeatedly(SoakRun::new("SIGKILL, PostgreSQL", 5, 200), database.url());
}
