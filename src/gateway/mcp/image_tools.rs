//! Runs the tool calls of one request.

use std::borrow::Cow;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Limited};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, ProtocolVersion, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use tokio::time::{Instant, interval, sleep, timeout_at};

use super::McpCaller;
use super::arguments::ToolArguments;
use super::edit_input::take_images;
use super::image_id::{CallDigest, ImageId};
use super::preview::{PREVIEWS_MAX_BYTES, make_preview};
use super::result::{
    ResultImage, show_call_error, show_changes, show_error, show_failure, show_images, show_running, show_value,
};
use super::tool_list::{EDIT_IMAGE, FETCH_IMAGE, GENERATE_IMAGE, LIST_IMAGE_MODELS, tools};
use crate::error::{Error, Rejection, RejectionReason, UpstreamFault};
use crate::gateway::admission::CountedJson;
use crate::gateway::flow::{self, OperationAnswer, RequestFailure, RequestOptions};
use crate::gateway::front::json_text_error;
use crate::gateway::relay::read_answer_members;
use crate::gateway::replay::AnswerView;
use crate::gateway::spool::EditForm;
use crate::gateway::work::Work;
use crate::image::probe;
use crate::wire::types::ImagesResponse;

/// The longest time that a call waits for its image (our choice). Clients give up after 60 seconds by default.
const WAIT_MAX: Duration = Duration::from_secs(45);
/// The time between two messages about the progress of a call (our choice). Some clients extend their time limit with
/// each.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);
/// The pause between two looks for an image that is being made (our choice).
const LOOK_PAUSE: Duration = Duration::from_millis(500);
/// The most images that are held in memory for their previews at once (our choice): they take some tens of megabytes
/// each.
const PREVIEWS_AT_ONCE: usize = 4;
/// The largest image file that is held in memory for its preview, in bytes (our choice): more than the largest image of
/// the API has.
const IMAGE_MAX_BYTES: usize = 64 * 1024 * 1024;
/// The longest error body that is read from a stored answer (our choice).
const ERROR_MAX_BYTES: usize = 64 * 1024;
/// The status of an answer with images.
const OK: u16 = 200;
const INSTRUCTIONS: &str = "Makes and edits images. Every answer has small previews and links to the full images. Equal calls return the same image and are paid for once.";

/// The images that are held in memory for their previews.
static PREVIEW_SLOTS: Semaphore = Semaphore::const_new(PREVIEWS_AT_ONCE);

/// The tools of one request.
pub(super) struct ImageTools(McpCaller);

/// The images of an answer, and what it says about them.
struct FinishedCall {
    call: CallDigest,
    /// The members of each image, without the image itself.
    images: Vec<Map<String, Value>>,
    /// The changes that dialects made to the request.
    adapted: Option<String>,
}

// === impl ImageTools ===

impl ImageTools {
    pub(super) const fn new(caller: McpCaller) -> Self {
        Self(caller)
    }

    async fn run_tool(&self, name: &str, mut arguments: ToolArguments) -> Result<CallToolResult, Error> {
        let deadline = Instant::now() + WAIT_MAX;
        match name {
            GENERATE_IMAGE => {
                let call = CallDigest::of(name, &arguments);
                let fields = arguments.into_fields(&self.default_model())?;
                let McpCaller { services, caller, admission, .. } = &self.0;
                let body = CountedJson::new(admission, &Value::Object(fields).to_string());
                let body = body.map_err(|error| json_text_error(&error))?;
                self.finish(
                    call,
                    Box::pin(flow::create_image(services, caller.clone(), self.options(call), &body)),
                    deadline,
                )
                .await
            }
            EDIT_IMAGE => {
                let call = CallDigest::of(name, &arguments);
                let (images, mask) = take_images(&self.0, &mut arguments).await?;
                let fields = arguments.into_fields(&self.default_model())?;
                let form = EditForm { fields, images, mask, files: Vec::new(), is_multipart: false };
                let McpCaller { services, caller, .. } = &self.0;
                let editing = Box::pin(flow::edit_image(services, caller.clone(), self.options(call), form));
                self.finish(call, editing, deadline).await
            }
            FETCH_IMAGE => {
                let id = arguments.take_text("id")?;
                arguments.check_none_left()?;
                let id = id.and_then(|text| text.parse().ok()).ok_or_else(|| {
                    Rejection::new("id", RejectionReason::InvalidValue, "'id' must be the id of an image (img_…).")
                })?;
                self.fetch(id, deadline).await
            }
            LIST_IMAGE_MODELS => {
                arguments.check_none_left()?;
                Ok(show_value(self.models()))
            }
            _ => Err(Error::Internal),
        }
    }

    fn options(&self, call: CallDigest) -> RequestOptions {
        let McpCaller { request_id, admission, .. } = &self.0;
        RequestOptions::with_idempotency_key(request_id, call.idempotency_key(), admission).with_stored_answer()
    }

    fn default_model(&self) -> String {
        let McpCaller { services, caller, .. } = &self.0;
        flow::allowed_models(services, caller).next().map(|model| model.id.clone()).unwrap_or_default()
    }

    /// Waits for the answer to a call, but not for longer than clients do. The job continues after that.
    async fn finish(
        &self,
        call: CallDigest,
        answering: impl Future<Output = Result<OperationAnswer<ImagesResponse>, RequestFailure>>,
        deadline: Instant,
    ) -> Result<CallToolResult, Error> {
        let finished = timeout_at(deadline, async {
            let OperationAnswer { answer, .. } = answering.await?;
            let adapted = answer.head.headers.get("x-imagate-adapted").cloned();
            if answer.head.status != OK {
                let may_repeat = answer.head.headers.get("x-should-retry").is_some_and(|value| value == "true");
                let failure = show_failure(&read_error(answer.body).await, may_repeat);
                return Ok(Err(show_changes(failure, adapted.as_deref())));
            }
            let members = read_answer_members(answer.body).await.map_err(|error| {
                tracing::warn!(error = &error as &dyn std::error::Error, "an answer for a tool call broke off");
                Error::Upstream(UpstreamFault::Broken)
            })?;
            Ok(Ok(FinishedCall { call, images: members.images, adapted }))
        });
        match finished.await {
            Err(_) | Ok(Err(RequestFailure { error: Error::InProgress, .. })) => Ok(show_running(call)),
            Ok(Err(RequestFailure { error, adapted })) => {
                Ok(show_changes(show_call_error(call, &error), adapted.as_deref()))
            }
            Ok(Ok(Err(failure))) => Ok(failure),
            Ok(Ok(Ok(finished))) => self.show(finished).await,
        }
    }

    /// Shows every image of an answer.
    async fn show(&self, finished: FinishedCall) -> Result<CallToolResult, Error> {
        let count = finished.images.len();
        let run = self.find(finished.call).await?.ok_or(Error::Upstream(UpstreamFault::Unknown))?;
        let urls = self.urls(&run, count)?;
        let mut shown = Vec::with_capacity(count);
        for ((index, members), url) in (0..=u8::MAX).zip(&finished.images).zip(urls) {
            let id = finished.call.image(index);
            let Some(mut image) = self.read_image(id, url, PREVIEWS_MAX_BYTES / count).await? else {
                return Err(Error::Upstream(UpstreamFault::Unknown));
            };
            image.revised_prompt = members.get("revised_prompt").and_then(Value::as_str).map(str::to_owned);
            shown.push(image);
        }
        Ok(show_changes(show_images(&shown), finished.adapted.as_deref()))
    }

    /// Shows one image of an earlier call, and waits for it if it is being made.
    async fn fetch(&self, id: ImageId, deadline: Instant) -> Result<CallToolResult, Error> {
        loop {
            let run = self.find(id.call).await?.ok_or_else(|| unknown_image(id))?;
            if run.is_successful() {
                let McpCaller { services, caller, request_id, .. } = &self.0;
                flow::count_repeat(services, caller, request_id).await?;
                let urls = self.urls(&run, usize::from(id.index) + 1)?;
                let url = urls.into_iter().next_back().unwrap_or_default();
                let image = self.read_image(id, url, PREVIEWS_MAX_BYTES).await?.ok_or_else(|| unknown_image(id))?;
                return Ok(show_images(&[image]));
            }
            if !run.is_running {
                let (_, reader) = run.answer.ok_or_else(|| unknown_image(id))?;
                return Ok(show_failure(&read_error(reader).await, false));
            }
            if Instant::now() + LOOK_PAUSE > deadline {
                return Ok(show_running(id.call));
            }
            tokio::select! {
                () = sleep(LOOK_PAUSE) => {}
                () = self.0.services.cutoff.cancelled() => {
                    return Ok(show_call_error(id.call, &Error::Upstream(UpstreamFault::Unknown)));
                }
            }
        }
    }

    async fn find(&self, call: CallDigest) -> Result<Option<AnswerView>, Error> {
        flow::find_image_run(&self.0.services.replay, &self.0.caller, &call.idempotency_key()).await
    }

    /// Returns the links to the first images of an answer.
    fn urls(&self, run: &AnswerView, count: usize) -> Result<Vec<String>, Error> {
        let base = flow::base_url(self.0.services.settings.config.public_url.as_ref(), self.0.host.as_deref());
        let paths = flow::link_paths(&self.0.services.replay, &self.0.caller, run, count)?;
        Ok(paths.into_iter().map(|path| format!("{base}{path}")).collect())
    }

    /// Reads an image and makes its preview; `None` if it is not kept.
    async fn read_image(&self, id: ImageId, url: String, preview_bytes: usize) -> Result<Option<ResultImage>, Error> {
        let Some(run) = self.find(id.call).await? else { return Ok(None) };
        let Some((format, body)) = flow::open_image(&self.0.services.cutoff, run, usize::from(id.index)).await else {
            return Ok(None);
        };
        // It never closes.
        let _slot = PREVIEW_SLOTS.acquire().await;
        let file = Limited::new(body, IMAGE_MAX_BYTES).collect().await.map_err(|error| {
            tracing::error!(error = &*error as &dyn std::error::Error, "an image for a tool call cannot be read");
            Error::Unavailable
        })?;
        let file = file.to_bytes();
        let (bytes, properties) = (file.len(), probe(&file));
        self.0.caller.charge(Work::RepeatedBytes(bytes as u64));
        self.0.caller.charge(Work::Preview);
        let preview = tokio::task::spawn_blocking(move || make_preview(file, preview_bytes)).await;
        Ok(Some(ResultImage {
            id,
            url,
            media_type: format!("image/{format}"),
            bytes,
            size: properties.map(|properties| (properties.width, properties.height)),
            revised_prompt: None,
            preview: preview.unwrap_or_default(),
        }))
    }

    fn models(&self) -> Value {
        let McpCaller { services, caller, .. } = &self.0;
        let models = flow::allowed_models(services, caller).map(|model| {
            json!({
                "id": model.id, "sizes": model.sizes, "qualities": model.qualities, "formats": model.formats,
                "backgrounds": model.backgrounds, "max_images": model.max_images,
            })
        });
        json!({ "models": models.collect::<Vec<_>>() })
    }
}

impl ServerHandler for ImageTools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("imagate", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    /// A version whose servers must take batches is not offered, because batches are refused.
    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        let takes_batches = |version: &&ProtocolVersion| **version == ProtocolVersion::V_2025_03_26;
        ProtocolVersion::KNOWN_VERSIONS.iter().filter(|version| !takes_batches(version)).cloned().collect()
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools().into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if self.get_tool(&request.name).is_none() {
            return Err(ErrorData::invalid_params("There is no tool of this name.", None));
        }
        let mut running = pin!(self.run_tool(&request.name, ToolArguments::new(request.arguments)));
        let mut ticks = interval(PROGRESS_INTERVAL);
        let mut progress = 0.0;
        let result = loop {
            tokio::select! {
                result = &mut running => break result,
                _ = ticks.tick(), if self.0.accepted.events && context.meta.get_progress_token().is_some() => {
                    if let Some(token) = context.meta.get_progress_token() {
                        // A client that does not listen still gets its result.
                        drop(context.peer.notify_progress(ProgressNotificationParam::new(token, progress)).await);
                    }
                    progress += 1.0;
                }
            }
        };
        Ok(result
            .unwrap_or_else(|error| {
                self.0.caller.charge(Work::Refusal);
                show_error(&error)
            })
            .into())
    }
}

fn unknown_image(id: ImageId) -> Error {
    let message = format!("No image of this key with the id '{id}' is kept.");
    Rejection::new("id", RejectionReason::InvalidValue, message).into()
}

/// Reads the body of an error answer.
async fn read_error<B>(mut body: B) -> Value
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let mut text = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(piece) = frame.into_data() else { continue };
        text.extend_from_slice(&piece);
        if text.len() > ERROR_MAX_BYTES {
            break;
        }
    }
    serde_json::from_slice(&text).unwrap_or_default()
}
