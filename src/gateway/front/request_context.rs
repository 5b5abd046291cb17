//! The context of a request, which dropshot makes for its own accept loop only.
//!
//! Every field of [`RequestContext`] is public, but the type is marked `non_exhaustive`, so another crate cannot build
//! it with a struct expression. It is therefore written field by field. The exact version of dropshot is pinned in
//! `Cargo.toml`; a version with another field changes the size and does not compile here.
//!
//! The only other `unsafe` code of the crate is one option of a socket, in `front/listener.rs`.

use std::mem::MaybeUninit;
use std::sync::Arc;

use dropshot::{RequestContext, RequestEndpointMetadata, RequestInfo, ServerContext};

/// The fields of a [`RequestContext`]; a type that cannot be named is represented by a pointer of the same size.
struct RequestContextLayout {
    _server: Arc<()>,
    _endpoint: RequestEndpointMetadata,
    _request_id: String,
    _log: slog::Logger,
    _request: RequestInfo,
}

/// A context of the same server as `of`.
pub(super) fn build_request_context<C: ServerContext>(
    template: &RequestContext<C>,
    endpoint: RequestEndpointMetadata,
    request_id: String,
    request: RequestInfo,
) -> RequestContext<C> {
    const { assert!(size_of::<RequestContext<C>>() == size_of::<RequestContextLayout>(), "RequestContext has other fields") };
    let (server, log) = (Arc::clone(&template.server), template.log.clone());
    let mut context = MaybeUninit::<RequestContext<C>>::uninit();
    let pointer = context.as_mut_ptr();
    // SAFETY: `place` is valid for writes, and the five fields that are written are all fields of the type, as the size
    // check and the pinned version show.
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
