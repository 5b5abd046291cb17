//! Everything that came out, and the search through it.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// Where something came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// To a caller.
    Answer,
    Log,
    /// Below the data directory.
    File,
    /// What commands tell the operator of accounts.
    Accounts,
    /// The settings as shown to the operator.
    Settings,
    /// Of any other command.
    Output,
}

/// What must not be found, except in some places.
pub(super) struct Canary {
    name: &'static str,
    needles: Vec<(&'static str, String)>,
    home: &'static [Place],
}

#[derive(Default)]
pub(super) struct Hay(Vec<Straw>);

struct Straw {
    place: Place,
    name: String,
    /// Every byte as one character, so that nothing is lost and positions are true.
    text: String,
}

// === impl Canary ===

impl Canary {
    pub(super) fn new(name: &'static str, value: impl AsRef<[u8]>, home: &'static [Place]) -> Self {
        let value = value.as_ref();
        let mut needles =
            vec![("as it is", characters(value)), ("in hex", hex(value)), ("in upper hex", hex(value).to_uppercase())];
        // Base64 depends on where in a group of three the value begins; only whole groups can be searched for.
        for skip in 0..3 {
            let rest = &value[skip..];
            let whole = &rest[..rest.len() / 3 * 3];
            needles.push(("in base64", STANDARD_NO_PAD.encode(whole)));
            needles.push(("in base64 for addresses", URL_SAFE_NO_PAD.encode(whole)));
        }
        Self { name, needles, home }
    }
}

// === impl Hay ===

impl Hay {
    pub(super) fn add(&mut self, place: Place, name: &str, bytes: impl AsRef<[u8]>) {
        self.0.push(Straw { place, name: name.to_owned(), text: characters(bytes.as_ref()) });
    }

    /// Every file below the folder, as it lies there now.
    pub(super) fn add_files(&mut self, folder: &Path) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                self.add_files(&path);
            } else if let Ok(bytes) = std::fs::read(&path) {
                // What a file is called is written down as well.
                self.add(
                    Place::File,
                    &path.display().to_string(),
                    [path.display().to_string().as_bytes(), &bytes].concat(),
                );
            }
        }
    }

    /// Whether the log holds this.
    pub(super) fn said(&self, text: &str) -> bool {
        self.0.iter().any(|straw| straw.place == Place::Log && straw.text.contains(text))
    }

    /// Each canary and place once, with what stands around it.
    pub(super) fn search(&self, canaries: &[Canary]) -> Vec<String> {
        let mut found = Vec::new();
        for canary in canaries {
            let elsewhere = self.0.iter().filter(|straw| !canary.home.contains(&straw.place));
            found.extend(elsewhere.filter_map(|straw| {
                let hit =
                    canary.needles.iter().find_map(|(how, needle)| Some((how, straw.text.find(needle.as_str())?)));
                let (how, at) = hit?;
                let around = around(&straw.text, at);
                Some(format!("{} {how} in {:?} {}: {around:?}", canary.name, straw.place, straw.name))
            }));
        }
        found
    }

    /// How much of what was searched.
    pub(super) fn describe(&self) -> String {
        let places = [Place::Answer, Place::Log, Place::File, Place::Accounts, Place::Settings, Place::Output];
        let lines = places.map(|place| {
            let of: Vec<_> = self.0.iter().filter(|straw| straw.place == place).collect();
            format!("{place:?}: {} pieces, {} bytes", of.len(), of.iter().map(|straw| straw.text.len()).sum::<usize>())
        });
        lines.join("\n")
    }
}

/// Bytes outside of ASCII become others, all of them harmless: no canary has one.
fn characters(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| if byte.is_ascii() { char::from(*byte) } else { '.' }).collect()
}

fn around(text: &str, at: usize) -> &str {
    &text[at.saturating_sub(120)..(at + 160).min(text.len())]
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_canary_is_found_however_it_is_written() {
    let canary = [Canary::new("bird", "canary-2f81c0aa-and-more", &[Place::Answer])];
    let inside = |prefix: &str| format!("{prefix}canary-2f81c0aa-and-more tail");
    for prefix in ["", "x", "xy", "xyz"] {
        let plain = inside(prefix);
        for text in
            [plain.clone(), STANDARD_NO_PAD.encode(&plain), URL_SAFE_NO_PAD.encode(&plain), hex(plain.as_bytes())]
        {
            let mut hay = Hay::default();
            hay.add(Place::Log, "a log", format!("{text}\u{ff}"));
            assert_eq!(hay.search(&canary).len(), 1, "{text}");
            let mut home = Hay::default();
            home.add(Place::Answer, "an answer", &text);
            assert!(home.search(&canary).is_empty(), "{text}");
        }
    }
    let mut hay = Hay::default();
    hay.add(Place::Log, "a log", "canary-2f81c0ab-and-more");
    assert!(hay.search(&canary).is_empty());
}
