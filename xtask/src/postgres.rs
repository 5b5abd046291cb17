//! A PostgreSQL server of its own for the tests, from the packages of the system.
//!
//! The server has an empty cluster in a temporary folder, listens on loopback, and ends with this process. It does not
//! wait for the disk, so a test of durability kills the gateway and not the server.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

/// The environment variable that gives tests the address of the server. Tests create databases of their own in it.
const VARIABLE: &str = "IMAGATE_TEST_POSTGRES";

/// The oldest version that the gateway supports.
const OLDEST_VERSION: u32 = 14;

/// The longest time that the server may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A running server. It is stopped, and its files are removed, when it is dropped.
#[derive(Debug)]
pub struct PostgresServer {
    process: Child,
    folder: PathBuf,
    port: u16,
}

/// Runs a command with a server whose address is in `IMAGATE_TEST_POSTGRES`.
///
/// # Errors
///
/// Returns an error if PostgreSQL is not installed, the server does not start, or the command fails.
pub fn run_with_server(root: &Path, command: &[&str]) -> Result<()> {
    let Some((program, arguments)) = command.split_first() else { bail!("no command was given") };
    let server = PostgresServer::start()?;
    let (name, address) = server.variable();
    let status = Command::new(program).args(arguments).current_dir(root).env(name, address).status();
    let status = status.with_context(|| format!("running {program}"))?;
    ensure!(status.success(), "{program} failed");
    Ok(())
}

/// True if the programs of a supported server are installed.
pub fn is_installed() -> bool {
    find_programs().is_ok()
}

impl PostgresServer {
    /// Creates a cluster and starts the server.
    ///
    /// # Errors
    ///
    /// Returns an error if PostgreSQL is not installed, or the server does not start.
    pub fn start() -> Result<Self> {
        let programs = find_programs()?;
        let folder = std::env::temp_dir().join(format!("imagate-postgres-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        let account = server_account()?;
        #[cfg(unix)]
        if let Some((user, group)) = account {
            std::os::unix::fs::chown(&folder, Some(user), Some(group))?;
        }
        let cluster = folder.join("cluster");
        let mut initdb = command_as(account, &programs.join("initdb"), &folder);
        initdb.args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-sync", "--pgdata"]).arg(&cluster);
        let output = initdb.output().context("running initdb")?;
        ensure!(output.status.success(), "initdb failed: {}", String::from_utf8_lossy(&output.stderr));
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let mut postgres = command_as(account, &programs.join("postgres"), &folder);
        postgres.arg("-D").arg(&cluster).args(["-h", "127.0.0.1", "-p", &port.to_string(), "-k"]).arg(&folder);
        for setting in ["fsync=off", "full_page_writes=off", "max_connections=500", "log_min_messages=panic"] {
            postgres.args(["-c", setting]);
        }
        let process = postgres.spawn().context("starting postgres")?;
        let mut server = Self { process, folder, port };
        server.wait_until_ready(&programs)?;
        Ok(server)
    }

    /// Returns the variable that tells tests the address of the server.
    #[must_use]
    pub fn variable(&self) -> (OsString, OsString) {
        (VARIABLE.into(), format!("postgres://postgres@127.0.0.1:{}/postgres", self.port).into())
    }

    #[expect(clippy::disallowed_methods, reason = "waits for another process")]
    fn wait_until_ready(&mut self, programs: &Path) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < START_TIMEOUT {
            if let Some(status) = self.process.try_wait()? {
                bail!("postgres ended with {status}");
            }
            let mut probe = Command::new(programs.join("pg_isready"));
            probe.args(["-q", "-U", "postgres", "-h", "127.0.0.1", "-p", &self.port.to_string()]);
            if probe.status().is_ok_and(|status| status.success()) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(50));
        }
        bail!("postgres did not start within {} s", START_TIMEOUT.as_secs())
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // An immediate shutdown: unlike a kill, it also frees the shared memory of the server.
        let pid = self.process.id().to_string();
        if !Command::new("kill").args(["-QUIT", &pid]).status().is_ok_and(|status| status.success()) {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("{} could not be removed: {error}", self.folder.display());
        }
    }
}

fn command_as(account: Option<(u32, u32)>, program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null());
    #[cfg(unix)]
    if let Some((user, group)) = account {
        use std::os::unix::process::CommandExt as _;

        command.uid(user).gid(group);
    }
    command
}

/// Returns the user and the group that the server runs as: it refuses to run as root. `None` is the user of this process.
fn server_account() -> Result<Option<(u32, u32)>> {
    if id(&["-u"])? != 0 {
        return Ok(None);
    }
    // The package of the server creates this user.
    Ok(Some((id(&["-u", "postgres"])?, id(&["-g", "postgres"])?)))
}

fn id(arguments: &[&str]) -> Result<u32> {
    let output = Command::new("id").args(arguments).output().context("running id")?;
    ensure!(output.status.success(), "id {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).trim().parse()?)
}

/// Returns the folder with the programs of the newest installed server.
#[expect(clippy::disallowed_methods, reason = "the path of the user")]
fn find_programs() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian does not put the server's programs into the path.
    let debian =
        fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path().join("bin"));
    let mut newest = None;
    for folder in std::env::split_paths(&path).chain(debian) {
        // A link in the path leads to the folder with the other programs.
        let Ok(program) = fs::canonicalize(folder.join("postgres")) else { continue };
        let Some(folder) = program.parent().filter(|folder| folder.join("initdb").exists()).map(Path::to_owned) else {
            continue;
        };
        if let Some(version) = version_of(program.as_os_str())
            && newest.as_ref().is_none_or(|(known, _)| version > *known)
        {
            newest = Some((version, folder));
        }
    }
    match newest {
        Some((version, folder)) if version >= OLDEST_VERSION => Ok(folder),
        Some((version, _)) => bail!("PostgreSQL {version} is too old: {OLDEST_VERSION} or newer is needed"),
        None => bail!("PostgreSQL is not installed"),
    }
}

/// Returns the major version of a server: the number after the name in `postgres (PostgreSQL) 15.18`.
fn version_of(program: &OsStr) -> Option<u32> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.split_whitespace().nth(2)?.split(['.', 'd', 'b', 'r']).next()?.parse().ok()
}
