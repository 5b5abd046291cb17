//! Usage by one property of requests, as the API shows it.

use super::Console;
use super::error_conversion::from_store_error;
use super::usage::period;
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::money::Usd;
use crate::gateway::people::Actor;
use crate::gateway::store::{Timestamp, UsageDetails, UsageGrouping};
use crate::gateway::usage::{
    GroupedUsage, GroupingError, TopQuery, UsageFilter, UsageGroup, UsageMeasure, UsageOverview,
};
use crate::wire::admin::server::RetrieveUsageQuery;
use crate::wire::admin::types;

/// The maximum number of groups in one answer, unless they are times (our choice).
const GROUPS_MAX: u32 = 1000;
/// The number of groups in a short list (our choice).
const TOP_GROUPS: usize = 20;

// === impl Console ===

impl Console {
    /// Returns the counts by the property that the query names, or by day.
    ///
    /// # Errors
    ///
    /// 400 if the property does not fit the other parameters, 403 if a member asks for accounts, and the errors of
    /// [`Console::retrieve_usage`].
    pub(crate) async fn usage_groups(&self, actor: &Actor, query: &RetrieveUsageQuery) -> Result<GroupedUsage, Error> {
        let (filter, grouping, measure) = self.grouped_filter(actor, query).await?;
        let groups = self.usage().groups(&filter, grouping, measure, Some(GROUPS_MAX)).await;
        let mut groups = groups.map_err(from_store_error)?;
        if !actor.is_admin() {
            // The number is that of all users.
            groups.pending_records = groups.pending_records.min(1);
        }
        Ok(groups)
    }

    /// Returns the counts of a query by the property that it names, those of the period before, and for each of the
    /// queries `tops` a few groups: those with the most of its measure.
    ///
    /// # Errors
    ///
    /// The errors of [`Console::usage_groups`].
    pub(crate) async fn usage_overview(
        &self,
        actor: &Actor,
        query: &RetrieveUsageQuery,
        before: &RetrieveUsageQuery,
        tops: &[RetrieveUsageQuery],
    ) -> Result<UsageOverview, Error> {
        // Two reads at a time: the other connections to the database are for requests.
        let others = async {
            let (before, mut queries) = (self.usage_groups(actor, before).await?, Vec::new());
            for query in tops {
                let (filter, grouping, measure) = self.grouped_filter(actor, query).await?;
                queries.push(TopQuery { filter, grouping, measure });
            }
            let lists = self.usage().top_lists(&queries, TOP_GROUPS).await.map_err(from_store_error)?;
            Ok((before, lists))
        };
        let (groups, (before, tops)) = tokio::try_join!(self.usage_groups(actor, query), others)?;
        Ok(UsageOverview { groups, before, tops })
    }

    async fn grouped_filter(
        &self,
        actor: &Actor,
        query: &RetrieveUsageQuery,
    ) -> Result<(UsageFilter, UsageGrouping, UsageMeasure), Error> {
        let grouping = query.group_by.unwrap_or(UsageGrouping::Day);
        // A member must not learn which account served a request.
        if grouping == UsageGrouping::Account && !actor.is_admin() {
            return Err(Error::Denied);
        }
        let (first, last) = period(query, Timestamp::now().into())?;
        let filter = self.usage_filter(actor, query, first, last).await?;
        GroupingError::check(grouping, &filter).map_err(to_rejection)?;
        let measure = query.measure.unwrap_or(UsageMeasure::Requests);
        Ok((filter, grouping, measure))
    }
}

fn to_rejection(error: GroupingError) -> Rejection {
    let message = format!("Invalid 'group_by': {error}.");
    Rejection::new("group_by", RejectionReason::InvalidValue, message)
}

/// Adds the counts by the property that the query names to an answer.
pub(super) fn with_groups(usage: types::Usage, query: &RetrieveUsageQuery, grouped: GroupedUsage) -> types::Usage {
    let GroupedUsage { groups, overall, pending_records, undetailed_requests } = grouped;
    types::Usage {
        group_by: query.group_by,
        groups: groups.into_iter().map(to_wire_group).collect(),
        overall: Some(to_wire_group(overall)),
        pending_records: Some(pending_records),
        undetailed_requests: Some(undetailed_requests),
        ..usage
    }
}

/// Returns a group as the API shows it.
fn to_wire_group(group: UsageGroup) -> types::UsageGroup {
    let (p50_ms, p95_ms) = (UsageMeasure::P50.of_group(&group), UsageMeasure::P95.of_group(&group));
    let UsageGroup { value, name, user_name, counts, details } = group;
    let detail = |count: fn(&UsageDetails) -> u64| details.as_ref().map(count);
    types::UsageGroup {
        value,
        name,
        user_name,
        requests: counts.requests,
        succeeded: counts.succeeded,
        failed: counts.failed,
        refused: counts.refused,
        images: counts.images,
        input_tokens: counts.input_tokens,
        output_tokens: counts.output_tokens,
        total_tokens: counts.total_tokens,
        cost_usd: Some(counts.cost_usd.dollars()),
        cost_unknown: Some(counts.cost_unknown),
        input_text_tokens: detail(|details| details.input_text_tokens),
        input_image_tokens: detail(|details| details.input_image_tokens),
        input_cached_tokens: detail(|details| details.input_cached_tokens),
        output_text_tokens: detail(|details| details.output_text_tokens),
        output_image_tokens: detail(|details| details.output_image_tokens),
        host_input_tokens: detail(|details| details.host_input_tokens),
        host_output_tokens: detail(|details| details.host_output_tokens),
        replays: detail(|details| details.replays),
        replayed_images: detail(|details| details.replayed_images),
        saved_usd: detail(|details| details.saved_nano_usd).map(|nanos| Usd::from_nanos(nanos).dollars()),
        saved_unknown: detail(|details| details.saved_unknown),
        p50_ms,
        p95_ms,
    }
}
