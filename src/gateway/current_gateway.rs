//! The gateway with the settings in force.

use std::sync::{Arc, PoisonError, RwLock};

use super::Gateway;

/// Holds the gateway with the settings in force. A request uses the gateway that is in force when the request begins
/// until its end, so a reload does not change the settings of a running request.
#[derive(Clone)]
pub(crate) struct CurrentGateway(Arc<RwLock<Arc<Gateway>>>);

// === impl CurrentGateway ===

impl CurrentGateway {
    pub(super) fn new(gateway: Gateway) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(gateway))))
    }

    /// Returns the gateway with the settings in force. Called once for each request.
    pub(crate) fn get(&self) -> Arc<Gateway> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the gateway for requests that begin from now on.
    pub(super) fn replace(&self, gateway: Gateway) {
        gateway.lifecycle.apply_settings(&gateway.images);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(gateway);
    }
}
