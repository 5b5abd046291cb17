//! `imagate doctor --service`: checks the service that `generate` and `edit` send their requests to. Nothing is made.

use crate::cli::connection::ConnectionArgs;
use crate::cli::failure::CommandFailure;
use crate::cli::installation::block_on;
use crate::client::{Error, Model};
use crate::gateway::doctor::{CheckResult, CheckVerdict};

/// The status of an operation that a service does not have.
const NOT_FOUND: u16 = 404;

/// Asks the service for its models, which costs nothing.
pub(super) fn check(connection: &ConnectionArgs) -> Result<Vec<CheckResult>, CommandFailure> {
    let client = match connection.build_client() {
        Ok(client) => client,
        Err(error) => return Ok(vec![problem("settings", error.to_string(), None)]),
    };
    let models = block_on(async { Ok(client.models().list().await) })?;
    Ok(results(&models))
}

fn results(models: &Result<Vec<Model>, Error>) -> Vec<CheckResult> {
    let error = match models {
        Ok(models) => {
            let names: Vec<&str> = models.iter().map(|model| model.id.as_str()).collect();
            return vec![
                ok("service", "the address and TLS are right: the service answers".to_owned()),
                ok("key", "the service accepts the key".to_owned()),
                ok(
                    "models",
                    format!("it offers {}", if names.is_empty() { "no models".to_owned() } else { names.join(", ") }),
                ),
            ];
        }
        Err(error) => error,
    };
    if error.status().is_none() {
        let message = match innermost_cause(error) {
            Some(cause) => format!("{}: {cause}", error.message()),
            None => error.message().to_owned(),
        };
        let advice = "is `imagate serve` running, and is --base-url (or IMAGATE_BASE_URL) its address?";
        return vec![problem("service", message, Some(advice))];
    }
    let service = ok("service", "the address and TLS are right: the service answers".to_owned());
    if error.is_invalid_key() {
        let advice = "give a valid key with IMAGATE_API_KEY; `imagate key create --name NAME` makes one on the gateway";
        return vec![service, problem("key", error.message().to_owned(), Some(advice))];
    }
    if error.status() == Some(NOT_FOUND) {
        let message = "the service has no list of models at this address".to_owned();
        let advice = "some services have none; otherwise, look whether the base URL has the right path, such as /v1";
        return vec![
            service,
            CheckResult { verdict: CheckVerdict::Warning, ..problem("models", message, Some(advice)) },
        ];
    }
    vec![service, problem("models", error.to_string(), None)]
}

fn innermost_cause(error: &Error) -> Option<String> {
    let first = std::error::Error::source(error);
    std::iter::successors(first, |cause| cause.source()).last().map(ToString::to_string)
}

fn ok(check: &'static str, message: String) -> CheckResult {
    CheckResult { check, verdict: CheckVerdict::Ok, message, advice: None }
}

fn problem(check: &'static str, message: String, advice: Option<&str>) -> CheckResult {
    CheckResult { check, verdict: CheckVerdict::Problem, message, advice: advice.map(str::to_owned) }
}
