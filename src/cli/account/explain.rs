//! The command `imagate account explain`.

use clap::Args;
use serde_json::{Value, json};

use crate::cli::failure::CommandFailure;
use crate::cli::managed_gateway::{LocalInstallation, ManagedGateway, only_local};
use crate::cli::output::{Column, print, print_json, print_message, table};
use crate::gateway::config::DEFAULT_GROUP;
use crate::gateway::manage::{self, AccountAvailability, AccountExplanation};
use crate::image::Size;

/// Arguments of `account explain`.
#[derive(Debug, Args)]
pub(super) struct AccountExplainCommand {
    /// The group of the key that sends the request.
    #[arg(long, value_name = "GROUP", default_value = DEFAULT_GROUP)]
    group: String,
    /// The requested size, such as 3840x2160; accounts have fewer slots for large images.
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// The `session-id` of a conversation at `/v1/responses`, to show the account that it is bound to.
    #[arg(long, value_name = "ID")]
    session: Option<String>,
}

// === impl AccountExplainCommand ===

impl AccountExplainCommand {
    pub(super) async fn run(self, gateway: &ManagedGateway, json: bool) -> Result<(), CommandFailure> {
        let Some(LocalInstallation { config, store }) = &gateway.local else {
            return Err(only_local("account explain", "the admin API does not say which account would be used"));
        };
        let is_large = self.size.is_some_and(Size::is_large);
        let explanations = manage::explain(config, store, &self.group, is_large, self.session.as_deref()).await?;
        if json {
            return Ok(print_json(&explanations.iter().map(to_json).collect::<Vec<_>>())?);
        }
        let rows: Vec<[String; 6]> = explanations.iter().map(table_row).collect();
        let [tier, kind, priority, slots] = ["TIER", "KIND", "PRIORITY", "SLOTS"].map(Column::from);
        print(&table(["NAME".into(), Column::state("STATE"), tier, kind, priority, slots], &rows))?;
        print_message(&match explanations.iter().find(|explanation| explanation.chosen) {
            Some(explanation) => format!("{} would be used: {}", explanation.account, ORDER),
            None if self.session.is_some() => format!("no account can serve the group {} now", self.group),
            None => format!("no account can make an image for the group {} now", self.group),
        });
        Ok(())
    }
}

/// The order of the accounts, as a sentence.
const ORDER: &str = "of the accounts that can serve it, paid comes before free, oauth before api_key, higher priority before lower, then the account that the conversation is bound to, and then the account with the most free slots";

fn to_json(explanation: &AccountExplanation) -> Value {
    let AccountExplanation { account, chosen, state, paid, kind, priority, slots, .. } = explanation;
    json!({
        "account": account, "chosen": chosen, "state": state, "tier": tier(*paid), "kind": kind, "priority": priority,
        "slots": slots,
    })
}

fn table_row(explanation: &AccountExplanation) -> [String; 6] {
    [
        explanation.account.clone(),
        availability_text(&explanation.state),
        tier(explanation.paid).to_owned(),
        explanation.kind.as_str().to_owned(),
        explanation.priority.to_string(),
        explanation.slots.to_string(),
    ]
}

pub(super) fn availability_text(state: &AccountAvailability) -> String {
    match state {
        AccountAvailability::Free => "free".to_owned(),
        AccountAvailability::Full => "full".to_owned(),
        AccountAvailability::Ejected { seconds } => format!("not used for {seconds}s, because it failed too often"),
        AccountAvailability::CoolingDown { cause, seconds } => {
            format!("in cooldown for {seconds}s: {}", cause.as_str())
        }
        AccountAvailability::Disabled { reason } => format!("disabled: {reason}"),
        AccountAvailability::OtherGroup => "serves other groups".to_owned(),
        AccountAvailability::OtherProtocol => "uses another protocol".to_owned(),
    }
}

const fn tier(paid: bool) -> &'static str {
    if paid { "paid" } else { "free" }
}
