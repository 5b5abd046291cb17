//! The command `imagate price` on a gateway that is managed through its admin API.

use super::{PriceAction, PriceView, SetArgs, checked_price, list, print_deleted, print_set};
use crate::cli::failure::CommandFailure;
use crate::cli::remote::{RemoteGateway, view};
use crate::client::admin::types::NewPrice;

pub(super) async fn run(gateway: &RemoteGateway, action: PriceAction, json: bool) -> Result<(), CommandFailure> {
    let admin = &gateway.admin;
    match action {
        PriceAction::List => {
            let prices = admin.list_prices().send().await?;
            list(&prices.data.iter().map(view).collect::<Result<Vec<PriceView>, _>>()?, json)
        }
        PriceAction::Set(arguments) => {
            // The figures are checked here, so that a message names the option.
            checked_price(&arguments)?;
            let price = admin.set_price().body(new_price(arguments)).send().await?;
            print_set(Some(&view(&price)?), json)
        }
        PriceAction::Delete { model, from, .. } => {
            let deleted = admin.delete_price().model(model).from(from.to_string()).send().await?;
            print_deleted(&deleted.model, deleted.from, json)
        }
    }
}

fn new_price(arguments: SetArgs) -> crate::client::admin::types::builder::NewPrice {
    let SetArgs { model, from, text_input, cached_text_input, image_input, cached_image_input, .. } = arguments;
    let SetArgs { image_output, text_output, per_image, source, .. } = arguments;
    NewPrice::builder()
        .model(model)
        .from(from)
        .text_input(text_input)
        .cached_text_input(cached_text_input)
        .image_input(image_input)
        .cached_image_input(cached_image_input)
        .image_output(image_output)
        .text_output(text_output)
        .per_image(per_image)
        .source(source)
}
