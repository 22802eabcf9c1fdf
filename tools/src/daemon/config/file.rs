//! The TOML file: tables are sections, and every value is given to its key as the text that would stand behind `--set`.

use std::fs;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::nearest;
use super::{Origin, SettingError, Settings};

impl Settings {
    /// Takes the settings of a TOML file.
    ///
    /// # Errors
    /// It cannot be read or is no TOML, or a setting in it cannot be taken; which line says so.
    pub(crate) fn apply_file(&mut self, path: &Path) -> Result<(), SettingError> {
        let text = fs::read_to_string(path).map_err(|error| SettingError::Read { path: path.to_owned(), error })?;
        let document = DeTable::parse(&text)
            .map_err(|error| SettingError::Toml { path: path.to_owned(), error: Box::new(error) })?;
        let origin = |at: usize| Origin::File { path: path.to_owned(), line: 1 + text[..at].matches('\n').count() };
        for (section, value) in document.get_ref() {
            let DeValue::Table(settings) = value.get_ref() else {
                let written = section.get_ref().to_string();
                let nearest = nearest(&written, |key| key.name);
                return Err(SettingError::Unknown { origin: origin(section.span().start), written, nearest });
            };
            for (key, value) in settings {
                let name = format!("{}.{}", section.get_ref(), key.get_ref());
                self.apply(&name, &plain(value), &origin(key.span().start))?;
            }
        }
        Ok(())
    }
}

/// A TOML value as it would stand behind `--set`.
fn plain(value: &Spanned<DeValue<'_>>) -> String {
    match value.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(","),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(truth) => truth.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        // No setting takes one, so whatever stands here is refused.
        DeValue::Table(_) => "{..}".to_owned(),
    }
}
