//! The three steps of the first run: a key, an image, its record.

use askama::Template;
use http::StatusCode;

use super::desk::PageContext;
use super::examples::{CodeExample, examples};
use super::failure::{PageError, rendered};
use super::frame::PageLayout;
use super::visit::PageResponse;
use crate::wire::admin::server::{ListKeysQuery, ListRecordsQuery};
use crate::wire::admin::types;

#[derive(Template)]
#[template(path = "start.html", config = "src/gateway/pages/askama.toml")]
struct StartPage {
    page: PageLayout,
    key: Option<types::Key>,
    record: Option<types::Record>,
    /// The number of finished steps.
    done: u8,
    /// Only the example for a terminal, to keep the page simple.
    examples: Vec<CodeExample>,
}

/// Shows the steps; each is ticked if its result exists.
pub(super) async fn show(desk: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let one = types::PageLimit::new(1).ok();
    let own = desk.actor()?.user().map(|user| user.id.to_string());
    let keys = ListKeysQuery { before: None, group: None, limit: one, search: None, state: None, user: own.clone() };
    let key = desk.console().list_keys(desk.actor()?, &keys).await?.data.into_iter().next();
    let mut record = newest(desk, own, None).await?;
    if let (None, Some(key)) = (&record, &key) {
        // The first key may have been used before it belonged to a user.
        record = newest(desk, None, Some(key.id.clone())).await?;
    }
    let done = match (&key, &record) {
        (_, Some(_)) => 3,
        (Some(_), None) => 1,
        (None, None) => 0,
    };
    let mut examples = examples(desk.home, None);
    examples.truncate(1);
    Ok(rendered(StatusCode::OK, &StartPage { page: desk.page("start"), key, record, done, examples }))
}

/// The record of the newest image of a user or a key.
async fn newest(
    desk: &PageContext<'_>,
    user: Option<String>,
    key: Option<String>,
) -> Result<Option<types::Record>, PageError> {
    let records = ListRecordsQuery {
        before: None,
        end_user: None,
        group: None,
        key,
        limit: types::PageLimit::new(1).ok(),
        since: None,
        state: Some(types::RecordState::Succeeded),
        until: None,
        user,
    };
    Ok(desk.console().list_records(desk.actor()?, &records).await?.data.into_iter().next())
}
