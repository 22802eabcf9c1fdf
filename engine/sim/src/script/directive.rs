//! One line of a script: a word, names, and `key=value` pairs.

use std::collections::BTreeMap;
use std::str::FromStr;

use super::ScriptError;

/// A directive.
pub(super) struct Directive {
    pub(super) line: usize,
    /// The first word.
    pub(super) verb: String,
    /// Words without `=`.
    names: Vec<String>,
    values: BTreeMap<String, String>,
}

impl Directive {
    pub(super) fn parse(line: usize, text: &str) -> Result<Self, ScriptError> {
        let mut words = text.split_whitespace();
        let verb = words.next().ok_or(ScriptError::Missing { line, what: "a directive" })?.to_owned();
        let (mut names, mut values) = (Vec::new(), BTreeMap::new());
        for word in words {
            match word.split_once('=') {
                Some((key, value)) => drop(values.insert(key.to_owned(), value.to_owned())),
                None => names.push(word.to_owned()),
            }
        }
        Ok(Self { line, verb, names, values })
    }

    /// The `n`-th word without `=`.
    pub(super) fn name(&self, n: usize, what: &'static str) -> Result<&str, ScriptError> {
        self.names.get(n).map(String::as_str).ok_or(ScriptError::Missing { line: self.line, what })
    }

    /// Whether a word stands there.
    pub(super) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|found| found == name)
    }

    /// What stands behind `key=`.
    pub(super) fn text(&self, key: &'static str) -> Result<&str, ScriptError> {
        self.values.get(key).map(String::as_str).ok_or(ScriptError::Missing { line: self.line, what: key })
    }

    /// The same if it is there.
    pub(super) fn text_or<'a>(&'a self, key: &str, or: &'a str) -> &'a str {
        self.values.get(key).map_or(or, String::as_str)
    }

    /// A number behind `key=`, if it is there.
    pub(super) fn number<T: FromStr>(&self, key: &str) -> Result<Option<T>, ScriptError> {
        let parse = |text: &String| text.parse().map_err(|_| ScriptError::Word { line: self.line, word: text.clone() });
        self.values.get(key).map(parse).transpose()
    }

    /// The verb is none that is known.
    pub(super) fn unknown(&self) -> ScriptError {
        ScriptError::Word { line: self.line, word: self.verb.clone() }
    }
}
