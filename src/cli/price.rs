//! The command `imagate price list|set|delete`.

mod remote;

use std::collections::BTreeMap;
use std::str::FromStr;

use chrono::NaiveDate;
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::confirmation::DeletionConfirmation;
use super::failure::CommandFailure;
use super::output::{cell, print, print_json, print_message, table};
use super::remote::GatewayArgs;
use crate::gateway::config::{Config, ModelPrice, PriceFault, PriceFigures, PriceInput, TermsInput};
use crate::gateway::money::Usd;
use crate::gateway::prices::{PriceTable, TablePrice};
use crate::gateway::store::{AuditContext, Store};

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

/// A price, of the store or of the admin API. Scripts rely on the fields.
#[derive(Serialize, Deserialize)]
struct PriceView {
    model: String,
    from: NaiveDate,
    text_input: Option<f64>,
    cached_text_input: Option<f64>,
    image_input: Option<f64>,
    cached_image_input: Option<f64>,
    image_output: Option<f64>,
    text_output: Option<f64>,
    per_image: Option<f64>,
    cache_write: Option<f64>,
    cache_write_1h: Option<f64>,
    #[serde(default)]
    tiers: BTreeMap<String, f64>,
    #[serde(default)]
    tools: BTreeMap<String, f64>,
    context_tokens: Option<u64>,
    max_output_tokens: Option<u64>,
    source: Option<String>,
    origin: String,
    version: String,
}

// === impl PriceCommand ===

impl PriceCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { gateway, json, action } = self;
        // The question comes after the name of another gateway.
        let remote = gateway.remote()?;
        if let PriceAction::Delete { model, from, confirmation } = &action {
            confirmation.ask(&format!("the price of {model} from {from}"))?;
        }
        if let Some(gateway) = remote {
            return gateway.run(async |gateway| remote::run(gateway, action, json).await);
        }
        gateway.installation.with_store(async |config, store| match action {
            PriceAction::List => {
                let prices: Vec<_> = price_table(config, &**store).await?.iter().map(PriceView::from).collect();
                list(&prices, json)
            }
            PriceAction::Set(arguments) => set(config, &**store, &arguments, json).await,
            PriceAction::Delete { model, from, .. } => delete(config, &**store, &model, from, json).await,
        })
    }
}

async fn price_table(config: &Config, store: &dyn Store) -> Result<PriceTable, CommandFailure> {
    Ok(PriceTable::new(&config.prices, &store.list_prices().await?))
}

fn list(prices: &[PriceView], json: bool) -> Result<(), CommandFailure> {
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

async fn set(config: &Config, store: &dyn Store, arguments: &SetArgs, json: bool) -> Result<(), CommandFailure> {
    let price = checked_price(arguments)?;
    check_not_in_file(config, &price.model, price.from)?;
    store.set_price(&AuditContext::command(), &price).await?;
    let prices = price_table(config, store).await?;
    print_set(prices.iter().find(|set| set.price == price).map(PriceView::from).as_ref(), json)
}

fn print_set(set: Option<&PriceView>, json: bool) -> Result<(), CommandFailure> {
    if json {
        return Ok(print_json(&set)?);
    }
    print(&format!("{}\n", cell(set.map(|set| &set.version))))?;
    print_message("finished requests keep their cost");
    Ok(())
}

/// Checks the figures of the arguments.
fn checked_price(arguments: &SetArgs) -> Result<ModelPrice, CommandFailure> {
    let names = |terms: &[TermArg]| terms.iter().map(|TermArg(name, value)| (name.clone(), *value)).collect();
    let input = PriceInput {
        model: &arguments.model,
        from: arguments.from,
        figures: PriceFigures {
            text_input: arguments.text_input,
            cached_text_input: arguments.cached_text_input,
            image_input: arguments.image_input,
            cached_image_input: arguments.cached_image_input,
            image_output: arguments.image_output,
            text_output: arguments.text_output,
            per_image: arguments.per_image,
            cache_write: arguments.cache_write,
            cache_write_1h: arguments.cache_write_1h,
        },
        terms: TermsInput {
            context_tokens: arguments.context_tokens,
            max_output_tokens: arguments.max_output_tokens,
            tiers: names(&arguments.tiers),
            tools: names(&arguments.tools),
        },
        source: arguments.source.as_deref(),
    };
    ModelPrice::new(input).map_err(|PriceFault { field, reason }| {
        CommandFailure::Usage(format!("`{}` {}", field.replace('_', "-"), reason.replace('_', "-")))
    })
}

async fn delete(
    config: &Config,
    store: &dyn Store,
    model: &str,
    from: NaiveDate,
    json: bool,
) -> Result<(), CommandFailure> {
    check_not_in_file(config, model, from)?;
    if !store.delete_price(&AuditContext::command(), model, from).await? {
        return Err(CommandFailure::Failed(anyhow::anyhow!("the store has no price of {model} from {from} on")));
    }
    print_deleted(model, from, json)
}

fn print_deleted(model: &str, from: NaiveDate, json: bool) -> Result<(), CommandFailure> {
    if json {
        print_json(&json!({"model": model, "from": from, "deleted": true}))?;
    } else {
        print(&format!("{model} from {from} deleted\n"))?;
    }
    Ok(())
}

fn check_not_in_file(config: &Config, model: &str, from: NaiveDate) -> Result<(), CommandFailure> {
    if config.prices.iter().any(|price| price.model == model && price.from == from) {
        return Err(CommandFailure::Failed(anyhow::anyhow!(
            "the price of {model} from {from} on is defined in the settings file: change or remove it there"
        )));
    }
    Ok(())
}

impl FromStr for TermArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, value) = text.split_once('=').ok_or("expected NAME=NUMBER, such as flex=0.5")?;
        Ok(Self(name.to_owned(), value.parse().map_err(|_| format!("`{value}` is not a number"))?))
    }
}

// === impl PriceView ===

impl From<&TablePrice> for PriceView {
    fn from(TablePrice { price, origin, version }: &TablePrice) -> Self {
        let figures = price.figures.values().map(|figure| figure.map(Usd::dollars));
        let [text_input, cached_text_input, image_input, cached_image_input, image_output, text_output, ..] = figures;
        let [.., per_image, cache_write, cache_write_1h] = figures;
        let terms = &price.terms;
        Self {
            model: price.model.clone(),
            from: price.from,
            text_input,
            cached_text_input,
            image_input,
            cached_image_input,
            image_output,
            text_output,
            per_image,
            cache_write,
            cache_write_1h,
            tiers: terms.tiers.iter().map(|(name, factor)| (name.clone(), factor.number())).collect(),
            tools: terms.tools.iter().map(|(name, usd)| (name.clone(), usd.dollars())).collect(),
            context_tokens: terms.context_tokens,
            max_output_tokens: terms.max_output_tokens,
            source: price.source.clone(),
            origin: origin.as_str().to_owned(),
            version: version.clone(),
        }
    }
}

fn table_row(price: &PriceView) -> [String; 10] {
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
        price.origin.clone(),
    ]
}
