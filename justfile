# Shortcuts; `.ci/run` is what must pass.

default:
    @just --list

# Everything that must pass.
ci:
    .ci/run

# The same without the simulator's minutes, the mutants and the fuzzing.
quick:
    .ci/run --quick

# What the README asks for.
demo:
    cargo run --release -- demo

# All tests.
test:
    cargo test --workspace

# Format and lints, as CI wants them.
lint:
    cargo fmt --all
    cargo clippy --workspace --all-targets -- -D warnings
    cargo check -p sealog-engine --no-default-features

# Fresh seeds for so many minutes of CPU time.
sim minutes="4":
    cargo run --profile sim -p sealog-sim -- --minutes {{minutes}}

# One seed again, with its trace.
seed number:
    cargo run --profile sim -p sealog-sim -- --seed {{number}} --trace

# Every mutant must be found.
mutants which="all":
    cargo run --profile sim -p sealog-sim -- --mutants {{which}}

# Load, kill -9, restart, judge.
kill-loop rounds="50":
    cargo build --release
    bench/kill-loop {{rounds}}
