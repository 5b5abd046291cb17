//! Prices of models: the cost of a record, and the most that a request can cost.
//!
//! This module decides which price applies to which tokens, and how sure a cost is. It must not know keys, limits or
//! upstreams. Everything here is pure, except [`CurrentPrices`], which holds the table that is in force.
//!
//! It implements the rule of the specification that billing is by the input and output tokens of `usage`. A price that
//! is not known is never guessed: the cost is unknown then, and the record states the reason. A cost that rests on an
//! assumption is marked as estimated, and the assumption is the dearer one.

mod cost;
mod current;
mod estimate;
mod table;

#[cfg(test)]
mod tests;

pub(crate) use cost::Cost;
pub(crate) use current::CurrentPrices;
pub(crate) use estimate::{
    INPUT_IMAGE_TOKENS, MAX_OUTPUT_TOKENS, PARTIAL_IMAGE_TOKENS, ResponseWork, TOOL_CALL_TOKENS, UnknownPrice,
    WorkEstimate,
};
pub(crate) use table::{PriceTable, TablePrice, snapshot_model};
