//! The installation on this machine: the admin API is answered in this process, on the opened store.

use std::sync::Arc;

use anyhow::anyhow;
use bytes::Bytes;

use super::ManagedGateway;
use crate::cli::failure::CommandFailure;
use crate::cli::installation::{InstallationArgs, pages_base_url};
use crate::client;
use crate::client::admin::{LocalHandler, connect_locally};
use crate::client::reqwest::{self, Response};
use crate::gateway;
use crate::gateway::config::Config;
use crate::gateway::endpoints::{LocalAdmin, open_local_admin};
use crate::gateway::store::Store;
use crate::gateway::telemetry::ErrorCapture;

/// The settings and the open store of the installation on this machine.
pub(in crate::cli) struct LocalInstallation {
    pub(in crate::cli) config: Config,
    pub(in crate::cli) store: Arc<dyn Store>,
}

/// Opens the installation and runs a command on it.
pub(super) fn run<T>(
    installation: InstallationArgs,
    command: impl AsyncFnOnce(&ManagedGateway) -> Result<T, CommandFailure>,
) -> Result<T, CommandFailure> {
    installation.with_store(async |config, store| {
        let (keys, people) = (gateway::open_keys(store), gateway::open_people(config, store));
        let admin = connect_locally(handler(open_local_admin(config, store, keys, people)?))?;
        let local = LocalInstallation { config: config.clone(), store: Arc::clone(store) };
        let managed = ManagedGateway { admin, address: pages_base_url(config), local: Some(local) };
        let capture = ErrorCapture::default();
        let _guard = capture.start();
        command(&managed).await.map_err(|failure| explained(failure, &capture))
    })
}

fn handler(admin: LocalAdmin) -> LocalHandler {
    let admin = Arc::new(admin);
    Arc::new(move |request| {
        let admin = Arc::clone(&admin);
        Box::pin(async move { answer(&admin, request).await })
    })
}

async fn answer(admin: &LocalAdmin, request: reqwest::Request) -> Response {
    let body = request.body().and_then(reqwest::Body::as_bytes).map(Bytes::copy_from_slice).unwrap_or_default();
    let mut local = http::Request::new(body);
    *local.method_mut() = request.method().clone();
    *local.headers_mut() = request.headers().clone();
    // An address of the client is also one of the server.
    *local.uri_mut() = request.url().as_str().parse().unwrap_or_default();
    Response::from(admin.answer(local).await)
}

/// Returns the failure of a request as a command on this machine states it: without status and code, and with the error
/// that a gateway would log.
fn explained(failure: CommandFailure, capture: &ErrorCapture) -> CommandFailure {
    let CommandFailure::Failed(error) = failure else { return failure };
    let Some(cause) = error.downcast_ref::<client::Error>() else { return CommandFailure::Failed(error) };
    let logged = capture.first_error().filter(|_| cause.status().is_some_and(|status| status >= 500));
    // A deleted key is still in the store, and its id in records.
    let note = if cause.code() == Some("key_not_found") { " or is deleted" } else { "" };
    let answered = || format!("{}{note}", to_clause(cause.message(), cause.param()));
    CommandFailure::Failed(anyhow!(logged.unwrap_or_else(answered)))
}

/// Returns the message of an answer in the form of the other messages of commands: no sentence, names without quotes, and
/// no name of a field of the API.
pub(in crate::cli) fn to_clause(message: &str, param: Option<&str>) -> String {
    let field = param.map(|param| format!("Invalid '{param}': ")).unwrap_or_default();
    let message = message.strip_prefix(&field).unwrap_or(message);
    let message = format!("{} ", message.strip_suffix('.').unwrap_or(message)).replace(" '", " ").replace("' ", " ");
    let mut letters = message.trim_end().chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_the_api_becomes_one_of_a_command() {
        for (message, param, expected) in [
            ("The user 'eve' does not exist.", None, "the user eve does not exist"),
            ("Invalid 'name': it is blank.", Some("name"), "it is blank"),
            ("It is the group 'default'.", None, "it is the group default"),
            ("", None, ""),
        ] {
            assert_eq!(to_clause(message, param), expected);
        }
    }
}
