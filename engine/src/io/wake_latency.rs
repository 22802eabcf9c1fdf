//! How long a core that sleeps may take to wake: the kernel's PM QoS bound on all of this machine's cores.
//!
//! Every record of a lightly loaded node waits for sleeping cores several times: for the shard when the request comes, for the journal's
//! writer, for the shard when the device has finished, for the client. Where waking is dear, as in a virtual machine, whose idle core is
//! given back to the host, that is more than the device takes. The bound is the machine's, costs power, and ends with the process that
//! set it: the kernel's documentation of `/dev/cpu_dma_latency` (admin-guide/pm/cpuidle, "Power Management Quality of Service for CPUs").
//!
//! **Invariant**: the bound holds while the value lives, and no longer, however the process ends: it is the open file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};

use thiserror::Error;

const DEVICE: &str = "/dev/cpu_dma_latency";
/// What the kernel gives where nobody has asked for a bound.
const UNBOUND_US: i32 = 2_000_000_000;

/// A bound that holds while this lives.
#[derive(Debug)]
pub struct WakeLatency {
    _file: File,
}

/// No bound can be set.
#[derive(Debug, Error)]
#[error("cannot bound the time in which cores wake to {most_us} us by {DEVICE}: {error}")]
pub struct WakeLatencyError {
    pub most_us: u32,
    pub error: io::Error,
}

impl WakeLatency {
    /// No core of this machine sleeps so deep that it takes more than `most_us` microseconds to wake; with 0 they do not sleep at all.
    ///
    /// # Errors
    /// The kernel has no such device, this process may not write it, or `most_us` is above 2,000 seconds.
    pub fn bound(most_us: u32) -> Result<Self, WakeLatencyError> {
        let set = || {
            let most = i32::try_from(most_us).ok().filter(|most| *most <= UNBOUND_US);
            let most = most.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
            let mut file = OpenOptions::new().write(true).open(DEVICE)?;
            file.write_all(&most.to_ne_bytes())?;
            Ok(Self { _file: file })
        };
        set().map_err(|error| WakeLatencyError { most_us, error })
    }
}

/// The bound that holds on this machine now, in microseconds, whoever has set it. `None` if nobody has, or it cannot be read.
#[must_use]
pub fn current_us() -> Option<u32> {
    let mut bytes = [0; 4];
    File::open(DEVICE).ok()?.read_exact(&mut bytes).ok()?;
    let bound = i32::from_ne_bytes(bytes);
    if bound >= UNBOUND_US { None } else { u32::try_from(bound).ok() }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_bound_holds_while_it_lives_and_no_longer() {
        // Others on this machine may hold a bound of their own: the strictest counts.
        let before = current_us();
        let bound = match WakeLatency::bound(7) {
            Ok(bound) => bound,
            Err(error) => return writeln!(io::stderr(), "SKIPPED: {error}").expect("standard error"),
        };
        assert_eq!(current_us(), Some(before.map_or(7, |before| before.min(7))));
        drop(bound);
        assert_eq!(current_us(), before);
    }

    #[test]
    fn a_bound_that_the_kernel_does_not_know_is_refused() {
        let refused = WakeLatency::bound(u32::MAX).expect_err("above the kernel's greatest");
        assert!(refused.to_string().contains("4294967295 us"), "{refused}");
    }
}
