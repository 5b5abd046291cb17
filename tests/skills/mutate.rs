//! Mutated manifests: seeded random changes of the manifests in the corpus, the same in every run.

use imagate::manifest::text::{JsonLimits, JsonMember, JsonNode, JsonValue, read, write};

use crate::corpus::cases;

/// Pseudorandom numbers from a seed (`SplitMix64`).
pub(crate) struct RandomNumbers(u64);

/// JSON values of unexpected types and forms.
const UNEXPECTED_VALUES: [&str; 18] = [
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

/// Keys of manifests, an extension key and an empty key.
const MEMBER_KEYS: [&str; 14] = [
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

/// Bytes with a meaning in JSON, and control characters.
const SPECIAL_BYTES: &[u8] = b"{}[]\",:\\0-.eEu \n\tntf/\x00\x7f";

// === impl RandomNumbers ===

impl RandomNumbers {
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

    /// A number below `bound`; 0 if `bound` is 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).expect("it is below the bound")
    }

    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }
}

/// The documents of the corpus that are JSON.
pub(crate) fn seeds() -> Vec<JsonNode> {
    let texts = cases().into_iter().filter_map(|case| case.source.text().map(str::to_owned));
    texts.filter_map(|text| read(&text, JsonLimits::default()).ok()).collect()
}

/// A manifest after up to three changes of its JSON tree and sometimes a change of one byte.
pub(crate) fn mutated(seeds: &[JsonNode], dice: &mut RandomNumbers) -> Vec<u8> {
    let mut node = seeds[dice.below(seeds.len())].clone();
    for _ in 0..dice.below(4) {
        change(&mut node, dice);
    }
    let mut bytes = write(&node).into_bytes();
    if dice.below(5) == 0 {
        let index = dice.below(bytes.len());
        match dice.below(3) {
            0 => drop(bytes.remove(index)),
            1 => bytes[index] = dice.one_of(SPECIAL_BYTES),
            _ => bytes.insert(index, dice.one_of(SPECIAL_BYTES)),
        }
    }
    bytes
}

/// Changes one value of the tree. At each level, the function descends into a random child or changes the value itself.
fn change(node: &mut JsonNode, dice: &mut RandomNumbers) {
    let count = node.members().len() + node.elements().len();
    if count > 0 && dice.below(5) > 0 {
        let index = dice.below(count);
        match &mut node.value {
            JsonValue::Object(members) => return change(&mut members[index].node, dice),
            JsonValue::Array(elements) => return change(&mut elements[index], dice),
            _ => {}
        }
    }
    match &mut node.value {
        JsonValue::Object(members) => change_members(members, dice),
        JsonValue::Array(elements) if !elements.is_empty() && dice.below(2) == 0 => {
            let index = dice.below(elements.len());
            let copy = elements.remove(index);
            for _ in 0..dice.below(3) {
                elements.push(copy.clone());
            }
        }
        _ => {
            *node = read(dice.one_of(&UNEXPECTED_VALUES), JsonLimits::default()).expect("JSON");
        }
    }
}

fn change_members(members: &mut Vec<JsonMember>, dice: &mut RandomNumbers) {
    let index = dice.below(members.len());
    match dice.below(4) {
        0 if !members.is_empty() => drop(members.remove(index)),
        1 if !members.is_empty() => {
            let moved = members.remove(index);
            members.push(moved);
        }
        2 if !members.is_empty() => members[index].key = dice.one_of(&MEMBER_KEYS).to_owned(),
        _ => {
            let node = read(dice.one_of(&UNEXPECTED_VALUES), JsonLimits::default()).expect("JSON");
            members.push(JsonMember { key: dice.one_of(&MEMBER_KEYS).to_owned(), key_span: 0..0, node });
        }
    }
}
