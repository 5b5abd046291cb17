//! Everything that came out, and the search through it.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use memchr::memmem;

/// Where something came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputChannel {
    /// To a caller.
    Answer,
    Log,
    /// To whoever reads the counts.
    Metrics,
    /// To an operator.
    Admin,
    /// On a page, to whoever has opened it.
    Page,
    /// On the page of a one-time link, to whoever has it.
    Link,
    /// To whoever has started the server.
    StartupOutput,
    /// Below the data directory.
    File,
    /// The database itself.
    Store,
    /// What commands tell the operator of accounts.
    Accounts,
    /// The settings as shown to the operator.
    Settings,
    /// Of a command that makes a key.
    Key,
    /// Of any other command.
    Output,
}

/// What must not be found, except in some places.
#[derive(Debug)]
pub(crate) struct Canary {
    name: String,
    needles: Vec<(&'static str, Vec<u8>)>,
    allowed_channels: &'static [OutputChannel],
}

#[derive(Default)]
pub(crate) struct CapturedOutput(Vec<OutputPiece>);

struct OutputPiece {
    channel: OutputChannel,
    name: String,
    bytes: Vec<u8>,
}

// === impl Place ===

impl OutputChannel {
    /// Where the answer to a request for this path is read.
    pub(crate) fn for_path(path: &str) -> Self {
        match path.split('/').nth(1).unwrap_or_default() {
            "v1" | "healthz" | "readyz" | "skills" | ".well-known" => Self::Answer,
            "admin" | "accounts" => Self::Admin,
            "setup" | "invitation" => Self::Link,
            _ => Self::Page,
        }
    }
}

// === impl Canary ===

impl Canary {
    pub(crate) fn new(name: &str, value: impl AsRef<[u8]>, allowed_channels: &'static [OutputChannel]) -> Self {
        let value = value.as_ref();
        let in_hex = hex(value);
        let mut needles = vec![
            ("as it is", value.to_vec()),
            ("in upper hex", in_hex.to_uppercase().into_bytes()),
            ("in hex", in_hex.into_bytes()),
        ];
        // Base64 depends on where in a group of three the value begins; only whole groups can be searched for.
        for skip in 0..3 {
            let rest = &value[skip..];
            let whole = &rest[..rest.len() / 3 * 3];
            needles.push(("in base64", STANDARD_NO_PAD.encode(whole).into_bytes()));
            needles.push(("in base64 for addresses", URL_SAFE_NO_PAD.encode(whole).into_bytes()));
        }
        Self { name: name.to_owned(), needles, allowed_channels }
    }

    /// How it stands in these bytes, and what stands around it; nothing where it is at home.
    pub(crate) fn find(&self, place: OutputChannel, bytes: &[u8]) -> Option<String> {
        if self.allowed_channels.contains(&place) {
            return None;
        }
        let hit = self.needles.iter().find_map(|(how, needle)| Some((how, memmem::find(bytes, needle)?)));
        hit.map(|(how, at)| format!("{} {how} in {place:?}: {:?}", self.name, excerpt(bytes, at)))
    }

    /// The longest of its spellings.
    pub(crate) fn longest(&self) -> usize {
        self.needles.iter().map(|(_, needle)| needle.len()).max().unwrap_or_default()
    }
}

// === impl Hay ===

impl CapturedOutput {
    pub(crate) fn add(&mut self, place: OutputChannel, name: &str, bytes: impl AsRef<[u8]>) {
        self.0.push(OutputPiece { channel: place, name: name.to_owned(), bytes: bytes.as_ref().to_vec() });
    }

    /// Every file below the folder, as it lies there now.
    pub(crate) fn add_files(&mut self, folder: &Path) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                self.add_files(&path);
            } else if let Ok(bytes) = std::fs::read(&path) {
                // What a file is called is written down as well.
                self.add(
                    channel_of_file(&path),
                    &path.display().to_string(),
                    [path.display().to_string().as_bytes(), &bytes].concat(),
                );
            }
        }
    }

    /// Whether the log holds this.
    pub(crate) fn logged(&self, text: &str) -> bool {
        self.0
            .iter()
            .any(|straw| straw.channel == OutputChannel::Log && memmem::find(&straw.bytes, text.as_bytes()).is_some())
    }

    /// Each canary and place once, with what stands around it.
    pub(crate) fn search(&self, canaries: &[Canary]) -> Vec<String> {
        let look = |canary: &Canary, straw: &OutputPiece| {
            canary.find(straw.channel, &straw.bytes).map(|found| format!("{}: {found}", straw.name))
        };
        canaries.iter().flat_map(|canary| self.0.iter().filter_map(move |straw| look(canary, straw))).collect()
    }

    /// How much of what was searched.
    pub(crate) fn describe(&self) -> String {
        let places = [
            OutputChannel::Answer,
            OutputChannel::StartupOutput,
            OutputChannel::Log,
            OutputChannel::File,
            OutputChannel::Store,
            OutputChannel::Accounts,
            OutputChannel::Settings,
            OutputChannel::Output,
        ];
        let lines = places.map(|place| {
            let of: Vec<_> = self.0.iter().filter(|straw| straw.channel == place).collect();
            format!("{place:?}: {} pieces, {} bytes", of.len(), of.iter().map(|straw| straw.bytes.len()).sum::<usize>())
        });
        lines.join("\n")
    }
}

fn channel_of_file(path: &Path) -> OutputChannel {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.starts_with("imagate.db") { OutputChannel::Store } else { OutputChannel::File }
}

fn excerpt(bytes: &[u8], at: usize) -> String {
    String::from_utf8_lossy(&bytes[at.saturating_sub(120)..(at + 160).min(bytes.len())]).into_owned()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_canary_is_found_however_it_is_written() {
    let canary = [Canary::new("bird", "canary-2f81c0aa-and-more", &[OutputChannel::Answer])];
    let inside = |prefix: &str| format!("{prefix}canary-2f81c0aa-and-more tail");
    for prefix in ["", "x", "xy", "xyz"] {
        let plain = inside(prefix);
        for text in
            [plain.clone(), STANDARD_NO_PAD.encode(&plain), URL_SAFE_NO_PAD.encode(&plain), hex(plain.as_bytes())]
        {
            let mut hay = CapturedOutput::default();
            hay.add(OutputChannel::Log, "a log", format!("{text}\u{ff}"));
            assert_eq!(hay.search(&canary).len(), 1, "{text}");
            let mut home = CapturedOutput::default();
            home.add(OutputChannel::Answer, "an answer", &text);
            assert!(home.search(&canary).is_empty(), "{text}");
        }
    }
    let mut hay = CapturedOutput::default();
    hay.add(OutputChannel::Log, "a log", "canary-2f81c0ab-and-more");
    assert!(hay.search(&canary).is_empty());
}
