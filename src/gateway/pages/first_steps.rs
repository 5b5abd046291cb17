//! The page with the three steps of the first run: create a key, make an image, see its record.

use askama::Template;
use http::StatusCode;

use super::examples::{CodeExample, examples};
use super::http_messages::PageResponse;
use super::page_context::PageContext;
use super::page_error::{PageError, render};
use super::page_layout::PageLayout;
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
    /// Only the example for curl. The others are left out to keep the page simple.
    examples: Vec<CodeExample>,
}

/// Shows the steps. The first is done if the user has a key; a record of a successful job means that all are done.
pub(super) async fn show(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let single_row = types::PageLimit::new(1).ok();
    let own_user_id = context.actor()?.user().map(|user| user.id.to_string());
    let keys = ListKeysQuery { limit: single_row, user: own_user_id.clone(), ..ListKeysQuery::default() };
    let key = context.console().list_keys(context.actor()?, &keys).await?.data.into_iter().next();
    let mut record = newest_record(context, own_user_id, None).await?;
    if let (None, Some(key)) = (&record, &key) {
        // The first admin gets the keys that were created before there were users; their records may name no user.
        record = newest_record(context, None, Some(key.id.clone())).await?;
    }
    let done = match (&key, &record) {
        (_, Some(_)) => 3,
        (Some(_), None) => 1,
        (None, None) => 0,
    };
    let mut examples = examples(context.site, None);
    examples.truncate(1);
    Ok(render(StatusCode::OK, &StartPage { page: context.layout("start"), key, record, done, examples }))
}

/// Returns the newest record of a successful job of a user or a key.
pub(super) async fn newest_record(
    context: &PageContext<'_>,
    user: Option<String>,
    key: Option<String>,
) -> Result<Option<types::Record>, PageError> {
    let records = ListRecordsQuery {
        key,
        limit: types::PageLimit::new(1).ok(),
        state: Some(types::RecordState::Succeeded),
        user,
        ..ListRecordsQuery::default()
    };
    Ok(context.console().list_records(context.actor()?, &records).await?.data.into_iter().next())
}
