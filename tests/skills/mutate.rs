//! Manifests that nobody would write: seeded changes of those in the corpus, the same in every run.

use imagate::manifest::text::{JsonLimits, JsonMember, JsonNode, JsonValue, read, write};

use crate::corpus::cases;

/// Numbers that follow from a seed (`SplitMix64`).
pub(crate) struct Dice(u64);

/// Values that stand where something else is expected.
const STRANGE: [&str; 18] = [
    "null",
    "true",
    "0",
    "-0.0",
    "1e999",
    "-7E+2",
    "123456789012345678901234567890",
    "\"\"",
    "\"text\"",
    "\"\u{1f3a8}\"",
    "[]",
    "{}",
    "[null]",
    "[\"a\", 1]",
    "[{}]",
    "{\"a\": {\"b\": []}}",
    "[\"a\"]",
    "{\"name\": 1}",
];

/// Keys that mean something somewhere.
const KEYS: [&str; 14] = [
    "name",
    "version",
    "sha256",
    "size_bytes",
    "api_docs",
    "tags",
    "agents",
    "updated_at",
    "skills",
    "apis",
    "branch",
    "id",
    "x-own",
    "",
];

/// Bytes that mean something to a reader.
const BYTES: &[u8] = b"{}[]\",:\\0-.eEu \n\tntf/\x00\x7f";

// === impl Dice ===

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below this.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).expect("it is below the bound")
    }

    fn one_of<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.below(among.len())]
    }
}

/// The documents of the corpus that are JSON.
pub(crate) fn seeds() -> Vec<JsonNode> {
    let texts = cases().into_iter().filter_map(|case| case.source.text().map(str::to_owned));
    texts.filter_map(|text| read(&text, JsonLimits::default()).ok()).collect()
}

/// A text that was a manifest: mostly changed as a tree, and sometimes as bytes.
pub(crate) fn mutated(seeds: &[JsonNode], dice: &mut Dice) -> Vec<u8> {
    let mut node = seeds[dice.below(seeds.len())].clone();
    for _ in 0..dice.below(4) {
        change(&mut node, dice);
    }
    let mut bytes = write(&node).into_bytes();
    if dice.below(5) == 0 {
        let at = dice.below(bytes.len());
        match dice.below(3) {
            0 => drop(bytes.remove(at)),
            1 => bytes[at] = dice.one_of(BYTES),
            _ => bytes.insert(at, dice.one_of(BYTES)),
        }
    }
    bytes
}

/// Changes one value of the tree: on every level the way goes on down, or ends.
fn change(node: &mut JsonNode, dice: &mut Dice) {
    let count = node.members().len() + node.elements().len();
    if count > 0 && dice.below(5) > 0 {
        let at = dice.below(count);
        match &mut node.value {
            JsonValue::Object(members) => return change(&mut members[at].node, dice),
            JsonValue::Array(elements) => return change(&mut elements[at], dice),
            _ => {}
        }
    }
    match &mut node.value {
        JsonValue::Object(members) => change_members(members, dice),
        JsonValue::Array(elements) if !elements.is_empty() && dice.below(2) == 0 => {
            let at = dice.below(elements.len());
            let copy = elements.remove(at);
            for _ in 0..dice.below(3) {
                elements.push(copy.clone());
            }
        }
        _ => {
            *node = read(dice.one_of(&STRANGE), JsonLimits::default()).expect("JSON");
        }
    }
}

fn change_members(members: &mut Vec<JsonMember>, dice: &mut Dice) {
    let at = dice.below(members.len());
    match dice.below(4) {
        0 if !members.is_empty() => drop(members.remove(at)),
        1 if !members.is_empty() => {
            let moved = members.remove(at);
            members.push(moved);
        }
        2 if !members.is_empty() => members[at].key = dice.one_of(&KEYS).to_owned(),
        _ => {
            let node = read(dice.one_of(&STRANGE), JsonLimits::default()).expect("JSON");
            members.push(JsonMember { key: dice.one_of(&KEYS).to_owned(), key_span: 0..0, node });
        }
    }
}
