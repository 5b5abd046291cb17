//! The command `imagate price` on a gateway that is managed through its admin API.

use super::{PriceAction, PriceView, checked_price, list, print_deleted, print_set};
use crate::cli::failure::CommandFailure;
use crate::cli::remote::{RemoteGateway, view};
use crate::client::admin::types::NewPrice;
use crate::gateway::config::ModelPrice;
use crate::gateway::prices::{PriceOrigin, TablePrice};

pub(super) async fn run(gateway: &RemoteGateway, action: PriceAction, json: bool) -> Result<(), CommandFailure> {
    let admin = &gateway.admin;
    match action {
        PriceAction::List => {
            let prices = admin.list_prices().send().await?;
            list(&prices.data.iter().map(view).collect::<Result<Vec<PriceView>, _>>()?, json)
        }
        PriceAction::Set(arguments) => {
            // The figures are checked here, so that a message names the option.
            let price = checked_price(&arguments)?;
            let price = admin.set_price().body(new_price(&price)?).send().await?;
            print_set(Some(&view(&price)?), json)
        }
        PriceAction::Delete { model, from, .. } => {
            let deleted = admin.delete_price().model(model).from(from.to_string()).send().await?;
            print_deleted(&deleted.model, deleted.from, json)
        }
    }
}

/// Returns the price as a request states it: the same names as in a list.
fn new_price(price: &ModelPrice) -> Result<NewPrice, CommandFailure> {
    let view =
        PriceView::from(&TablePrice { price: price.clone(), origin: PriceOrigin::Store, version: String::new() });
    let mut fields = serde_json::to_value(view)?;
    if let Some(fields) = fields.as_object_mut() {
        fields.retain(|name, _| name != "origin" && name != "version");
    }
    Ok(serde_json::from_value(fields)?)
}
