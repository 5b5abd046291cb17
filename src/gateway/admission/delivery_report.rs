//! The report of the delivery of one answer, which is sent when the connection tells how it ended.

use std::fmt;

/// Tells the sender of an answer once if its caller has received all of it, as far as its connection tells. A report that is
/// dropped says that the caller has not: its answer then waits for a retry.
pub(crate) struct DeliveryReport(Option<Box<dyn FnOnce(bool) + Send + Sync>>);

// === impl DeliveryReport ===

impl DeliveryReport {
    pub(crate) fn new(send: Box<dyn FnOnce(bool) + Send + Sync>) -> Self {
        Self(Some(send))
    }

    pub(crate) fn send(mut self, is_delivered: bool) {
        if let Some(send) = self.0.take() {
            send(is_delivered);
        }
    }
}

impl Drop for DeliveryReport {
    fn drop(&mut self) {
        if let Some(send) = self.0.take() {
            send(false);
        }
    }
}

impl fmt::Debug for DeliveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeliveryReport")
    }
}
