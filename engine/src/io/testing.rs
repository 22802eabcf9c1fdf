//! What the tests of `io` share: a folder on a real disk.

use std::io::Write as _;

use tempfile::TempDir;

/// A folder beside the test binary, which is where builds go and so hardly ever in memory, or `None`, said aloud, if direct
/// I/O does not work there.
pub(crate) fn disk_dir() -> Option<TempDir> {
    let exe = std::env::current_exe().expect("path of the test binary");
    let dir = tempfile::tempdir_in(exe.parent().expect("folder of the test binary")).expect("a folder beside it");
    match super::store::open_direct(&dir.path().join("try"), super::store::Opening::Create) {
        Ok(_) => Some(dir),
        Err(error) => {
            writeln!(std::io::stderr(), "SKIPPED: no O_DIRECT in {}: {error}", dir.path().display())
                .expect("standard error");
            None
        }
    }
}
