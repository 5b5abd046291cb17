//! The command `imagate usage`.

mod counts;
mod follow;
mod records;

use clap::{Args, ValueEnum};

use super::failure::CommandFailure;
use super::managed_gateway::GatewayArgs;
use super::moment_arg::MomentArg;
use super::output::print;
use crate::gateway::store;
use crate::gateway::usage::{self, UsageFilter};
use records::RecordArgs;

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
        let (counts, gateway) = (self.counts(), self.gateway.find()?);
        gateway.run(async |gateway| match self.by {
            Some(by) => Ok(print(&counts::read_counts(gateway, by, &counts).await?.render(format)?)?),
            None if self.follow => follow::follow(gateway, &self, format).await,
            None => records::list_records(gateway, &self, format).await,
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
