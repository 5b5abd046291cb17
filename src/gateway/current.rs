//! The gateway under the settings that are in force.

use std::sync::{Arc, PoisonError, RwLock};

use super::Gateway;

/// Where every request begins: the gateway under the settings in force at that moment. A request keeps the one that it
/// began with, so it never sees half of a reload.
#[derive(Clone)]
pub(crate) struct Current(Arc<RwLock<Arc<Gateway>>>);

// === impl Current ===

impl Current {
    pub(super) fn new(gateway: Gateway) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(gateway))))
    }

    /// The gateway now; to be asked once for each request.
    pub(crate) fn get(&self) -> Arc<Gateway> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Requests that begin from now on get this one.
    pub(super) fn replace(&self, gateway: Gateway) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(gateway);
    }
}
