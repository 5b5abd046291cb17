//! Keeps the error that a command would log. A command has no log, and an answer of the admin API does not say why the
//! store has failed.

use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::{Layer, Registry};

/// The first error that was logged. Clones are the same capture.
#[derive(Clone, Default)]
pub(crate) struct ErrorCapture(Arc<Mutex<Option<String>>>);

/// The text of an event: its message, and the error with its causes.
#[derive(Default)]
struct EventText(String);

// === impl ErrorCapture ===

impl ErrorCapture {
    /// Captures what this thread logs until the guard is dropped.
    pub(crate) fn start(&self) -> DefaultGuard {
        tracing::subscriber::set_default(Registry::default().with(self.clone().with_filter(LevelFilter::ERROR)))
    }

    /// Returns the first error.
    pub(crate) fn first_error(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<S: Subscriber> Layer<S> for ErrorCapture {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = EventText::default();
        event.record(&mut text);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(text.0);
    }
}

// === impl EventText ===

impl EventText {
    fn push(&mut self, text: &str) {
        let separator = if self.0.is_empty() { "" } else { ": " };
        self.0 = format!("{}{separator}{text}", self.0);
    }
}

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if matches!(field.name(), "message" | "error") {
            self.push(&format!("{value:?}"));
        }
    }

    fn record_error(&mut self, _: &Field, value: &(dyn Error + 'static)) {
        let mut next = Some(value);
        while let Some(error) = next {
            self.push(&error.to_string());
            next = error.source();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_kept_with_its_causes() {
        let capture = ErrorCapture::default();
        let guard = capture.start();
        tracing::warn!("a warning is no error");
        assert_eq!(capture.first_error(), None);
        let error = crate::gateway::store::StoreError::Unavailable { doing: "reading a key", source: "no disk".into() };
        tracing::error!(error = &error as &dyn Error, "the store failed");
        tracing::error!("a later error");
        drop(guard);
        tracing::error!("an error after the end");
        let text = capture.first_error().unwrap();
        assert!(text.contains("the store failed") && text.ends_with("no disk"), "{text}");
    }
}
