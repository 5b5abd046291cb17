//! The output that a test has captured, and the search for secrets in it.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use memchr::memmem::{self, Finder};

/// The channel of a piece of output, which says who can read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputChannel {
    /// Answers to callers.
    Answer,
    Log,
    /// The metrics.
    Metrics,
    /// Answers of the admin API, and the pages about accounts.
    Admin,
    /// The pages of the console.
    Page,
    /// The page of a one-time link.
    Link,
    /// The text that the server prints, for the person who has started it.
    StartupOutput,
    /// Files below the data directory, other than the database.
    File,
    /// The database itself.
    Store,
    /// The output of commands about accounts.
    Accounts,
    /// The output of commands about the settings.
    Settings,
    /// The output of a command that creates or rotates a key.
    Key,
    /// The output of any other command.
    Output,
}

/// A secret that must be found in no channel but the allowed ones.
#[derive(Debug)]
pub(crate) struct Canary {
    name: String,
    /// Each spelling with its search, which is prepared once because every output is searched.
    needles: Vec<(&'static str, Finder<'static>)>,
    allowed_channels: &'static [OutputChannel],
}

#[derive(Default)]
pub(crate) struct CapturedOutput(Vec<OutputPiece>);

struct OutputPiece {
    channel: OutputChannel,
    name: String,
    bytes: Vec<u8>,
}

// === impl OutputChannel ===

impl OutputChannel {
    /// The channel of the answer to a request for this path.
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
            needles.push(("in URL-safe base64", URL_SAFE_NO_PAD.encode(whole).into_bytes()));
        }
        // Most secrets have the same spelling in both kinds of base64, and every output is searched for each needle.
        needles.dedup_by(|second, first| second.1 == first.1);
        let needles = needles.into_iter().map(|(how, needle)| (how, Finder::new(&needle).into_owned())).collect();
        Self { name: name.to_owned(), needles, allowed_channels }
    }

    /// Describes how and where the bytes contain the secret; `None` if they do not, or if the channel is allowed.
    pub(crate) fn find(&self, channel: OutputChannel, bytes: &[u8]) -> Option<String> {
        if self.allowed_channels.contains(&channel) {
            return None;
        }
        let hit = self.needles.iter().find_map(|(how, needle)| Some((how, needle.find(bytes)?)));
        hit.map(|(how, at)| format!("{} {how} in {channel:?}: {:?}", self.name, excerpt(bytes, at)))
    }

    /// The length of its longest spelling.
    pub(crate) fn longest(&self) -> usize {
        self.needles.iter().map(|(_, needle)| needle.needle().len()).max().unwrap_or_default()
    }
}

// === impl CapturedOutput ===

impl CapturedOutput {
    pub(crate) fn add(&mut self, channel: OutputChannel, name: &str, bytes: impl AsRef<[u8]>) {
        self.0.push(OutputPiece { channel, name: name.to_owned(), bytes: bytes.as_ref().to_vec() });
    }

    /// Adds every file below the folder with its present content.
    pub(crate) fn add_files(&mut self, folder: &Path) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                self.add_files(&path);
            } else if let Ok(bytes) = std::fs::read(&path) {
                // The name of the file is searched as well.
                self.add(
                    channel_of_file(&path),
                    &path.display().to_string(),
                    [path.display().to_string().as_bytes(), &bytes].concat(),
                );
            }
        }
    }

    /// True if the log contains this text.
    pub(crate) fn logged(&self, text: &str) -> bool {
        self.0
            .iter()
            .any(|piece| piece.channel == OutputChannel::Log && memmem::find(&piece.bytes, text.as_bytes()).is_some())
    }

    /// One line for each canary and each piece of output that contains it, with the text around it.
    pub(crate) fn search(&self, canaries: &[Canary]) -> Vec<String> {
        let look = |canary: &Canary, piece: &OutputPiece| {
            canary.find(piece.channel, &piece.bytes).map(|found| format!("{}: {found}", piece.name))
        };
        canaries.iter().flat_map(|canary| self.0.iter().filter_map(move |piece| look(canary, piece))).collect()
    }

    /// How many pieces and bytes of the most important channels were searched.
    pub(crate) fn describe(&self) -> String {
        let channels = [
            OutputChannel::Answer,
            OutputChannel::StartupOutput,
            OutputChannel::Log,
            OutputChannel::File,
            OutputChannel::Store,
            OutputChannel::Accounts,
            OutputChannel::Settings,
            OutputChannel::Output,
        ];
        let lines = channels.map(|channel| {
            let of: Vec<_> = self.0.iter().filter(|piece| piece.channel == channel).collect();
            format!(
                "{channel:?}: {} pieces, {} bytes",
                of.len(),
                of.iter().map(|piece| piece.bytes.len()).sum::<usize>()
            )
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
            let mut captured = CapturedOutput::default();
            captured.add(OutputChannel::Log, "a log", format!("{text}\u{ff}"));
            assert_eq!(captured.search(&canary).len(), 1, "{text}");
            let mut allowed = CapturedOutput::default();
            allowed.add(OutputChannel::Answer, "an answer", &text);
            assert!(allowed.search(&canary).is_empty(), "{text}");
        }
    }
    let mut captured = CapturedOutput::default();
    captured.add(OutputChannel::Log, "a log", "canary-2f81c0ab-and-more");
    assert!(captured.search(&canary).is_empty());
}
