//! Scenarios in text: what happens, in the order in which it is to happen, and what is to be seen of it.
//!
//! ```text
//! # a comment
//! send alice key=a value=1
//! ----
//! alice/0 sent
//! ```
//! A block is a directive, a line of four dashes, and what the directive prints; an empty line ends it. Everything that a script
//! does not say is calm: no fault, short delays. With `SEALOG_UPDATE_SCRIPTS=1` what is printed is written into the file.
//!
//! | directive | does | prints |
//! |---|---|---|
//! | `node [seed=N] [shards=N] [marker_us=N] [fua]` | must come first: an empty disk | `ready` |
//! | `topic NAME [ranges=N]` | makes a topic | `made` |
//! | `writer NAME topic=T [timeout_ms=N]` | begins a writer | `ready` |
//! | `send WRITER [key=K] value=V [count=N] [bytes=N]` | hands records to its client, values filled up to so many bytes | each record |
//! | `run ms=N` | lets time pass | nothing |
//! | `settle [ms=N]` | lets time pass until all records are told | each record told since the last time |
//! | `hold disk` / `release disk` | completions of the disk wait | nothing |
//! | `reset` | every connection breaks | nothing |
//! | `crash kill [sectors=N]` | the process ends; of each write in flight the first N sectors are done | `down` |
//! | `crash power [keep=nothing or everything or writes or sectors] [sectors=N]` | the power is cut | `down` |
//! | `start [shards=N] [stop=CALLS]` | a process starts, or is stopped in its n-th call to the store | `up` or `stopped` |
//! | `jump ms=N` | the wall clock jumps | nothing |
//! | `pause WRITER ms=N` | a writer does nothing for so long, and hears then what has come | nothing |
//! | `split TOPIC RANGE [nowait]` | has a range split, by its number | the children, or the refusal |
//! | `merge TOPIC RANGE RANGE [nowait]` | has two ranges merged | the child, or the refusal |
//! | `ranges TOPIC` | | each range: its parents, and what it became |
//! | `deaf SHARD` / `hear` | what the controller says to a shard waits | nothing |
//! | `crash-at MOMENT kill or power [pass=N]` | the process ends at the n-th such moment, and another starts | nothing |
//! | `read topic=T` | reads all | key and value of each record, and gaps |
//!
//! Moments of `crash-at`: `seal-asked`, `promised`, `end-proposed`, `metadata-written`, `retired`.

mod directive;
mod run;

use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::check::Violation;
use directive::Directive;
use run::ScriptWorld;

/// Writes what is printed into the file.
const UPDATE: &str = "SEALOG_UPDATE_SCRIPTS";

/// A script cannot be run.
#[derive(Debug, Error)]
pub enum ScriptError {
    #[error("cannot use {}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("line {line}: {word:?} is not understood")]
    Word { line: usize, word: String },
    #[error("line {line}: {what} is missing")]
    Missing { line: usize, what: &'static str },
    #[error("line {line}: there is no {what} {name}")]
    Unknown { line: usize, what: &'static str, name: String },
    #[error("line {line}: {violation}")]
    Violation { line: usize, violation: Violation },
    #[error("line {line}: {what} did not happen in time")]
    Stuck { line: usize, what: &'static str },
}

/// One block of a script.
struct Block {
    /// Comments and empty lines before it, as they stand.
    before: String,
    line: usize,
    directive: String,
    expected: String,
}

/// Runs a script and says how it went. Returns whether it went as it says.
#[must_use]
pub fn run_file(path: &Path) -> bool {
    match check_file(path) {
        Ok(differences) if differences.is_empty() => {
            println!("{}: as expected", path.display());
            true
        }
        Ok(differences) => {
            for (line, expected, found) in differences {
                println!("{}:{line}: expected\n{expected}found\n{found}", path.display());
            }
            false
        }
        Err(error) => {
            println!("{}: {error}", path.display());
            false
        }
    }
}

/// A block that went otherwise: its line, what was expected, and what was found.
pub type Difference = (usize, String, String);

/// Runs a script. Returns the blocks that went otherwise.
///
/// # Errors
/// The script cannot be run to its end, or a promise was broken.
pub fn check_file(path: &Path) -> Result<Vec<Difference>, ScriptError> {
    let io = |source| ScriptError::Io { path: path.to_owned(), source };
    let text = std::fs::read_to_string(path).map_err(io)?;
    let (differences, updated) = check_text(&text)?;
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(path, updated).map_err(io)?;
        return Ok(Vec::new());
    }
    Ok(differences)
}

/// The same for the text of a script; gives besides the text as it would be if it expected what was found.
///
/// # Errors
/// The script cannot be run to its end, or a promise was broken.
pub fn check_text(text: &str) -> Result<(Vec<Difference>, String), ScriptError> {
    let mut world = None;
    let mut differences = Vec::new();
    let mut updated = String::new();
    for block in parse(text) {
        let found = run_block(&block, &mut world)?;
        updated += &format!("{}{}\n----\n{found}\n", block.before, block.directive);
        if found != block.expected {
            differences.push((block.line, block.expected, found));
        }
    }
    Ok((differences, updated.trim_end().to_owned() + "\n"))
}

fn run_block(block: &Block, world: &mut Option<ScriptWorld>) -> Result<String, ScriptError> {
    let directive = Directive::parse(block.line, &block.directive)?;
    match world {
        Some(world) => world.perform(&directive),
        None => {
            let mut made = ScriptWorld::new(&directive)?;
            made.begin(&directive)?;
            *world = Some(made);
            Ok("ready\n".to_owned())
        }
    }
}

fn parse(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut before = String::new();
    let mut lines = (1..).zip(text.lines()).peekable();
    while let Some((line, first)) = lines.next() {
        if first.trim().is_empty() || first.starts_with('#') {
            before += first;
            before += "\n";
            continue;
        }
        let mut expected = String::new();
        if lines.next_if(|(_, next)| *next == "----").is_some() {
            while let Some((_, next)) = lines.next_if(|(_, next)| !next.is_empty()) {
                expected += next;
                expected += "\n";
            }
        }
        // The empty line that ends a block is written again with it.
        let _ = lines.next_if(|(_, next)| next.is_empty());
        blocks.push(Block { before: std::mem::take(&mut before), line, directive: first.to_owned(), expected });
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_cut_into_blocks() {
        let blocks = parse("# one\nnode\n----\nready\n\n# two\nrun ms=1\n----\n\nread topic=t\n----\na 1\nb 2\n");
        let seen: Vec<_> =
            blocks.iter().map(|b| (b.line, b.before.as_str(), b.directive.as_str(), b.expected.as_str())).collect();
        assert_eq!(
            seen,
            [(2, "# one\n", "node", "ready\n"), (7, "# two\n", "run ms=1", ""), (10, "", "read topic=t", "a 1\nb 2\n"),]
        );
    }
}
