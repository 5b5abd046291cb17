//! The gateway that a command manages: the installation on this machine, or a gateway at an address.
//!
//! A command is written once, as requests to the admin API. Those to another gateway go over HTTP; those to the
//! installation on this machine are answered in this process, on its store, whether its gateway runs or not.
//!
//! A command works on another gateway only if an argument or a variable names it, and then says on standard error which
//! one it is. A saved profile is used only if it is named. No message contains a token.

mod local;
pub(super) mod profile;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;

use super::failure::CommandFailure;
use super::installation::{InstallationArgs, block_on, settings_failure};
use super::output::print_message;
use super::secret::read_secret;
use crate::client::{self, admin};
use crate::gateway::config::{Config, ConfigProblem, HostEnvironment as _, SystemEnvironment};
pub(super) use local::{LocalInstallation, to_clause};
use profile::{Profile, ProfileName};

/// The variable with the address of a gateway.
const URL_VARIABLE: &str = "IMAGATE_ADMIN_URL";
/// The variable with an admin token. The gateway itself reads its own token from it.
const TOKEN_VARIABLE: &str = "IMAGATE_ADMIN_TOKEN";
/// The variable with the name of a profile.
const PROFILE_VARIABLE: &str = "IMAGATE_PROFILE";

/// The most entries of a page that the admin API allows.
pub(super) const PAGE_SIZE: i64 = 500;

/// Arguments that say which gateway is meant: by default the installation on this machine.
#[derive(Clone, Debug, Args)]
pub(super) struct GatewayArgs {
    #[command(flatten)]
    installation: InstallationArgs,
    /// The address of a gateway that is managed through its admin API, in place of the installation on this machine
    /// [env: `IMAGATE_ADMIN_URL`]
    #[arg(long, value_name = "URL", global = true)]
    url: Option<String>,
    /// The admin token for `--url`. Other users of this machine can see arguments, so prefer the environment or a file
    /// [env: `IMAGATE_ADMIN_TOKEN`]
    #[arg(long, value_name = "TOKEN", global = true)]
    token: Option<String>,
    /// The file that holds the admin token for `--url`; `-` is standard input.
    #[arg(long, value_name = "PATH", global = true)]
    token_file: Option<PathBuf>,
    /// The gateway and the token that `imagate login` has saved under this name [env: `IMAGATE_PROFILE`]
    #[arg(long, value_name = "NAME", global = true)]
    profile: Option<ProfileName>,
    /// Allow sending the token over plain http to another machine. Use it only on a network that you trust.
    #[arg(long, global = true)]
    allow_http: bool,
}

/// The gateway that a command names.
pub(super) enum NamedGateway {
    /// The installation on this machine, whose store is not open yet.
    Local(InstallationArgs),
    /// A gateway at an address.
    Remote(Box<ManagedGateway>),
}

/// A gateway that is managed through its admin API.
pub(super) struct ManagedGateway {
    pub(super) admin: admin::Client,
    /// The address of the pages.
    pub(super) address: String,
    /// The installation, if it is on this machine.
    pub(super) local: Option<LocalInstallation>,
}

// === impl GatewayArgs ===

impl GatewayArgs {
    /// Returns the gateway that an argument or a variable names, and prints which one it is if it is another one; by
    /// default, the installation on this machine.
    ///
    /// Arguments go before variables, also those that name the installation; an address goes before a profile.
    pub(super) fn find(&self) -> Result<NamedGateway, CommandFailure> {
        self.check()?;
        if let Some(url) = &self.url {
            return self.find_by_url(url);
        }
        if let Some(name) = &self.profile {
            return self.find_by_profile(name);
        }
        if self.installation.is_given() {
            return Ok(NamedGateway::Local(self.installation.clone()));
        }
        if let Some(url) = text_variable(URL_VARIABLE)? {
            return self.find_by_url(&url);
        }
        let Some(name) = text_variable(PROFILE_VARIABLE)? else {
            return Ok(NamedGateway::Local(self.installation.clone()));
        };
        let name = name.parse().map_err(|error| CommandFailure::Usage(format!("{PROFILE_VARIABLE}: {error}")))?;
        self.find_by_profile(&name)
    }

    /// Returns the installation on this machine. Fails if another gateway is named: `reason` says why the command works
    /// only on the machine of the gateway.
    pub(super) fn only_local(&self, command: &str, reason: &str) -> Result<InstallationArgs, CommandFailure> {
        match self.find()? {
            NamedGateway::Local(installation) => Ok(installation),
            NamedGateway::Remote(_) => Err(CommandFailure::Usage(format!(
                "`imagate {command}` works only on the gateway's own machine, because {reason}"
            ))),
        }
    }

    /// Refuses arguments that contradict each other.
    fn check(&self) -> Result<(), CommandFailure> {
        let usage = |message: &str| Err(CommandFailure::Usage(message.to_owned()));
        if self.url.is_some() && self.profile.is_some() {
            return usage("`--url` and `--profile` name two gateways: give one of them");
        }
        let is_remote = self.url.is_some() || self.profile.is_some();
        if is_remote && self.installation.is_given() {
            return usage(
                "`--config` and `--data-dir` name the installation on this machine, and `--url` and `--profile` another gateway: give one of them",
            );
        }
        if self.token.is_some() && self.token_file.is_some() {
            return usage("`--token` and `--token-file` are two tokens: give one of them");
        }
        let has_token = self.token.is_some() || self.token_file.is_some();
        if has_token && self.url.is_none() && (self.profile.is_some() || text_variable(URL_VARIABLE)?.is_none()) {
            return usage("`--token` and `--token-file` need `--url`");
        }
        Ok(())
    }

    fn find_by_profile(&self, name: &ProfileName) -> Result<NamedGateway, CommandFailure> {
        let Profile { url, token, allow_http } = Profile::load(name)?;
        let gateway = gateway_at(&url, &token, allow_http || self.allow_http)?;
        print_message(&format!("gateway: {} (profile {name})", gateway.address));
        Ok(NamedGateway::Remote(Box::new(gateway)))
    }

    fn find_by_url(&self, url: &str) -> Result<NamedGateway, CommandFailure> {
        let given = read_secret("the admin token", None, self.token_file.as_deref())?.or_else(|| self.token.clone());
        let token = match given {
            Some(token) => token,
            None => text_variable(TOKEN_VARIABLE)?.ok_or_else(no_token)?,
        };
        let gateway = gateway_at(url, &token, self.allow_http)?;
        print_message(&format!("gateway: {}", gateway.address));
        Ok(NamedGateway::Remote(Box::new(gateway)))
    }
}

fn no_token() -> CommandFailure {
    CommandFailure::Usage(format!(
        "no admin token: set {TOKEN_VARIABLE}, give `--token-file`, or save one with `imagate login URL` and give `--profile`"
    ))
}

/// Returns the gateway at this address, to which nothing is sent yet.
pub(super) fn gateway_at(url: &str, token: &str, allow_http: bool) -> Result<ManagedGateway, CommandFailure> {
    let admin = admin::builder(url, token).allow_http(allow_http).build();
    let admin = admin.map_err(|error| {
        let message = error.to_string();
        let hint = if message.contains("plain http") { " (`--allow-http`)" } else { "" };
        CommandFailure::Usage(format!("{message}{hint}"))
    })?;
    Ok(ManagedGateway { address: admin.baseurl.clone(), admin, local: None })
}

/// Reads an environment variable; its content is not in the error.
fn text_variable(name: &str) -> Result<Option<String>, CommandFailure> {
    let text = SystemEnvironment.variable(name).map(OsString::into_string).transpose();
    text.map_err(|_| CommandFailure::Usage(format!("the environment variable {name} is not valid text")))
}

// === impl NamedGateway ===

impl NamedGateway {
    /// Runs a command on the gateway. The store of the installation on this machine is open for the time of the command.
    pub(super) fn run<T>(
        self,
        command: impl AsyncFnOnce(&ManagedGateway) -> Result<T, CommandFailure>,
    ) -> Result<T, CommandFailure> {
        match self {
            Self::Remote(gateway) => gateway.run(command),
            Self::Local(installation) => local::run(installation, command),
        }
    }
}

// === impl ManagedGateway ===

impl ManagedGateway {
    /// Runs a command. A failure of the connection, and a refused token, come with advice.
    pub(super) fn run<T>(
        self,
        command: impl AsyncFnOnce(&Self) -> Result<T, CommandFailure>,
    ) -> Result<T, CommandFailure> {
        block_on(async { command(&self).await }).map_err(|failure| self.with_advice(failure))
    }

    /// Refuses a call for which secrets of the settings on this machine are absent: a command may have been started
    /// without them.
    pub(super) fn need_secrets(
        &self,
        absent: impl FnOnce(&Config) -> Vec<ConfigProblem>,
    ) -> Result<(), CommandFailure> {
        let problems = self.local.as_ref().map(|local| absent(&local.config)).unwrap_or_default();
        if problems.is_empty() { Ok(()) } else { Err(settings_failure(problems)) }
    }

    fn with_advice(&self, failure: CommandFailure) -> CommandFailure {
        let CommandFailure::Failed(error) = failure else { return failure };
        let Some(cause) = error.downcast_ref::<client::Error>() else { return CommandFailure::Failed(error) };
        let address = &self.address;
        let advised = |message: &str, advice: String| CommandFailure::Advised(anyhow!("{message}"), advice);
        if cause.is_connect() {
            return CommandFailure::Advised(error, format!("is `imagate serve` running at {address}?"));
        }
        match cause.status() {
            Some(401) => advised(
                &format!("the gateway at {address} does not accept the admin token"),
                format!(
                    "create one on the gateway's machine with `imagate token create --name NAME --user USER`, and save it with `imagate login {address}`"
                ),
            ),
            Some(403) => {
                advised(cause.message(), "the token belongs to a member; this needs the token of an admin".to_owned())
            }
            Some(404) if cause.code().is_none() => {
                CommandFailure::Advised(error, format!("does an `imagate` gateway serve its admin API at {address}?"))
            }
            _ => CommandFailure::Failed(error),
        }
    }
}

/// Returns the largest page that the admin API allows.
pub(super) fn page_size() -> Result<admin::types::PageLimit, CommandFailure> {
    Ok(admin::types::PageLimit::new(PAGE_SIZE)?)
}
