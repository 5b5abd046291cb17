//! The statements for prices.

use async_trait::async_trait;
use chrono::NaiveDate;
use serde_json::{Map, Value, json};

use super::SqlStore;
use super::audit_trail::{self, AuditEvent};
use super::decode::{optional_usd, parsed, text};
use super::driver::{SqlConnection, SqlRow};
use super::error_conversion::during;
use super::statement::sql;
use super::transaction::{rollback, transact};
use crate::gateway::config::{FIGURE_NAMES, ModelPrice, PriceFigures};
use crate::gateway::money::Usd;
use crate::gateway::store::{AuditContext, PriceStore, StoreError};

const AUDIT_TARGET_KIND: &str = "price";

#[async_trait]
impl PriceStore for SqlStore {
    async fn list_prices(&self) -> Result<Vec<ModelPrice>, StoreError> {
        let query = sql("SELECT * FROM prices ORDER BY model, valid_from");
        self.fetch_all("reading the prices", query, price_from_row).await
    }

    async fn set_price(&self, audit: &AuditContext, price: &ModelPrice) -> Result<(), StoreError> {
        transact!(self.writer.begin_change(), |transaction| {
            let before = find(transaction, &price.model, price.from).await?;
            let mut insert = sql(
                "INSERT INTO prices (model, valid_from, changed_at, source, text_input, cached_text_input, \
                 image_input, cached_image_input, image_output, text_output, per_image, cache_write, cache_write_1h, terms) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) ON CONFLICT (model, valid_from) DO UPDATE SET \
                 changed_at = excluded.changed_at, source = excluded.source, text_input = excluded.text_input, \
                 cached_text_input = excluded.cached_text_input, image_input = excluded.image_input, \
                 cached_image_input = excluded.cached_image_input, image_output = excluded.image_output, \
                 text_output = excluded.text_output, per_image = excluded.per_image, \
                 cache_write = excluded.cache_write, cache_write_1h = excluded.cache_write_1h, terms = excluded.terms",
            )
            .bind(&price.model)
            .bind(price.from.to_string())
            .bind(audit.at.to_string())
            .bind(&price.source);
            for value in price.figures.values() {
                insert = insert.bind(value.map(|usd| usd.nanos().cast_signed()));
            }
            let terms = serde_json::to_string(&price.terms).map_err(|error| sqlx::Error::Encode(error.into()))?;
            insert = insert.bind(terms);
            insert.execute(&mut *transaction).await?;
            let event = audit_event("price.set", &price.model, price.from)
                .with_change(before.as_ref().map_or(Value::Null, figures_as_json), figures_as_json(price));
            audit_trail::write(transaction, audit, event).await?;
        }).map_err(during("storing a price"))
    }

    async fn delete_price(&self, audit: &AuditContext, model: &str, from: NaiveDate) -> Result<bool, StoreError> {
        transact!(self.writer.begin_change(), |transaction| {
            let Some(before) = find(transaction, model, from).await? else { return Ok(rollback(false)) };
            let delete = sql("DELETE FROM prices WHERE model = $1 AND valid_from = $2");
            delete.bind(model).bind(from.to_string()).execute(&mut *transaction).await?;
            let event = audit_event("price.delete", model, from).with_details(figures_as_json(&before));
            audit_trail::write(transaction, audit, event).await?;
            true
        })
        .map_err(during("deleting a price"))
    }
}

async fn find(connection: &mut SqlConnection, model: &str, from: NaiveDate) -> sqlx::Result<Option<ModelPrice>> {
    let query = sql("SELECT * FROM prices WHERE model = $1 AND valid_from = $2");
    let row = query.bind(model).bind(from.to_string()).fetch_optional(connection).await?;
    row.as_ref().map(price_from_row).transpose()
}

fn price_from_row(row: &SqlRow) -> sqlx::Result<ModelPrice> {
    let mut values = [None; FIGURE_NAMES.len()];
    for (value, name) in values.iter_mut().zip(FIGURE_NAMES) {
        *value = optional_usd(row, name)?;
    }
    let terms: String = text(row, "terms")?;
    Ok(ModelPrice {
        terms: serde_json::from_str(&terms).map_err(|error| sqlx::Error::Decode(error.into()))?,
        model: text(row, "model")?,
        from: parsed(row, "valid_from")?,
        figures: PriceFigures::from_values(values),
        source: row.try_get("source")?,
    })
}

fn audit_event<'a>(action: &'static str, model: &'a str, from: NaiveDate) -> AuditEvent<'a> {
    AuditEvent::new(action, AUDIT_TARGET_KIND, model, model).with_details(json!({"from": from.to_string()}))
}

/// Returns the prices that are set, in dollars.
fn figures_as_json(price: &ModelPrice) -> Value {
    let figures = FIGURE_NAMES.into_iter().zip(price.figures.values());
    let known = figures.filter_map(|(name, value)| Some((name.to_owned(), json!(value.map(Usd::dollars)?))));
    let mut object: Map<_, _> = known.collect();
    let terms = serde_json::to_value(&price.terms).ok().and_then(|terms| terms.as_object().cloned());
    object.extend(terms.unwrap_or_default());
    object.insert("from".to_owned(), json!(price.from.to_string()));
    Value::Object(object)
}
