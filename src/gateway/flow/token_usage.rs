//! Converts the token counts of an answer to the form of the record. Pure.

use crate::gateway::ledger::{self, ModelUsage};
use crate::gateway::relay::{self, TokenCounts};

/// Converts token counts to the form of the record.
pub(super) fn model_usage(usage: relay::AnswerUsage) -> ModelUsage {
    ModelUsage {
        image: usage.image.map(image_token_usage),
        host: usage.host.map(text_token_usage),
        charges: usage.charges,
    }
}

fn image_token_usage(tokens: TokenCounts) -> ledger::TokenUsage {
    let details = |image, text| Some(ledger::TokenDetails { image_tokens: Some(image), text_tokens: Some(text) });
    ledger::TokenUsage {
        input_tokens_details: details(tokens.input_image, tokens.input_text),
        output_tokens_details: details(tokens.output_image, tokens.output_text),
        cached_tokens_details: details(tokens.cached_image, tokens.cached_text).filter(|_| has_cached_tokens(tokens)),
        is_breakdown_assumed: tokens.is_breakdown_assumed,
        is_cache_breakdown_assumed: tokens.is_cache_breakdown_assumed,
        uncounted_calls: tokens.uncounted_calls,
        ..text_token_usage(tokens)
    }
}

/// Converts the tokens of a text model, which does not count image tokens separately.
fn text_token_usage(tokens: TokenCounts) -> ledger::TokenUsage {
    ledger::TokenUsage {
        input_tokens: Some(tokens.input),
        output_tokens: Some(tokens.output),
        total_tokens: Some(tokens.total),
        cached_tokens_details: has_cached_tokens(tokens)
            .then_some(ledger::TokenDetails { image_tokens: None, text_tokens: Some(tokens.cached_text) }),
        cache_writes: ledger::CacheWrites { short: tokens.cache_write, hour: tokens.cache_write_1h },
        ..ledger::TokenUsage::default()
    }
}

const fn has_cached_tokens(tokens: TokenCounts) -> bool {
    tokens.cached_text > 0 || tokens.cached_image > 0
}
