//! The page of the alerts: the newest events, and their delivery.

use askama::Template;
use http::StatusCode;

use super::format;
use super::http_messages::{PageResponse, encode_path_segment};
use super::language::PageTexts;
use super::page_context::PageContext;
use super::page_error::{PageError, render};
use super::page_layout::PageLayout;
use crate::wire::admin::server::ListAlertsQuery;
use crate::wire::admin::types;

/// The number of alerts on the page (our choice).
const LISTED: i64 = 100;

#[derive(Template)]
#[template(path = "alerts.html", config = "src/gateway/pages/askama.toml")]
struct AlertsPage {
    page: PageLayout,
    alerts: Vec<AlertView>,
    /// True if a channel is configured.
    has_channel: bool,
}

/// An alert as the page shows it.
struct AlertView {
    alert: types::Alert,
    /// The name of the subject.
    name: String,
    /// The address of its page.
    path: String,
    /// The key of the text for the kind of the subject.
    kind: &'static str,
    /// The CSS class of the event.
    tone: &'static str,
    /// The key of its text.
    label: &'static str,
    /// The spent part of the budget, such as `$8.10 of $10.00`.
    spent: String,
}

/// Shows the newest alerts.
pub(super) async fn show(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let query = ListAlertsQuery { limit: types::PageLimit::new(LISTED).ok() };
    let list = context.console().list_alerts(context.actor()?, &query).await?;
    let template = AlertsPage {
        page: context.layout("alerts"),
        alerts: list.data.into_iter().map(|alert| AlertView::new(context.texts, alert)).collect(),
        has_channel: context.console().delivers_alerts(),
    };
    Ok(render(StatusCode::OK, &template))
}

// === impl AlertView ===

impl AlertView {
    fn new(texts: PageTexts, alert: types::Alert) -> Self {
        let subject = alert.data.subject.as_ref();
        let (kind, id) = subject.map_or_else(Default::default, |subject| (subject.kind.clone(), subject.id.clone()));
        let name = subject.and_then(|subject| subject.name.clone()).filter(|name| !name.is_empty());
        let amount = |dollars: Option<f64>| format::dollars(dollars.unwrap_or_default(), 2..=4);
        let (spent, budget) = (amount(alert.data.spent_usd), amount(alert.data.budget_usd));
        let (section, kind) = match kind.as_str() {
            "group" => ("groups", "keys.group"),
            "user" => ("people", "keys.user"),
            _ => ("keys", "records.key"),
        };
        let (tone, label) = match alert.type_.as_str() {
            "budget.exhausted" => ("bad", "alerts.exhausted"),
            _ => ("warn", "alerts.soft"),
        };
        Self {
            path: format!("/{section}/{}", encode_path_segment(&id)),
            name: name.unwrap_or(id),
            kind,
            tone,
            label,
            spent: texts.get_with("quota.used", "used", spent).replace("{limit}", &budget),
            alert,
        }
    }
}

/// The CSS class and the key of the text of the state of a delivery.
const fn delivery_state(delivery: &types::AlertDelivery) -> (&'static str, &'static str) {
    match delivery.state {
        types::AlertDeliveryState::Pending => ("warn", "alerts.pending"),
        types::AlertDeliveryState::Delivered => ("good", "alerts.delivered"),
        types::AlertDeliveryState::Failed => ("bad", "alerts.failed"),
    }
}
