//! Shows that a client of a program that installs no provider of cryptography is an error, and not a panic.

use std::process::ExitCode;

fn main() -> ExitCode {
    match imagate::Client::new("https://host/v1", "sk-img-secret") {
        Err(error) if error.to_string().contains("install_default") => ExitCode::SUCCESS,
        result => {
            eprintln!("expected an error that names `install_default`, but got {result:?}");
            ExitCode::FAILURE
        }
    }
}
