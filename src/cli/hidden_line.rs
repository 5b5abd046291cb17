//! Reads a line from the terminal that is not shown, such as a secret.
//!
//! Ctrl-C ends the program here as everywhere, but not before the terminal shows again what is typed.

#[cfg(unix)]
pub(super) use unix::read_hidden_line;

/// Asks the question, and returns the line that is typed.
#[cfg(not(unix))]
pub(super) fn read_hidden_line(question: &str) -> std::io::Result<String> {
    super::output::print_message(question);
    console::Term::stderr().read_secure_line()
}

#[cfg(unix)]
mod unix {
    use std::io::{self, BufRead, stdin};

    use rustix::process::{Signal, getpid, kill_process};
    use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};

    use crate::cli::output::print_message;

    /// The terminal without echo, until this is dropped.
    struct HiddenInput(Termios);

    /// Asks the question, and returns the line that is typed.
    pub(in crate::cli) fn read_hidden_line(question: &str) -> io::Result<String> {
        let (hidden, interrupt) = HiddenInput::start()?;
        print_message(question);
        let line = read_line(&mut stdin().lock(), interrupt)?;
        drop(hidden);
        let Some(line) = line else {
            kill_process(getpid(), Signal::INT)?;
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the input was interrupted"));
        };
        String::from_utf8(line).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the line is not text"))
    }

    /// Reads up to the end of the line or of the input; returns `None` if the byte of Ctrl-C comes before.
    fn read_line(input: &mut impl BufRead, interrupt: u8) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        loop {
            let piece = match input.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                piece => piece?,
            };
            let end = piece.iter().position(|byte| *byte == b'\n' || *byte == interrupt);
            let is_interrupted = end.is_some_and(|end| piece[end] == interrupt);
            let length = end.unwrap_or(piece.len());
            line.extend_from_slice(&piece[..length]);
            let is_whole = end.is_some() || piece.is_empty();
            input.consume(length + usize::from(end.is_some()));
            if is_interrupted {
                return Ok(None);
            }
            if is_whole {
                return Ok(Some(line));
            }
        }
    }

    // === impl HiddenInput ===

    impl HiddenInput {
        /// Hides what is typed from now on. Returns also the byte of Ctrl-C: it ends a line here, because a signal would
        /// end the program with the terminal as it is.
        fn start() -> io::Result<(Self, u8)> {
            let before = tcgetattr(stdin())?;
            let interrupt = before.special_codes[SpecialCodeIndex::VINTR];
            let mut modes = before.clone();
            modes.local_modes -= LocalModes::ECHO | LocalModes::ISIG;
            modes.local_modes |= LocalModes::ECHONL;
            modes.special_codes[SpecialCodeIndex::VEOL] = interrupt;
            tcsetattr(stdin(), OptionalActions::Flush, &modes)?;
            Ok((Self(before), interrupt))
        }
    }

    impl Drop for HiddenInput {
        fn drop(&mut self) {
            // There is nothing to do if the terminal has gone.
            let _ = tcsetattr(stdin(), OptionalActions::Flush, &self.0);
        }
    }

    #[cfg(test)]
    mod tests {
        use std::io::BufReader;

        use super::*;

        #[test]
        fn a_line_ends_with_its_end_the_input_or_an_interrupt() {
            // One byte at a time, as a terminal may give it.
            let read = |text: &[u8]| read_line(&mut BufReader::with_capacity(1, text), 3).unwrap();
            assert_eq!(read(b"secret\nmore"), Some(b"secret".to_vec()));
            assert_eq!(read(b"secret"), Some(b"secret".to_vec()));
            assert_eq!(read(b""), Some(Vec::new()));
            assert_eq!([read(b"sec\x03ret\n"), read(b"\x03")], [None, None]);
        }
    }
}
