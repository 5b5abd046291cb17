//! JSON texts of which a tree is made. The values of a text are counted while it arrives, and the memory of the text and
//! of its tree is charged before a parser sees it. A large text is parsed on a thread that may block.

use std::future::pending;
use std::io;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinError;

use super::{Admission, ByteShare};
use crate::stream::json::JsonValueCounter;

/// The most values and keys of a JSON text that becomes a tree (our choice): several hundred times as many as the largest
/// request of the API has.
pub(crate) const JSON_VALUES_MAX: u64 = 10_000;
/// The memory of one value or key, in bytes: the most that was measured for a call of a tool, whose library parses it
/// three times.
pub(crate) const JSON_VALUE_BYTES: u64 = 256;
/// The length up to which a text is not counted: every value takes at least two bytes with its comma, so there cannot be
/// too many.
const UNCOUNTED_BYTES: usize = 16 * 1024;
/// The length from which a text is parsed on a thread that may block (our choice). Less takes a fraction of a
/// millisecond.
const BLOCKING_BYTES: usize = 64 * 1024;
/// The most texts that are parsed on such threads at once (our choice), so that processors are left for other work.
const PARSERS_MAX: usize = 2;

/// The threads on which large texts are parsed.
#[derive(Clone, Debug)]
pub(super) struct ParserThreads(Arc<Semaphore>);

/// A JSON text that is arriving.
#[derive(Debug)]
pub(crate) struct JsonTextBuilder {
    admission: Admission,
    text: BytesMut,
    share: ByteShare,
    counter: JsonValueCounter,
    is_counting: bool,
}

/// The reason why a JSON text is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JsonTextError {
    /// The text has more than [`JSON_VALUES_MAX`] values and keys.
    #[error("the text has too many values")]
    TooManyValues,
    /// A budget does not allow the text or its tree.
    #[error(transparent)]
    Budget(#[from] io::Error),
}

/// A complete JSON text. The memory of the text and of its tree is held as long as it lives.
#[derive(Clone, Debug)]
pub(crate) struct CountedJson {
    text: Bytes,
    parsers: ParserThreads,
}

// === impl ParserThreads ===

impl Default for ParserThreads {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(PARSERS_MAX)))
    }
}

impl ParserThreads {
    /// Runs work on a thread that may block, within the span of the request. A panic of the work goes on here.
    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        // The semaphore is never closed.
        let permit = Arc::clone(&self.0).acquire_owned().await.ok();
        let span = tracing::Span::current();
        let work = Handle::current().spawn_blocking(move || {
            let result = span.in_scope(work);
            drop(permit);
            result
        });
        match work.await.map_err(JoinError::try_into_panic) {
            Ok(result) => result,
            Err(Ok(panic)) => resume_unwind(panic),
            // The runtime is shutting down, and this task ends with it.
            Err(Err(_)) => pending().await,
        }
    }
}

// === impl JsonTextBuilder ===

impl JsonTextBuilder {
    pub(crate) fn new(admission: &Admission) -> Self {
        let (text, counter) = (BytesMut::new(), JsonValueCounter::default());
        Self { admission: admission.clone(), text, share: admission.memory(), counter, is_counting: false }
    }

    /// Appends the next piece.
    ///
    /// # Errors
    ///
    /// Returns an error if a budget does not allow it, or the text has too many values.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Result<(), JsonTextError> {
        self.share.set_bytes((self.text.len() + piece.len()) as u64)?;
        let counted = if self.is_counting { self.text.len() } else { 0 };
        self.text.extend_from_slice(piece);
        self.is_counting = self.text.len() > UNCOUNTED_BYTES;
        if self.is_counting {
            self.counter.push(&self.text[counted..]);
        }
        if self.counter.values() > JSON_VALUES_MAX { Err(JsonTextError::TooManyValues) } else { Ok(()) }
    }

    /// Ends the text, and charges its tree.
    ///
    /// # Errors
    ///
    /// Returns an error if a budget does not allow the tree.
    pub(crate) fn finish(mut self) -> Result<CountedJson, JsonTextError> {
        self.share.add_bytes(self.counter.values() * JSON_VALUE_BYTES)?;
        let parsers = self.admission.budgets().parsers.clone();
        Ok(CountedJson { text: self.share.attach_to(self.text.freeze()), parsers })
    }
}

// === impl CountedJson ===

impl CountedJson {
    /// Returns the text that the gateway itself has made of a request.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`JsonTextBuilder`].
    pub(crate) fn new(admission: &Admission, text: &str) -> Result<Self, JsonTextError> {
        let mut builder = JsonTextBuilder::new(admission);
        builder.push(text.as_bytes())?;
        builder.finish()
    }

    /// The text. Only a short one may be parsed on a thread of the runtime.
    pub(crate) const fn text(&self) -> &Bytes {
        &self.text
    }

    /// Parses the text: on this thread if it is short, otherwise on a thread that may block.
    pub(crate) async fn parse_with<T: Send + 'static>(&self, parse: impl FnOnce(&[u8]) -> T + Send + 'static) -> T {
        if self.text.len() < BLOCKING_BYTES {
            return parse(&self.text);
        }
        let text = self.text.clone();
        self.parsers.run(move || parse(&text)).await
    }

    /// Runs a future that parses the text before it waits for anything: until then on a thread that may block, unless the
    /// text is short.
    pub(crate) async fn run_parsing<F>(&self, future: F) -> F::Output
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        if self.text.len() < BLOCKING_BYTES {
            return future.await;
        }
        let mut future = Box::pin(future);
        // The future is polled again at once, so the first poll has nothing to wake.
        let first_poll = move || {
            let poll = Pin::as_mut(&mut future).poll(&mut Context::from_waker(Waker::noop()));
            (future, poll)
        };
        match self.parsers.run(first_poll).await {
            (_, Poll::Ready(output)) => output,
            (future, Poll::Pending) => future.await,
        }
    }
}
