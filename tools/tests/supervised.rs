//! A daemon under a supervisor: systemd's notify protocol, spoken to a socket of the test's own.

mod daemon;

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, Instant};

use daemon::{Daemon, folder, sealog, skipped, text};

/// A stand-in for the supervisor's end.
struct Supervisor(UnixDatagram);

/// Time that the daemon is given between two signs of life; it gives one in half of it.
const WATCHDOG: Duration = Duration::from_millis(800);

impl Supervisor {
    fn listen(dir: &Path) -> Self {
        let socket = UnixDatagram::bind(dir.join("notify")).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        Self(socket)
    }

    /// The next message.
    fn hear(&self) -> String {
        let mut message = [0; 1024];
        let length = self.0.recv(&mut message).expect("a message in time");
        text(&message[..length])
    }

    /// Messages up to the first that holds this line.
    fn hear_until(&self, line: &str) -> Vec<String> {
        let mut heard = Vec::new();
        loop {
            heard.push(self.hear());
            if heard.last().expect("just heard").lines().any(|l| l == line) {
                return heard;
            }
        }
    }

    /// Whether nothing comes for so long.
    fn is_silent(&self, time: Duration) -> bool {
        self.0.set_read_timeout(Some(time)).expect("a timeout");
        let silent = self.0.recv(&mut [0; 1024]).is_err();
        self.0.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        silent
    }
}

fn supervised(dir: &Path, arguments: &[&str]) -> Option<(Daemon, Supervisor)> {
    let supervisor = Supervisor::listen(dir);
    let variables = [
        ("NOTIFY_SOCKET", dir.join("notify").to_str().expect("a text").to_owned()),
        ("WATCHDOG_USEC", WATCHDOG.as_micros().to_string()),
    ];
    let daemon = Daemon::start_with(&dir.join("data"), arguments, &variables)?;
    Some((daemon, supervisor))
}

#[test]
fn it_says_ready_when_it_serves_gives_signs_of_life_and_says_when_it_stops() {
    let dir = folder();
    let Some((daemon, supervisor)) = supervised(dir.path(), &[]) else { return };
    let first = supervisor.hear_until("READY=1");
    assert_eq!(first.iter().filter(|m| m.contains("READY=1")).count(), 1);
    assert!(first.last().expect("heard").contains("STATUS=ready: clients 127.0.0.1:"), "{first:?}");
    daemon.ok(&["topic", "create", "t"], b"");
    for _ in 0..3 {
        supervisor.hear_until("WATCHDOG=1");
    }
    assert_eq!(daemon.stop().code(), Some(0));
    supervisor.hear_until("STOPPING=1");
}

/// The thread of a shard.
fn thread_of_shard(pid: u32, shard: u16) -> i32 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("tasks");
    // The executor's own name has its number behind ours.
    let name = format!("shard-{shard}");
    let named = |path: &Path| std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.starts_with(&name));
    let task = tasks.map(|task| task.expect("a task").path()).find(|path| named(path)).expect("the shard's thread");
    task.file_name().expect("a name").to_str().expect("a text").parse().expect("a number")
}

/// A thread that does not run as long as this lives, while all others of its process do.
struct Held(i32);

impl Held {
    /// `None` where this is not allowed.
    fn hold(thread: i32) -> Option<Self> {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: these requests read no memory of ours.
        let held = unsafe {
            libc::ptrace(libc::PTRACE_SEIZE, thread, none, none) == 0
                && libc::ptrace(libc::PTRACE_INTERRUPT, thread, none, none) == 0
                && libc::waitpid(thread, std::ptr::null_mut(), libc::__WALL) == thread
        };
        held.then_some(Self(thread))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: as above.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, none, none) };
    }
}

#[test]
fn one_shard_that_does_not_move_is_enough_for_no_sign_of_life() {
    let dir = folder();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let shards = if cores > 1 { "2" } else { "1" };
    let Some((daemon, supervisor)) = supervised(dir.path(), &["--shards", shards]) else { return };
    supervisor.hear_until("WATCHDOG=1");
    let last = if cores > 1 { 1 } else { 0 };
    let Some(held) = Held::hold(thread_of_shard(daemon.pid(), last)) else {
        skipped("a thread of a child may not be stopped here");
        return;
    };
    // What it did before it was held may still be told, once.
    std::thread::sleep(WATCHDOG);
    while !supervisor.is_silent(Duration::from_millis(1)) {}
    assert!(supervisor.is_silent(WATCHDOG * 3), "fed, while a shard does not move");
    assert_eq!(daemon.get("/health").0, 200, "the others go on");
    drop(held);
    let since = Instant::now();
    supervisor.hear_until("WATCHDOG=1");
    eprintln!("fed again {:?} after the shard moved", since.elapsed());
}

#[test]
fn the_unit_is_one_that_systemd_takes_and_its_settings_are_good() {
    let folder_of_unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd");
    let checked = sealog().args(["config", "check", "--config"]).arg(folder_of_unit.join("sealog.toml")).output();
    let checked = checked.expect("runs");
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
    let unit = std::fs::read_to_string(folder_of_unit.join("sealog.service")).expect("the unit");
    let has = |line: &str| unit.lines().any(|l| l == line);
    for line in ["Type=notify", "LimitMEMLOCK=infinity", "RestartPreventExitStatus=69 78"] {
        assert!(has(line), "{line}");
    }
    // The unit names /usr/bin/sealog; what is verified names the binary that was built.
    let dir = folder();
    let copy = dir.path().join("sealog.service");
    let binary = sealog().get_program().to_str().expect("a text").to_owned();
    std::fs::write(&copy, unit.replace("/usr/bin/sealog", &binary).replace("User=sealog\nGroup=sealog\n", ""))
        .expect("written");
    let verified = std::process::Command::new("systemd-analyze").arg("verify").arg("--man=no").arg(&copy).output();
    let Ok(verified) = verified else {
        skipped("no systemd-analyze here");
        return;
    };
    let told = text(&verified.stderr);
    let of_ours: Vec<_> = told.lines().filter(|line| line.contains("sealog.service")).collect();
    assert!(of_ours.is_empty(), "{told}");
}
