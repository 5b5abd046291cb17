//! Tests of the reader and the writer. `serde_json` is the reference for what is JSON and for its values.

use super::{JsonLimits, JsonNode, read, write};

/// Pseudo-random numbers from a seed (`SplitMix64`).
struct TestRng(u64);

impl TestRng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((bits ^ (bits >> 31)) % bound.max(1) as u64).unwrap()
    }
}

const SEEDS: [&str; 6] = [
    r#"{"a": [1, -2.50, 3e+4, 0.1E-2], "b": {"c": null, "d": [true, false]}, "a": "again"}"#,
    r#"["\u00e4\ud83c\udfa8 \" \\ \/ \b\f\n\r\t", "中", "", {}, [], [[[]]]]"#,
    "  -0  ",
    "\"\"",
    "[\n  {\n    \"k\": 12345678901234567890\n  }\n]\n",
    "{\"\\u0061\":1,\"a\":2}",
];
const BYTES: &[u8] = b"{}[]\",:\\u0123456789-+.eEtfn aAdD\t\n\r/\x00\x1f\x7f";

fn mutated_seed(rng: &mut TestRng) -> String {
    let mut bytes = SEEDS[rng.below(SEEDS.len())].as_bytes().to_vec();
    for _ in 0..rng.below(4) {
        let at = rng.below(bytes.len() + 1);
        let byte = BYTES[rng.below(BYTES.len())];
        match rng.below(3) {
            0 if at < bytes.len() => drop(bytes.remove(at)),
            1 if at < bytes.len() => bytes[at] = byte,
            _ => bytes.insert(at, byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn the_reader_agrees_with_serde_json() {
    let mut rng = TestRng(3);
    let (mut good, mut bad) = (0, 0);
    for _ in 0..200_000 {
        let text = mutated_seed(&mut rng);
        let node = read(&text, JsonLimits::default());
        match serde_json::from_str::<serde_json::Value>(&text) {
            Ok(json) => {
                good += 1;
                assert_eq!(node.as_ref().map(JsonNode::to_json), Ok(json), "{text:?}");
            }
            Err(error) if error.to_string().starts_with("number out of range") => {}
            Err(error) => {
                bad += 1;
                assert!(node.is_err(), "{text:?}: {error}");
            }
        }
    }
    assert!(good > 20_000 && bad > 20_000, "{good} {bad}");
}

#[test]
fn every_value_has_the_span_of_its_text() {
    fn visit(text: &str, node: &JsonNode) {
        let again = read(&text[node.span.clone()], JsonLimits::default()).unwrap();
        assert_eq!(write(&again), write(node));
        for member in node.members() {
            let key: String = serde_json::from_str(&text[member.key_span.clone()]).unwrap();
            assert_eq!(key, member.key);
            visit(text, &member.node);
        }
        node.elements().iter().for_each(|element| visit(text, element));
    }
    for text in SEEDS {
        visit(text, &read(text, JsonLimits::default()).unwrap());
    }
}

#[test]
fn the_writer_indents_by_two_spaces_and_keeps_the_spelling_of_numbers() {
    let text = r#"{"b": [1.50, "ä\u0001\"", {}, []], "a": {"c": null}}"#;
    let node = read(text, JsonLimits::default()).unwrap();
    let expected =
        "{\n  \"b\": [\n    1.50,\n    \"ä\\u0001\\\"\",\n    {},\n    []\n  ],\n  \"a\": {\n    \"c\": null\n  }\n}\n";
    assert_eq!(write(&node), expected);
}

#[test]
fn a_pointer_finds_its_value() {
    let node = read(r#"{"a/b": [{"~": 1}], "k": 1, "k": 2}"#, JsonLimits::default()).unwrap();
    let at = |pointer| node.at(pointer).map(JsonNode::to_json);
    assert_eq!(at("/a~1b/0/~0"), Some(1.into()));
    assert_eq!(at("/k"), Some(2.into()));
    assert_eq!([at("/a~1b/1"), at("/none"), at("/k/0")], [None, None, None]);
}

#[test]
fn text_beyond_the_limits_is_refused() {
    let limits = JsonLimits { bytes: 10, depth: 2 };
    assert!(read("[[1]]", limits).is_ok());
    assert!(read("[[[1]]]", limits).is_err_and(|error| error.is_limit && error.span == (2..3)));
    assert!(read("\"123456789\"", limits).is_err_and(|error| error.is_limit));
    assert!(read("\"12345678\"", limits).is_ok());
    // The depth limit must stop the reader before the stack overflows.
    assert!(read(&"[".repeat(1 << 20), JsonLimits::default()).is_err_and(|error| error.is_limit));
}
