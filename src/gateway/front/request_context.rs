//! Builds the context of a request. dropshot offers no function for it, because it builds contexts only in its own
//! server.
//!
//! Every field of [`RequestContext`] is public, but the type is marked `non_exhaustive`, so another crate cannot build
//! it with a struct expression. This module therefore writes it field by field. `Cargo.toml` pins the exact version of
//! dropshot; this module does not compile with a version whose context has another size.
//!
//! The only other `unsafe` code of the crate sets a socket option, in `front/listener.rs`.

use std::mem::MaybeUninit;
use std::sync::Arc;

use dropshot::{RequestContext, RequestEndpointMetadata, RequestInfo, ServerContext};

/// The fields of a [`RequestContext`], for a comparison of sizes. The type of `server` cannot be named here, so another
/// `Arc` stands for it, which has the same size.
struct RequestContextLayout {
    _server: Arc<()>,
    _endpoint: RequestEndpointMetadata,
    _request_id: String,
    _log: slog::Logger,
    _request: RequestInfo,
}

/// Builds the context of a request for the same server as `template`.
pub(super) fn build_request_context<C: ServerContext>(
    template: &RequestContext<C>,
    endpoint: RequestEndpointMetadata,
    request_id: String,
    request: RequestInfo,
) -> RequestContext<C> {
    const {
        assert!(
            size_of::<RequestContext<C>>() == size_of::<RequestContextLayout>(),
            "the fields of RequestContext have changed"
        );
    }
    let (server, log) = (Arc::clone(&template.server), template.log.clone());
    let mut context = MaybeUninit::<RequestContext<C>>::uninit();
    let pointer = context.as_mut_ptr();
    // SAFETY: `pointer` is valid for writes, and the five fields that are written are all fields of the type, as the
    // size check and the pinned version show.
    #[expect(unsafe_code, reason = "a `non_exhaustive` type of another crate cannot be built otherwise")]
    unsafe {
        (&raw mut (*pointer).server).write(server);
        (&raw mut (*pointer).endpoint).write(endpoint);
        (&raw mut (*pointer).request_id).write(request_id);
        (&raw mut (*pointer).log).write(log);
        (&raw mut (*pointer).request).write(request);
        context.assume_init()
    }
}
