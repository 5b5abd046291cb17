//! `cargo xtask soak`: the long runs of `tests/it/soak`, one after another, with a PostgreSQL server of their own.
//!
//! Each test prints a table. The same tests run with a few rounds in `cargo xtask test`.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Result, bail, ensure};

use crate::ci;
use crate::postgres::PostgresServer;

/// The scenarios: the names of the modules in `tests/it/soak`.
const SCENARIOS: [&str; 11] = [
    "sigkills",
    "rolling_restarts",
    "revocations",
    "account_slots",
    "budgets",
    "conversations",
    "response_budgets",
    "paid_answers",
    "partition",
    "database_faults",
    "first_starts",
];
/// The modules that the scenarios use.
#[cfg(test)]
const HELPERS: [&str; 2] = ["comparison", "load"];

/// The arguments of the command.
#[derive(Debug, Default, PartialEq, Eq)]
struct SoakOptions<'a> {
    /// The scenarios to run; empty means all of them.
    only: Vec<&'a str>,
    rounds: Option<&'a str>,
    seed: Option<&'a str>,
    store: Option<&'a str>,
}

/// Runs the scenarios that the arguments choose.
///
/// # Errors
///
/// Returns an error if an argument is wrong, PostgreSQL is not installed, or a scenario fails.
pub fn run(root: &Path, arguments: &[&str]) -> Result<()> {
    let options = SoakOptions::parse(arguments)?;
    let server = if options.store == Some("sqlite") { None } else { Some(PostgresServer::start()?) };
    let mut variables = options.variables();
    variables.push(ci::test_program(ci::build_release(root)?));
    variables.extend(server.as_ref().map(PostgresServer::variable));
    let filters = options.filters();
    let mut cargo_arguments =
        vec!["test", "--features", ci::features::EVERYTHING, "--test", "it", "--", "--nocapture", "--test-threads=1"];
    cargo_arguments.extend(filters.iter().map(String::as_str));
    ci::cargo(root, &cargo_arguments, &variables)
}

impl<'a> SoakOptions<'a> {
    fn parse(arguments: &[&'a str]) -> Result<Self> {
        let mut options = Self::default();
        ensure!(arguments.len().is_multiple_of(2), "expected an option and its value, not `{}`", arguments.join(" "));
        for option in arguments.chunks(2) {
            let is_number = option[1].parse::<u64>().is_ok();
            match option {
                ["--only", name] => {
                    ensure!(SCENARIOS.contains(name), "unknown scenario `{name}`: one of {}", SCENARIOS.join(", "));
                    options.only.push(name);
                }
                ["--rounds", count] if is_number => options.rounds = Some(count),
                ["--seed", seed] if is_number => options.seed = Some(seed),
                ["--store", store @ ("sqlite" | "postgres")] => options.store = Some(store),
                _ => bail!(
                    "expected `--only NAME`, `--rounds N`, `--seed S` or `--store sqlite|postgres`, not `{}`",
                    option.join(" ")
                ),
            }
        }
        Ok(options)
    }

    /// The variables that the tests read.
    fn variables(&self) -> Vec<(OsString, OsString)> {
        let variables =
            [("IMAGATE_SOAK", Some("1")), ("IMAGATE_SOAK_ROUNDS", self.rounds), ("IMAGATE_SOAK_SEED", self.seed)];
        variables.into_iter().filter_map(|(name, value)| Some((name.into(), value?.into()))).collect()
    }

    /// The arguments that choose the tests. Without a server, the tests on PostgreSQL pass at once.
    fn filters(&self) -> Vec<String> {
        let mut filters: Vec<String> = self.only.iter().map(|name| format!("soak::{name}::")).collect();
        if filters.is_empty() {
            filters.push("soak::".to_owned());
        }
        if self.store == Some("postgres") {
            filters.extend(["--skip".to_owned(), "on_sqlite".to_owned()]);
        }
        filters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_choose_tests_and_rounds() {
        let arguments = ["--only", "sigkills", "--only", "budgets", "--rounds", "7", "--store", "postgres"];
        let options = SoakOptions::parse(&arguments).unwrap();
        assert_eq!(options.filters(), ["soak::sigkills::", "soak::budgets::", "--skip", "on_sqlite"]);
        let variables = [("IMAGATE_SOAK", "1"), ("IMAGATE_SOAK_ROUNDS", "7")];
        assert_eq!(options.variables(), variables.map(|(name, value)| (name.into(), value.into())));
        assert_eq!(SoakOptions::parse(&[]).unwrap().filters(), ["soak::"]);
    }

    #[test]
    fn a_wrong_option_is_refused() {
        for wrong in [&["--only"][..], &["--only", "all"], &["--rounds", "many"], &["--store", "mysql"], &["7", "7"]] {
            assert!(SoakOptions::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn every_scenario_is_a_module_of_the_tests() {
        let text = std::fs::read_to_string(crate::tree::root().join("tests/it/soak.rs")).unwrap();
        let mut modules: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';')).collect();
        modules.retain(|name| !HELPERS.contains(name));
        let mut scenarios = SCENARIOS;
        scenarios.sort_unstable();
        assert_eq!(modules, scenarios);
    }
}
