//! The SDK: a client of image APIs, its requests and its answers.
//!
//! A [`Client`] has the calls: [`ImageCalls`] makes and edits images, [`ResponseCalls`] runs tasks for text models, and
//! [`ModelCalls`] lists models. Every call fails with an [`Error`]. The types exclude values that the service would
//! refuse, as far as types can; where the API accepts any word, the types do too. `imagate::guide` has a page for each
//! task.

// It consists of a generated client, and of code for what the generator cannot produce: the time limits, the retries by
// the rules of `Retry`, and the decoding of answers and events. It does not know how the gateway works: it needs only an
// address and a key, and its dependency tree contains nothing of the server.

#[cfg(all(feature = "admin", not(target_arch = "wasm32")))]
pub mod admin;
mod answer;
mod answer_members;
mod answer_splitter;
mod answer_stream;
mod base64_text;
mod body_reader;
mod builder;
mod decode;
mod error;
mod event;
mod extra_headers;
mod form;
#[cfg(doctest)]
mod illegal_requests;
#[cfg(not(target_arch = "wasm32"))]
mod image_decoder;
mod image_model;
mod images;
mod input;
#[doc(hidden)]
pub mod literal;
mod metadata;
mod models;
mod paid_call;
mod raw_json;
mod request;
mod request_check;
#[cfg(all(feature = "resize", not(target_arch = "wasm32")))]
mod resize;
mod responses;
mod retry;
mod retry_notice;
#[cfg(not(target_arch = "wasm32"))]
mod save;
#[cfg(not(target_arch = "wasm32"))]
mod saved_images;
mod secrets;
mod session;
mod sse;
mod stream;
#[cfg(test)]
mod tests;
mod timer;
mod transport;
mod unfinished_calls;

pub use answer::{Image, Images, Iter};
pub use builder::Builder;
pub use error::{Error, ErrorKind};
pub use event::ImageEvent;
pub use image_model::{ImageModel, ImageModelParameter};
pub use images::ImageCalls;
pub use input::Input;
pub use metadata::{AnswerMetadata, RateLimit};
pub use models::{Model, ModelCalls};
pub use raw_json::Json;
#[doc(hidden)]
pub use raw_json::JsonRequestBody;
pub use request::{Compression, EditRequest, Fallback, GenerateRequest, ImageCount, ModelName, Output, PartialImages};
#[cfg(all(feature = "resize", not(target_arch = "wasm32")))]
pub use resize::{Fit, Resize, ResizedImage};
#[cfg(feature = "gateway")]
pub(crate) use resize::{Thumbnail, convert_image};
pub use responses::{
    ImageCall, ImageTool, Message, OutputItem, Response, ResponseCalls, ResponseEvent, ResponseImage, ResponseInput,
    ResponseItem, ResponseRequest, ResponseStep, ResponseStream, ResponseTool,
};
pub use retry::Retry;
pub use retry_notice::{RetryNotice, RetryReason};
#[cfg(feature = "cli")]
pub(crate) use save::{
    check_writable, format_from_extension, numbered_path, path_with_suffix, replace_file, with_format_extension,
    write_new_file,
};
#[cfg(not(target_arch = "wasm32"))]
pub use saved_images::{ImageTarget, SavedImage, SavedImages};
#[doc(hidden)]
pub use session::Session;
pub use stream::ImageStream;
pub use transport::{Transport, TransportError, TransportFuture};

pub use crate::wire::{Bounded, OpenWord, OutOfBounds};
/// The HTTP library, of the version that [`Builder::http_client`] and [`Transport`] take.
pub use reqwest;

use std::fmt;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use reqwest::header::HeaderMap;

use crate::wire;
use paid_call::{PaidCall, PaidOperation};
use session::{CallOptions, IDEMPOTENCY_KEY};
use unfinished_calls::{AutomaticKey, UnfinishedCalls};

/// A client of the gateway, or of any service with the same API.
///
/// Cloning is cheap, and the clones share their connections.
///
/// ```no_run
/// # async fn run() -> Result<(), imagate::client::Error> {
/// use imagate::Client;
///
/// let client = Client::new("http://127.0.0.1:8080/v1", "sk-img-…")?;
/// let images = client.images().generate("A red fox in fresh snow").await?;
/// for path in images.write_all("fox").await? {
///     println!("{}", path.display()); // fox.png; several: fox-1.png, fox-2.png
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    shared: Arc<ClientState>,
}

/// The state that all calls of a client share.
struct ClientState {
    address: builder::ServiceAddress,
    http: reqwest::Client,
    transport: Option<Arc<dyn Transport>>,
    retry_observer: Option<retry_notice::RetryObserver>,
    credentials: session::BearerCredentials,
    retry: Retry,
    adds_idempotency_keys: bool,
    unfinished_calls: Arc<UnfinishedCalls>,
    deadline: Option<Duration>,
    /// True once an answer of the service has shown that it pays for an idempotency key once.
    honors_keys: Arc<AtomicBool>,
    /// The additional headers of each request.
    headers: HeaderMap,
}

// === impl Client ===

impl Client {
    /// Creates a client for the service at this address, with this key.
    ///
    /// The base URL is used as given; one without a path gets `/v1`.
    ///
    /// # Errors
    ///
    /// Returns an error if the address is not a web address or is plain http to another machine, if the key cannot be
    /// sent in a header, or if no HTTP client can be built on this machine.
    pub fn new(base_url: &str, api_key: &str) -> Result<Self, Error> {
        Self::builder().base_url(base_url).api_key(api_key).build()
    }

    /// Creates a client from the environment: from `IMAGATE_BASE_URL` and `IMAGATE_API_KEY`, or else from
    /// `OPENAI_BASE_URL` and `OPENAI_API_KEY`.
    ///
    /// A key is only sent to the address of its own pair. `IMAGATE_API_KEY` alone is for the gateway on this machine,
    /// `http://127.0.0.1:8080/v1`, and `OPENAI_API_KEY` alone for `https://api.openai.com/v1`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no key for the address, if one of the values cannot be used, or if the address is
    /// plain http to another machine. `IMAGATE_BASE_URL` without a key is an error even if the other pair is complete.
    pub fn from_env() -> Result<Self, Error> {
        Self::builder().build()
    }

    /// Builds a client with other settings. If neither an address nor a key is given, both come from the environment as
    /// [`Client::from_env`] describes; if one is given, the other comes from `IMAGATE_BASE_URL` or `IMAGATE_API_KEY`.
    /// A key without any address is for the gateway on this machine.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns true if the service is on this machine.
    #[cfg(feature = "cli")]
    pub(crate) fn is_local(&self) -> bool {
        self.shared.address.is_local
    }

    /// Returns the scheme, the host and the port of the service.
    #[cfg(feature = "cli")]
    pub(crate) fn origin(&self) -> &str {
        &self.shared.address.origin
    }

    /// Returns true if the service is that of the provider of the default model, and no gateway.
    #[cfg(feature = "cli")]
    pub(crate) fn is_provider(&self) -> bool {
        self.shared.address.origin == builder::OPENAI_ORIGIN
    }

    /// Returns the calls that make images.
    #[must_use]
    pub fn images(&self) -> ImageCalls<'_> {
        ImageCalls::new(self)
    }

    /// Returns the calls that run tasks for text models, which may make images.
    #[must_use]
    pub fn responses(&self) -> ResponseCalls<'_> {
        ResponseCalls::new(self)
    }

    /// Returns the calls about the models that the service knows.
    #[must_use]
    pub fn models(&self) -> ModelCalls<'_> {
        ModelCalls::new(self)
    }

    /// Returns the base URL, the key, the additional headers and the HTTP client, for another protocol of the same
    /// service.
    #[cfg(feature = "cli")]
    pub(crate) fn connection(&self) -> (String, &str, &HeaderMap, &reqwest::Client) {
        let ClientState { address, http, credentials, headers, .. } = &*self.shared;
        (address.url(), credentials.key(), headers, http)
    }

    /// Returns a call whose answer is paid for, with an idempotency key if keys are added and the request has none.
    async fn paid_call(&self, mut options: CallOptions, operation: PaidOperation) -> Result<PaidCall, Error> {
        let has_own_key = options.has_idempotency_key();
        let mut automatic_key = None;
        if self.shared.adds_idempotency_keys && !has_own_key {
            let unfinished_calls = &self.shared.unfinished_calls;
            let hasher = Box::pin(hash_request(&options, &operation, unfinished_calls.hasher())).await?;
            automatic_key = AutomaticKey::for_request(unfinished_calls, hasher.finish());
        }
        options.headers.extend(automatic_key.as_ref().map(|key| (IDEMPOTENCY_KEY, key.value())));
        Ok(PaidCall { automatic_key, has_own_key, ..self.keyless_call(options, operation) })
    }

    /// Returns a call that gets no idempotency key if its request has none.
    fn keyless_call(&self, options: CallOptions, operation: PaidOperation) -> PaidCall {
        let has_own_key = options.has_idempotency_key();
        PaidCall { client: self.call(options), operation, has_own_key, automatic_key: None }
    }

    /// Returns the generated client for one call.
    fn call(&self, options: CallOptions) -> wire::client::Client {
        let shared = &*self.shared;
        let session = Session::new(shared, options);
        wire::client::Client::new_with_client(&shared.address.origin, shared.http.clone(), session)
    }
}

/// Adds everything to the hash that makes two requests of a client equal.
async fn hash_request<H: Hasher + Send + 'static>(
    options: &CallOptions,
    operation: &PaidOperation,
    mut hasher: H,
) -> Result<H, Error> {
    options.hash_headers(&mut hasher);
    operation.hash(hasher).await
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key and the HTTP client are left out: the default headers of the client may hold another secret.
        f.debug_struct("Client")
            .field("base_url", &self.shared.address.url())
            .field("retry", &self.shared.retry)
            .finish_non_exhaustive()
    }
}
