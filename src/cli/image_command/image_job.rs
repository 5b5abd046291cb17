//! The state of one request for images, for a command that may be stopped at any time.

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;

use super::advice::with_advice;
use super::payment_watch::PaymentWatch;
use super::stop_signal::{self, StopSignal};
use super::unfinished_request::UnfinishedRequest;
use crate::cli::failure::CommandFailure;
use crate::client::{Client, Error};

/// The request of a command, as far as the command and a signal that stops it must know the same.
#[derive(Default)]
pub(super) struct ImageJob {
    watch: Arc<PaymentWatch>,
    /// The key of the command; `None` if the user has given a key, and after the end.
    unfinished: RefCell<Option<UnfinishedRequest>>,
    /// The advice for a request whose outcome is unknown.
    advice: OnceCell<String>,
    /// True if the images have been written.
    is_delivered: Cell<bool>,
}

// === impl ImageJob ===

impl ImageJob {
    /// Returns the transport for the requests of the command.
    pub(super) fn transport(&self) -> Arc<PaymentWatch> {
        Arc::clone(&self.watch)
    }

    /// Keeps the key of the request. `unfinished` is `None` if the user has given one.
    pub(super) fn begin(&self, unfinished: Option<UnfinishedRequest>, client: &Client) {
        // The command begins its request once.
        let _ = self.advice.set(advice(unfinished.as_ref(), client));
        self.unfinished.replace(unfinished);
    }

    /// Forgets the key of the request, because its images have been written or there are none.
    pub(super) fn end(&self) {
        if let Some(unfinished) = self.unfinished.take() {
            unfinished.forget();
        }
    }

    /// Records that all images have been written.
    pub(super) fn mark_delivered(&self) {
        self.end();
        self.is_delivered.set(true);
    }

    /// Returns true if an earlier command with the key left its outcome unknown.
    fn is_repeat(&self) -> bool {
        self.unfinished.borrow().as_ref().is_some_and(UnfinishedRequest::is_repeat)
    }

    /// Returns the failure of the command for the error of its request. The key is forgotten if the error is certain.
    pub(super) fn fail(&self, error: Error, client: &Client) -> CommandFailure {
        if !error.leaves_key(self.is_repeat()) {
            self.end();
        }
        let advice = self.advice.get().filter(|_| error.is_outcome_unknown());
        match (with_advice(error, client), advice) {
            (CommandFailure::Failed(error) | CommandFailure::Advised(error, _), Some(advice)) => {
                CommandFailure::Advised(error, advice.clone())
            }
            (failure, _) => failure,
        }
    }

    /// Runs the command until its end or until a signal stops it.
    pub(super) fn run(&self, command: impl Future<Output = Result<(), CommandFailure>>) -> Result<(), CommandFailure> {
        let stop = stop_signal::listen()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let result = runtime.block_on(async {
            tokio::select! {
                biased;
                Ok(signal) = stop => Err(self.stopped(signal)),
                result = command => result,
            }
        });
        // A name that is still being looked up would hold a stopped command.
        runtime.shutdown_background();
        result
    }

    fn stopped(&self, signal: StopSignal) -> CommandFailure {
        let (message, advice) = if self.is_delivered.get() {
            ("stopped after the images were written", None)
        } else if self.watch.may_be_paid() || self.is_repeat() {
            ("stopped; the image may still be made and paid for", self.advice.get().cloned())
        } else {
            self.end();
            ("stopped before anything was sent that could be paid for", None)
        };
        CommandFailure::Stopped { message: message.to_owned(), advice, exit_code: signal.exit_code() }
    }
}

/// Returns the way to the image of a request whose outcome is unknown.
fn advice(unfinished: Option<&UnfinishedRequest>, client: &Client) -> String {
    if client.is_provider() {
        return "the same command asks for another image, which is paid for as well".to_owned();
    }
    let command = match unfinished {
        Some(unfinished) if !unfinished.is_kept() => {
            format!("the same command with `--idempotency-key {}`", unfinished.key())
        }
        _ => "the same command".to_owned(),
    };
    let other = if unfinished.is_some() { ". `--new` asks for another image" } else { "" };
    format!(
        "{command} within 24 hours gets that image from a gateway, which charges nothing again; another service may make and charge for another one{other}"
    )
}
