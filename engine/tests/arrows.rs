//! Keeps the arrows between the engine's folders: reads the `use` lines and every other `crate::` path.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Which folders each folder may name, besides itself.
const ARROWS: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("format", &["types"]),
    ("api", &["types", "format"]),
    ("journal", &["types", "format"]),
    ("segment", &["types", "format", "api"]),
    ("replica", &["types", "format", "api"]),
    ("shard", &["types", "format", "api", "journal", "segment", "replica"]),
    ("metadata", &["types", "format", "api", "replica"]),
    ("failover", &["types", "format", "api", "metadata", "replica"]),
    ("balance", &["types", "api", "metadata"]),
    ("controller", &["types", "format", "api", "journal", "replica", "metadata", "failover", "balance", "shard"]),
    ("inspect", &["types", "format", "api", "segment", "shard", "controller"]),
    ("recovery", &["types", "format", "api", "journal", "segment", "replica", "shard", "controller"]),
];

/// What a file may not name at all, and in which folder it may.
const FORBIDDEN: &[(&str, &[&str])] = &[
    ("glommio", &["io"]),
    ("io_uring", &["io"]),
    ("std::fs", &["io"]),
    ("std::net", &["io"]),
    ("std::thread", &["io"]),
    ("async ", &["io"]),
    ("sealog_net", &[]),
    ("sealog_sim", &[]),
];

fn rust_files(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("the sources are here") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a readable file");
            found.push((path.to_string_lossy().into_owned(), text));
        }
    }
}

/// The text without comments and without what only tests see.
fn code(text: &str) -> String {
    let production = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let lines = production.lines().map(|line| line.split("//").next().unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}

fn is_test(path: &str) -> bool {
    ["/tests.rs", "/tests/", "/samples.rs", "/testing.rs", "/test_store.rs", "/golden.rs"]
        .iter()
        .any(|part| path.contains(part))
}

fn sources() -> Vec<(String, String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&root, &mut files);
    let prefix = format!("{}/", root.to_string_lossy());
    let named = files.into_iter().filter_map(|(path, text)| {
        let below = path.strip_prefix(&prefix)?.to_owned();
        let folder = below.split('/').next().filter(|first| *first != below)?.to_owned();
        Some((folder, below, code(&text)))
    });
    named.filter(|(_, path, _)| !is_test(path)).collect()
}

#[test]
fn each_folder_names_only_what_it_may() {
    let arrows: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    let mut wrong = Vec::new();
    for (folder, path, text) in sources() {
        if folder == "io" {
            continue;
        }
        let Some(allowed) = arrows.get(folder.as_str()) else {
            wrong.push(format!("{path}: the folder {folder} has no line in this test"));
            continue;
        };
        for part in text.split("crate::").skip(1) {
            let named: String = part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if named != folder && !allowed.contains(&named.as_str()) {
                wrong.push(format!("{path}: {folder} may not name {named}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_protocol_of_shard_and_controller_is_in_messages_only() {
    for (folder, path, text) in sources() {
        if folder == "shard" {
            assert!(!text.contains("crate::controller") && !text.contains("crate::failover"), "{path}");
        }
    }
}

#[test]
fn the_pure_core_names_no_executor_file_socket_or_thread() {
    let mut wrong = Vec::new();
    for (folder, path, text) in sources() {
        for (word, allowed) in FORBIDDEN {
            if text.contains(word) && !allowed.contains(&folder.as_str()) {
                wrong.push(format!("{path}: {word}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
