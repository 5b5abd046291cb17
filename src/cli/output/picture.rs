//! Pictures in a terminal: the graphics protocol of kitty, the inline images of iTerm2, and sixel.
//!
//! The protocol is chosen by the environment. The terminal is never asked: an answer that does not come would stop the
//! command, and one that comes late would end up in the input of the shell.
//!
//! Sources: <https://sw.kovidgoyal.net/kitty/graphics-protocol/>, <https://iterm2.com/documentation-images.html>, and
//! for sixel the manual of the VT330/VT340.

mod sixel;

use std::io::{self, IsTerminal as _, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::ValueEnum;

use crate::client::{Error, Thumbnail};
use crate::gateway::config::{HostEnvironment as _, SystemEnvironment};

/// The size in pixels that a picture has at most: it fits into 80 columns of 8 pixels and 24 lines of 20 (our choice).
const MAX_WIDTH: u32 = 640;
const MAX_HEIGHT: u32 = 480;
/// The number of base64 characters that kitty accepts in one sequence.
const KITTY_CHUNK: usize = 4096;

/// A way to send a picture to a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum PictureProtocol {
    Kitty,
    Iterm2,
    Sixel,
}

/// The value of `--show`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum ShowArg {
    /// In the way that the terminal is known to understand; nothing if standard error is not a terminal.
    Auto,
    /// The graphics protocol of kitty, which Ghostty and Konsole understand too.
    Kitty,
    /// The inline images of iTerm2, which `WezTerm` understands too.
    #[value(name = "iterm2")]
    Iterm2,
    /// Sixel graphics, for foot, mlterm and Windows Terminal.
    Sixel,
    /// No picture.
    None,
}

// === impl ShowArg ===

impl ShowArg {
    /// Returns the protocol, or `None` if no picture is to be shown. `Err` says why the choice cannot be made.
    pub(in crate::cli) fn protocol(self) -> Result<Option<PictureProtocol>, &'static str> {
        match self {
            Self::None => Ok(None),
            Self::Kitty => Ok(Some(PictureProtocol::Kitty)),
            Self::Iterm2 => Ok(Some(PictureProtocol::Iterm2)),
            Self::Sixel => Ok(Some(PictureProtocol::Sixel)),
            Self::Auto if !io::stderr().is_terminal() => Ok(None),
            Self::Auto => {
                let variable = |name: &str| SystemEnvironment.variable(name)?.into_string().ok();
                let unknown = "this terminal is not known to show pictures; `--show=kitty`, `--show=iterm2` and \
                               `--show=sixel` send one anyway";
                PictureProtocol::detect(variable).map(Some).ok_or(unknown)
            }
        }
    }
}

// === impl PictureProtocol ===

impl PictureProtocol {
    /// Returns the protocol of the terminal that the environment variables tell of.
    fn detect(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let text = |name: &str| variable(name).unwrap_or_default();
        let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
        let (term, program) = (text("TERM"), text("TERM_PROGRAM"));
        // A multiplexer removes the sequences, or shows the picture in the wrong place.
        if is_set("TMUX") || is_set("STY") || term.starts_with("screen") || term.starts_with("tmux") || term == "dumb" {
            return None;
        }
        if is_set("KITTY_WINDOW_ID") || term.contains("kitty") || term.contains("ghostty") || program == "ghostty" {
            return Some(Self::Kitty);
        }
        if matches!(program.as_str(), "iTerm.app" | "WezTerm" | "mintty") || text("LC_TERMINAL") == "iTerm2" {
            return Some(Self::Iterm2);
        }
        if is_set("KONSOLE_VERSION") {
            return Some(Self::Kitty);
        }
        let has_sixel = term.contains("sixel") || term.starts_with("foot") || term.starts_with("mlterm");
        (has_sixel || is_set("WT_SESSION")).then_some(Self::Sixel)
    }

    /// Returns the bytes that show an image file, with a line break at the end.
    fn encode(self, file: Vec<u8>) -> Result<Vec<u8>, Error> {
        let thumbnail = Thumbnail::new(file, MAX_WIDTH, MAX_HEIGHT)?;
        let mut bytes = match self {
            Self::Kitty => kitty(&thumbnail.to_png()?),
            Self::Iterm2 => iterm2(&thumbnail.to_png()?),
            Self::Sixel => {
                let (width, height) = (thumbnail.width(), thumbnail.height());
                sixel::encode(width, height, &thumbnail.into_rgba())
            }
        };
        bytes.push('\n');
        Ok(bytes.into_bytes())
    }

    /// Shows an image file on standard error, so that standard output has only the results.
    pub(in crate::cli) fn show(self, file: Vec<u8>) -> Result<(), Error> {
        let bytes = self.encode(file)?;
        let mut stderr = io::stderr().lock();
        // The command must not fail because a picture cannot be shown.
        let _ = stderr.write_all(&bytes).and_then(|()| stderr.flush());
        Ok(())
    }
}

/// Returns a png file in sequences of kitty. The terminal is told not to answer (`q=2`).
fn kitty(png: &[u8]) -> String {
    let data = BASE64.encode(png);
    let (mut text, mut rest) = (String::with_capacity(data.len() * 2), data.as_str());
    let mut keys = "a=T,f=100,q=2,";
    loop {
        let (chunk, tail) = rest.split_at(rest.len().min(KITTY_CHUNK));
        let more = u8::from(!tail.is_empty());
        text.push_str(&format!("\x1b_G{keys}m={more};{chunk}\x1b\\"));
        if tail.is_empty() {
            return text;
        }
        (keys, rest) = ("", tail);
    }
}

/// Returns a png file as an inline image of iTerm2.
fn iterm2(png: &[u8]) -> String {
    format!("\x1b]1337;File=inline=1;size={};preserveAspectRatio=1:{}\x07", png.len(), BASE64.encode(png))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an image of this size that no filter makes small, as a png file.
    fn image(width: u32, height: u32) -> Vec<u8> {
        let mut state = 1_u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        };
        let pixels: Vec<u8> = (0..width * height * 3).map(|_| random()).collect();
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, width, height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
        file
    }

    fn decoded_png(file: &[u8]) -> (u32, u32, Vec<u8>) {
        let mut reader = png::Decoder::new(io::Cursor::new(file)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let frame = reader.next_frame(&mut pixels).unwrap();
        (frame.width, frame.height, pixels)
    }

    fn sent(protocol: PictureProtocol, file: &[u8]) -> String {
        String::from_utf8(protocol.encode(file.to_vec()).unwrap()).unwrap()
    }

    #[test]
    fn kitty_gets_the_picture_in_chunks() {
        let file = image(200, 100);
        let text = sent(PictureProtocol::Kitty, &file);
        let sequences: Vec<&str> = text.strip_suffix("\x1b\\\n").unwrap().split("\x1b\\").collect();
        let mut data = String::new();
        for (index, sequence) in sequences.iter().enumerate() {
            let (keys, chunk) = sequence.strip_prefix("\x1b_G").unwrap().split_once(';').unwrap();
            let more = u8::from(index + 1 < sequences.len());
            let first = if index == 0 { "a=T,f=100,q=2," } else { "" };
            assert_eq!(keys, format!("{first}m={more}"));
            assert!(chunk.len() <= KITTY_CHUNK && (more == 0 || chunk.len() % 4 == 0), "{}", chunk.len());
            data.push_str(chunk);
        }
        assert!(sequences.len() > 2, "{}", sequences.len());
        assert_eq!(decoded_png(&BASE64.decode(data).unwrap()), decoded_png(&file));
    }

    #[test]
    fn iterm2_gets_the_picture_with_its_length() {
        let file = image(1280, 640);
        let text = sent(PictureProtocol::Iterm2, &file);
        let rest = text.strip_prefix("\x1b]1337;File=inline=1;size=").unwrap().strip_suffix("\x07\n").unwrap();
        let (length, data) = rest.split_once(";preserveAspectRatio=1:").unwrap();
        let data = BASE64.decode(data).unwrap();
        assert_eq!(data.len().to_string(), length);
        let (width, height, _) = decoded_png(&data);
        assert_eq!((width, height), (640, 320), "a large picture is made smaller");
    }

    #[test]
    fn a_file_that_is_no_image_is_not_sent() {
        let error = PictureProtocol::Kitty.encode(b"no image".to_vec()).unwrap_err();
        assert!(error.message().starts_with("the image cannot be shown: "), "{error}");
    }

    #[test]
    fn the_environment_tells_the_protocol() {
        use PictureProtocol::{Iterm2, Kitty, Sixel};
        for (variables, expected) in [
            (&[("TERM", "xterm-kitty")][..], Some(Kitty)),
            (&[("TERM", "xterm-256color"), ("KITTY_WINDOW_ID", "1")], Some(Kitty)),
            (&[("TERM", "xterm-ghostty")], Some(Kitty)),
            (&[("TERM", "xterm-256color"), ("KONSOLE_VERSION", "230804")], Some(Kitty)),
            (&[("TERM", "xterm-256color"), ("TERM_PROGRAM", "iTerm.app")], Some(Iterm2)),
            (&[("TERM", "xterm-256color"), ("TERM_PROGRAM", "WezTerm")], Some(Iterm2)),
            (&[("TERM", "xterm-256color"), ("LC_TERMINAL", "iTerm2")], Some(Iterm2)),
            (&[("TERM", "foot")], Some(Sixel)),
            (&[("TERM", "xterm-256color"), ("WT_SESSION", "c0ffee")], Some(Sixel)),
            (&[("TERM", "xterm-256color")], None),
            (&[("TERM", "dumb"), ("KITTY_WINDOW_ID", "1")], None),
            (&[("TERM", "tmux-256color"), ("KITTY_WINDOW_ID", "1"), ("TMUX", "/tmp/tmux")], None),
            (&[], None),
        ] {
            let variable = |name: &str| {
                variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(PictureProtocol::detect(variable), expected, "{variables:?}");
        }
    }
}
