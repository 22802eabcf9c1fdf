//! What can be configured of one node's engine. Every bound on memory and on files starts here.

use thiserror::Error;

use crate::types::limits::{BATCH_BYTES_CEILING, BLOCK};

/// Settings of the engine, the same for all shards of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// Shards, one a core; at least 1.
    pub shards: u16,
    /// Files in one shard's journal ring; at least 2.
    pub journal_files: u16,
    /// Bytes of one journal file; whole blocks.
    pub journal_file_bytes: u64,
    /// Bytes of entries after which a segment rolls; whole blocks.
    pub segment_bytes: u64,
    /// Age after which a segment that holds records rolls, in milliseconds.
    pub segment_age_ms: u64,
    /// Bytes of memory that one shard gives to data which is not yet in a segment.
    pub memory_bytes: u64,
    /// Bytes of the largest batch taken, producer's header included.
    pub batch_bytes_max: u32,
    /// Bytes of requests that one connection may have unanswered; at so many it is not read any more.
    pub connection_bytes_max: u64,
    /// Time without a request after which one empty group is written, so that the last real group is no longer the last, in
    /// microseconds.
    pub idle_marker_us: u64,
    /// Bytes of a journal group from which on it is closed while the one before it is still being written, if it is as large as that.
    pub group_ahead_bytes: usize,
    /// Bytes of the metadata journal's files (there are two); whole blocks.
    pub metadata_file_bytes: u64,
}

/// Why a configuration cannot work.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    #[error("node.shards is 0; give at least 1")]
    NoShards,
    #[error("{key} is {value}; it must be a whole number of {BLOCK}-byte blocks and at least {least}")]
    Unaligned { key: &'static str, value: u64, least: u64 },
    #[error("batch.max is {value} bytes; the most that this journal.size and segment.size can take is {most}")]
    BatchTooLarge { value: u64, most: u64 },
    #[error("batch.max is {value} bytes; at least {least} are needed")]
    BatchTooSmall { value: u64, least: u64 },
    #[error("{key} is {value}; at least {least} are needed")]
    TooSmall { key: &'static str, value: u64, least: u64 },
}

impl ConfigError {
    /// The setting to mend, as `section.key`.
    #[must_use]
    pub fn key(&self) -> &'static str {
        match self {
            Self::NoShards => "node.shards",
            Self::Unaligned { key, .. } | Self::TooSmall { key, .. } => key,
            Self::BatchTooLarge { .. } | Self::BatchTooSmall { .. } => "batch.max",
        }
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            shards: 1,
            journal_files: 2,
            journal_file_bytes: 128 << 20,
            segment_bytes: 256 << 20,
            segment_age_ms: 3_600_000,
            memory_bytes: 512 << 20,
            batch_bytes_max: 1 << 20,
            connection_bytes_max: 64 << 20,
            idle_marker_us: 2_000,
            group_ahead_bytes: 64 << 10,
            metadata_file_bytes: 8 << 20,
        }
    }
}

impl EngineConfig {
    /// Checks what can be checked without a host.
    ///
    /// # Errors
    /// The first setting that cannot work, with the bound that it misses.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.shards == 0 {
            return Err(ConfigError::NoShards);
        }
        let block = BLOCK as u64;
        for (key, value, least) in [
            ("journal.size", self.journal_file_bytes, 1 << 20),
            ("segment.size", self.segment_bytes, 256 << 10),
            ("metadata.size", self.metadata_file_bytes, 1 << 20),
        ] {
            if value % block != 0 || value < least {
                return Err(ConfigError::Unaligned { key, value, least });
            }
        }
        for (key, value, least) in
            [("journal.files", u64::from(self.journal_files), 2), ("node.memory", self.memory_bytes, 4 << 20)]
        {
            if value < least {
                return Err(ConfigError::TooSmall { key, value, least });
            }
        }
        let most = (self.journal_file_bytes / 8).min(self.segment_bytes).min(BATCH_BYTES_CEILING as u64);
        let value = u64::from(self.batch_bytes_max);
        if value > most {
            return Err(ConfigError::BatchTooLarge { value, most });
        }
        if value < 1024 {
            return Err(ConfigError::BatchTooSmall { value, least: 1024 });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_work_and_so_do_small_journals() {
        assert_eq!(EngineConfig::default().check(), Ok(()));
        let small = EngineConfig {
            journal_file_bytes: 1 << 20,
            segment_bytes: 256 << 10,
            batch_bytes_max: 64 << 10,
            ..EngineConfig::default()
        };
        assert_eq!(small.check(), Ok(()));
    }

    #[test]
    fn a_batch_that_does_not_fit_an_eighth_of_a_journal_file_is_refused() {
        let config = EngineConfig { journal_file_bytes: 1 << 20, ..EngineConfig::default() };
        assert_eq!(config.check(), Err(ConfigError::BatchTooLarge { value: 1 << 20, most: 128 << 10 }));
    }
}
