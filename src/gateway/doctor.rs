//! Checks of an installation: its settings, files, accounts, prices and addresses, and what to do about what is wrong.
//!
//! This module decides what is a problem and what is only worth a warning. It must not know how results are printed.
//!
//! Rules: a check changes nothing, not even by a migration, and can run beside a server; no result holds a secret; only
//! [`check_online`] calls somebody else.

mod accounts;
mod answers;
mod clock;
mod data_dir;
mod database;
mod ports;
mod prices;
mod sign_in_provider;

#[cfg(test)]
mod tests;

use std::error::Error;
use std::fmt::Write as _;

use super::config::{self, Config, ConfigOverrides, HostEnvironment};
use super::open_store;
use super::store::Store;
use crate::words::word_enum;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckResult {
    /// The name of the check.
    pub(crate) check: &'static str,
    /// The severity of the result.
    pub(crate) verdict: CheckVerdict,
    /// The result. It says what to do if `advice` does not.
    pub(crate) message: String,
    /// The advice.
    pub(crate) advice: Option<String>,
}

word_enum! {
    /// The severity of a result.
    #[derive(PartialOrd, Ord)]
    pub(crate) enum CheckVerdict {
        /// Nothing is wrong.
        Ok = "ok",
        /// The gateway works, but somebody should look at it.
        Warning = "warning",
        /// The gateway does not start, or does not do a part of its work.
        Problem = "problem",
    }
}

/// The parts of an installation that the checks read.
struct InstallationContents<'a> {
    config: &'a Config,
    /// `None` if there is no database, or it cannot be used as it is.
    store: Option<&'a dyn Store>,
}

/// Checks the settings, and returns them if the other checks are possible: with a problem or without.
pub(crate) fn check_settings(
    overrides: &ConfigOverrides,
    host: &dyn HostEnvironment,
) -> (Vec<CheckResult>, Option<Config>) {
    const CHECK: &str = "configuration";
    match config::load(overrides.clone(), host) {
        Ok(config) => {
            let (accounts, groups) = (config.accounts.len(), config.groups.len());
            let message = format!("the settings are valid: accounts {accounts}, groups {groups}");
            (vec![CheckResult::ok(CHECK, message)], Some(config))
        }
        Err(problems) => {
            let problem = |problem: &config::ConfigProblem| CheckResult::problem(CHECK, problem.to_string(), None);
            // Secrets may be absent only because this command has not the environment of the gateway.
            (problems.iter().map(problem).collect(), config::load_for_command(overrides.clone(), host).ok())
        }
    }
}

/// Asks the upstream of each enabled account for its models, and the provider of OpenID Connect for its metadata.
pub(crate) async fn check_online(config: &Config) -> Vec<CheckResult> {
    let mut results = accounts::check_online(config).await;
    results.extend(sign_in_provider::check(config).await);
    results
}

/// Makes all checks that need nothing but this machine.
pub(crate) async fn check(config: &Config) -> Vec<CheckResult> {
    let mut results = data_dir::check(config);
    let database;
    let store = if let Some(url) = &config.database_url {
        let (database_results, store) = database::check_server(config, url).await;
        results.extend(database_results);
        store
    } else {
        let (database_results, checked) = database::check(config);
        results.extend(database_results);
        // A store that only reads needs the open file as long as it is open.
        database = checked;
        match &database {
            Some(database) => database.open_store(config).await,
            None => None,
        }
    };
    let installation = InstallationContents { config, store: store.as_deref() };
    results.push(clock::check(&installation).await);
    results.extend(accounts::check(&installation).await);
    results.extend(answers::check(&installation).await);
    results.push(prices::check(&installation).await);
    results.extend(ports::check(config));
    if let Some(store) = store {
        store.close().await;
    }
    results
}

// === impl CheckResult ===

impl CheckResult {
    /// The result if no upstream can be asked.
    pub(crate) fn upstreams_not_asked() -> Self {
        let message = "no upstream was asked, because the store cannot be used as it is";
        Self::warning(accounts::ONLINE, message, Some("see the check of the store"))
    }

    fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, verdict: CheckVerdict::Ok, message: message.into(), advice: None }
    }

    fn warning(check: &'static str, message: impl Into<String>, advice: Option<&str>) -> Self {
        Self { check, verdict: CheckVerdict::Warning, message: message.into(), advice: advice.map(str::to_owned) }
    }

    fn problem(check: &'static str, message: impl Into<String>, advice: Option<&str>) -> Self {
        Self { verdict: CheckVerdict::Problem, ..Self::warning(check, message, advice) }
    }
}

/// Returns the message of an error, followed by those of its causes.
fn message_of(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        // Writing into a string cannot fail.
        let _ = write!(message, ": {error}");
        cause = error.source();
    }
    message
}
