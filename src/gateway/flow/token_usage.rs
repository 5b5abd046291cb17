//! Converts the token counts of an answer to the form of the record. Pure.

use crate::gateway::ledger::{CacheWrites, ModelUsage, TokenUsage};
use crate::gateway::relay::{self, TokenCounts};
use crate::wire::admin::types::{RecordTokens, RecordUsage};

/// Converts token counts to the form of the record.
pub(super) fn model_usage(usage: relay::AnswerUsage) -> ModelUsage {
    ModelUsage {
        image: usage.image.map(image_token_usage),
        host: usage.host.map(text_token_usage),
        charges: usage.charges,
    }
}

fn image_token_usage(tokens: TokenCounts) -> TokenUsage {
    let details = |image, text| Some(RecordTokens { image_tokens: Some(image), text_tokens: Some(text) });
    let of_text = text_token_usage(tokens);
    TokenUsage {
        counts: RecordUsage {
            input_tokens_details: details(tokens.input_image, tokens.input_text),
            output_tokens_details: details(tokens.output_image, tokens.output_text),
            cached_tokens_details: details(tokens.cached_image, tokens.cached_text)
                .filter(|_| has_cached_tokens(tokens)),
            ..of_text.counts
        },
        is_breakdown_assumed: tokens.is_breakdown_assumed,
        is_cache_breakdown_assumed: tokens.is_cache_breakdown_assumed,
        uncounted_calls: tokens.uncounted_calls,
        ..of_text
    }
}

/// Converts the tokens of a text model, which does not count image tokens separately.
fn text_token_usage(tokens: TokenCounts) -> TokenUsage {
    TokenUsage {
        counts: RecordUsage {
            input_tokens: Some(tokens.input),
            output_tokens: Some(tokens.output),
            total_tokens: Some(tokens.total),
            cached_tokens_details: has_cached_tokens(tokens)
                .then_some(RecordTokens { image_tokens: None, text_tokens: Some(tokens.cached_text) }),
            ..RecordUsage::default()
        },
        cache_writes: CacheWrites { short: tokens.cache_write, hour: tokens.cache_write_1h },
        ..TokenUsage::default()
    }
}

const fn has_cached_tokens(tokens: TokenCounts) -> bool {
    tokens.cached_text > 0 || tokens.cached_image > 0
}
