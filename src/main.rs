//! The program `imagate`. Its entire logic is in the library, where it can be tested.

use std::process::ExitCode;

/// It is quicker than that of the system if many small values are made and dropped, as for each request
/// (`docs/performance.md`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    imagate::cli::main()
}
