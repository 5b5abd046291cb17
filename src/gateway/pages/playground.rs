//! The page `/studio`: a form that makes an image under one of the user's own keys, what the image may cost, and the same
//! request as code.
//!
//! The form is a plain form: it works without a script. The script `playground.js` adds the live parts: the size by dragging,
//! a mask that is painted on the picture, intermediate images, and the history, which stays in the browser.

use askama::Template;
use http::StatusCode;
use serde_json::{Map, Value};

use super::examples::{CodeExample, ImageCall, call_examples};
use super::first_steps::newest_record;
use super::form::{PageForm, WHOLE_FORM};
use super::http_messages::PageResponse;
use super::page_context::PageContext;
use super::page_error::{PageError, render};
use super::page_layout::PageLayout;
use super::playground_run::PlaygroundRun;
use super::stored_images;
use crate::error::Error;
use crate::gateway::admission::CountedJson;
use crate::gateway::config::ImageModelSpec;
use crate::gateway::flow::{self, RequestOptions};
use crate::gateway::front::json_text_error;
use crate::gateway::keys::{Caller, PublicId};
use crate::tables::{
    FieldKind, GRID_PX, IMAGE_GENERATION_FIELDS, MAX_EDGE_PX, MAX_PIXELS, MAX_RATIO, MIN_PIXELS, field,
};
use crate::wire::admin::server::ListKeysQuery;
use crate::wire::admin::types;

/// The path of the form.
pub(crate) const PATH: &str = "/studio";
/// The fields of the form that the API does not have.
pub(crate) const PAGE_FIELDS: [&str; 3] = ["csrf", "nonce", "key"];
/// The fields of the form that are those of the API, in the order in which a request states them.
const API_FIELDS: [&str; 8] =
    ["model", "prompt", "size", "quality", "n", "background", "output_format", "output_compression"];
/// The field with the pictures that an edit begins with.
const IMAGE_FIELD: &str = "image";
/// The value of the field `key` for a user without a key.
pub(super) const NEW_KEY: &str = "new";
/// The values that a request need not state.
const DEFAULTS: [(&str, &str); 4] =
    [("size", "auto"), ("quality", "auto"), ("background", "auto"), ("output_format", "png")];
/// The sizes that the form proposes (our choice).
const SIZES: [&str; 7] = ["auto", "1024x1024", "1536x1024", "1024x1536", "2048x2048", "3840x2160", "2160x3840"];
/// The seconds after which a page without a script looks again for the outcome of a request (our choice).
const LOOK_AGAIN_SECONDS: &str = "2";
/// The maximum number of keys that the form offers (our choice).
const KEYS_MAX: i64 = 100;

#[derive(Template)]
#[template(path = "playground.html", config = "src/gateway/pages/askama.toml")]
pub(super) struct PlaygroundPage {
    page: PageLayout,
    form: PageForm,
    nonce: String,
    keys: Vec<types::Key>,
    models: Vec<ImageModelSpec>,
    sizes: &'static [&'static str],
    rules: SizeRules,
    preview: Option<RequestPreview>,
    run: Option<PlaygroundRun>,
    /// The newest requests of the user whose answers are kept or in progress.
    recent: Vec<types::Record>,
}

/// The numbers of the four size rules.
struct SizeRules {
    grid: u32,
    max_edge: u32,
    max_ratio: u32,
    min_pixels: u32,
    max_pixels: u32,
}

/// The cost that a request would have, and the request as code.
struct RequestPreview {
    /// The cost, or the reason why the request is refused; `None` if there is no key yet for which it could be computed.
    estimate: Result<Option<CostPreview>, String>,
    examples: Vec<CodeExample>,
    is_edit: bool,
}

/// The part of an estimate that the page shows.
struct CostPreview {
    /// The most that the request can cost; `None` if a price is unknown.
    max_cost_usd: Option<f64>,
    /// The reason why the request would be refused now.
    refusal: Option<String>,
}

/// Shows the form.
pub(super) async fn show(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let mut form = PageForm::default();
    for name in API_FIELDS.into_iter().chain(["key"]) {
        // A link can fill in the form, for example from the reference. Only the user can send it.
        if let Some(value) = context.request.query_param(name) {
            form = form.with_value(name, value);
        }
    }
    let own_user_id = context.own_user_id().map(|user| user.to_string());
    if form.value("prompt").is_empty() && newest_record(context, own_user_id, None).await?.is_none() {
        // A new user makes the first image with one button.
        form = form.with_value("prompt", context.texts.get("playground.prompt_example"));
    }
    render_page(context, StatusCode::OK, form, None, None).await
}

/// Shows the form with what it would cost, and the request as code. Nothing is sent.
pub(super) async fn preview(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let form = submitted_form(context);
    let fields = api_fields(&form);
    let estimate = estimate(context, &form, &fields).await?;
    let is_edit = !context.request.form_field(IMAGE_FIELD).is_empty();
    let has_mask = !context.request.form_field("mask").is_empty();
    let call = ImageCall::new(stated_fields(fields), is_edit, has_mask);
    let preview = RequestPreview { estimate, examples: call_examples(context.site, &call), is_edit };
    render_page(context, StatusCode::OK, form, Some(preview), None).await
}

/// Returns the form with the values that were sent.
pub(super) fn submitted_form(context: &PageContext<'_>) -> PageForm {
    let names: Vec<&'static str> = API_FIELDS.into_iter().chain(["key"]).collect();
    PageForm::from_request(context.request, &names)
}

/// Shows the form with an error of the request, at the field that it names.
pub(super) async fn render_error(context: &PageContext<'_>, error: &Error) -> Result<PageResponse, PageError> {
    let param = error.param().unwrap_or_default();
    let field = API_FIELDS.into_iter().chain([IMAGE_FIELD, "mask"]).find(|name| *name == param).unwrap_or(WHOLE_FORM);
    let form = submitted_form(context).with_error(field, error.to_string());
    let status = StatusCode::from_u16(error.code().status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    render_page(context, status, form, None, None).await
}

/// Shows the form with an error that belongs to no field.
pub(super) async fn render_refusal(
    context: &PageContext<'_>,
    status: StatusCode,
    text: &str,
) -> Result<PageResponse, PageError> {
    let form = submitted_form(context).with_error(WHOLE_FORM, text);
    render_page(context, status, form, None, None).await
}

/// Shows the form with a request that was sent.
pub(super) async fn render_run(context: &PageContext<'_>, run: PlaygroundRun) -> Result<PageResponse, PageError> {
    let form = PageForm::default().with_value("key", run.key.clone());
    render_page(context, StatusCode::OK, form, None, Some(run)).await
}

async fn render_page(
    context: &PageContext<'_>,
    status: StatusCode,
    form: PageForm,
    preview: Option<RequestPreview>,
    run: Option<PlaygroundRun>,
) -> Result<PageResponse, PageError> {
    let template = PlaygroundPage {
        page: context.layout("playground"),
        form,
        nonce: context.issue_run_nonce()?,
        keys: own_keys(context).await?,
        models: context.gateway.settings().image_models.all().map(|model| (**model).clone()).collect(),
        sizes: &SIZES,
        rules: SizeRules {
            grid: GRID_PX,
            max_edge: MAX_EDGE_PX,
            max_ratio: MAX_RATIO,
            min_pixels: MIN_PIXELS,
            max_pixels: MAX_PIXELS,
        },
        preview,
        run,
        recent: stored_images::recent_records(context).await?,
    };
    Ok(render(status, &template))
}

/// Returns the user's own keys that can be used now, the newest first.
pub(super) async fn own_keys(context: &PageContext<'_>) -> Result<Vec<types::Key>, PageError> {
    Ok(context.console().list_keys(context.actor()?, &own_keys_query(context)).await?.data)
}

/// The query for the user's own keys that can be used now.
pub(super) fn own_keys_query(context: &PageContext<'_>) -> ListKeysQuery {
    ListKeysQuery {
        limit: types::PageLimit::new(KEYS_MAX).ok(),
        state: Some(types::KeyState::Active),
        user: context.own_user_id().map(|user| user.to_string()),
        ..ListKeysQuery::default()
    }
}

/// Returns the caller for one of the user's own keys.
///
/// # Errors
///
/// 401 if the user has no such key, or it cannot be used now.
pub(super) async fn own_caller(context: &PageContext<'_>, key: &types::Key) -> Result<Caller, Error> {
    let owner = context.own_user_id().ok_or(Error::InvalidKey)?;
    flow::admit_owner(&context.gateway.images, &PublicId::from(key.public_id.as_str()), &owner).await
}

/// Returns the fields of the API that are not empty, with the types that the API has.
pub(super) fn api_fields(form: &PageForm) -> Map<String, Value> {
    let filled = API_FIELDS.into_iter().map(|name| (name, form.value(name))).filter(|(_, value)| !value.is_empty());
    let mut fields: Map<String, Value> = filled.map(|(name, value)| (name.to_owned(), typed(name, value))).collect();
    drop_png_compression(&mut fields);
    fields
}

/// Returns the fields in the order of the form, without those whose value is the default.
fn stated_fields(mut fields: Map<String, Value>) -> Vec<(&'static str, Value)> {
    let fields = API_FIELDS.into_iter().filter_map(|name| Some((name, fields.remove(name)?)));
    let is_default = |(name, value): &(&str, Value)| {
        DEFAULTS.iter().any(|(other, word)| name == other && value == word) || (*name == "n" && *value == 1)
    };
    fields.filter(|field| !is_default(field)).collect()
}

/// Removes the compression if the format has none: the form keeps its value while another format is chosen.
pub(super) fn drop_png_compression(fields: &mut Map<String, Value>) {
    let format = fields.get("output_format").and_then(Value::as_str).unwrap_or("png");
    if format == "png" {
        fields.remove("output_compression");
    }
}

fn typed(name: &str, value: &str) -> Value {
    let is_integer =
        field(IMAGE_GENERATION_FIELDS, name).is_some_and(|row| matches!(row.kind, FieldKind::Integer { .. }));
    let number = value.parse::<u64>().ok().filter(|_| is_integer);
    number.map_or_else(|| value.into(), Value::from)
}

/// Returns the most that the request can cost, or the text of the reason why it is refused; `None` if the user has no key.
async fn estimate(
    context: &PageContext<'_>,
    form: &PageForm,
    fields: &Map<String, Value>,
) -> Result<Result<Option<CostPreview>, String>, PageError> {
    let keys = own_keys(context).await?;
    let Some(key) = keys.iter().find(|key| key.id == form.value("key")).or(keys.first()) else {
        return Ok(Ok(None));
    };
    let body = Value::Object(fields.clone()).to_string();
    let options = RequestOptions::without_headers(&context.request.admission);
    let estimated = async {
        let caller = own_caller(context, key).await?;
        let body = CountedJson::new(options.admission(), &body).map_err(|error| json_text_error(&error))?;
        Ok(flow::estimate_image(&context.gateway.images, &caller, &options, &body).await?.cost)
    };
    Ok(estimated.await.map_err(|error: Error| error.to_string()).map(|cost| {
        let refusal = cost.refusal.map(|refusal| refusal.message);
        Some(CostPreview { max_cost_usd: cost.max_cost_usd, refusal })
    }))
}

// === impl PlaygroundPage ===

impl PlaygroundPage {
    /// True if the page shows a request that is in progress.
    fn is_running(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.is_running)
    }

    /// The words of all models for one property, each with the models that have it.
    fn words<'a>(&'a self, of: impl Fn(&'a ImageModelSpec) -> &'a [String]) -> Vec<(&'a str, String)> {
        let mut words: Vec<&str> = Vec::new();
        for word in self.models.iter().flat_map(&of) {
            if !words.contains(&word.as_str()) {
                words.push(word);
            }
        }
        let models_with = |word: &str| {
            let models = self.models.iter().filter(|model| of(model).iter().any(|other| other == word));
            models.map(|model| model.id.as_str()).collect::<Vec<_>>().join(" ")
        };
        words.into_iter().map(|word| (word, models_with(word))).collect()
    }

    fn qualities(&self) -> Vec<(&str, String)> {
        self.words(|model| &model.qualities)
    }

    fn formats(&self) -> Vec<(&str, String)> {
        self.words(|model| &model.formats)
    }

    fn backgrounds(&self) -> Vec<(&str, String)> {
        self.words(|model| &model.backgrounds)
    }

    /// The largest number of images that a model makes for one request.
    fn max_images(&self) -> u32 {
        self.models.iter().map(|model| model.max_images).max().unwrap_or(1)
    }
}
