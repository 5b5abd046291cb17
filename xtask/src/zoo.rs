//! `cargo xtask zoo`: real, unmodified client programs against a gateway, and the table of `docs/clients.md`.
//!
//! `tests/zoo` has the list of clients and a driver for each. A driver makes its client generate an image, edit one,
//! show an error, and meet an upstream that fails once before anything is paid. A client with special needs, such as a
//! dialect, runs twice: without them, where its errors count, and with them. A client that cannot be installed is a row
//! of the table, not a failure.

mod driver_run;
mod installation;
mod page;
pub(crate) mod servers;
mod zoo_client;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, Result, bail, ensure};

use crate::ci;
use crate::ci::features::EVERYTHING;
use crate::examples::program;
use crate::simulator::empty_folder;
use driver_run::DriverContext;
use servers::{GatewaySetup, UpstreamProcess};
use zoo_client::{ClientOutcome, ZooClient};

/// The folder of the drivers, relative to the root of the repository.
const DRIVERS: &str = "tests/zoo";

/// The arguments of the command.
#[derive(Debug, Default, PartialEq, Eq)]
struct ZooOptions<'a> {
    /// The program of the gateway; without it, a debug build is made.
    program: Option<&'a str>,
    /// The names of the clients to run; empty means all of them.
    names: Vec<&'a str>,
}

/// Runs the clients, and writes the table. Returns true if every cell of the table is green or explained.
///
/// # Errors
///
/// Returns an error if an argument is wrong, or a server does not start.
pub fn run(root: &Path, arguments: &[&str]) -> Result<bool> {
    let options = ZooOptions::parse(arguments)?;
    let target = ci::target_folder(root)?.join("zoo");
    fs::create_dir_all(&target)?;
    let all = zoo_client::read(root)?;
    for name in &options.names {
        ensure!(all.iter().any(|client| client.name == *name), "no client `{name}` in {DRIVERS}/clients.json");
    }
    let gateway_program = options.program(root)?;
    let folder = empty_folder(&target.join("run"))?;
    let simulator = servers::GatewayProcess::start(&gateway_program, &folder.join("simulator"), None)?;
    let upstream = UpstreamProcess::start(root, &simulator)?;
    let schema = servers::settings_schema(&gateway_program)?;
    let context =
        DriverContext { root, target: &target, folder: &folder, program: &gateway_program, upstream: &upstream };
    let mut outcomes = page::read_outcomes(&target)?;
    for client in all.iter().filter(|client| options.includes(client)) {
        let outcome = outcome_of(&context, client, &schema)?;
        outcomes.insert(client.name.clone(), outcome);
        page::write_outcomes(&target, &outcomes)?;
    }
    page::write(root, &all, &outcomes)
}

fn outcome_of(context: &DriverContext<'_>, client: &ZooClient, schema: &str) -> Result<ClientOutcome> {
    println!("\n--- {}", client.name);
    let environment = match installation::prepare(context.root, context.target, client) {
        Ok(environment) => environment,
        Err(error) => {
            println!("not installed: {error:#}");
            return Ok(ClientOutcome { not_installed: Some(format!("{error:#}")), ..ClientOutcome::default() });
        }
    };
    let strict = context.run(client, &environment, &GatewaySetup::strict(client))?;
    let missing = client.needs.missing_settings(schema);
    let declared = match (&client.needs, missing) {
        (needs, _) if needs.is_empty() => None,
        (_, Some(missing)) => {
            println!("not yet: the gateway has no {missing}");
            None
        }
        (_, None) => Some(context.run(client, &environment, &GatewaySetup::declared(client))?),
    };
    Ok(ClientOutcome { strict, declared, ..ClientOutcome::default() })
}

// === impl ZooOptions ===

impl<'a> ZooOptions<'a> {
    fn parse(arguments: &[&'a str]) -> Result<Self> {
        let mut options = Self::default();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match *word {
                "--program" => options.program = Some(words.next().context("--program needs a path")?),
                name if !name.starts_with('-') => options.names.push(name),
                other => bail!("expected `--program PATH` or names of clients, not `{other}`"),
            }
        }
        Ok(options)
    }

    /// The program of the gateway, as an absolute path.
    fn program(&self, root: &Path) -> Result<PathBuf> {
        if let Some(path) = self.program {
            return fs::canonicalize(path).with_context(|| path.to_owned());
        }
        ci::cargo(root, &["build", "--features", EVERYTHING, "--bin", "imagate"], &[])?;
        Ok(program(&ci::target_folder(root)?.join("debug"), "imagate"))
    }

    fn includes(&self, client: &ZooClient) -> bool {
        if self.names.is_empty() { !client.heavy } else { self.names.contains(&client.name.as_str()) }
    }
}

/// A word that no earlier run has used.
pub(crate) fn unique_word() -> String {
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{:x}", time.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_select_clients_and_a_program() {
        let options = ZooOptions::parse(&["--program", "imagate", "curl", "xsai"]).unwrap();
        assert_eq!(options, ZooOptions { program: Some("imagate"), names: vec!["curl", "xsai"] });
        assert!(ZooOptions::parse(&["--all"]).is_err());
        assert!(ZooOptions::parse(&["--program"]).is_err());
    }
}
