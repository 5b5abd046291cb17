//! The metrics of connections.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::metrics::StaticLabel;

/// The number of connections in each state, and the number of those closed for each reason.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionMetrics {
    open: Family<StateLabels, Gauge>,
    closed: Family<ReasonLabels, Counter>,
    accept_errors: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: StaticLabel,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: StaticLabel,
}

// === impl ConnectionMetrics ===

impl ConnectionMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("connections", "Open connections of callers by state", self.open.clone());
        registry.register("connections_closed", "Connections that were closed or refused", self.closed.clone());
        registry.register("accept_errors", "Connections that could not be accepted", self.accept_errors.clone());
    }

    /// Sets the number of connections in each state.
    pub(crate) fn set_open(&self, counts: &[(&'static str, usize)]) {
        for (state, count) in counts {
            let count = i64::try_from(*count).unwrap_or(i64::MAX);
            self.open.get_or_create(&StateLabels { state: StaticLabel(state) }).set(count);
        }
    }

    /// Counts a connection that was closed for this reason.
    pub(crate) fn count_closed(&self, reason: &'static str) {
        self.closed.get_or_create(&ReasonLabels { reason: StaticLabel(reason) }).inc();
    }

    /// Counts a connection that the system could not accept.
    pub(crate) fn count_accept_error(&self) {
        self.accept_errors.inc();
    }
}
