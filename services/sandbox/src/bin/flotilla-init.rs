//! `flotilla-init <fd> <processes> <memory bytes, 0: not watched> <disk bytes>`: PID 1 of a sandbox. See `sandbox::init`.

fn main() -> std::process::ExitCode {
    sandbox::init::pid1::run()
}
