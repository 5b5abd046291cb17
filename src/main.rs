//! The program `imagate`. Its entire logic is in the library, where it can be tested.

use std::process::ExitCode;

fn main() -> ExitCode {
    imagate::cli::main()
}
