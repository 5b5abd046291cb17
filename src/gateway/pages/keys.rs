//! The page `/keys`: a list of API keys, and a form for a new key.

use askama::Template;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::examples::{CodeExample, examples};
use super::form::PageForm;
use super::http_messages::{PageResponse, UrlEncodedFields};
use super::page_context::{PageContext, end_of_day};
use super::page_error::{PageError, render};
use super::page_layout::PageLayout;
use super::sort_links::{SORT_FIELD, SortLinks};
use crate::error::Error;
use crate::gateway::replay::{OneTimeClaim, OneTimeUse};
use crate::wire::admin::server::ListKeysQuery;
use crate::wire::admin::types;
use chrono::{DateTime, Utc};

/// The maximum number of keys on one page (our choice).
const PER_PAGE: i64 = 50;

/// The states that the list can be filtered by.
const STATES: [types::KeyState; 4] =
    [types::KeyState::Active, types::KeyState::Disabled, types::KeyState::Expired, types::KeyState::UserDisabled];

#[derive(Template)]
#[template(path = "keys.html", config = "src/gateway/pages/askama.toml")]
struct KeysPage {
    page: PageLayout,
    keys: types::KeyList,
    groups: Vec<types::Group>,
    states: &'static [types::KeyState],
    query: UrlEncodedFields,
    /// The query of the page, to which a form returns.
    query_text: String,
    sort: SortLinks,
    is_filtered: bool,
    /// True if the form for a new key is shown unfolded.
    is_open: bool,
    form: PageForm,
    nonce: String,
    newest: Option<String>,
    older: Option<String>,
}

/// The sum of the counts of the keys that are shown.
struct KeyCountSum {
    requests: u64,
    images: u64,
    /// The known cost, in US dollars.
    cost_usd: Option<f64>,
    /// The number of requests whose cost is unknown.
    cost_unknown: Option<u64>,
}

/// The page that shows a new API key, admin token or one-time link. No other page shows it again.
#[derive(Template)]
#[template(path = "secret.html", config = "src/gateway/pages/askama.toml")]
pub(super) struct SecretPage {
    pub(super) page: PageLayout,
    pub(super) title: &'static str,
    pub(super) name: String,
    pub(super) label: &'static str,
    pub(super) warning: &'static str,
    pub(super) secret: String,
    pub(super) until: Option<DateTime<Utc>>,
    pub(super) until_label: &'static str,
    pub(super) examples: Vec<CodeExample>,
    pub(super) next: String,
    pub(super) next_label: &'static str,
}

/// The answer to a form that is submitted a second time.
#[derive(Template)]
#[template(path = "repeated_form.html", config = "src/gateway/pages/askama.toml")]
struct RepeatedFormPage {
    page: PageLayout,
    text: &'static str,
    link: String,
    link_label: &'static str,
}

// === impl KeysPage ===

impl KeysPage {
    fn sum(&self) -> KeyCountSum {
        let keys = || self.keys.data.iter();
        KeyCountSum {
            requests: keys().map(|key| key.requests).sum(),
            images: keys().map(|key| key.images).sum(),
            cost_usd: Some(keys().filter_map(|key| key.cost_usd).sum()),
            cost_unknown: Some(keys().filter_map(|key| key.cost_unknown).sum()),
        }
    }
}

/// Shows the list of keys.
pub(super) async fn show(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    render_page(context, StatusCode::OK, PageForm::default().with_value("group", "default")).await
}

async fn render_page(context: &PageContext<'_>, status: StatusCode, form: PageForm) -> Result<PageResponse, PageError> {
    let request = context.request;
    let query_param = |name: &str| request.query_param(name).map(str::to_owned);
    let query = ListKeysQuery {
        before: query_param("before"),
        group: query_param("group"),
        limit: types::PageLimit::new(PER_PAGE).ok(),
        search: query_param("search"),
        sort: request.query_param(SORT_FIELD).and_then(|word| word.parse().ok()),
        state: request.query_param("state").and_then(|word| word.parse().ok()),
        user: query_param("user"),
    };
    let keys = context.console().list_keys(context.actor()?, &query).await?;
    let groups = context.console().list_groups(context.actor()?).await?.data;
    let older = keys.data.last().filter(|_| keys.has_more).map(|last| older_page_link(request, "/keys", &last.id));
    let is_filtered = ["search", "state", "group", "user"].iter().any(|name| request.query_param(name).is_some());
    let template = KeysPage {
        is_open: form.has_error() || (keys.data.is_empty() && !is_filtered),
        newest: request.query_param("before").map(|_| format!("/keys?{}", request.query.to_query_without(&["before"]))),
        query_text: if request.is_post() { String::new() } else { request.query.to_query_without(&["done"]) },
        sort: SortLinks::new(request, "/keys", query.sort.unwrap_or(types::KeySort::Created)),
        query: request.query.clone(),
        states: &STATES,
        nonce: context.issue_form_nonce()?,
        page: context.layout("keys"),
        keys,
        groups,
        is_filtered,
        form,
        older,
    };
    Ok(render(status, &template))
}

/// Returns the link to the page that continues the list after the row with this id.
pub(super) fn older_page_link(request: &super::PageRequest, path: &str, id: &str) -> String {
    format!("{path}?{}", request.query.to_query_with("before", id))
}

/// Creates a key, and shows its secret. Only this answer can show the secret.
pub(super) async fn create(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let form = PageForm::from_request(context.request, &["name", "group", "expires_on", "user"]);
    let body = match request_body(&form) {
        Ok(body) => body,
        Err(()) => {
            let form = form.with_error("expires_on", context.texts.get("error.expires_on"));
            return render_page(context, StatusCode::UNPROCESSABLE_ENTITY, form).await;
        }
    };
    let Some(first_use) = claim_form(context, "again.key", "again.to_key", "/keys").await? else {
        let form = form.with_error(super::form::WHOLE_FORM, context.texts.get("error.stale"));
        return render_page(context, StatusCode::UNPROCESSABLE_ENTITY, form).await;
    };
    let body = Value::Object(body).to_string();
    match context.console().create_key(context.actor()?, body.as_bytes()).await {
        Ok(created) => {
            first_use.complete(&created.key.id).await;
            Ok(show_secret(context, created, "made.title"))
        }
        Err(error) => {
            first_use.release().await;
            render_refusal(context, form, error).await
        }
    }
}

async fn render_refusal(context: &PageContext<'_>, form: PageForm, error: Error) -> Result<PageResponse, PageError> {
    let form = form.with_console_error(context.texts, error)?;
    render_page(context, StatusCode::UNPROCESSABLE_ENTITY, form).await
}

/// The body of the console request; an error if the expiry is not a valid day.
fn request_body(form: &PageForm) -> Result<Map<String, Value>, ()> {
    let mut body = Map::new();
    for name in ["name", "group", "user"] {
        if !form.value(name).is_empty() {
            body.insert(name.to_owned(), form.value(name).into());
        }
    }
    if !form.value("expires_on").is_empty() {
        body.insert("expires_at".to_owned(), json!(end_of_day(form.value("expires_on")).ok_or(())?));
    }
    Ok(body)
}

/// Claims the use of the submitted form; returns `None` if its nonce has expired or is not valid. The caller must complete
/// the claim with the id of what it creates, or release it if it creates nothing.
///
/// `text`, `link_label` and `path` are for the page that answers a form that was already used: the path of its link is
/// `path`, with the id of the created object if it is known.
///
/// # Errors
///
/// Returns an error if the form was already used, or if the store does not take the claim.
pub(super) async fn claim_form(
    context: &PageContext<'_>,
    text: &'static str,
    link_label: &'static str,
    path: &str,
) -> Result<Option<OneTimeClaim>, PageError> {
    match context.use_form_nonce().await? {
        Some(OneTimeUse::First(claim)) => Ok(Some(claim)),
        None => Ok(None),
        Some(OneTimeUse::Repeated(created_id)) => {
            let link = created_id.map_or_else(|| path.to_owned(), |id| format!("{path}/{id}"));
            let page = RepeatedFormPage { page: context.layout(""), text, link, link_label };
            Err(PageError::RepeatedForm(Box::new(render(StatusCode::CONFLICT, &page))))
        }
    }
}

/// Returns the page that shows the secret of a key.
pub(super) fn show_secret(context: &PageContext<'_>, created: types::CreatedKey, title: &'static str) -> PageResponse {
    let secret = created.secret.expose().to_owned();
    let mut page = context.layout("keys");
    // Without `back`, the page offers no change of language or theme. Such a change would load another page, without
    // the secret.
    page.back = None;
    let template = SecretPage {
        page,
        title,
        label: "made.secret",
        warning: "made.once",
        until: created.key.previous_until,
        until_label: "made.previous",
        examples: examples(context.site, Some(&secret)),
        next: format!("/keys/{}", created.key.id),
        next_label: "made.to_key",
        name: created.key.name,
        secret,
    };
    render(StatusCode::OK, &template)
}
