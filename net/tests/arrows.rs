//! Keeps the arrows between the folders of this package: reads every path that the sources name.

use std::fs;
use std::path::Path;

/// What a file may not name, and the folders in which it may.
const FORBIDDEN: &[(&str, &[&str])] = &[
    ("::glommio", &["server", "client/glommio"]),
    ("use glommio", &["server", "client/glommio"]),
    ("async ", &["server", "client/glommio"]),
    ("std::fs", &[]),
    ("std::net", &["server", "client/glommio", "client/blocking"]),
    ("std::thread", &["client/blocking"]),
    ("std::time::Instant", &["client/clock.rs", "client/glommio", "client/blocking"]),
    ("HashMap", &[]),
    ("sealog_engine::io", &[]),
    ("sealog_engine::shard", &[]),
    ("sealog_engine::replica", &[]),
    ("sealog_engine::segment", &[]),
    ("sealog_engine::journal", &[]),
    ("sealog_sim", &[]),
];

/// Which folders a folder may not name.
const CLOSED: &[(&str, &[&str])] = &[
    ("wire", &["session", "client", "server"]),
    ("session", &["client", "server"]),
    ("client", &["server"]),
    ("server", &["client"]),
];

fn sources(folder: &Path, root: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("the sources are here") {
        let path = entry.expect("a readable folder").path();
        let name = path.strip_prefix(root).expect("below the root").to_string_lossy().into_owned();
        if path.is_dir() {
            if !name.ends_with("tests") {
                sources(&path, root, found);
            }
        } else if !name.ends_with("tests.rs") {
            let text = fs::read_to_string(&path).expect("a readable file");
            let production = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
            let lines = production.lines().map(|line| line.split("//").next().unwrap_or(line));
            found.push((name, lines.collect::<Vec<_>>().join("\n")));
        }
    }
}

#[test]
fn no_folder_names_what_it_may_not() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = vec![];
    sources(&root, &root, &mut files);
    assert!(files.len() > 20, "the sources were found");
    let mut wrong = vec![];
    for (file, text) in &files {
        for (name, allowed) in FORBIDDEN {
            if text.contains(name) && !allowed.iter().any(|a| file.starts_with(a)) {
                wrong.push(format!("{file} names {name}"));
            }
        }
        for (folder, others) in CLOSED.iter().filter(|(folder, _)| file.starts_with(&format!("{folder}/"))) {
            for other in others.iter().filter(|other| text.contains(&format!("crate::{other}::"))) {
                wrong.push(format!("{file} of {folder} names {other}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
