//! A start that is stopped in any of its calls to the store, by a power cut or a kill, and another that then comes to its end.

use std::fmt::Write as _;

use sealog_sim::script::check_text;

/// How a stopped start ends.
#[derive(Clone, Copy)]
enum Ends {
    /// The power is cut.
    Cut,
    /// The process is killed; the power is cut after the next start.
    KilledThenCut,
}

impl Ends {
    fn text(self) -> &'static str {
        match self {
            Self::Cut => "crash power keep=sectors\n----\ndown\n\n",
            Self::KilledThenCut => {
                "crash kill\n----\ndown\n\nstart\n----\nup\n\ncrash power keep=nothing\n----\ndown\n\n"
            }
        }
    }
}

/// Records, a crash, a start that is stopped in its n-th call, another that is not, and a reading.
fn script(calls: u64, crash: &str, shards: u16, ends: Ends) -> String {
    let mut text = String::from("node shards=2\n----\nready\n\ntopic t ranges=4\n----\nmade\n\n");
    text += "writer w topic=t\n----\nready\n\n";
    for key in 0..6 {
        write!(text, "send w key=k{key} value=v{key} bytes=20000\n----\nw/{key} sent\n\n").expect("a string takes all");
    }
    text += "settle\n----\n\n";
    write!(text, "{crash}\n----\ndown\n\nstart shards={shards} stop={calls}\n----\nstopped\n\n")
        .expect("a string takes all");
    text + ends.text() + "start\n----\nup\n\nread topic=t\n----\n\n"
}

/// Runs it. Returns false if the start needs fewer calls.
fn holds(calls: u64, crash: &str, shards: u16, ends: Ends) -> bool {
    let (differences, _) =
        check_text(&script(calls, crash, shards, ends)).unwrap_or_else(|error| panic!("call {calls}: {error}"));
    let mut stopped = true;
    for (_, expected, found) in differences {
        match expected.as_str() {
            "stopped\n" => stopped = false,
            // What is stored is told in the order of the answers, and read range by range.
            _ => {
                let lines = found.lines().count();
                let whole = found.lines().all(|line| line.ends_with(" Stored")) || found.lines().all(is_record);
                assert!(lines == 6 && whole, "call {calls}: {found}");
            }
        }
    }
    stopped
}

fn is_record(line: &str) -> bool {
    line.split_once(' ').is_some_and(|(key, value)| key.trim_start_matches('k') == value.trim_start_matches('v'))
}

#[test]
fn a_start_may_be_stopped_in_any_call() {
    let cases = [
        ("crash power keep=nothing", 3, Ends::Cut),
        ("crash kill", 1, Ends::Cut),
        ("crash kill", 3, Ends::KilledThenCut),
    ];
    for (crash, shards, ends) in cases {
        let calls = (1..2_000).find(|calls| !holds(*calls, crash, shards, ends)).expect("a start ends");
        assert!(calls > 50, "{calls} calls");
    }
}
