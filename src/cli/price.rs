//! The command `imagate price list|set|delete`.

use std::collections::BTreeMap;
use std::str::FromStr;

use chrono::NaiveDate;
use clap::{Args, Subcommand};
use serde_json::json;

use super::confirmation::DeletionConfirmation;
use super::failure::CommandFailure;
use super::managed_gateway::{GatewayArgs, ManagedGateway};
use super::output::{cell, print, print_json, print_message, table};
use crate::client::admin::types::{NewPrice, Price};
use crate::gateway::config::{ModelPrice, PriceFault, PriceFigures, PriceInput, TermsInput};
use crate::gateway::money::Usd;

/// Arguments of `price`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(super) struct PriceCommand {
    #[command(flatten)]
    gateway: GatewayArgs,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: PriceAction,
}

#[derive(Debug, Subcommand)]
enum PriceAction {
    /// List the prices of the settings file, of the store, and of the program.
    List,
    /// Set the prices of a model from a day on, in US dollars. A running gateway applies them within seconds.
    Set(Box<SetArgs>),
    /// Delete a price of the store.
    Delete {
        /// The model.
        model: String,
        /// The first day of the price.
        #[arg(long, value_name = "DAY")]
        from: NaiveDate,
        #[command(flatten)]
        confirmation: DeletionConfirmation,
    },
}

/// Arguments of `price set`. Prices that are left out are unknown, not zero.
#[derive(Debug, Args)]
struct SetArgs {
    /// The model, as in requests. The prices also apply to its dated snapshots.
    model: String,
    /// The first day, in UTC, on which the prices apply, such as 2026-04-21.
    #[arg(long, value_name = "DAY")]
    from: NaiveDate,
    /// The price of a million text tokens of requests.
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    text_input: Option<f64>,
    /// The price of a million text tokens that the upstream had in its cache.
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    cached_text_input: Option<f64>,
    /// The price of a million image tokens of requests.
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    image_input: Option<f64>,
    /// The price of a million image tokens that the upstream had in its cache.
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    cached_image_input: Option<f64>,
    /// The price of a million image tokens of answers.
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    image_output: Option<f64>,
    /// The price of a million text tokens of answers.
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    text_output: Option<f64>,
    /// The price of one image, in addition to its tokens.
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    per_image: Option<f64>,
    /// The price of a million text tokens that the upstream wrote to its cache.
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    cache_write: Option<f64>,
    /// The same for cache entries that live for an hour.
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    cache_write_1h: Option<f64>,
    /// The factor of all prices for a service tier, such as `flex=0.5`; may be repeated.
    #[arg(long = "tier", value_name = "NAME=FACTOR")]
    tiers: Vec<TermArg>,
    /// The price of one call of a tool that the upstream runs, such as `web_search=0.01`; may be repeated.
    #[arg(long = "tool", value_name = "NAME=USD")]
    tools: Vec<TermArg>,
    /// The most tokens of a request and its answer together that a text model takes.
    #[arg(long, value_name = "TOKENS")]
    context_tokens: Option<u64>,
    /// The most tokens of an answer of a text model.
    #[arg(long, value_name = "TOKENS")]
    max_output_tokens: Option<u64>,
    /// The place where the prices are published.
    #[arg(long, value_name = "TEXT")]
    source: Option<String>,
}

/// A name with its number, as written in an argument.
#[derive(Clone, Debug)]
struct TermArg(String, f64);

// === impl PriceCommand ===

impl PriceCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { gateway, json, action } = self;
        // The question comes after the name of another gateway.
        let gateway = gateway.find()?;
        if let PriceAction::Delete { model, from, confirmation } = &action {
            confirmation.ask(&format!("the price of {model} from {from}"))?;
        }
        gateway.run(async |gateway| action.run(gateway, json).await)
    }
}

// === impl PriceAction ===

impl PriceAction {
    async fn run(self, gateway: &ManagedGateway, json: bool) -> Result<(), CommandFailure> {
        let admin = &gateway.admin;
        match self {
            Self::List => list(&admin.list_prices().send().await?.data, json),
            Self::Set(arguments) => {
                // The figures are checked here, so that a message names the option.
                arguments.check()?;
                print_set(&admin.set_price().body(arguments.into_request()?).send().await?, json)
            }
            Self::Delete { model, from, .. } => {
                let deleted = admin.delete_price().model(model).from(from.to_string()).send().await?;
                let text = || format!("{} from {} deleted\n", deleted.model, deleted.from);
                Ok(if json { print_json(&deleted) } else { print(&text()) }?)
            }
        }
    }
}

fn list(prices: &[Price], json: bool) -> Result<(), CommandFailure> {
    if json {
        return Ok(print_json(&prices)?);
    }
    let rows: Vec<_> = prices.iter().map(table_row).collect();
    let headings = [
        "MODEL",
        "FROM",
        "TEXT IN",
        "CACHED TEXT IN",
        "IMAGE IN",
        "CACHED IMAGE IN",
        "IMAGE OUT",
        "TEXT OUT",
        "PER IMAGE",
        "ORIGIN",
    ];
    Ok(print(&table(headings, &rows))?)
}

fn print_set(set: &Price, json: bool) -> Result<(), CommandFailure> {
    if json {
        return Ok(print_json(set)?);
    }
    print(&format!("{}\n", set.version))?;
    print_message("finished requests keep their cost");
    Ok(())
}

// === impl SetArgs ===

impl SetArgs {
    /// Checks the figures.
    fn check(&self) -> Result<(), CommandFailure> {
        let input = PriceInput {
            model: &self.model,
            from: self.from,
            figures: PriceFigures {
                text_input: self.text_input,
                cached_text_input: self.cached_text_input,
                image_input: self.image_input,
                cached_image_input: self.cached_image_input,
                image_output: self.image_output,
                text_output: self.text_output,
                per_image: self.per_image,
                cache_write: self.cache_write,
                cache_write_1h: self.cache_write_1h,
            },
            terms: TermsInput {
                context_tokens: self.context_tokens,
                max_output_tokens: self.max_output_tokens,
                tiers: by_name(&self.tiers),
                tools: by_name(&self.tools),
            },
            source: self.source.as_deref(),
        };
        ModelPrice::new(input).map(drop).map_err(|PriceFault { field, reason }| {
            CommandFailure::Usage(format!("`{}` {}", field.replace('_', "-"), reason.replace('_', "-")))
        })
    }

    fn into_request(self) -> Result<NewPrice, CommandFailure> {
        let request = json!({
            "model": self.model,
            "from": self.from,
            "text_input": self.text_input,
            "cached_text_input": self.cached_text_input,
            "image_input": self.image_input,
            "cached_image_input": self.cached_image_input,
            "image_output": self.image_output,
            "text_output": self.text_output,
            "per_image": self.per_image,
            "cache_write": self.cache_write,
            "cache_write_1h": self.cache_write_1h,
            "tiers": by_name(&self.tiers),
            "tools": by_name(&self.tools),
            "context_tokens": self.context_tokens,
            "max_output_tokens": self.max_output_tokens,
            "source": self.source,
        });
        Ok(serde_json::from_value(request)?)
    }
}

fn by_name(terms: &[TermArg]) -> BTreeMap<String, f64> {
    terms.iter().map(|TermArg(name, value)| (name.clone(), *value)).collect()
}

impl FromStr for TermArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, value) = text.split_once('=').ok_or("expected NAME=NUMBER, such as flex=0.5")?;
        Ok(Self(name.to_owned(), value.parse().map_err(|_| format!("`{value}` is not a number"))?))
    }
}

fn table_row(price: &Price) -> [String; 10] {
    let usd = |figure: Option<f64>| cell(figure.and_then(Usd::from_dollars));
    [
        price.model.clone(),
        price.from.to_string(),
        usd(price.text_input),
        usd(price.cached_text_input),
        usd(price.image_input),
        usd(price.cached_image_input),
        usd(price.image_output),
        usd(price.text_output),
        usd(price.per_image),
        price.origin.to_string(),
    ]
}
