//! The commands `imagate login` and `imagate logout`.

use std::io::{IsTerminal as _, stdin};
use std::path::{Path, PathBuf};

use clap::Args;

use super::failure::CommandFailure;
use super::hidden_line::read_hidden_line;
use super::managed_gateway::gateway_at;
use super::managed_gateway::profile::{Profile, ProfileName};
use super::output::{print, print_message};
use super::secret::{STDIN, read_secret};

/// Arguments of `login`.
#[derive(Debug, Args)]
pub(super) struct LoginCommand {
    /// The address of the gateway, such as <https://images.example>.
    url: String,
    /// The name under which the gateway and the token are saved. A profile of that name is replaced.
    #[arg(long, value_name = "NAME", default_value = "default")]
    profile: ProfileName,
    /// The file that holds the admin token; `-` is standard input [default: the terminal, without echo, or else standard
    /// input]
    #[arg(long, value_name = "PATH")]
    token_file: Option<PathBuf>,
    /// Allow sending the token over plain http to another machine, now and with this profile. Use it only on a network
    /// that you trust.
    #[arg(long)]
    allow_http: bool,
}

/// Arguments of `logout`.
#[derive(Debug, Args)]
pub(super) struct LogoutCommand {
    /// The name of the profile.
    #[arg(long, value_name = "NAME", default_value = "default")]
    profile: ProfileName,
}

// === impl LoginCommand ===

impl LoginCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { url, profile: name, token_file, allow_http } = self;
        // The address is checked, with any token, before the real token is asked for.
        gateway_at(&url, "unknown", allow_http)?;
        let token = read_token(token_file.as_deref())?;
        let gateway = gateway_at(&url, &token, allow_http)?;
        let url = gateway.address.clone();
        let me = gateway.run(async |gateway| Ok(gateway.admin.retrieve_me().send().await?))?;
        let path = Profile { url: url.clone(), token, allow_http }.save(&name)?;
        print(&format!("{name}\n"))?;
        print_message(&format!("{} {} at {url}, saved in {}", me.role, me.name, path.display()));
        print_message(&format!("commands use it with `--profile {name}`, such as `imagate key list --profile {name}`"));
        Ok(())
    }
}

/// Reads the token from a file, from standard input, or from the terminal without echo.
fn read_token(file: Option<&Path>) -> Result<String, CommandFailure> {
    if file.is_none() && stdin().is_terminal() {
        return Ok(read_hidden_line("admin token (it is not shown):")?.trim().to_owned());
    }
    let token = read_secret("the admin token", None, Some(file.unwrap_or(Path::new(STDIN))))?;
    Ok(token.unwrap_or_default())
}

// === impl LogoutCommand ===

impl LogoutCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { profile: name } = self;
        if !Profile::remove(&name)? {
            return Err(CommandFailure::Failed(anyhow::anyhow!("there is no profile {name}")));
        }
        print(&format!("{name} removed\n"))?;
        print_message("the token is still valid; `imagate token delete ID` ends it");
        Ok(())
    }
}
