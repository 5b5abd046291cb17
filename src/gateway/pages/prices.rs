//! The page of the prices of models: a list, and a form that sets a price. It is for admins.

use std::collections::BTreeMap;

use askama::Template;
use http::StatusCode;
use serde_json::{Map, Value};

use super::form::{PageForm, WHOLE_FORM};
use super::http_messages::{PageRequest, PageResponse};
use super::page_context::PageContext;
use super::page_error::{PageError, render};
use super::page_layout::PageLayout;
use crate::error::Error;
use crate::wire::admin::types;

/// A field of the form with an amount of money.
struct PriceFigure {
    name: &'static str,
    /// The key of the text.
    label: &'static str,
    /// The amount in dollars.
    usd: fn(&types::Price) -> Option<f64>,
}

/// The amounts of a price, in the order in which the page shows them.
const FIGURES: [PriceFigure; 9] = [
    PriceFigure { name: "text_input", label: "prices.text_input", usd: |price| price.text_input },
    PriceFigure { name: "cached_text_input", label: "prices.cached_text_input", usd: |price| price.cached_text_input },
    PriceFigure { name: "image_input", label: "prices.image_input", usd: |price| price.image_input },
    PriceFigure {
        name: "cached_image_input",
        label: "prices.cached_image_input",
        usd: |price| price.cached_image_input,
    },
    PriceFigure { name: "image_output", label: "prices.image_output", usd: |price| price.image_output },
    PriceFigure { name: "text_output", label: "prices.text_output", usd: |price| price.text_output },
    PriceFigure { name: "per_image", label: "prices.per_image", usd: |price| price.per_image },
    PriceFigure { name: "cache_write", label: "prices.cache_write", usd: |price| price.cache_write },
    PriceFigure { name: "cache_write_1h", label: "prices.long_cache_write", usd: |price| price.cache_write_1h },
];
/// The fields of the form with texts.
const TEXT_FIELDS: [&str; 3] = ["model", "from", "source"];
/// The fields with names and numbers, such as `flex=0.5, priority=2.5`.
const MAP_FIELDS: [&str; 2] = ["tiers", "tools"];
/// The fields with numbers of tokens.
const COUNT_FIELDS: [&str; 2] = ["context_tokens", "max_output_tokens"];

#[derive(Template)]
#[template(path = "prices.html", config = "src/gateway/pages/askama.toml")]
struct PricesPage {
    page: PageLayout,
    prices: Vec<types::Price>,
    figures: &'static [PriceFigure],
    form: PageForm,
    is_open: bool,
}

/// The terms of a price besides its amounts: each label with its value.
fn terms(price: &types::Price) -> Vec<(&'static str, String)> {
    let map = |entries: Option<&BTreeMap<String, f64>>| {
        let entries = entries.into_iter().flatten().map(|(name, number)| format!("{name}={number}"));
        entries.collect::<Vec<_>>().join(", ")
    };
    let count = |tokens: Option<u64>| tokens.map(|tokens| tokens.to_string()).unwrap_or_default();
    let all = [
        ("prices.tiers", map(price.tiers.as_deref())),
        ("prices.tools", map(price.tools.as_deref())),
        ("prices.context_tokens", count(price.context_tokens)),
        ("prices.max_output_tokens", count(price.max_output_tokens)),
    ];
    all.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

/// Shows the list of prices.
pub(super) async fn show(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    render_page(context, StatusCode::OK, PageForm::default(), false).await
}

/// Renders the page. `is_open` is true if the form is shown without a click.
async fn render_page(
    context: &PageContext<'_>,
    status: StatusCode,
    form: PageForm,
    is_open: bool,
) -> Result<PageResponse, PageError> {
    let prices = context.console().list_prices(context.actor()?).await?.data;
    let template = PricesPage { page: context.layout("prices"), prices, figures: &FIGURES, form, is_open };
    Ok(render(status, &template))
}

/// Sets a price.
pub(super) async fn set(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    if !context.is_admin() {
        return Err(PageError::Denied);
    }
    let form = match read_price(context.request) {
        Ok(price) => {
            let body = Value::Object(price).to_string();
            match context.console().set_price(context.actor()?, body.as_bytes()).await {
                Ok(_) => return Ok(PageResponse::redirect("/prices?done=price")),
                Err(error) => submitted_form(context.request).with_console_error(context.texts, error)?,
            }
        }
        Err(faults) => faults.into_iter().fold(submitted_form(context.request), |form, (field, text)| {
            form.with_error(field, context.texts.get(text))
        }),
    };
    render_page(context, StatusCode::UNPROCESSABLE_ENTITY, form, true).await
}

/// Deletes a price. The console refuses this for prices of the settings file.
pub(super) async fn delete(context: &PageContext<'_>, model: &str, from: &str) -> Result<PageResponse, PageError> {
    match context.console().delete_price(context.actor()?, model, from).await {
        Ok(_) => Ok(PageResponse::redirect("/prices?done=price-deleted")),
        Err(error @ Error::NotFound(_)) => Err(error.into()),
        Err(error) => {
            let form = PageForm::default().with_console_error(context.texts, error)?;
            render_page(context, StatusCode::UNPROCESSABLE_ENTITY, form, false).await
        }
    }
}

/// The form with the submitted values.
fn submitted_form(request: &PageRequest) -> PageForm {
    let form = PageForm::from_request(request, &[&TEXT_FIELDS[..], &MAP_FIELDS, &COUNT_FIELDS].concat());
    FIGURES.iter().fold(form, |form, figure| form.with_value(figure.name, request.form_field(figure.name)))
}

/// Reads the price from the form, without its empty fields.
///
/// # Errors
///
/// Returns each field that cannot be used, with the key of the text.
fn read_price(request: &PageRequest) -> Result<Map<String, Value>, Vec<(&'static str, &'static str)>> {
    let mut price = Map::new();
    let mut faults = Vec::new();
    for figure in FIGURES {
        let text = request.form_field(figure.name);
        // Not finite numbers have no JSON, so they would be left out like an empty field.
        match text.parse::<f64>().ok().and_then(serde_json::Number::from_f64) {
            Some(number) => drop(price.insert(figure.name.to_owned(), number.into())),
            None if text.is_empty() => {}
            None => faults.push((figure.name, "error.figure")),
        }
    }
    if price.is_empty() && faults.is_empty() {
        faults.push((WHOLE_FORM, "error.no_figure"));
    }
    for name in COUNT_FIELDS {
        let text = request.form_field(name);
        match text.parse::<u64>() {
            Ok(tokens) => drop(price.insert(name.to_owned(), tokens.into())),
            Err(_) if text.is_empty() => {}
            Err(_) => faults.push((name, "error.figure")),
        }
    }
    for name in MAP_FIELDS {
        match read_map(request.form_field(name)) {
            Some(map) => drop(price.insert(name.to_owned(), map.into())),
            None => faults.push((name, "error.terms")),
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    for name in TEXT_FIELDS {
        let text = request.form_field(name);
        if !text.is_empty() {
            price.insert(name.to_owned(), text.into());
        }
    }
    Ok(price)
}

/// Reads names and numbers, such as `flex=0.5, priority=2.5`; `None` if they cannot be read.
fn read_map(text: &str) -> Option<Map<String, Value>> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    entries
        .map(|entry| {
            let (name, number) = entry.split_once('=')?;
            Some((name.trim().to_owned(), serde_json::Number::from_f64(number.trim().parse().ok()?)?.into()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_fields_of_a_price_are_left_out() {
        let request = PageRequest::with_form(
            b"csrf=t&model=gpt-image-2&from=2026-12-01&source=&text_input=+5+&image_output=30.5&per_image=0&text_output=",
        );
        let price = Value::Object(read_price(&request).unwrap());
        let expected = serde_json::json!({
            "model": "gpt-image-2", "from": "2026-12-01", "text_input": 5.0, "image_output": 30.5, "per_image": 0.0,
            "tiers": {}, "tools": {},
        });
        assert_eq!(price, expected);
    }

    #[test]
    fn terms_are_read_as_names_with_numbers() {
        let form = "model=a&from=2026-12-01&text_input=1&tiers=flex%3D0.5%2C+priority+%3D+2&context_tokens=400000";
        let price = Value::Object(read_price(&PageRequest::with_form(form.as_bytes())).unwrap());
        assert_eq!(price["tiers"], serde_json::json!({"flex": 0.5, "priority": 2.0}));
        assert_eq!(price["context_tokens"], 400_000);
        for (field, text) in [("tiers", "flex"), ("tools", "web_search=x"), ("max_output_tokens", "1.5")] {
            let form = format!("model=a&from=2026-12-01&text_input=1&{field}={}", text.replace('=', "%3D"));
            let faults = read_price(&PageRequest::with_form(form.as_bytes())).unwrap_err();
            assert_eq!(faults.iter().map(|(name, _)| *name).collect::<Vec<_>>(), [field]);
        }
    }

    #[test]
    fn each_amount_that_is_not_a_number_is_named() {
        for text in ["five", "1,25", "NaN", "inf", "1e999", "$5", "5 USD"] {
            let form = format!("model=a&from=2026-12-01&image_output=30&text_input={text}&per_image=x");
            let faults = read_price(&PageRequest::with_form(form.as_bytes())).unwrap_err();
            assert_eq!(faults, [("text_input", "error.figure"), ("per_image", "error.figure")], "{text}");
        }
        let faults = read_price(&PageRequest::with_form(b"model=a&from=2026-12-01")).unwrap_err();
        assert_eq!(faults, [(WHOLE_FORM, "error.no_figure")]);
    }
}
