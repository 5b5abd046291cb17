//! What goes over the wire: the mount of `generated/`, and the only file that names that folder.
//!
//! Decides nothing; the documents under `openapi/` do, and `cargo xtask generate` writes it down.
//! The types are one set for client and server.
//! By hand stands here what the generators cannot make: [`Bounded`] holds integer bounds, which they drop, [`OpenWord`] a
//! word of an answer that the document may not know, [`Secret`] is never printed, and `served` answers for the schemas from
//! the document itself; `one_line` keeps JSON on one line of an event.

mod bounded;
#[cfg(feature = "gateway")]
mod one_line;
mod open;
mod secret;
#[cfg(feature = "gateway")]
mod served;

pub use bounded::{Bounded, OutOfBounds};
#[cfg(feature = "gateway")]
pub(crate) use one_line::one_line;
pub use open::OpenWord;
pub use secret::Secret;
#[cfg(feature = "gateway")]
#[doc(hidden)]
pub use served::{served_admin_description, served_description};

/// Mounts a generated file as a module. What the lints of the house say of it is of no use: nobody edits it.
macro_rules! mount {
    ($(#[$meta:meta])* $visibility:vis mod $name:ident from $file:literal $(, beside $neighbour:path)*) => {
        $(#[$meta])*
        #[allow(
            dead_code,
            missing_docs,
            unreachable_pub,
            unused_imports,
            unused_qualifications,
            clippy::all,
            clippy::pedantic,
            clippy::restriction,
            reason = "generated"
        )]
        $visibility mod $name {
            $(use $neighbour;)*

            include!($file);
        }
    };
}

#[cfg(any(feature = "admin", feature = "gateway"))]
pub(crate) mod admin;

mount! {
    /// The data models of the API.
    pub mod types from "../generated/types.rs"
}

mount! {
    /// The client as generated; [`crate::client`] is the one to use.
    #[cfg(feature = "client")]
    pub mod client from "../generated/client.rs", beside crate::wire::types
}

mount! {
    /// The types of a skills registry manifest.
    #[cfg(feature = "manifest")]
    pub mod manifest from "../generated/manifest.rs"
}

mount! {
    /// The trait that the gateway serves.
    #[cfg(feature = "gateway")]
    pub(crate) mod server from "../generated/server.rs", beside crate::wire::types, beside crate::gateway::front
}

mount! {
    /// The schema of each type, for the description of what is served.
    #[cfg(feature = "gateway")]
    mod schemas from "../generated/schemas.rs", beside crate::wire::types
}
