//! The command `imagate usage`.

mod counts;
mod follow;
mod records;

use clap::{Args, ValueEnum};

use super::failure::CommandFailure;
use super::managed_gateway::GatewayArgs;
use super::moment_arg::MomentArg;
use super::output::print;
use crate::gateway::store::{self, JobState};
use crate::gateway::usage::{self, RecordFilter, UsageFilter};
use records::MAX_TABLE_ROWS;

/// Arguments of `usage`.
#[derive(Debug, Args)]
pub(super) struct UsageCommand {
    #[command(flatten)]
    gateway: GatewayArgs,
    /// Print counts by day (in UTC), key or another property instead of single requests.
    #[arg(long, visible_alias = "group-by", value_name = "WHAT")]
    by: Option<UsageGrouping>,
    /// Only requests that began at this time or later: a date, a date and time such as 2026-11-21T03:00:00Z, or a
    /// duration before now such as 24h or 7d.
    #[arg(long, value_name = "T")]
    since: Option<MomentArg>,
    /// Only requests that began before this time, which has the same forms; with `--by`, the whole day of this time
    /// counts.
    #[arg(long, value_name = "T", conflicts_with = "follow")]
    until: Option<MomentArg>,
    /// Only requests of this key.
    #[arg(long, value_name = "ID")]
    key: Option<String>,
    /// Only requests of the user with this name or id.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Only requests in this group.
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Only requests on behalf of this end user, as given in `safety_identifier` or `user`.
    #[arg(long, value_name = "ID")]
    end_user: Option<String>,
    #[command(flatten)]
    records: RecordArgs,
    /// Show the cost in US dollars in tables. JSON and comma-separated values always have it.
    #[arg(long)]
    cost: bool,
    /// Print one JSON object per line.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values.
    #[arg(long)]
    csv: bool,
    /// Print the newest records, and then each record as soon as its request ends, until Ctrl-C. Looks among the newest
    /// 10,000 records.
    #[arg(long, conflicts_with_all = ["by", "csv"])]
    follow: bool,
}

/// Filters of single requests, which counts do not have.
#[derive(Debug, Args)]
struct RecordArgs {
    /// Only requests in this state, such as failed.
    #[arg(long, value_name = "STATE", value_parser = parse_state, conflicts_with = "by")]
    state: Option<JobState>,
    /// Only finished requests that did not succeed.
    #[arg(long, conflicts_with_all = ["by", "state"])]
    unsuccessful: bool,
    /// Only requests for this model.
    #[arg(long, value_name = "ID", conflicts_with = "by")]
    model: Option<String>,
    /// Only requests whose last call went to this account.
    #[arg(long, value_name = "NAME", conflicts_with = "by")]
    account: Option<String>,
    /// Only requests with this size, such as 1024x1024, among the newest 10,000 records that pass the other filters.
    #[arg(long, value_name = "WIDTHxHEIGHT", conflicts_with = "by")]
    size: Option<String>,
    /// Only requests with this quality, such as high, among the newest 10,000 records that pass the other filters.
    #[arg(long, value_name = "WORD", conflicts_with = "by")]
    quality: Option<String>,
    /// Only requests that got an error with this code, such as `upstream_error`.
    #[arg(long, value_name = "CODE", conflicts_with = "by")]
    error_code: Option<String>,
    /// Only requests that failed for this reason, such as quota.
    #[arg(long, value_name = "REASON", conflicts_with = "by")]
    error_reason: Option<String>,
}

/// The unit that counts are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum UsageGrouping {
    /// The day on which a request began.
    Day,
    /// The hour in UTC, for at most 31 days.
    Hour,
    /// The key of a request.
    Key,
    /// The user who owned the key.
    User,
    /// The group in which the key was served.
    Group,
    /// The account of the last call.
    Account,
    /// The requested model.
    Model,
    /// The requested size.
    Size,
    /// The requested quality.
    Quality,
    /// The reason of a failure.
    Reason,
}

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UsageFormat {
    Table {
        /// True if there are columns for the cost.
        cost: bool,
    },
    Json,
    Csv,
}

// === impl UsageCommand ===

impl UsageCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let format = match (self.json, self.csv) {
            (true, _) => UsageFormat::Json,
            (_, true) => UsageFormat::Csv,
            _ => UsageFormat::Table { cost: self.cost },
        };
        let (by, follows, gateway) = (self.by, self.follow, self.gateway.find()?);
        let (counts, records) = (self.counts(), self.into_records(format));
        gateway.run(async |gateway| match by {
            Some(by) => Ok(print(&counts::read_counts(gateway, by, &counts).await?.render(format)?)?),
            None if follows => follow::follow(gateway, records, format).await,
            None => records::list_records(gateway, &records, format).await,
        })
    }

    /// The filter of counts, which cover whole days.
    fn counts(&self) -> UsageFilter {
        UsageFilter {
            key: self.key.clone(),
            user: self.user.clone(),
            group: self.group.clone(),
            end_user: self.end_user.clone(),
            since: self.since.map(|since| usage::UtcDay::from(since.moment())),
            until: self.until.map(|until| usage::UtcDay::from(until.moment())),
            ..UsageFilter::default()
        }
    }

    /// The filter of single requests.
    fn into_records(self, format: UsageFormat) -> RecordFilter {
        let RecordArgs { state, unsuccessful, model, account, size, quality, error_code, error_reason } = self.records;
        RecordFilter {
            key: self.key,
            user: self.user,
            group: self.group,
            end_user: self.end_user,
            model,
            account,
            size,
            quality,
            error_code,
            error_reason,
            state,
            is_unsuccessful: unsuccessful,
            since: self.since.map(MomentArg::moment),
            until: self.until.map(MomentArg::moment),
            limit: matches!(format, UsageFormat::Table { .. }).then_some(MAX_TABLE_ROWS),
            ..RecordFilter::default()
        }
    }
}

// === impl UsageGrouping ===

impl UsageGrouping {
    /// The grouping as the store has it.
    const fn stored(self) -> store::UsageGrouping {
        match self {
            Self::Day => store::UsageGrouping::Day,
            Self::Hour => store::UsageGrouping::Hour,
            Self::Key => store::UsageGrouping::Key,
            Self::User => store::UsageGrouping::User,
            Self::Group => store::UsageGrouping::Group,
            Self::Account => store::UsageGrouping::Account,
            Self::Model => store::UsageGrouping::Model,
            Self::Size => store::UsageGrouping::Size,
            Self::Quality => store::UsageGrouping::Quality,
            Self::Reason => store::UsageGrouping::Reason,
        }
    }
}

fn parse_state(word: &str) -> Result<JobState, String> {
    word.parse().map_err(|_| format!("`{word}` is not the state of a record"))
}
