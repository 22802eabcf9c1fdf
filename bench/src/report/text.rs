//! A report as people read it.

use std::fmt::{self, Display, Formatter};

use super::summary::{Disturbance, Errors, Flaw, FloorPair, Phase, Quantiles, Report, Verification};

/// A time in microseconds, or `–` where there were too few samples.
struct Micros(Option<f64>);

/// A ratio, or `–`.
struct Times(Option<f64>);

impl Display for Micros {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.pad("–"),
            Some(us) if us < 1_000.0 => f.pad(&format!("{us:.1} us")),
            Some(us) if us < 1_000_000.0 => f.pad(&format!("{:.2} ms", us / 1e3)),
            Some(us) => f.pad(&format!("{:.2} s", us / 1e6)),
        }
    }
}

impl Display for Times {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.pad("–"),
            Some(ratio) => f.pad(&format!("{ratio:.2}x")),
        }
    }
}

fn row(f: &mut Formatter<'_>, name: &str, q: &Quantiles) -> fmt::Result {
    writeln!(
        f,
        "  {name:<13} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>11}",
        Micros(q.p50_us),
        Micros(q.p90_us),
        Micros(q.p99_us),
        Micros(q.p999_us),
        Micros(q.p9999_us),
        Micros(q.max_us),
        q.samples,
    )
}

fn head(f: &mut Formatter<'_>) -> fmt::Result {
    writeln!(
        f,
        "  {:<13} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>11}",
        "", "p50", "p90", "p99", "p99.9", "p99.99", "max", "samples"
    )
}

impl Display for FloorPair {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "floor: 4 KiB durable write by {}, and an echo of {} and {} bytes{}",
            self.before.method,
            self.request_bytes,
            self.reply_bytes,
            self.device_cache.as_ref().map_or_else(String::new, |cache| format!(" (device cache: {cache})")),
        )?;
        head(f)?;
        row(f, "write", &self.before.write)?;
        row(f, "echo", &self.before.echo)?;
        row(f, "sum", &self.before.sum)?;
        if let Some(after) = &self.after {
            row(f, "sum after", &after.sum)?;
        }
        Ok(())
    }
}

impl Display for Phase {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let rate = match self.offered_rate {
            Some(offered) => format!("open loop, {:.0} of {offered:.0} records/s", self.achieved_rate),
            None => format!("closed loop, {:.0} records/s", self.achieved_rate),
        };
        writeln!(
            f,
            "{}: {rate}; {} records, {:.1} MB/s in {:.1} s{}",
            self.name,
            self.records,
            mb_per_s(self.bytes, self.seconds),
            self.seconds,
            if self.saturated { "  SATURATED" } else { "" },
        )?;
        head(f)?;
        row(f, "response", &self.response)?;
        row(f, "service", &self.service)?;
        row(f, "send delay", &self.send_delay)?;
        if let Some(ratios) = &self.ratios {
            writeln!(f, "  response over floor: p50 {}, p99 {}", Times(ratios.p50), Times(ratios.p99))?;
        }
        if let Some(disturbance) = &self.disturbance {
            disturbance.fmt(f)?;
        }
        if let (Some(flushes), Some(each)) = (self.device_flushes, self.flushes_per_record) {
            writeln!(f, "  device flushes: {flushes}, {each:.4} a record")?;
        }
        if let Some(steal) = self.steal.filter(|steal| *steal > 0.02) {
            writeln!(f, "  the hypervisor took {:.1} % of the time", steal * 100.0)?;
        }
        self.errors.fmt(f)
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn mb_per_s(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 / 1e6 / seconds.max(f64::MIN_POSITIVE)
}

impl Display for Disturbance {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "  {} rolls, {} checkpoints; within 100 ms of one p99.9 {}, others {}, ratio {}",
            self.rolls,
            self.checkpoints,
            Micros(self.near.p999_us),
            Micros(self.others.p999_us),
            Times(self.ratio_p999),
        )
    }
}

impl Display for Errors {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.not_stored + self.unknown > 0 {
            writeln!(f, "  not stored {}, unknown {}", self.not_stored, self.unknown)?;
        }
        for (cause, count) in &self.by_cause {
            writeln!(f, "  refused {count} times: {cause}")?;
        }
        Ok(())
    }
}

impl Display for Verification {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "verification: {}: {} acknowledged, {} read back: {} lost, {} duplicated, {} reordered, {} damaged, {} unexpected; {} unknown",
            if self.passed() { "passed" } else { "FAILED" },
            self.acknowledged,
            self.read,
            self.lost,
            self.duplicated,
            self.reordered,
            self.damaged,
            self.unexpected,
            self.unknown,
        )?;
        for (cause, count) in &self.gaps {
            writeln!(f, "  {count} gaps told: {cause}")?;
        }
        Ok(())
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(floor) = &self.floor {
            floor.fmt(f)?;
        }
        for phase in &self.phases {
            phase.fmt(f)?;
        }
        if let Some(verification) = &self.verification {
            verification.fmt(f)?;
        }
        match self.flaw() {
            None => Ok(()),
            Some(Flaw::Saturated) => writeln!(f, "NOT A MEASUREMENT: the load was not what was asked for"),
            Some(Flaw::FloorMoved) => {
                writeln!(f, "NOT A MEASUREMENT: the floors before and after differ by more than a quarter")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_in_the_unit_that_fits_and_a_missing_one_as_a_dash() {
        let shown: Vec<String> =
            [None, Some(9.96), Some(1_234.0), Some(2_500_000.0)].map(|us| Micros(us).to_string()).to_vec();
        assert_eq!(shown, ["–", "10.0 us", "1.23 ms", "2.50 s"]);
    }
}
