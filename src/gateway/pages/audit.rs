//! The page of the audit trail.

use askama::Template;
use http::StatusCode;

use super::form::PageForm;
use super::http_messages::PageResponse;
use super::keys::older_page_link;
use super::page_context::PageContext;
use super::page_error::{PageError, render};
use super::page_layout::PageLayout;
use crate::wire::admin::server::ListAuditQuery;
use crate::wire::admin::types;

/// The number of rows on one page (our choice).
const PER_PAGE: i64 = 50;

#[derive(Template)]
#[template(path = "audit.html", config = "src/gateway/pages/askama.toml")]
struct AuditPage {
    page: PageLayout,
    entries: Vec<types::AuditEntry>,
    total: u64,
    form: PageForm,
    is_filtered: bool,
    newest: Option<String>,
    older: Option<String>,
}

/// Shows one page of the entries that match the filter.
pub(super) async fn show(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let request = context.request;
    let query_param = |name: &str| request.query_param(name).map(str::to_owned);
    let before = request.query_param("before").and_then(|text| text.parse().ok());
    let query = ListAuditQuery {
        action: query_param("action"),
        actor: query_param("actor"),
        before: before.and_then(|seq| types::AuditSeq::new(seq).ok()),
        limit: types::PageLimit::new(PER_PAGE).ok(),
        target: query_param("target"),
    };
    let list = context.console().list_audit(context.actor()?, &query).await?;
    let mut form = PageForm::default();
    for name in ["actor", "action", "target"] {
        form = form.with_value(name, request.query_param(name).unwrap_or_default());
    }
    let older = list.data.last().filter(|_| list.has_more);
    let template = AuditPage {
        page: context.layout("audit"),
        older: older.map(|last| older_page_link(request, "/audit", &last.seq.get().to_string())),
        newest: request
            .query_param("before")
            .map(|_| format!("/audit?{}", request.query.to_query_without(&["before"]))),
        is_filtered: ["actor", "action", "target"].iter().any(|name| request.query_param(name).is_some()),
        total: list.total,
        entries: list.data,
        form,
    };
    Ok(render(StatusCode::OK, &template))
}
