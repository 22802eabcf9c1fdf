//! The machine that a run was made on, as far as it changes the figures.

use std::fs;

use sealog_engine::io::wake_latency;

use super::summary::Host;

impl Host {
    /// This machine. What cannot be read is left empty.
    #[must_use]
    pub fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self {
            kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpu: field(&text("/proc/cpuinfo"), "model name"),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: kib(&field(&text("/proc/meminfo"), "MemTotal")),
            governor: match text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").trim() {
                "" => "none".to_owned(),
                governor => governor.to_owned(),
            },
            wake_latency_us: wake_latency::current_us(),
        }
    }
}

/// The value of the first line `name : value`.
fn field(text: &str, name: &str) -> String {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map_or_else(String::new, |(_, value)| value.trim().to_owned())
}

/// Bytes of `N kB`.
fn kib(text: &str) -> u64 {
    text.split(' ').next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_kernel_cores_and_memory() {
        let host = Host::read();
        assert!(!host.kernel.is_empty() && host.cpus > 0 && host.memory_bytes > 0, "{host:?}");
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "model\t\t: 7\nmodel name\t: A CPU\nMemTotal:  16 kB\n";
        assert_eq!(field(text, "model name"), "A CPU");
        assert_eq!(kib(&field(text, "MemTotal")), 16_384);
        assert_eq!(field(text, "none"), "");
    }
}
