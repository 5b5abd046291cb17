//! Soak tests: one gateway or two nodes under load for a long time, while processes are killed and restarted, keys are
//! revoked, and the database fails. Nothing may be lost, recorded twice or paid for twice.
//!
//! Among the ordinary tests, each scenario has a few rounds, and no time is asserted. `cargo xtask soak` runs them with
//! as many rounds as the figures of the project ask for, and asserts the times, too. The choices of a round come from a
//! seed and the number of the round; the order in which threads run does not.
//!
//! Each test prints a table of its counts. Tests with several nodes pass without a check if the run has no PostgreSQL
//! server; `cargo xtask test` and `cargo xtask soak` start one.

mod account_slots;
mod budgets;
mod comparison;
mod conversations;
mod database_faults;
mod first_starts;
mod load;
mod paid_answers;
mod partition;
mod response_budgets;
mod revocations;
mod rolling_restarts;
mod sigkills;

use std::time::{Duration, Instant};

use crate::kit::{Account, Gateway, PostgresDatabase, Random, env_setting};

const TOKEN: &str = "admin-token-canary-0123456789abcdef";
const MASTER_KEY: &str = "5e1f0c7a9b3d2468ace013579bdf02468ace013579bdf02468ace013579bdf02";
/// A log of little more than warnings: thousands of requests would fill memory with their lines.
const QUIET_LOG: (&str, &str) = ("IMAGATE_LOG", "warn,imagate::gateway::serve=info");
/// The number of requests in flight at each moment.
const IN_FLIGHT: usize = 32;

/// The number of rounds, the seed, and the table of one test.
struct SoakRun {
    rounds: usize,
    seed: u64,
    /// True if `cargo xtask soak` runs the test, so that times are asserted.
    is_long: bool,
    title: &'static str,
    begun: Instant,
    rows: Vec<(String, String)>,
}

// === impl SoakRun ===

impl SoakRun {
    /// `short` is the number of rounds among the ordinary tests, and `long` that of `cargo xtask soak`.
    fn new(title: &'static str, short: usize, long: usize) -> Self {
        let is_long = env_setting("IMAGATE_SOAK").is_some();
        let usual = if is_long { long } else { short };
        let rounds = number("IMAGATE_SOAK_ROUNDS").map_or(usual, |rounds| usize::try_from(rounds).expect("rounds"));
        let seed = number("IMAGATE_SOAK_SEED").unwrap_or(1);
        Self { rounds, seed, is_long, title, begun: Instant::now(), rows: Vec::new() }
    }

    /// The random numbers of one round.
    fn random(&self, round: usize) -> Random {
        Random::seeded(self.seed.wrapping_mul(1_000_003).wrapping_add(round as u64))
    }

    /// Adds a row to the table.
    fn note(&mut self, what: &str, count: impl std::fmt::Display) {
        self.rows.push((what.to_owned(), count.to_string()));
    }

    /// Adds the median and the longest of these times to the table, and returns the longest.
    fn note_times(&mut self, what: &str, mut times: Vec<Duration>) -> Duration {
        times.sort_unstable();
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        let longest = times.last().copied().unwrap_or_default();
        self.note(
            &format!("{what}, median and longest"),
            format_args!("{} / {} ms", median.as_millis(), longest.as_millis()),
        );
        longest
    }

    fn print(&self) {
        let Self { rounds, seed, title, begun, rows, .. } = self;
        let rows: String = rows.iter().map(|(what, count)| format!("{count:>12}  {what}\n")).collect();
        println!("\nsoak: {title}: {rounds} rounds, seed {seed}, {} s\n{rows}", begun.elapsed().as_secs());
    }
}

fn number(name: &str) -> Option<u64> {
    env_setting(name).map(|text| text.to_str().and_then(|text| text.parse().ok()).expect("a number"))
}

/// Starts a node of the installation in this database. All nodes have the same settings.
#[track_caller]
fn open_node(database: &PostgresDatabase, settings: &str, accounts: &[Account]) -> Gateway {
    let settings = format!("admin_token = {{ env = \"IT_ADMIN\" }}\n{settings}");
    let url = ("IMAGATE_DATABASE_URL", database.url());
    Gateway::with_secrets(
        &settings,
        accounts,
        &[url, ("IMAGATE_MASTER_KEY", MASTER_KEY), ("IT_ADMIN", TOKEN), QUIET_LOG],
    )
}
