//! The programs under load: imagate and the relay, each with its own folder, and the fake upstream itself.

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use tokio::process::Command;

use super::process::{Process, free_address, output};
use super::upstream::UPSTREAM_KEY;

/// The key that clients send to the relay and to other programs.
pub(crate) const CLIENT_KEY: &str = "client-key";
/// The name of the target without a gateway.
pub(crate) const DIRECT: &str = "direct";

/// A process that answers the requests of the cases.
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    /// The header lines of each request that are those of this target: its key, at least.
    pub(crate) headers: String,
    pub(crate) process: Process,
}

/// The settings of a gateway beside its addresses.
#[derive(Clone, Debug)]
pub(crate) struct GatewaySettings {
    pub(crate) durability: String,
    /// The number of accounts for the image endpoints, all of which use the fake upstream.
    pub(crate) accounts: usize,
    /// True if there is one more account, for `/v1/responses`.
    pub(crate) has_responses_account: bool,
    /// Further lines at the beginning of the file.
    pub(crate) lines: String,
}

impl Default for GatewaySettings {
    fn default() -> Self {
        let durability = "power".to_owned();
        Self { durability, accounts: 1, has_responses_account: false, lines: String::new() }
    }
}

/// A gateway that is configured and has a key, and does not run.
pub(crate) struct GatewayHome {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) folder: PathBuf,
    pub(crate) address: SocketAddr,
    pub(crate) key: String,
}

impl Target {
    /// Starts the fake upstream, which clients can also reach directly.
    pub(crate) async fn start_upstream(folder: &Path) -> Result<Self> {
        let address = free_address()?;
        let mut command = own_command("upstream")?;
        let process = Process::start(DIRECT, folder, command.args(["--port", &address.port().to_string()]))?;
        Self::listening(DIRECT, address, authorization(UPSTREAM_KEY), process).await
    }

    /// Starts the relay.
    pub(crate) async fn start_relay(folder: &Path, upstream: SocketAddr) -> Result<Self> {
        let address = free_address()?;
        let (port, to) = (address.port().to_string(), upstream.port().to_string());
        let mut command = own_command("relay")?;
        command.args(["--port", &port, "--key", CLIENT_KEY, "--upstream-port", &to]);
        let process = Process::start("relay", folder, &mut command)?;
        Self::listening("relay", address, authorization(CLIENT_KEY), process).await
    }

    /// Waits until the process accepts connections.
    pub(crate) async fn listening(
        name: &str,
        address: SocketAddr,
        headers: String,
        mut process: Process,
    ) -> Result<Self> {
        process.wait_until_listening(address).await?;
        Ok(Self { name: name.to_owned(), address, headers, process })
    }
}

impl GatewayHome {
    /// Writes a configuration and creates a key.
    pub(crate) async fn create(
        name: &str,
        program: &Path,
        folder: &Path,
        upstream: SocketAddr,
        settings: &GatewaySettings,
    ) -> Result<Self> {
        let (address, home) = (free_address()?, folder.join(name));
        fs::create_dir(&home)?;
        fs::write(home.join("upstream-key"), UPSTREAM_KEY)?;
        fs::write(home.join("imagate.toml"), gateway_configuration(address, upstream, settings))?;
        let arguments = ["key", "create", "--config", "imagate.toml", "--name", "bench", "--json"];
        let created: serde_json::Value = serde_json::from_str(&output(program, &arguments, &home).await?)?;
        let key = created["secret"].as_str().context("`imagate key create` prints no secret")?.to_owned();
        Ok(Self { name: name.to_owned(), program: program.to_owned(), folder: home, address, key })
    }

    /// Starts the gateway; its log goes to a file.
    pub(crate) async fn start(&self) -> Result<Target> {
        let mut command = Command::new(&self.program);
        command.args(["serve", "--config", "imagate.toml"]).current_dir(&self.folder);
        let process = Process::start("imagate", &self.folder, &mut command)?;
        Target::listening(&self.name, self.address, authorization(&self.key), process).await
    }
}

/// The header line with this key.
pub(crate) fn authorization(key: &str) -> String {
    format!("authorization: Bearer {key}\r\n")
}

/// The command that starts a part of this tool.
fn own_command(part: &str) -> Result<Command> {
    let mut command = Command::new(env::current_exe().context("the path of this program")?);
    command.arg(part);
    Ok(command)
}

/// The program in a folder of `PATH`, or in one that `PATH` lacks for users who are not root.
#[expect(clippy::disallowed_methods, reason = "the user's PATH says where programs are")]
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|program| program.is_file())
}

fn gateway_configuration(address: SocketAddr, upstream: SocketAddr, settings: &GatewaySettings) -> String {
    let mut file = format!(
        "listen = \"{address}\"\ndata_dir = \"data\"\nlog_format = \"json\"\ntext_models = [\"gpt-5.5\"]\n\
         work_per_minute = 1000000000\n{}",
        settings.lines
    );
    // A build without this setting can still be measured.
    if settings.durability != "power" {
        file.push_str(&format!("durability = \"{}\"\n", settings.durability));
    }
    let account = |name: &str, protocol: &str| {
        format!(
            "\n[[accounts]]\nname = \"{name}\"\nkind = \"api_key\"\nprotocol = \"{protocol}\"\n\
             base_url = \"http://{upstream}/v1\"\napi_key = {{ file = \"upstream-key\" }}\n\
             concurrency = 10000\nlarge_concurrency = 10000\n"
        )
    };
    file.extend((0..settings.accounts).map(|number| account(&format!("bench-{number}"), "images")));
    if settings.has_responses_account {
        file.push_str(&account("bench-responses", "responses"));
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_has_each_account_once_and_only_settings_that_are_needed() {
        let address = "127.0.0.1:1".parse().unwrap();
        let settings = GatewaySettings { accounts: 3, ..GatewaySettings::default() };
        let file = gateway_configuration(address, address, &settings);
        assert_eq!(file.matches("[[accounts]]").count(), 3);
        assert!(file.contains("\"bench-2\"") && !file.contains("durability"), "{file}");
        let settings = GatewaySettings { durability: "process".to_owned(), has_responses_account: true, ..settings };
        let file = gateway_configuration(address, address, &settings);
        assert!(file.contains("durability = \"process\"\n"), "{file}");
        assert_eq!(file.matches("protocol = \"responses\"").count(), 1);
    }
}
