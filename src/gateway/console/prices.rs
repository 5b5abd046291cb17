//! The operations on the prices of models. They are for admins.

use std::collections::BTreeMap;

use chrono::NaiveDate;

use super::error_conversion::{field_rejection, from_store_error};
use super::request_fields::read_body;
use super::{Console, list_object, require_admin};
use crate::error::{Error, MissingResource, ResourceConflict};
use crate::gateway::config::{ModelPrice, PriceFault, PriceFigures, PriceInput, PriceTerms, TermsInput};
use crate::gateway::money::{Factor, Usd};
use crate::gateway::people::Actor;
use crate::gateway::prices::{PriceTable, TablePrice};
use crate::tables::NEW_PRICE_FIELDS;
use crate::wire::admin::types;

// === impl Console ===

impl Console {
    /// Returns all prices, sorted by model and day.
    ///
    /// # Errors
    ///
    /// 403 for a member.
    pub(crate) async fn list_prices(&self, actor: &Actor) -> Result<types::PriceList, Error> {
        require_admin(actor)?;
        let stored = self.store.list_prices().await.map_err(from_store_error)?;
        let table = PriceTable::new(&self.config.prices, &stored);
        Ok(types::PriceList { object: list_object(), data: table.iter().map(to_wire_price).collect() })
    }

    /// Sets a price of the store, and brings it into force.
    ///
    /// # Errors
    ///
    /// 400 for the first field that cannot be used, 403 for a member, 409 if the settings file has a price for the same
    /// model and day.
    pub(crate) async fn set_price(&self, actor: &Actor, body: &[u8]) -> Result<types::Price, Error> {
        require_admin(actor)?;
        let new: types::NewPrice = read_body(NEW_PRICE_FIELDS, body)?;
        let figures = PriceFigures {
            text_input: new.text_input,
            cached_text_input: new.cached_text_input,
            image_input: new.image_input,
            cached_image_input: new.cached_image_input,
            image_output: new.image_output,
            text_output: new.text_output,
            per_image: new.per_image,
            cache_write: new.cache_write,
            cache_write_1h: new.cache_write_1h,
        };
        let terms = TermsInput {
            context_tokens: new.context_tokens.map(|tokens| tokens.get().unsigned_abs()),
            max_output_tokens: new.max_output_tokens.map(|tokens| tokens.get().unsigned_abs()),
            tiers: new.tiers.map(|tiers| tiers.0).unwrap_or_default(),
            tools: new.tools.map(|tools| tools.0).unwrap_or_default(),
        };
        let input = PriceInput { model: &new.model, from: new.from, figures, terms, source: new.source.as_deref() };
        let price = ModelPrice::new(input).map_err(|PriceFault { field, reason }| field_rejection(field, &reason))?;
        self.check_not_in_file(&price.model, price.from)?;
        self.store.set_price(&actor.audit_context(), &price).await.map_err(from_store_error)?;
        let table = self.refresh_prices().await?;
        let set = table.iter().find(|set| (&set.price.model, set.price.from) == (&price.model, price.from));
        set.map(to_wire_price).ok_or_else(|| missing(&price.model, price.from))
    }

    /// Deletes a price of the store.
    ///
    /// # Errors
    ///
    /// 403 for a member, 404 if there is no such price, 409 if it is one of the settings file.
    pub(crate) async fn delete_price(
        &self,
        actor: &Actor,
        model: &str,
        from: &str,
    ) -> Result<types::DeletedPrice, Error> {
        require_admin(actor)?;
        let from =
            from.parse().map_err(|_| Error::NotFound(MissingResource::Price(format!("'{model}' from {from} on"))))?;
        self.check_not_in_file(model, from)?;
        if !self.store.delete_price(&actor.audit_context(), model, from).await.map_err(from_store_error)? {
            return Err(missing(model, from));
        }
        self.refresh_prices().await?;
        Ok(types::DeletedPrice { model: model.to_owned(), from, deleted: true })
    }

    fn check_not_in_file(&self, model: &str, from: NaiveDate) -> Result<(), Error> {
        let is_in_file = self.config.prices.iter().any(|price| price.model == model && price.from == from);
        if is_in_file { Err(Error::Conflict(ResourceConflict::PriceReadOnly(price_name(model, from)))) } else { Ok(()) }
    }

    /// Brings the prices of the store into force, and returns the table.
    async fn refresh_prices(&self) -> Result<std::sync::Arc<PriceTable>, Error> {
        self.prices.set_store_prices(self.store.list_prices().await.map_err(from_store_error)?);
        Ok(self.prices.table())
    }
}

fn missing(model: &str, from: NaiveDate) -> Error {
    Error::NotFound(MissingResource::Price(price_name(model, from)))
}

fn price_name(model: &str, from: NaiveDate) -> String {
    format!("'{model}' from {from} on")
}

/// Returns a map with its numbers; `None` if it is empty.
fn to_wire_map<T: Copy>(map: &BTreeMap<String, T>, number: fn(T) -> f64) -> Option<BTreeMap<String, f64>> {
    (!map.is_empty()).then(|| map.iter().map(|(name, value)| (name.clone(), number(*value))).collect())
}

fn to_wire_price(TablePrice { price, origin, version }: &TablePrice) -> types::Price {
    let dollars = price.figures.dollars();
    let PriceTerms { context_tokens, max_output_tokens, tiers, tools } = &price.terms;
    types::Price {
        model: price.model.clone(),
        from: price.from,
        text_input: dollars.text_input,
        cached_text_input: dollars.cached_text_input,
        image_input: dollars.image_input,
        cached_image_input: dollars.cached_image_input,
        image_output: dollars.image_output,
        text_output: dollars.text_output,
        per_image: dollars.per_image,
        cache_write: dollars.cache_write,
        cache_write_1h: dollars.cache_write_1h,
        context_tokens: *context_tokens,
        max_output_tokens: *max_output_tokens,
        tiers: to_wire_map(tiers, Factor::number).map(types::PriceFactors),
        tools: to_wire_map(tools, Usd::dollars).map(types::ToolPrices),
        source: price.source.clone(),
        origin: *origin,
        version: version.clone(),
    }
}
