//! A record as one line of JSON: what `consume --format json` prints, `produce --format json` takes.
//!
//! ```text
//! {"key": "..", "value": "..", "headers": {"name": ".."}, "timestamp_ms": 1}
//! ```
//! Bytes that are not UTF-8 stand as base64 under `key_b64`, `value_b64`. A record without key has no `key`, one without value no
//! `value`. Headers that one JSON object of texts cannot hold (a name twice, bytes that are not UTF-8) stand as
//! `"headers_b64": [["name", "value"], ..]`, all in base64, instead.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sealog_engine::format::record::RecordRef;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A record of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// `None`: spread over the ranges.
    pub(crate) key: Option<Vec<u8>>,
    /// `None` is not an empty one.
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: Vec<(Vec<u8>, Vec<u8>)>,
    /// `None`: now.
    pub(crate) timestamp_ms: Option<u64>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_b64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_b64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<serde_json::Map<String, serde_json::Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers_b64: Option<Vec<(String, String)>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp_ms: Option<u64>,
}

/// Why a line is no record.
#[derive(Debug, Error)]
pub(crate) enum LineError {
    #[error("not a record in JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{0}_b64 is not base64")]
    Base64(&'static str),
    #[error("{0} and {0}_b64 exclude each other")]
    Both(&'static str),
    #[error("the value of header {0:?} is not a text")]
    Header(String),
}

impl Record {
    /// A record as it was stored.
    pub(crate) fn of(record: &RecordRef<'_>) -> Self {
        Self {
            key: record.key.key().map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record.headers.map(|(name, value)| (name.to_vec(), value.to_vec())).collect(),
            timestamp_ms: Some(record.timestamp_ms),
        }
    }

    /// The record of a line.
    pub(crate) fn parse(line: &[u8]) -> Result<Self, LineError> {
        let line: Line = serde_json::from_slice(line)?;
        let headers = match (line.headers, line.headers_b64) {
            (Some(_), Some(_)) => return Err(LineError::Both("headers")),
            (None, None) => Vec::new(),
            (Some(texts), None) => texts
                .into_iter()
                .map(|(name, value)| match value.as_str() {
                    Some(text) => Ok((name.into_bytes(), text.as_bytes().to_vec())),
                    None => Err(LineError::Header(name)),
                })
                .collect::<Result<_, _>>()?,
            (None, Some(pairs)) => pairs
                .into_iter()
                .map(|(name, value)| Ok((decode("headers", &name)?, decode("headers", &value)?)))
                .collect::<Result<_, LineError>>()?,
        };
        Ok(Self {
            key: bytes("key", line.key, line.key_b64)?,
            value: bytes("value", line.value, line.value_b64)?,
            headers,
            timestamp_ms: line.timestamp_ms,
        })
    }

    /// Its line, without the line break.
    pub(crate) fn line(&self) -> String {
        let (key, key_b64) = text(self.key.as_deref());
        let (value, value_b64) = text(self.value.as_deref());
        let headers = self.headers_as_texts();
        let headers_b64 = headers
            .is_none()
            .then(|| self.headers.iter().map(|(name, value)| (BASE64.encode(name), BASE64.encode(value))).collect());
        let line = Line {
            key,
            key_b64,
            value,
            value_b64,
            headers: headers.filter(|texts| !texts.is_empty()),
            headers_b64,
            timestamp_ms: self.timestamp_ms,
        };
        serde_json::to_string(&line).expect("texts and numbers are always JSON")
    }

    /// The headers as one JSON object, in order, or `None` if it cannot hold them.
    fn headers_as_texts(&self) -> Option<serde_json::Map<String, serde_json::Value>> {
        let mut texts = serde_json::Map::new();
        for (name, value) in &self.headers {
            let (name, value) = (std::str::from_utf8(name).ok()?, std::str::from_utf8(value).ok()?);
            if texts.insert(name.to_owned(), value.into()).is_some() {
                return None;
            }
        }
        Some(texts)
    }
}

/// Bytes as a text, or as base64.
fn text(bytes: Option<&[u8]>) -> (Option<String>, Option<String>) {
    match bytes.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
        None => (None, None),
        Some((_, Ok(text))) => (Some(text.to_owned()), None),
        Some((bytes, Err(_))) => (None, Some(BASE64.encode(bytes))),
    }
}

fn bytes(name: &'static str, text: Option<String>, base64: Option<String>) -> Result<Option<Vec<u8>>, LineError> {
    match (text, base64) {
        (Some(_), Some(_)) => Err(LineError::Both(name)),
        (Some(text), None) => Ok(Some(text.into_bytes())),
        (None, Some(base64)) => decode(name, &base64).map(Some),
        (None, None) => Ok(None),
    }
}

fn decode(name: &'static str, base64: &str) -> Result<Vec<u8>, LineError> {
    BASE64.decode(base64).map_err(|_| LineError::Base64(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: Option<&[u8]>, value: Option<&[u8]>, headers: &[(&[u8], &[u8])]) -> Record {
        Record {
            key: key.map(<[u8]>::to_vec),
            value: value.map(<[u8]>::to_vec),
            headers: headers.iter().map(|(n, v)| (n.to_vec(), v.to_vec())).collect(),
            timestamp_ms: Some(5),
        }
    }

    #[test]
    fn what_is_printed_is_what_is_taken() {
        for record in [
            record(Some(b"k"), Some(b"v"), &[]),
            record(None, Some(b""), &[]),
            record(Some(b""), None, &[]),
            record(Some(b"\xff"), Some(b"\xfe\n"), &[]),
            record(None, None, &[(b"z", b"1"), (b"a", b"2")]),
            record(None, None, &[(b"a", b"1"), (b"a", b"2")]),
            record(None, None, &[(b"a", b"\xff")]),
        ] {
            assert_eq!(Record::parse(record.line().as_bytes()).expect("a record"), record, "{}", record.line());
        }
    }

    #[test]
    fn texts_stand_as_texts() {
        let line = record(Some(b"k"), Some(b"v\n"), &[(b"z", b"1"), (b"a", b"2")]).line();
        assert_eq!(line, r#"{"key":"k","value":"v\n","headers":{"z":"1","a":"2"},"timestamp_ms":5}"#);
    }

    #[test]
    fn what_is_no_record_is_refused_with_its_reason() {
        let error = |line: &str| Record::parse(line.as_bytes()).expect_err("no record").to_string();
        assert!(error("hello").starts_with("not a record in JSON"));
        assert!(error(r#"{"kye": "x"}"#).contains("unknown field `kye`"));
        assert_eq!(error(r#"{"value_b64": "!"}"#), "value_b64 is not base64");
        assert_eq!(error(r#"{"key": "a", "key_b64": "YQ=="}"#), "key and key_b64 exclude each other");
        assert_eq!(error(r#"{"headers": {"a": 1}}"#), "the value of header \"a\" is not a text");
    }
}
