//! How a process is asked to stop: a daemon waits for it, a command looks now and then.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The requests to stop that reach this process from now on, instead of killing it.
pub(crate) struct StopRequests(Signals);

impl StopRequests {
    /// Begins to listen. A process that was never asked to be stopped otherwise dies at the signal, as before.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self(Signals::new([SIGTERM, SIGINT])?))
    }

    /// Waits for the first one. A second one then ends the process at once, with 130: whoever asks twice does not want to wait.
    pub(crate) fn wait(mut self) {
        if self.0.forever().next().is_some() {
            std::thread::spawn(move || {
                if self.0.forever().next().is_some() {
                    std::process::exit(crate::exit::Exit::Interrupted as i32);
                }
            });
        }
    }
}

/// A flag that is set by the first request to stop. The second one ends the process, as it would without this.
///
/// # Errors
/// The kernel's.
pub(crate) fn stop_flag() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first request finds the flag unset, and sets it.
        signal_hook::flag::register_conditional_default(signal, stop.clone())?;
        signal_hook::flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}
