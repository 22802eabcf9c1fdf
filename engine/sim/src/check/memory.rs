//! Memory: what the node holds is bounded by its configuration, whatever the load.

use super::Violation;

/// The checker.
#[derive(Default)]
pub struct Memory {
    /// Samples with something held.
    pub checked: u64,
    /// The most that was held, by name.
    pub most: Vec<(&'static str, u64)>,
}

impl Memory {
    /// So much is held.
    ///
    /// # Errors
    /// It is more than allowed.
    pub fn sample(&mut self, what: &'static str, used: u64, bound: u64) -> Result<(), Violation> {
        self.checked += u64::from(used > 0);
        match self.most.iter_mut().find(|(name, _)| *name == what) {
            Some((_, most)) => *most = (*most).max(used),
            None => self.most.push((what, used)),
        }
        if used > bound {
            return Err(Violation::Memory { what, used, bound });
        }
        Ok(())
    }
}
