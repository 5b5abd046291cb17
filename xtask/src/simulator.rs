//! A gateway with the simulator, for programs that use the SDK. It listens on a free port of this machine.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result};

/// A running gateway, which ends with this value.
pub(crate) struct SimulatorProcess {
    process: Child,
    /// Held, so that the gateway never writes into a closed pipe.
    stdout: BufReader<ChildStdout>,
    api_key: String,
    base_url: String,
}

// === impl SimulatorProcess ===

impl SimulatorProcess {
    /// Starts this program with its data and its log in this folder, which must be empty.
    pub(crate) fn start(program: &Path, folder: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(folder.join("data"));
        command.env_remove("IMAGATE_CONFIG").current_dir(folder);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(folder.join("log.txt"))?);
        let mut process = command.spawn().with_context(|| format!("{}", program.display()))?;
        let stdout = process.stdout.take().context("the program has no standard output")?;
        let mut simulator =
            Self { process, stdout: BufReader::new(stdout), api_key: String::new(), base_url: String::new() };
        simulator
            .read_greeting()
            .with_context(|| format!("the gateway does not start; its log is in {}", folder.display()))?;
        Ok(simulator)
    }

    /// Reads the lines that the program prints before it serves, up to its address.
    fn read_greeting(&mut self) -> Result<()> {
        let mut line = String::new();
        while self.stdout.read_line(&mut line)? > 0 {
            let text = line.trim();
            if text.starts_with("sk-img-") {
                self.api_key = text.to_owned();
            }
            if let Some(origin) = text.strip_prefix("listening on ") {
                self.base_url = format!("{origin}/v1");
                return Ok(());
            }
            line.clear();
        }
        anyhow::bail!("it ended before it listened")
    }

    /// A command that runs a program of the SDK in a new folder, with the address and the key of this gateway.
    pub(crate) fn command(&self, program: &Path, folder: &Path) -> Result<Command> {
        fs::create_dir_all(folder)?;
        let mut command = Command::new(program);
        command.env("IMAGATE_BASE_URL", &self.base_url).env("IMAGATE_API_KEY", &self.api_key);
        command.current_dir(folder).stdin(Stdio::null());
        Ok(command)
    }
}

impl Drop for SimulatorProcess {
    fn drop(&mut self) {
        // If it has ended on its own, there is nothing to do.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Makes the folder empty.
pub(crate) fn empty_folder(folder: &Path) -> Result<PathBuf> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    Ok(folder.to_owned())
}
