//! Starts child processes, and ends them in time.

use std::env;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::libraries::{ComparedLibrary, Fallible};

const POLL: Duration = Duration::from_millis(20);

/// A temporary folder that is removed with everything in it.
pub struct TemporaryFolder(PathBuf);

/// A child process that does not outlive this value.
struct RunningChild(Child);

// === impl TemporaryFolder ===

impl TemporaryFolder {
    /// The name has the id of this process, so two runs do not meet.
    pub fn create(name: &str) -> io::Result<Self> {
        let path = env::temp_dir().join(format!("sdk-comparison-{}-{name}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // A folder that stays behind spoils no result.
        drop(fs::remove_dir_all(&self.0));
    }
}

// === impl RunningChild ===

impl RunningChild {
    #[expect(clippy::disallowed_methods, reason = "this program has no runtime that the pause could block")]
    fn wait(&mut self, limit: Duration) -> Fallible<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                return Err(format!("no end after {limit:?}").into());
            }
            thread::sleep(POLL);
        }
    }
}

impl Drop for RunningChild {
    fn drop(&mut self) {
        // Both fail if the child has ended, which is what is wanted.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Ends this process when its standard input ends: the parent has ended, perhaps by a signal, and its server with it.
#[expect(clippy::disallowed_methods, clippy::exit, reason = "nobody is left to whom a result could be returned")]
pub fn end_with_parent() {
    thread::spawn(|| {
        drop(io::copy(&mut io::stdin().lock(), &mut io::sink()));
        std::process::exit(1);
    });
}

/// Runs a child, and returns what it printed. Its environment has a home folder of its own and nothing else, so no
/// proxy, key or setting of the caller changes the result.
pub fn run_child(library: ComparedLibrary, work: &str, url: &str, name: &str, limit: Duration) -> Fallible<Value> {
    let folder = TemporaryFolder::create(&format!("{name}-{}", library.name()))?;
    let child = Command::new(env::current_exe()?)
        .args(["child", library.name(), work, url])
        .arg(folder.path())
        .env_clear()
        .env("HOME", folder.path())
        .env("TMPDIR", folder.path())
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut child = RunningChild(child);
    let status = child.wait(limit).map_err(|error| format!("{}: {error}", library.name()))?;
    let mut output = String::new();
    child.0.stdout.take().ok_or("no output")?.read_to_string(&mut output)?;
    if !status.success() {
        return Err(format!("{} ended with {status}", library.name()).into());
    }
    Ok(serde_json::from_str(output.trim())?)
}
