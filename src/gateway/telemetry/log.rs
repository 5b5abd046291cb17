//! The queue of log lines in front of standard error.
//!
//! This module decides how many lines may wait, and how long the process waits for them when it ends. If the pipe is
//! not read, only the thread that writes blocks: lines beyond the limit are dropped and counted, and the threads that
//! log continue.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;
use tracing_subscriber::fmt::MakeWriter;

/// The most bytes of waiting lines (our choice), which is several thousand lines. While a batch is written, the same
/// number of bytes may wait in addition.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// The time between two batches (our choice): under load, lines share a write instead of waking the thread one by one.
/// The first line after a pause is written at once.
const BATCH_INTERVAL: Duration = Duration::from_millis(5);

/// The time that the process waits for the last lines when it ends (our choice). If the pipe is read, they take
/// milliseconds.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The number of lines that this process could not write. It is static, because there is one log.
static DROPPED: LazyLock<Counter> = LazyLock::new(Counter::default);

/// Returns the counter of the lines that this process could not write.
pub(super) fn dropped_lines() -> Counter {
    DROPPED.clone()
}

/// Lines that wait to be written. Adding a line never waits for the output.
#[derive(Clone, Debug)]
pub(super) struct LogQueue(Arc<SharedLogQueue>);

#[derive(Debug)]
struct SharedLogQueue {
    state: Mutex<LogQueueState>,
    changed: Condvar,
    dropped: Counter,
}

#[derive(Debug, Default)]
struct LogQueueState {
    waiting: Vec<u8>,
    /// The number of lines in `waiting`.
    lines: u64,
    /// True while a batch is being written.
    is_writing: bool,
    /// True while the thread waits for the next line, so that the line must wake it.
    is_idle: bool,
    /// The number of dropped lines that were not reported yet.
    unreported_drops: u64,
}

/// On drop, waits for a limited time until the last lines are written.
#[derive(Debug)]
pub(crate) struct LogGuard(LogQueue);

// === impl LogQueue ===

impl LogQueue {
    /// Starts to write to `out`, on a thread that lives as long as the process. After lines were dropped, calls
    /// `report_dropped` with their number as soon as lines can be written again.
    ///
    /// # Errors
    ///
    /// Returns an error if the system cannot start the thread.
    pub(super) fn start(
        out: impl Write + Send + 'static,
        dropped: Counter,
        report_dropped: impl Fn(u64) + Send + 'static,
    ) -> io::Result<Self> {
        let queue = Self(Arc::new(SharedLogQueue { state: Mutex::default(), changed: Condvar::new(), dropped }));
        let writer = queue.clone();
        std::thread::Builder::new().name("log".to_owned()).spawn(move || writer.write_to(out, report_dropped))?;
        Ok(queue)
    }

    pub(super) fn guard(&self) -> LogGuard {
        LogGuard(self.clone())
    }

    fn push(&self, line: &[u8]) {
        let mut state = self.lock();
        if state.waiting.len() + line.len() > WAITING_BYTES_MAX {
            state.unreported_drops += 1;
            self.0.dropped.inc();
            return;
        }
        state.waiting.extend_from_slice(line);
        state.lines += 1;
        if state.is_idle || state.waiting.len() >= WAITING_BYTES_MAX / 2 {
            self.0.changed.notify_all();
        }
    }

    fn write_to(&self, mut out: impl Write, report_dropped: impl Fn(u64)) {
        loop {
            let (batch, lines) = self.next_batch();
            let written = out.write_all(&batch).and_then(|()| out.flush());
            let unreported_drops = self.finish_batch(written.is_ok(), lines);
            if unreported_drops > 0 {
                report_dropped(unreported_drops);
            }
            self.wait_between_batches();
        }
    }

    fn next_batch(&self) -> (Vec<u8>, u64) {
        let mut state = self.lock();
        while state.waiting.is_empty() {
            state.is_idle = true;
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        (state.is_idle, state.is_writing) = (false, true);
        (std::mem::take(&mut state.waiting), std::mem::take(&mut state.lines))
    }

    /// Waits for [`BATCH_INTERVAL`], but not while so many lines wait that some could soon be dropped.
    fn wait_between_batches(&self) {
        let has_space = |state: &mut LogQueueState| state.waiting.len() < WAITING_BYTES_MAX / 2;
        drop(self.0.changed.wait_timeout_while(self.lock(), BATCH_INTERVAL, has_space));
    }

    /// Ends a batch, and returns the number of dropped lines to be reported. Lines that the output refuses count as
    /// dropped.
    fn finish_batch(&self, written: bool, lines: u64) -> u64 {
        let mut state = self.lock();
        state.is_writing = false;
        self.0.changed.notify_all();
        if written {
            return std::mem::take(&mut state.unreported_drops);
        }
        state.unreported_drops += lines;
        self.0.dropped.inc_by(lines);
        0
    }

    /// Waits until every line is written, but at most for `time_limit`.
    fn flush_within(&self, time_limit: Duration) {
        let end = Instant::now() + time_limit;
        let mut state = self.lock();
        while state.is_writing || !state.waiting.is_empty() {
            let Some(remaining) = end.checked_duration_since(Instant::now()) else { return };
            state = self.0.changed.wait_timeout(state, remaining).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, LogQueueState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> MakeWriter<'a> for LogQueue {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

impl Write for &LogQueue {
    /// Adds a line. The formatting layer writes each line in one call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// === impl LogGuard ===

impl Drop for LogGuard {
    fn drop(&mut self) {
        self.0.flush_within(FLUSH_TIMEOUT);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// An output whose writes wait for a result that the test sends.
    struct Gate {
        write_results: mpsc::Receiver<io::Result<()>>,
        written: mpsc::Sender<Vec<u8>>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.write_results.recv().unwrap_or(Ok(()))?;
            drop(self.written.send(bytes.to_vec()));
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Log {
        queue: LogQueue,
        dropped: Counter,
        write_results: mpsc::Sender<io::Result<()>>,
        written: mpsc::Receiver<Vec<u8>>,
        reported: mpsc::Receiver<u64>,
    }

    fn log() -> Log {
        let (open, gate) = mpsc::channel();
        let (sink, written) = mpsc::channel();
        let (report_sender, said) = mpsc::channel();
        let dropped = Counter::default();
        let out = Gate { write_results: gate, written: sink };
        let queue = LogQueue::start(out, dropped.clone(), move |lines| report_sender.send(lines).unwrap_or(()))
            .expect("the thread can be started");
        Log { queue, dropped, write_results: open, written, reported: said }
    }

    #[test]
    fn lines_beyond_the_limit_are_dropped_and_reported_once() {
        let log = log();
        let line = [b'a'; 1024];
        let lines_that_fit = u64::try_from(WAITING_BYTES_MAX / line.len()).expect("the number fits");
        (0..lines_that_fit * 3).for_each(|_| log.queue.push(&line));
        let dropped = log.dropped.get();
        assert!((lines_that_fit..=lines_that_fit * 2).contains(&dropped), "{dropped} of {}", lines_that_fit * 3);
        log.write_results.send(Ok(())).expect("the output still waits");
        assert_eq!(log.reported.recv(), Ok(dropped));
        drop(log.write_results);
        log.queue.flush_within(Duration::from_secs(60));
        assert_eq!(log.reported.try_recv(), Err(mpsc::TryRecvError::Empty));
        let written: usize = log.written.try_iter().map(|bytes| bytes.len()).sum();
        assert_eq!(written, line.len() * usize::try_from(lines_that_fit * 3 - dropped).expect("the number fits"));
    }

    #[test]
    fn a_line_that_the_output_refuses_is_counted() {
        let log = log();
        log.queue.push(b"one\n");
        log.write_results.send(Err(io::ErrorKind::BrokenPipe.into())).expect("the output still waits");
        log.queue.flush_within(Duration::from_secs(60));
        assert_eq!(log.dropped.get(), 1);
        log.queue.push(b"two\n");
        drop(log.write_results);
        assert_eq!((log.reported.recv(), log.written.recv()), (Ok(1), Ok(b"two\n".to_vec())));
    }

    #[test]
    fn a_flush_waits_for_the_last_lines_for_a_limited_time() {
        let log = log();
        log.queue.push(b"one\n");
        let begun = Instant::now();
        log.queue.flush_within(Duration::from_millis(50));
        assert!(begun.elapsed() >= Duration::from_millis(50) && log.written.try_recv().is_err());
        drop(log.write_results);
        log.queue.flush_within(Duration::from_secs(60));
        assert_eq!(log.written.try_recv(), Ok(b"one\n".to_vec()));
    }
}
