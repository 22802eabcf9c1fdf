//! How a process is asked to stop: a daemon waits for it, a command looks now and then.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit::Exit;

/// The requests to stop that reach this process from now on, instead of killing it.
///
/// ```text
///            starting                running                 stopping
/// a signal   ends the process, 130   ends `wait`             ends the process, 130
/// ```
/// While it starts nothing is in flight, and what recovery was doing the next start does again. Whoever asks twice does not want to wait.
pub(crate) struct StopRequests {
    first: Receiver<()>,
    running: Arc<AtomicBool>,
}

impl StopRequests {
    /// Begins to listen.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn listen() -> io::Result<Self> {
        let signals = Signals::new([SIGTERM, SIGINT])?;
        let (heard, first) = sync_channel(1);
        let running = Arc::new(AtomicBool::new(false));
        let is_running = running.clone();
        thread::Builder::new().name("signals".to_owned()).spawn(move || listen(signals, &heard, &is_running))?;
        Ok(Self { first, running })
    }

    /// From now on the first request is waited for. Before anybody is told that it is ready: whoever hears that may ask for the stop at
    /// once.
    pub(crate) fn started(&self) {
        self.running.store(true, Ordering::Release);
    }

    /// Waits for the first request since it [started](Self::started).
    pub(crate) fn wait(&self) {
        self.first.recv().expect("the thread that listens does not end");
    }
}

fn listen(mut signals: Signals, heard: &SyncSender<()>, running: &AtomicBool) {
    for _ in signals.forever() {
        if !running.swap(false, Ordering::AcqRel) {
            std::process::exit(Exit::Interrupted as i32);
        }
        // Fails only if nobody waits any more.
        _ = heard.send(());
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
