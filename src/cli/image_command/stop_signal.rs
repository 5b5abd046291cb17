//! The signals that stop a command: Ctrl-C, and the request of the system to end.
//!
//! A thread of its own waits for them. The first signal stops the command, which then says what may have been paid for. A
//! further one ends the process at once, also if the command is blocked, for example by a pipe that nobody reads.

use std::io;
use std::time::Duration;

use tokio::sync::oneshot;

/// The time for which further signals are ignored (our choice): a parent process often passes on the signal that the
/// terminal has sent to both.
const GRACE: Duration = Duration::from_millis(500);

/// A signal that stops a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopSignal {
    /// `SIGINT`, which Ctrl-C sends.
    Interrupt,
    /// `SIGTERM`.
    #[cfg(unix)]
    Terminate,
}

// === impl StopSignal ===

impl StopSignal {
    /// Returns the exit code that shells use for the signal: 128 and its number.
    pub(super) fn exit_code(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            #[cfg(unix)]
            Self::Terminate => 143,
        }
    }
}

/// Begins to listen for signals. From now on they do not end the process by themselves.
pub(super) fn listen() -> io::Result<oneshot::Receiver<StopSignal>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = {
        let _context = runtime.enter();
        SignalListener::new()?
    };
    let (sender, receiver) = oneshot::channel();
    let wait = async move {
        // The receiver is gone if the command has ended.
        let _ = sender.send(signals.next().await);
        tokio::time::sleep(GRACE).await;
        end_process(signals.next().await);
    };
    std::thread::Builder::new().name("stop-signal".to_owned()).spawn(move || runtime.block_on(wait))?;
    Ok(receiver)
}

#[expect(
    clippy::exit,
    clippy::disallowed_methods,
    reason = "the main thread may be blocked; the key stays in its file"
)]
fn end_process(signal: StopSignal) {
    std::process::exit(signal.exit_code().into())
}

#[cfg(unix)]
struct SignalListener {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl SignalListener {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) -> StopSignal {
        tokio::select! {
            _ = self.interrupt.recv() => StopSignal::Interrupt,
            _ = self.terminate.recv() => StopSignal::Terminate,
        }
    }
}

#[cfg(not(unix))]
struct SignalListener;

#[cfg(not(unix))]
impl SignalListener {
    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> StopSignal {
        // If the handler cannot be installed, the system's default ends the process.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        StopSignal::Interrupt
    }
}
