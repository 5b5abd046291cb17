//! The types and clients of the API. This file and its submodule `admin` include the
//! folder `generated/`, except for the methods of the admin API, which `gateway::endpoints` includes, the codes of errors,
//! the rules for manifests, and the content of the reference.
//!
//! This module decides nothing: the documents under `openapi/` and `schemas/` decide, and `cargo xtask generate` writes
//! the code. Client and server share one set of types. The handwritten parts are those that the generators cannot make:
//! [`Bounded`] keeps the integer bounds that they drop, [`OpenWord`] holds a word of an answer that may be unknown to
//! the document, [`Secret`] is never printed, `served` takes the schemas from the document itself, and `one_line` keeps
//! JSON on one line of an event.

mod bounded;
#[cfg(feature = "gateway")]
mod one_line;
mod open_word;
mod secret;
#[cfg(feature = "gateway")]
mod served;

pub use bounded::{Bounded, OutOfBounds};
#[cfg(feature = "gateway")]
pub(crate) use one_line::escape_line_ends;
pub use open_word::OpenWord;
pub use secret::Secret;
#[cfg(feature = "gateway")]
#[doc(hidden)]
pub use served::{served_admin_description, served_description};

/// Includes a generated file as a module. `beside` names the modules that the generated code refers to. Lints are
/// disabled, because generated code is not edited.
macro_rules! mount {
    ($(#[$meta:meta])* $visibility:vis mod $name:ident from $file:literal $(, beside $neighbour:path)*) => {
        $(#[$meta])*
        #[allow(
            dead_code,
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
    /// The generated client; use [`crate::client`] instead.
    #[cfg(feature = "client")]
    pub mod client from "../generated/client.rs", beside crate::wire::types
}

mount! {
    /// The types of a skills registry manifest.
    #[cfg(feature = "manifest")]
    pub mod manifest from "../generated/manifest.rs"
}

mount! {
    /// The trait of the public API, which the gateway implements.
    #[cfg(feature = "gateway")]
    pub(crate) mod server from "../generated/server.rs", beside crate::wire::types, beside crate::gateway::front
}

mount! {
    /// The schema of each type, for the description of the served API.
    #[cfg(feature = "gateway")]
    mod schemas from "../generated/schemas.rs", beside crate::wire::types
}
