//! Started processes. Each is ended by its id when its owner is dropped: at the end of a run, after an error, and when
//! the tool is interrupted.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// The time in which a process has to listen after its start.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// The time that a process has to stop before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// The time between two looks at a process that starts.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A process in a process group of its own, with the processes that it starts.
pub(crate) struct Process {
    name: String,
    child: Child,
    /// The id of the process and of its group.
    id: u32,
    log: PathBuf,
}

impl Process {
    /// Starts a command; both of its outputs go to `NAME.log` in the folder.
    pub(crate) fn start(name: &str, folder: &Path, command: &mut Command) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log).with_context(|| log.display().to_string())?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).process_group(0).kill_on_drop(true);
        let child = command.spawn().with_context(|| format!("{name}: {:?}", command.as_std().get_program()))?;
        let id = child.id().with_context(|| name.to_owned())?;
        Ok(Self { name: name.to_owned(), child, id, log })
    }

    pub(crate) const fn id(&self) -> u32 {
        self.id
    }

    /// Waits until the process accepts connections.
    pub(crate) async fn wait_until_listening(&mut self, address: SocketAddr) -> Result<()> {
        let end = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(address).await.is_err() {
            if let Some(status) = self.child.try_wait()? {
                let log = fs::read_to_string(&self.log).unwrap_or_default();
                bail!("{} has ended with {status}: {}", self.name, log.lines().last().unwrap_or_default());
            }
            ensure!(Instant::now() < end, "{} does not listen at {address}", self.name);
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Asks the process to stop, and waits for its end.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.signal(Signal::TERM);
        if timeout(STOP_TIMEOUT, self.child.wait()).await.is_err() {
            self.signal(Signal::KILL);
            self.child.wait().await?;
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        // An error means that no process of the group is left.
        if let Some(id) = i32::try_from(self.id).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(id, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // After `wait` the id may belong to another process.
        if self.child.id().is_some() {
            self.signal(Signal::KILL);
        }
    }
}

/// Runs a command to its end, and returns its output.
pub(crate) async fn output(program: impl AsRef<OsStr>, arguments: &[&str], folder: &Path) -> Result<String> {
    let mut command = Command::new(program);
    let output = command.args(arguments).current_dir(folder).stdin(Stdio::null()).kill_on_drop(true).output().await?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{:?}: {}\n{stderr}", command.as_std(), output.status);
    String::from_utf8(output.stdout).context("the output of a command")
}

/// An address of the loopback interface that no process uses now.
pub(crate) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}
