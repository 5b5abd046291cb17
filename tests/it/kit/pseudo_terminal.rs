//! A terminal for the program under test: a pseudo-terminal of a certain width, and the screen that a person would see.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use unicode_width::UnicodeWidthChar as _;

use super::{CommandOutput, Program, TEST_TIMEOUT, ends_within, eventually};

/// The contents of a terminal after a program has ended.
pub(crate) struct TerminalScreen {
    width: usize,
    lines: Vec<Vec<ScreenCell>>,
    row: usize,
    column: usize,
    style: String,
    /// The lines that were longer than the terminal is wide.
    pub(crate) wrapped: Vec<String>,
}

/// A character, and the numbers of its style as in the sequence that sets it.
#[derive(Clone)]
struct ScreenCell(char, String);

/// Runs the program in a terminal of this width, and returns its exit code and the screen.
#[track_caller]
pub(crate) fn run_in_terminal(program: Program, width: u16) -> (Option<i32>, TerminalScreen) {
    let (code, bytes) = run_in_pseudo_terminal(program, width);
    let mut screen = TerminalScreen::new(width.into());
    screen.draw(&String::from_utf8(bytes).expect("text"));
    (code, screen)
}

/// Runs the program with all three standard streams in a terminal of this width, and returns its exit code and its
/// output as it was sent.
#[track_caller]
pub(crate) fn run_in_pseudo_terminal(program: Program, width: u16) -> (Option<i32>, Vec<u8>) {
    answer_in_pseudo_terminal(program, width, "")
}

/// Like [`run_in_pseudo_terminal`], with this text as what the person types.
#[track_caller]
pub(crate) fn answer_in_pseudo_terminal(program: Program, width: u16, typed: &str) -> (Option<i32>, Vec<u8>) {
    let (terminal, open) = open_terminal(width);
    let mut child = program.spawn_with(open().into(), open().into(), open().into());
    let mut reader = terminal;
    reader.write_all(typed.as_bytes()).expect("the terminal takes it");
    let received = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        receive(&mut reader, |piece| bytes.extend_from_slice(piece));
        bytes
    });
    if !ends_within(&mut child, TEST_TIMEOUT) {
        drop(child.kill());
    }
    let code = child.wait().expect("a status").code();
    (code, received.join().expect("the output"))
}

/// Makes a terminal of this width. Returns the end of its person, and what opens the end of a program.
fn open_terminal(width: u16) -> (File, impl Fn() -> File) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
    grantpt(&terminal).expect("its other end");
    unlockpt(&terminal).expect("its other end");
    let size = Winsize { ws_row: 50, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&terminal, size).expect("a size");
    let name = ptsname(&terminal, Vec::new()).expect("its name");
    let path = PathBuf::from(name.to_str().expect("a path"));
    let mut options = File::options();
    options.read(true).write(true).custom_flags(OFlags::NOCTTY.bits().cast_signed());
    (terminal.into(), move || options.open(&path).expect("the other end"))
}

/// Takes everything that a program sends, until no process has the other end any more, which is an error here.
fn receive(reader: &mut File, mut take: impl FnMut(&[u8])) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = reader.read(&mut buffer) {
        take(&buffer[..length]);
    }
}

/// A command that a person operates: its terminal is the one that controls it, so that Ctrl-C reaches it.
pub(crate) struct TerminalSession {
    child: Child,
    terminal: File,
    /// The end of the command. While it is open, the modes of the terminal stay as the command has left them.
    other_end: File,
    output: Arc<Mutex<Vec<u8>>>,
    receiver: JoinHandle<()>,
}

/// The end of a [`TerminalSession`].
#[derive(Debug)]
pub(crate) struct SessionEnd {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) output: String,
    /// True if the terminal shows what is typed, as before the command.
    pub(crate) has_echo: bool,
}

// === impl TerminalSession ===

impl TerminalSession {
    /// Starts the command. `setsid` gives it the terminal. Tests that run in the background ignore Ctrl-C, and `env` lets
    /// the command have it as in a shell.
    pub(crate) fn start(words: &[&str], home: &Path) -> Self {
        let (terminal, open) = open_terminal(80);
        let program = Program::for_program(Path::new("setsid"), home);
        let program =
            program.args(["--ctty", "env", "--default-signal=INT", env!("CARGO_BIN_EXE_imagate")]).args(words);
        let child = program.spawn_with(open().into(), open().into(), open().into());
        let (output, mut reader) = (Arc::<Mutex<Vec<u8>>>::default(), terminal.try_clone().expect("the terminal"));
        let received = Arc::clone(&output);
        let receiver = std::thread::spawn(move || {
            receive(&mut reader, |piece| received.lock().expect("the output").extend_from_slice(piece));
        });
        Self { child, terminal, other_end: open(), output, receiver }
    }

    #[track_caller]
    pub(crate) fn wait_for(&self, text: &str) {
        eventually(&format!("{text:?} is on the terminal"), || {
            let output = self.output.lock().expect("the output");
            String::from_utf8_lossy(&output).contains(text).then_some(())
        });
    }

    /// Types this, control characters too.
    pub(crate) fn type_text(&self, text: &str) {
        (&self.terminal).write_all(text.as_bytes()).expect("the terminal takes it");
    }

    /// True if the terminal shows what is typed.
    pub(crate) fn has_echo(&self) -> bool {
        tcgetattr(&self.terminal).expect("the modes").local_modes.contains(LocalModes::ECHO)
    }

    /// Waits for the end of the command; kills it if it does not end.
    pub(crate) fn end(mut self) -> SessionEnd {
        if !ends_within(&mut self.child, TEST_TIMEOUT) {
            drop(self.child.kill());
        }
        let status = self.child.wait().expect("a status");
        let has_echo = self.has_echo();
        drop(self.other_end);
        self.receiver.join().expect("the output");
        let output = String::from_utf8_lossy(&self.output.lock().expect("the output")).into_owned();
        SessionEnd { code: status.code(), signal: status.signal(), output, has_echo }
    }
}

// === impl TerminalScreen ===

impl TerminalScreen {
    fn new(width: usize) -> Self {
        let style = String::new();
        Self { width, lines: vec![Vec::new()], row: 0, column: 0, style, wrapped: Vec::new() }
    }

    /// Draws what the program has sent. Sequences that this screen does not know panic.
    fn draw(&mut self, text: &str) {
        let mut rest = text;
        while let Some(character) = rest.chars().next() {
            rest = &rest[character.len_utf8()..];
            match character {
                '\r' => self.column = 0,
                '\n' => self.move_to(self.row + 1),
                '\u{1b}' => rest = self.obey(rest),
                character => self.put(character),
            }
        }
    }

    fn move_to(&mut self, row: usize) {
        self.row = row;
        while self.lines.len() <= row {
            self.lines.push(Vec::new());
        }
    }

    /// Obeys a sequence, and returns the text after it.
    fn obey<'a>(&mut self, text: &'a str) -> &'a str {
        let body = text.strip_prefix('[').unwrap_or_else(|| panic!("an unknown sequence: {text:?}"));
        let end = body.find(|character: char| character.is_ascii_alphabetic()).expect("the end of a sequence");
        let (numbers, command) = (&body[..end], &body[end..=end]);
        match command {
            "m" if numbers.is_empty() || numbers == "0" => self.style.clear(),
            "m" => {
                self.style = if self.style.is_empty() { numbers.into() } else { format!("{};{numbers}", self.style) }
            }
            "K" if numbers == "2" => self.lines[self.row].clear(),
            "K" => self.lines[self.row].truncate(self.column),
            "A" => self.row = self.row.saturating_sub(numbers.parse().unwrap_or(1)),
            "J" => {
                self.lines[self.row].truncate(self.column);
                self.lines.truncate(self.row + 1);
            }
            "l" | "h" => {}
            _ => panic!("an unknown sequence: {numbers}{command}"),
        }
        &body[end + 1..]
    }

    fn put(&mut self, character: char) {
        let width = character.width().unwrap_or(0);
        if self.column + width > self.width {
            let line = self.lines[self.row].iter().map(|cell| cell.0).collect();
            self.wrapped.push(line);
            self.move_to(self.row + 1);
            self.column = 0;
        }
        let line = &mut self.lines[self.row];
        while line.len() < self.column + width {
            line.push(ScreenCell(' ', String::new()));
        }
        if width > 0 {
            line[self.column] = ScreenCell(character, self.style.clone());
        }
        // The second column of a wide character holds nothing.
        for cell in line.iter_mut().skip(self.column + 1).take(width.saturating_sub(1)) {
            *cell = ScreenCell('\0', self.style.clone());
        }
        self.column += width;
    }

    /// The lines of the screen. Styles are shown as their numbers: `‹31›failed‹0›`.
    pub(crate) fn text(&self) -> String {
        let lines = self.lines.iter().map(|line| line_text(line) + "\n");
        let mut text: String = lines.collect();
        text.truncate(text.trim_end().len());
        text.push('\n');
        text
    }
}

fn line_text(line: &[ScreenCell]) -> String {
    let (mut shown, mut style) = (String::new(), "");
    for ScreenCell(character, cell_style) in line.iter().filter(|cell| cell.0 != '\0') {
        if cell_style != style {
            shown.push_str(&format!("‹{}›", if cell_style.is_empty() { "0" } else { cell_style }));
            style = cell_style;
        }
        shown.push(*character);
    }
    if !style.is_empty() {
        shown.push_str("‹0›");
    }
    shown.truncate(shown.trim_end().len());
    shown
}

/// Both outputs of a program that was run in pipes, in the order in which they stand in a session file.
pub(crate) fn piped_text(done: &CommandOutput) -> String {
    let mut text = done.stdout.clone();
    for line in done.stderr.lines() {
        text.push_str(&format!("2> {line}\n"));
    }
    text
}
