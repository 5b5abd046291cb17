//! The head of a request, as every handler gets it: from a connection of the gateway, or from a server of dropshot.

use std::net::SocketAddr;
use std::sync::Arc;

use dropshot::{RequestContext, RequestInfo, ServerContext};
use http::{HeaderMap, Method, Uri, Version};

use crate::gateway::admission::{Admission, RequestBudgets};

/// A server that admits requests. Clones are the same server.
pub(crate) trait AdmittingServer: ServerContext + Clone {
    /// Begins the admission of a request from this peer, with these headers.
    fn begin_admission(&self, peer: SocketAddr, headers: &HeaderMap) -> Admission;

    /// The budgets of all requests.
    fn request_budgets(&self) -> Arc<RequestBudgets>;
}

/// The head of a request, and the server that it is for.
pub(crate) struct RequestHead<C> {
    pub(super) server: C,
    pub(super) operation: &'static str,
    pub(super) request_id: String,
    pub(super) admission: Admission,
    pub(super) info: RequestInfo,
}

// === impl RequestHead ===

impl<C> RequestHead<C> {
    /// The server that answers.
    pub(crate) const fn server(&self) -> &C {
        &self.server
    }

    /// The name of the operation, under which the answer is counted.
    pub(crate) const fn operation(&self) -> &'static str {
        self.operation
    }

    /// The id that the answer has too.
    pub(crate) fn request_id(&self) -> &str {
        &self.request_id
    }

    /// The memory and disk that the request may hold.
    pub(crate) const fn admission(&self) -> &Admission {
        &self.admission
    }

    pub(crate) fn method(&self) -> &Method {
        self.info.method()
    }

    pub(crate) fn uri(&self) -> &Uri {
        self.info.uri()
    }

    pub(crate) fn version(&self) -> Version {
        self.info.version()
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        self.info.headers()
    }
}

impl<C: AdmittingServer> RequestHead<C> {
    /// The head of a request that a server of dropshot has got.
    pub(crate) fn from_dropshot(context: RequestContext<C>, operation: &'static str) -> Self {
        let server = context.context().clone();
        let RequestContext { request_id, request: info, .. } = context;
        let admission = server.begin_admission(info.remote_addr(), info.headers());
        Self { server, operation, request_id, admission, info }
    }
}
