//! Image sizes, formats and file headers: pixel sizes with their four rules, file formats, and the facts that the first
//! bytes of a file state.
//!
//! This module is pure: the SDK, the server and the command line share it, and it reads only its input. It implements
//! the size rules 1 to 4 of the specification; their numbers are stored in `openapi/gateway.json`.

#[cfg(any(all(feature = "client", not(target_arch = "wasm32")), feature = "gateway"))]
mod base64;
#[cfg(feature = "gateway")]
mod data_url;
mod format;
#[cfg(feature = "gateway")]
mod gif;
#[cfg(any(feature = "client", feature = "gateway"))]
mod probe;
mod size;

#[cfg(feature = "gateway")]
pub(crate) use self::probe::{FORMAT_BYTES, OtherContent, has_known_format, other_content};
#[cfg(any(all(feature = "client", not(target_arch = "wasm32")), feature = "gateway"))]
pub(crate) use base64::Base64Decoder;
#[cfg(feature = "gateway")]
pub(crate) use base64::{Base64Encoder, absent_padding};
#[cfg(feature = "gateway")]
pub(crate) use data_url::{DataUrlDecoder, DataUrlError};
pub use format::{Format, UnknownFormat};
#[cfg(feature = "gateway")]
pub(crate) use gif::{GifError, is_gif, write_first_image};
#[cfg(any(feature = "client", feature = "gateway"))]
pub(crate) use probe::{ByteSource, ImageFileError, ImageHeader, ImageProperties, inspect, probe};
pub use size::{Size, SizeError, SizeRequest};
