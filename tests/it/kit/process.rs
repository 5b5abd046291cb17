//! The program under test as a process: run to its end, or served, measured and killed by its own process id.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{TEST_TIMEOUT, env_setting, pause};

/// How many lines of the gateway's log are shown when its test has failed.
const LAST_LINES: usize = 40;

/// A command line of the program. Of the machine's environment it sees only `PATH` and what test tools need.
pub(crate) struct Program(Command);

/// A command that ended.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A running server. Dropping it kills it.
pub(crate) struct Server {
    child: Child,
    address: SocketAddr,
    stdout: Arc<Lines>,
    stderr: Arc<Lines>,
}

#[derive(Default)]
struct Lines {
    text: Mutex<(String, bool)>,
    grown: Condvar,
}

// === impl Program ===

impl Program {
    /// The debug build, or the program that the caller of the test run names. `home` becomes its home, temporary and
    /// working directory; its data home is `data` below it.
    pub(crate) fn new(home: &Path) -> Self {
        let given = env_setting("IMAGATE_TEST_PROGRAM");
        Self::for_program(given.as_deref().map_or(Path::new(env!("CARGO_BIN_EXE_imagate")), Path::new), home)
    }

    /// Another program, as [`Program::new`].
    pub(crate) fn for_program(program: &Path, home: &Path) -> Self {
        let mut command = Command::new(program);
        command.env_clear().stdin(Stdio::null());
        for name in ["PATH", "IT_REAL_PROGRAM", "LLVM_PROFILE_FILE"] {
            if let Some(value) = env_setting(name) {
                command.env(name, value);
            }
        }
        command.env("HOME", home).env("XDG_DATA_HOME", home.join("data")).env("TMPDIR", home).current_dir(home);
        Self(command)
    }

    pub(crate) fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.0.args(args);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.0.env(name, value);
        self
    }

    /// Allows at most `count` open files and connections.
    pub(crate) fn with_descriptors(self, count: usize) -> Self {
        let mut shell = Command::new("sh");
        shell.env_clear().stdin(Stdio::null()).args(["-c", &format!("ulimit -n {count}; exec \"$0\" \"$@\"")]);
        shell.arg(self.0.get_program()).args(self.0.get_args());
        shell.envs(self.0.get_envs().filter_map(|(name, value)| Some((name, value?))));
        if let Some(folder) = self.0.get_current_dir() {
            shell.current_dir(folder);
        }
        Self(shell)
    }

    /// Reads this file as its standard input.
    #[track_caller]
    pub(crate) fn stdin(mut self, file: &Path) -> Self {
        self.0.stdin(std::fs::File::open(file).expect("a file for standard input"));
        self
    }

    /// Runs it to its end; one that does not end is killed, and has no exit code then.
    #[track_caller]
    pub(crate) fn run(self) -> CommandOutput {
        self.run_within(TEST_TIMEOUT)
    }

    /// As [`Program::run`], with another limit.
    #[track_caller]
    pub(crate) fn run_within(mut self, limit: Duration) -> CommandOutput {
        let mut child = self.0.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let stdout = Lines::collect(child.stdout.take().expect("stdout"));
        let stderr = Lines::collect(child.stderr.take().expect("stderr"));
        let start = Instant::now();
        let status = loop {
            if start.elapsed() > limit {
                drop(child.kill());
            }
            if let Some(status) = child.try_wait().expect("a status") {
                break status;
            }
            pause(Duration::from_millis(5));
        };
        CommandOutput { code: status.code(), stdout: stdout.wait_for_end(), stderr: stderr.wait_for_end() }
    }

    /// Starts it as a server and waits until it listens.
    #[track_caller]
    pub(crate) fn serve(self) -> Server {
        let (mut child, stderr) = self.spawn();
        let stderr = Lines::collect(stderr);
        Self::wait_until_it_listens(child.stdout.take().expect("stdout"), stderr, child)
    }

    /// Like [`Program::serve`], but the log is read only as far as the test reads it.
    #[track_caller]
    pub(crate) fn serve_with_log(self) -> (Server, BufReader<ChildStderr>) {
        let (mut child, stderr) = self.spawn();
        let server = Self::wait_until_it_listens(child.stdout.take().expect("stdout"), Arc::default(), child);
        (server, BufReader::new(stderr))
    }

    /// Starts the program with another standard output, and waits for nothing. The caller must end the process.
    pub(crate) fn spawn_printing_to(mut self, out: impl Into<Stdio>) -> Child {
        self.0.stdout(out).stderr(Stdio::piped()).spawn().expect("the program starts")
    }

    /// Starts the program with these standard streams, and waits for nothing. The caller must end the process.
    pub(crate) fn spawn_with(mut self, stdin: Stdio, stdout: Stdio, stderr: Stdio) -> Child {
        self.0.stdin(stdin).stdout(stdout).stderr(stderr).spawn().expect("the program starts")
    }

    fn spawn(mut self) -> (Child, ChildStderr) {
        let mut child = self.0.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let stderr = child.stderr.take().expect("stderr");
        (child, stderr)
    }

    #[track_caller]
    fn wait_until_it_listens(stdout: ChildStdout, stderr: Arc<Lines>, mut child: Child) -> Server {
        let stdout = Lines::collect(stdout);
        let address = stdout.wait_for("listening on http://");
        let Some(address) = address.and_then(|line| line.trim_end_matches('/').parse().ok()) else {
            drop(child.kill());
            drop(child.wait());
            panic!("it never listened\n--- stdout\n{}\n--- stderr\n{}", stdout.all(), stderr.all());
        };
        Server { child, address, stdout, stderr }
    }
}

// === impl CommandOutput ===

impl CommandOutput {
    /// Standard output of a command that must have succeeded.
    #[track_caller]
    pub(crate) fn ok_stdout(&self) -> &str {
        assert_eq!(self.code, Some(0), "{self:#?}");
        &self.stdout
    }

    /// Standard output as one JSON value.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(self.ok_stdout()).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}

// === impl Server ===

impl Server {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn stdout(&self) -> String {
        self.stdout.all()
    }

    pub(crate) fn stderr(&self) -> String {
        self.stderr.all()
    }

    /// Kills it, and returns everything that it has printed and everything that it has logged.
    pub(crate) fn stop_and_collect_output(mut self) -> (String, String) {
        drop(self.child.kill());
        drop(self.child.wait());
        (self.stdout.wait_for_end(), self.stderr.wait_for_end())
    }

    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Forgets the highest resident size seen so far.
    pub(crate) fn reset_peak(&self) {
        std::fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5").expect("clear_refs");
    }

    /// The highest resident size since [`Server::reset_peak`], in bytes.
    pub(crate) fn peak_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
    }

    /// Deleted files below `data`, other than those of the spool, that the server still holds open: what it writes
    /// there is lost.
    pub(crate) fn deleted_files(&self) -> Vec<String> {
        let links = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("descriptors");
        let targets = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
        let targets = targets.map(|target| target.display().to_string());
        targets
            .filter(|target| {
                target.ends_with(" (deleted)") && target.contains("/data/") && !target.contains("/data/spool/")
            })
            .collect()
    }

    /// How many descriptors it holds.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("descriptors").count()
    }

    /// From now on it gets only descriptors below this number; those that it has stay open.
    pub(crate) fn limit_descriptors(&self, below: usize) {
        let (pid, limit) = (self.child.id().to_string(), format!("--nofile={below}:"));
        assert!(Command::new("prlimit").args(["--pid", &pid, &limit]).status().expect("prlimit").success());
    }

    /// `SIGKILL`, and waits for the end.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("SIGKILL");
        self.child.wait().expect("the end");
    }

    /// `SIGTERM`.
    pub(crate) fn terminate(&self) {
        self.signal("TERM");
    }

    /// Sends the signal of this name, given without `SIG`.
    pub(crate) fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// Waits for the end; panics when it does not come within `limit`.
    #[track_caller]
    pub(crate) fn wait(&mut self, limit: Duration) -> ExitStatus {
        assert!(ends_within(&mut self.child, limit), "still running after {limit:?}\n{}", self.stderr.all());
        self.child.wait().expect("a status")
    }
}

/// Sends a signal to this process by its id.
pub(crate) fn signal(child: &Child, name: &str) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status();
    assert!(sent.expect("a shell").success());
}

/// Waits for the end of the process; `false` if it does not come within `limit`.
pub(crate) fn ends_within(child: &mut Child, limit: Duration) -> bool {
    let start = Instant::now();
    loop {
        if child.try_wait().expect("a status").is_some() {
            return true;
        }
        if start.elapsed() > limit {
            return false;
        }
        pause(Duration::from_millis(20));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if std::thread::panicking() {
            let said = self.stderr.all();
            let lines: Vec<&str> = said.lines().collect();
            let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
            eprintln!("--- the end of the gateway's standard error\n{}", last.join("\n"));
        }
    }
}

// === impl Lines ===

impl Lines {
    fn collect(pipe: impl std::io::Read + Send + 'static) -> Arc<Self> {
        let lines = Arc::<Self>::default();
        let writer = Arc::clone(&lines);
        std::thread::spawn(move || {
            let mut reader = BufReader::new(pipe);
            let mut line = String::new();
            while matches!(reader.read_line(&mut line), Ok(1..)) {
                writer.text.lock().unwrap_or_else(PoisonError::into_inner).0.push_str(&line);
                writer.grown.notify_all();
                line.clear();
            }
            writer.text.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
            writer.grown.notify_all();
        });
        lines
    }

    fn all(&self) -> String {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Everything, once the pipe is closed.
    fn wait_for_end(&self) -> String {
        let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        while !text.1 {
            text = self.grown.wait(text).unwrap_or_else(PoisonError::into_inner);
        }
        text.0.clone()
    }

    /// The rest of the first line with this beginning; `None` if the pipe ends, or [`TEST_TIMEOUT`] passes, before it
    /// comes.
    fn wait_for(&self, beginning: &str) -> Option<String> {
        let start = Instant::now();
        let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(rest) = text.0.lines().find_map(|line| line.strip_prefix(beginning)) {
                return Some(rest.trim().to_owned());
            }
            if text.1 || start.elapsed() > TEST_TIMEOUT {
                return None;
            }
            text = self.grown.wait_timeout(text, Duration::from_millis(100)).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
