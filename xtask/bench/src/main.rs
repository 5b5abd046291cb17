//! The load tests of imagate, which `cargo xtask bench` builds and starts. They assert nothing, because machines differ.

#[cfg(target_os = "linux")]
mod tool;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    tool::main()
}

#[cfg(not(target_os = "linux"))]
fn main() -> std::process::ExitCode {
    eprintln!("the load tests need Linux, because they read /proc");
    std::process::ExitCode::FAILURE
}
