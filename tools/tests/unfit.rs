//! Hosts and directories that a node cannot run on: one clear message, with how to mend it, and the right exit code.

mod daemon;

use std::path::Path;
use std::process::Command;

use daemon::{Daemon, folder, sealog, skipped, text};

const PORTS: [&str; 4] = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];

/// The code and the complaint of a start that must fail.
fn refused(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().expect("runs");
    assert!(output.stdout.is_empty(), "it was ready: {}", text(&output.stdout));
    (output.status.code(), text(&output.stderr))
}

fn serve(dir: &Path) -> Command {
    let mut command = sealog();
    command.arg("serve").args(PORTS).args(["--shards", "1", "--log", "error", "--data-dir"]).arg(dir);
    command
}

/// The same through a shell that first does something to itself.
fn serve_behind(preparation: &str, dir: &Path) -> Command {
    let serve = serve(dir);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{preparation} && exec \"$@\""), "sh"]).arg(serve.get_program()).args(serve.get_args());
    for (name, _) in serve.get_envs() {
        shell.env_remove(name);
    }
    shell
}

/// The subjects of a complaint that a host is unfit.
fn subjects(told: &str) -> Vec<&str> {
    let mut lines = told.lines();
    assert_eq!(lines.next(), Some("sealog: this host is not fit"), "{told}");
    assert!(told.contains("to mend it: "), "{told}");
    lines
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|l| l.trim().split(':').next())
        .collect()
}

#[test]
fn a_directory_that_cannot_be_made_or_written_is_told_with_69() {
    let dir = folder();
    let file = dir.path().join("file");
    std::fs::write(&file, "").expect("written");
    let (code, told) = refused(&mut serve(&file.join("data")));
    assert_eq!((code, subjects(&told)), (Some(69), vec!["data directory"]), "{told}");
    assert!(told.contains("file/data") && told.contains("Not a directory"), "{told}");
    let (code, told) = refused(&mut serve(Path::new("/proc/sealog")));
    assert_eq!((code, subjects(&told)), (Some(69), vec!["data directory"]), "{told}");
    assert!(told.contains("/proc/sealog"), "{told}");
}

#[test]
fn a_directory_of_somebody_else_is_told_with_69() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = folder();
    let mode = |mode| std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).expect("the mode");
    mode(0o555);
    if std::fs::write(dir.path().join("mine"), "").is_ok() {
        // Root may write everywhere; somebody who may not must be able to reach the binary.
        let reachable = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "test", "-x"])
            .arg(sealog().get_program())
            .status();
        if !reachable.is_ok_and(|status| status.success()) {
            return skipped("run by root, and nobody else can run the binary by setpriv");
        }
        let serve = serve(dir.path());
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(serve.get_program())
            .args(serve.get_args());
        let (code, told) = refused(&mut command);
        assert!(code == Some(69) && told.contains("Permission denied"), "{told}");
        return;
    }
    let (code, told) = refused(&mut serve(dir.path()));
    mode(0o755);
    assert_eq!((code, subjects(&told)), (Some(69), vec!["data directory"]), "{told}");
    assert!(told.contains("Permission denied") && told.contains("give the directory to the user"), "{told}");
}

#[test]
fn a_directory_in_use_names_the_process_that_has_it() {
    let dir = folder();
    let Some(daemon) = Daemon::start(dir.path(), &[]) else { return };
    let (code, told) = refused(&mut serve(dir.path()));
    let expected =
        format!("sealog: the data directory {} is in use by process {}\n", dir.path().display(), daemon.pid());
    assert_eq!((code, told), (Some(1), expected));
}

#[test]
fn a_port_in_use_names_the_port_and_its_setting() {
    let (dir, taken) = (folder(), std::net::TcpListener::bind("127.0.0.1:0").expect("a port"));
    let address = taken.local_addr().expect("an address").to_string();
    for (flag, key) in [("--listen", "node.listen"), ("--http", "node.http")] {
        let mut command = sealog();
        let other = if flag == "--listen" { "--http" } else { "--listen" };
        command.args(["serve", flag, &address, other, "127.0.0.1:0", "--data-dir"]).arg(dir.path());
        let (code, told) = refused(&mut command);
        if code == Some(69) {
            skipped(format!("this host cannot run a node: {told}"));
            return;
        }
        assert_eq!(code, Some(1), "{told}");
        assert!(told.contains(&address) && told.contains(key) && told.contains("in use"), "{told}");
    }
}

#[test]
fn too_little_memory_that_may_be_locked_is_told_with_69_and_where_to_raise_it() {
    let dir = folder();
    let (code, told) = refused(&mut serve_behind("ulimit -l 64", dir.path()));
    assert_eq!((code, subjects(&told)), (Some(69), vec!["locked memory"]), "{told}");
    assert!(told.contains("65536 are allowed") && told.contains("LimitMEMLOCK"), "{told}");
}

#[test]
fn a_directory_in_memory_is_told_with_69() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        skipped("no /dev/shm here");
        return;
    };
    let (code, told) = refused(&mut serve(dir.path()));
    if !told.contains("tmpfs") {
        skipped(format!("/dev/shm is no tmpfs here: {told}"));
        return;
    }
    assert_eq!(code, Some(69));
    assert!(subjects(&told).contains(&"file system") && told.contains("put the data directory on a disk"), "{told}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("list").count(), 0, "nothing is left behind");
}

#[test]
fn a_file_system_without_direct_io_is_told_with_69() {
    let dir = folder();
    // ramfs takes no O_DIRECT, on any kernel. Mounted in a namespace of its own: it goes with the process.
    let mount = format!("mount -t ramfs none '{}'", dir.path().display());
    let can = Command::new("unshare").args(["--mount", "sh", "-c", &mount]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        skipped("only root may mount a file system without direct I/O");
        return;
    }
    let serve = serve_behind(&mount, dir.path());
    let mut command = Command::new("unshare");
    command.arg("--mount").arg(serve.get_program()).args(serve.get_args());
    for (name, _) in serve.get_envs() {
        command.env_remove(name);
    }
    let (code, told) = refused(&mut command);
    assert_eq!(code, Some(69), "{told}");
    assert!(
        subjects(&told).contains(&"direct I/O") && told.contains("put the data directory on ext4 or xfs"),
        "{told}"
    );
}

#[test]
fn the_doctor_says_of_an_unfit_host_what_serve_says_and_of_a_fit_one_everything() {
    let dir = folder();
    let doctor = |arguments: &[&str], dir: &Path| {
        let output = sealog().arg("doctor").args(arguments).arg("--data-dir").arg(dir).output().expect("runs");
        (output.status.code(), text(&output.stdout))
    };
    let (code, told) = doctor(&["--format", "json"], &dir.path().join("absent"));
    let report: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(report["fit"].as_bool(), Some(code == Some(0)), "{told}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("list").count(), 0, "nothing is made");
    for finding in report["findings"].as_array().expect("a list") {
        assert_eq!(finding["state"] == "ok", finding["remedy"].is_null(), "{finding}");
    }
    let (code, told) = doctor(&["--shards", "60000"], dir.path());
    assert_eq!(code, Some(69));
    assert!(told.contains("WRONG") && told.contains("this host is NOT fit for 60000 shards"), "{told}");
}

#[test]
fn the_doctor_measures_every_way_to_sync() {
    let dir = folder();
    let doctor = sealog().args(["doctor", "--data-dir"]).arg(dir.path()).output().expect("runs");
    if doctor.status.code() == Some(69) {
        return skipped("this host is not fit");
    }
    let output =
        sealog().args(["doctor", "--iotest", "--format", "json", "--data-dir"]).arg(dir.path()).output().expect("runs");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let methods = report["sync"]["methods"].as_array().expect("a list");
    let names: Vec<_> = methods.iter().map(|method| method["method"].as_str().expect("a text")).collect();
    assert_eq!(names, ["pwritev2(RWF_DSYNC)", "pwrite, fdatasync", "linked", "thread", "async-dsync"]);
    for method in methods {
        let figure = |name: &str| method[name].as_u64().expect("a number");
        assert!(figure("writes") > 0 && figure("p50_ns") <= figure("p99_ns"), "{method}");
    }
    let auto = report["sync"]["auto"].as_str().expect("a text");
    assert!(["linked", "thread"].contains(&auto), "{auto}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("list").count(), 0, "nothing is left behind");
}
