//! A real daemon as a child process, for tests: its own folder beside the test binary (which is on a disk, as O_DIRECT asks), free
//! ports, and small files so that much happens soon.
#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(unreachable_pub, reason = "each test binary takes what it needs of it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use sealog_net::wire::{Decoded, Hello, Kind, decode};
use tempfile::TempDir;

/// Longest wait for anything; far beyond what a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(120);
/// The exit code of a host that cannot run a node.
const UNFIT: i32 = 69;

/// The binary under test.
pub fn sealog() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealog"));
    // What the caller's shell has set must not change a test.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SEALOG_")) {
        command.env_remove(name);
    }
    command
}

/// A folder on the disk that holds the build.
pub fn folder() -> TempDir {
    let exe = std::env::current_exe().expect("path of the test binary");
    tempfile::tempdir_in(exe.parent().expect("folder of the test binary")).expect("a folder beside it")
}

/// An address that a daemon can have again after its end. Its port is below those that the kernel gives to clients: one of them, trying
/// to reach a daemon that is gone, may be given the very port that it tries to reach, and then holds it.
pub fn steady_address() -> String {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").expect("the range");
    let least: u16 = range.split_ascii_whitespace().next().expect("a number").parse().expect("a number");
    let first = 10_000 + u16::try_from(std::process::id() % 10_000).expect("below 10,000");
    let free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let port = (first..least.max(first + 1)).find(free).expect("a free port");
    format!("127.0.0.1:{port}")
}

/// A running daemon. Killed when dropped.
pub struct Daemon {
    child: Child,
    pub listen: String,
    pub http: String,
    pub dir: PathBuf,
}

impl Daemon {
    /// Starts one on `dir` with small files and these further arguments. `None`, said aloud, if this host cannot run a node.
    pub fn start(dir: &Path, arguments: &[&str]) -> Option<Self> {
        Self::start_with(dir, arguments, &[])
    }

    /// As above, with these environment variables.
    pub fn start_with(dir: &Path, arguments: &[&str], variables: &[(&str, String)]) -> Option<Self> {
        let mut command = sealog();
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command.args(["serve", "--format", "json", "--http", "127.0.0.1:0"]);
        if !arguments.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        if !arguments.contains(&"--shards") {
            command.args(["--shards", "1"]);
        }
        command.args(["--journal-size", "16MiB", "--segment-size", "4MiB"]);
        command.args(["--set", "metadata.size=1MiB", "--sync", "linked"]);
        command.arg("--data-dir").arg(dir).args(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().expect("the binary runs");
        let mut line = String::new();
        let out = child.stdout.take().expect("a pipe");
        BufReader::new(out).read_line(&mut line).expect("a line");
        if line.is_empty() {
            let status = child.wait().expect("an exit status");
            assert_eq!(status.code(), Some(UNFIT), "the daemon ended before it was ready");
            skipped("this host cannot run a node, as told above");
            return None;
        }
        let facts: serde_json::Value = serde_json::from_str(&line).expect("one line of JSON");
        let text = |name: &str| facts[name].as_str().expect("a text").to_owned();
        Some(Self { child, listen: text("listen"), http: text("http"), dir: dir.to_owned() })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as a power cut of the process would.
    pub fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }

    /// Asks it to stop, and waits until it has.
    pub fn stop(mut self) -> ExitStatus {
        signal(self.pid(), "-TERM");
        wait(&mut self.child)
    }

    /// Waits until it has ended by itself.
    pub fn ended(mut self) -> ExitStatus {
        wait(&mut self.child)
    }

    /// A command for this daemon.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = sealog();
        command.args(arguments).env("SEALOG_ADDR", &self.listen);
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.run_with(arguments, b"")
    }

    /// Runs a command to its end with this input.
    pub fn run_with(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = self.command(arguments);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let mut stdin = child.stdin.take().expect("a pipe");
        let input = input.to_vec();
        let writer = std::thread::spawn(move || _ = stdin.write_all(&input));
        let output = child.wait_with_output().expect("an end");
        writer.join().expect("the writer");
        output
    }

    /// Runs a command that must succeed, and gives its output.
    pub fn ok(&self, arguments: &[&str], input: &[u8]) -> String {
        let output = self.run_with(arguments, input);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Bytes of memory that the process has in use.
    pub fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("status");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
        line.split_ascii_whitespace().nth(1).expect("a number").parse::<u64>().expect("a number") * 1024
    }

    /// The answer of its HTTP port: status and body.
    pub fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.http).expect("a connection");
        let request = format!("GET {path} HTTP/1.0\r\nHost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("asked");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        let (head, body) = answer.split_once("\r\n\r\n").expect("head and body");
        (head.split(' ').nth(1).expect("a status").parse().expect("a number"), body.to_owned())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Waits for a child's end.
pub fn wait(child: &mut Child) -> ExitStatus {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status;
        }
        assert!(Instant::now() < until, "the process does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("a text")
}

/// All files below a folder with their bytes.
pub fn contents(dir: &Path) -> std::collections::BTreeMap<PathBuf, Vec<u8>> {
    let mut files = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(contents(&path));
        } else {
            files.insert(path.clone(), std::fs::read(&path).expect("a file"));
        }
    }
    files
}

/// A connection whose hello was answered.
pub fn greeted(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    let mut hello = Vec::new();
    let client = "test".to_owned();
    Hello { version_min: 1, version_max: 1, features: 0, cluster: None, shard: None, client, authentication: vec![] }
        .append(&mut hello, 0);
    stream.write_all(&hello).expect("written");
    let mut told = vec![0; 32];
    stream.read_exact(&mut told).expect("a header");
    let Ok(Decoded::Partial { needed }) = decode(&told, 1 << 16) else { panic!("no welcome: {told:02x?}") };
    told.resize(needed, 0);
    stream.read_exact(&mut told[32..]).expect("a frame");
    let Ok(Decoded::Frame { frame, .. }) = decode(&told, 1 << 16) else { panic!("no welcome: {told:02x?}") };
    assert_eq!(frame.kind, Kind::Welcome.number());
    stream
}

/// What a load read back, judged.
pub fn nothing_is_wrong(found: &serde_json::Value) {
    for kind in ["lost", "duplicated", "reordered", "damaged", "unexpected"] {
        assert_eq!(found[kind], 0, "{found}");
    }
}

/// Says aloud what a test leaves out, and why: past the harness, which keeps what a passing test prints by macro.
pub fn skipped(why: impl std::fmt::Display) {
    writeln!(std::io::stderr(), "SKIPPED: {why}").expect("standard error");
}

pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").arg(name).arg(pid.to_string()).status();
    assert!(sent.expect("kill runs").success());
}
