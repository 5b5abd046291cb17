//! Illegal requests do not compile.
//!
//! Each program that must not compile follows one that compiles and differs only in the illegal part, so that it fails
//! for that reason. On a stable compiler, the error codes are not compared.
//!
//! # Sizes
//!
//! ```
//! let sizes = [imagate::size!("1024x1024"), imagate::size!("3840x2160"), imagate::size!("3072x1024")];
//! ```
//!
//! An edge is not a multiple of 16, an edge is too long, the proportions are too long, there are too few pixels, or the
//! text is no size:
//!
//! ```compile_fail,E0080
//! let size = imagate::size!("1024x1000");
//! ```
//! ```compile_fail,E0080
//! let size = imagate::size!("3856x2160");
//! ```
//! ```compile_fail,E0080
//! let size = imagate::size!("3088x1024");
//! ```
//! ```compile_fail,E0080
//! let size = imagate::size!("512x512");
//! ```
//! ```compile_fail,E0080
//! let size = imagate::size!("1024*1024");
//! ```
//!
//! # Numbers
//!
//! ```
//! use imagate::client::{Compression, GenerateRequest, ImageCount, PartialImages};
//!
//! let request = GenerateRequest::new("A red fox").count(ImageCount::of::<10>());
//! let (count, partial, compression) = (ImageCount::of::<1>(), PartialImages::of::<3>(), Compression::of::<100>());
//! ```
//!
//! ```compile_fail,E0080
//! let count = imagate::client::ImageCount::of::<0>();
//! ```
//! ```compile_fail,E0080
//! let count = imagate::client::ImageCount::of::<11>();
//! ```
//! ```compile_fail,E0080
//! let partial = imagate::client::PartialImages::of::<4>();
//! ```
//! ```compile_fail,E0080
//! let compression = imagate::client::Compression::of::<101>();
//! ```
//! ```compile_fail,E0308
//! let request = imagate::client::GenerateRequest::new("A red fox").count(10);
//! ```
//!
//! # Formats
//!
//! Only jpeg and webp are compressed with loss:
//!
//! ```
//! use imagate::client::{Compression, Output};
//!
//! let output = Output::Jpeg { compression: Compression::MAX };
//! ```
//! ```compile_fail,E0559
//! use imagate::client::{Compression, Output};
//!
//! let output = Output::Png { compression: Compression::MAX };
//! ```
//!
//! # Calls
//!
//! Only an edit has images and a mask, each call takes its own request, and a stream is not an answer:
//!
//! ```
//! use imagate::client::{Client, EditRequest, Error, GenerateRequest};
//!
//! async fn call(client: Client) -> Result<(), Error> {
//!     let edit = EditRequest::new("By night").image("fox.png").mask("mask.png");
//!     let image = client.images().edit(edit).await?.first();
//!     let stream = client.images().generate_stream(GenerateRequest::new("A red fox")).await?;
//!     let image = stream.collect_image().await?;
//!     Ok(())
//! }
//! ```
//! ```compile_fail,E0599
//! let request = imagate::client::GenerateRequest::new("By night").image("fox.png");
//! ```
//! ```compile_fail,E0599
//! let request = imagate::client::GenerateRequest::new("By night").mask("mask.png");
//! ```
//! ```compile_fail,E0277
//! use imagate::client::{Client, EditRequest, Error};
//!
//! async fn call(client: Client) -> Result<(), Error> {
//!     let image = client.images().generate(EditRequest::new("By night").image("fox.png")).await?.first();
//!     Ok(())
//! }
//! ```
//! ```compile_fail,E0599
//! use imagate::client::{Client, Error, GenerateRequest};
//!
//! async fn call(client: Client) -> Result<(), Error> {
//!     let image = client.images().generate_stream(GenerateRequest::new("A red fox")).await?.first();
//!     Ok(())
//! }
//! ```
//! ```compile_fail,E0382
//! use imagate::client::{Client, Error, GenerateRequest};
//!
//! async fn call(client: Client) -> Result<(), Error> {
//!     let mut stream = client.images().generate_stream(GenerateRequest::new("A red fox")).await?;
//!     let image = stream.collect_image().await?;
//!     let event = stream.next().await;
//!     Ok(())
//! }
//! ```
