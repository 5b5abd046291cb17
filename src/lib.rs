// The page of the crate links to the guide at docs.rs, because crates.io shows it too. Of two definitions of a link, the
// first one counts: with these, the links of the documentation stay inside of it.
#![cfg_attr(
    all(doc, feature = "admin", feature = "resize", feature = "testing"),
    doc = include_str!("guide/links.md")
)]
#![doc = include_str!("../docs/crate.md")]
#![warn(clippy::print_stdout, clippy::print_stderr)]
// docs.rs shows the features that an item needs. It does not show WebAssembly: a page of the guide describes it.
#![cfg_attr(docsrs, feature(doc_cfg), doc(auto_cfg(hide(target_arch = "wasm32"))))]
#![cfg_attr(
    all(feature = "gateway", not(feature = "cli")),
    expect(dead_code, unused_imports, reason = "only the program starts the gateway")
)]

#[cfg(feature = "gateway")]
mod checkout;
#[cfg(feature = "cli")]
#[expect(clippy::incompatible_msrv, reason = "its dependencies need Rust 1.94; `rust-version` is that of the SDK")]
pub mod cli;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "gateway")]
mod error;
#[cfg(feature = "gateway")]
#[expect(clippy::incompatible_msrv, reason = "its dependencies need Rust 1.94; `rust-version` is that of the SDK")]
mod gateway;
#[cfg(all(doc, feature = "admin", feature = "resize", feature = "testing", not(target_arch = "wasm32")))]
#[cfg_attr(docsrs, doc(auto_cfg = false))]
pub mod guide;
pub mod image;
#[cfg(feature = "manifest")]
pub mod manifest;
#[cfg(feature = "manifest")]
mod net;
#[cfg(feature = "client")]
mod service_settings;
#[cfg(any(feature = "client", feature = "gateway"))]
mod stream;
pub mod tables;
#[cfg(all(any(feature = "testing", test), not(target_arch = "wasm32")))]
pub mod testing;
mod wire;
#[cfg(feature = "manifest")]
mod words;

#[cfg(feature = "client")]
#[doc(inline)]
pub use client::Client;
#[cfg(all(feature = "admin", not(target_arch = "wasm32")))]
#[doc(inline)]
pub use client::admin;
#[cfg(all(feature = "gateway", feature = "testing"))]
#[doc(hidden)]
pub use gateway::serve::DropshotGateway;
#[cfg(feature = "gateway")]
#[doc(hidden)]
pub use gateway::{endpoints::served_routes, front::served_errors};
pub use wire::{Bounded, OpenWord, OutOfBounds, Secret};
#[cfg(feature = "gateway")]
#[doc(hidden)]
pub use wire::{admin::types as admin_types, served_admin_description, served_description, types as generated_types};

/// The types of the API document that the SDK takes or returns: words of requests and answers, and counts of tokens.
///
/// A service may be newer than this crate, so every struct and every enum may get members in any version, and a struct
/// keeps members that it does not name in `extra`.
pub mod types {
    pub use crate::wire::types::{
        Background, CostEstimate, ErrorCode, ErrorDetail, ErrorReason, ErrorType, ImageAction, ImageInputTokensDetails,
        ImageModel, ImageOutputTokensDetails, ImageUsage, Moderation, OutputFormat, Quality, ResolvedBackground,
        ResolvedQuality, ResponseInputTokensDetails, ResponseOutputTokensDetails, ResponseUsage, error,
    };
}

/// The Rust program of the README, which is compiled as a documentation test.
#[cfg(all(doctest, feature = "client"))]
#[doc = include_str!("../README.md")]
struct Readme;
