//! Puts the commit that is being built into the reports.

use std::process::Command;

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn main() {
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).map_or_else(
        || "unknown".to_owned(),
        |commit| match git(&["status", "--porcelain", "--untracked-files=no"]).as_deref() {
            Some("") => commit,
            _ => commit + "-dirty",
        },
    );
    println!("cargo::rustc-env=SEALOG_COMMIT={commit}");
    println!("cargo::rerun-if-changed=build.rs");
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| std::path::Path::new(log).exists()) {
        println!("cargo::rerun-if-changed={log}");
    }
}
