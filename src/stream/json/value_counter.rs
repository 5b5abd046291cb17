//! Counts the values of a JSON text that comes in pieces, before a parser builds a tree of it: a text of two bytes for
//! each value becomes a tree of a hundred times its size.

use super::{JsonToken, JsonTokenizer};

/// The counter of one JSON text.
#[derive(Debug, Default)]
pub(crate) struct JsonValueCounter {
    tokens: JsonTokenizer,
    values: u64,
    /// True after the end of the outermost value, and after the first byte that is not JSON. A parser stops there too.
    is_stopped: bool,
}

// === impl JsonValueCounter ===

impl JsonValueCounter {
    /// Counts the values and keys that begin in the next piece.
    pub(crate) fn push(&mut self, mut piece: &[u8]) {
        while !self.is_stopped && !piece.is_empty() {
            match self.tokens.next(piece) {
                Ok((length, token)) => {
                    self.values += u64::from(matches!(token, Some(JsonToken::Start(_) | JsonToken::Key)));
                    self.is_stopped = self.tokens.is_done();
                    piece = &piece[length..];
                }
                Err(_) => self.is_stopped = true,
            }
        }
    }

    /// The number of values and keys so far.
    pub(crate) const fn values(&self) -> u64 {
        self.values
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn count(text: &[u8], piece_size: usize) -> u64 {
        let mut counter = JsonValueCounter::default();
        text.chunks(piece_size).for_each(|piece| counter.push(piece));
        counter.values()
    }

    /// The number of values and keys of a tree.
    fn values_of(value: &Value) -> u64 {
        1 + match value {
            Value::Array(values) => values.iter().map(values_of).sum(),
            Value::Object(members) => members.values().map(|value| 1 + values_of(value)).sum(),
            _ => 0,
        }
    }

    #[test]
    fn every_value_and_key_is_counted_in_pieces_of_any_size() {
        let trees = [
            json!(1),
            json!("a\"b"),
            json!([]),
            json!([[], {}, null, true, -1.5e3, "é"]),
            json!({"a": {"b\\": [1, 2]}}),
        ];
        for tree in trees {
            let text = format!(" {tree}\n");
            for piece_size in [1, 2, 5, usize::MAX] {
                assert_eq!(count(text.as_bytes(), piece_size), values_of(&tree), "{text}");
            }
        }
    }

    #[test]
    fn counting_ends_where_a_parser_ends() {
        for (text, values) in [("[1, 2] [3, 4]", 3), ("[1, 2 3, 4]", 3), ("[1}", 2), ("nul", 1)] {
            assert_eq!(count(text.as_bytes(), usize::MAX), values, "{text}");
        }
    }
}
