//! The command `imagate open`: opens the pages of the gateway in the browser.

use std::process::{Command, Stdio};

use clap::Args;

use super::failure::CommandFailure;
use super::installation::{InstallationArgs, pages_base_url};
use super::output::{print, print_message};
use crate::gateway::config::{HostEnvironment as _, SystemEnvironment};

/// The program that opens an address in the browser of the user.
const OPENER: &str = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };

/// Arguments of `open`.
#[derive(Debug, Args)]
pub(super) struct OpenCommand {
    #[command(flatten)]
    installation: InstallationArgs,
}

// === impl OpenCommand ===

impl OpenCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let address = pages_base_url(&self.installation.load_for_command()?);
        print(&format!("{address}\n"))?;
        if let Err(reason) = open_in_browser(&address) {
            print_message(&format!("note: no browser was started: {reason}"));
        }
        Ok(())
    }
}

/// Starts the opener, which returns as soon as the browser has the address.
fn open_in_browser(address: &str) -> Result<(), String> {
    let is_set = |name: &str| SystemEnvironment.variable(name).is_some_and(|value| !value.is_empty());
    // Without a display, some openers start a browser for text, which waits for keys that nobody presses.
    if !cfg!(target_os = "macos") && !is_set("DISPLAY") && !is_set("WAYLAND_DISPLAY") {
        return Err("there is no display".to_owned());
    }
    let opener =
        Command::new(OPENER).arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match opener {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{OPENER}` ended with {status}")),
        Err(error) => Err(format!("`{OPENER}` cannot be run: {error}")),
    }
}
