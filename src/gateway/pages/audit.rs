//! The audit trail: every change, with its actor and time.

use askama::Template;
use http::StatusCode;

use super::desk::PageContext;
use super::failure::{PageError, rendered};
use super::form::PageForm;
use super::frame::PageLayout;
use super::keys::after;
use super::visit::PageResponse;
use crate::wire::admin::server::ListAuditQuery;
use crate::wire::admin::types;

/// The number of rows on one page (ours).
const PER_PAGE: i64 = 50;

#[derive(Template)]
#[template(path = "audit.html", config = "src/gateway/pages/askama.toml")]
struct AuditPage {
    page: PageLayout,
    entries: Vec<types::AuditEntry>,
    total: u64,
    form: PageForm,
    is_filtered: bool,
    newer: Option<String>,
    older: Option<String>,
}

/// Shows the list.
pub(super) async fn show(desk: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let visit = desk.visit;
    let asked = |name: &str| visit.asked(name).map(str::to_owned);
    let before = visit.asked("before").and_then(|text| text.parse().ok());
    let query = ListAuditQuery {
        action: asked("action"),
        actor: asked("actor"),
        before: before.and_then(|seq| types::AuditSeq::new(seq).ok()),
        limit: types::PageLimit::new(PER_PAGE).ok(),
        target: asked("target"),
    };
    let list = desk.console().list_audit(desk.actor()?, &query).await?;
    let mut form = PageForm::default();
    for name in ["actor", "action", "target"] {
        form = form.with(name, visit.asked(name).unwrap_or_default());
    }
    let older = list.data.last().filter(|_| list.has_more);
    let template = AuditPage {
        page: desk.page("audit"),
        older: older.map(|last| after(visit, "/audit", &last.seq.get().to_string())),
        newer: visit.asked("before").map(|_| format!("/audit?{}", visit.query.with("before", None))),
        is_filtered: ["actor", "action", "target"].iter().any(|name| visit.asked(name).is_some()),
        total: list.total,
        entries: list.data,
        form,
    };
    Ok(rendered(StatusCode::OK, &template))
}
