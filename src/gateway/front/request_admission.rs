//! The way of the admission from the connection to the handler of a request.
//!
//! dropshot's context of a request has no place for it, so it is a value of the task while the handler runs. A handler
//! asks for it once and passes it on.

use std::net::SocketAddr;
use std::sync::Arc;

use dropshot::{RequestContext, ServerContext};
use http::HeaderMap;

use crate::gateway::admission::{Admission, RequestBudgets};

tokio::task_local! {
    static CURRENT: Admission;
}

/// A server that admits requests.
pub(crate) trait AdmittingServer: ServerContext {
    /// Begins the admission of a request from this peer, with these headers.
    fn begin_admission(&self, peer: SocketAddr, headers: &HeaderMap) -> Admission;

    /// The budgets of all requests.
    fn request_budgets(&self) -> Arc<RequestBudgets>;
}

/// Runs the handler of an admitted request.
pub(super) async fn run_admitted<T>(admission: Admission, handler: impl Future<Output = T>) -> T {
    CURRENT.scope(admission, handler).await
}

/// Returns the admission of the request that this task serves, if `front` serves it.
pub(super) fn current_admission() -> Option<Admission> {
    CURRENT.try_with(Clone::clone).ok()
}

/// Returns the admission of the request that this task serves. A server that is not `front`, such as that of dropshot,
/// has made none, so it begins here.
pub(crate) fn admission_of<C: AdmittingServer>(context: &RequestContext<C>) -> Admission {
    let begin = || context.context().begin_admission(context.request.remote_addr(), context.request.headers());
    current_admission().unwrap_or_else(begin)
}
