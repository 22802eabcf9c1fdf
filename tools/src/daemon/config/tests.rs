use super::*;

fn variables(pairs: &[(&str, &str)]) -> impl Iterator<Item = (OsString, OsString)> {
    pairs.iter().map(|(name, value)| (name.into(), value.into())).collect::<Vec<_>>().into_iter()
}

/// What is wrong with a file of this text, which is the only line of the complaint that does not name the file.
fn wrong_in_file(text: &str) -> String {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("sealog.toml");
    std::fs::write(&file, text).expect("written");
    let told = Settings::default().apply_file(&file).expect_err("a wrong file").to_string();
    told.replace(&*file.to_string_lossy(), "FILE")
}

#[test]
fn later_sources_win_and_each_value_knows_its_own() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("sealog.toml");
    std::fs::write(&file, "[journal]\nsize = \"4MiB\"\nfiles = 3\n[node]\ncpus = [1, 0]\n").expect("written");
    let mut settings = Settings::default();
    settings.apply_file(&file).expect("a good file");
    let set = [("SEALOG_JOURNAL_SIZE", "8MiB"), ("SEALOG_ADDR", "x"), ("HOME", "y"), ("SEALOG_LOG", "debug")];
    settings.apply_environment(variables(&set)).expect("good variables");
    assert_eq!(settings.engine.journal_file_bytes, 8 << 20);
    assert_eq!(settings.origin("journal.size"), Some(&Origin::Variable("SEALOG_JOURNAL_SIZE".to_owned())));
    settings.apply_assignment("journal.size=16MiB").expect("a good flag");
    assert_eq!(settings.engine.journal_file_bytes, 16 << 20);
    assert_eq!(settings.origin("journal.size"), Some(&Origin::Assignment));
    assert_eq!((settings.engine.journal_files, &settings.cpus[..]), (3, &[1, 0][..]));
    assert_eq!(settings.origin("journal.files"), Some(&Origin::File { path: file, line: 3 }));
    assert_eq!((settings.log.filter.as_str(), settings.origin("node.listen")), ("debug", None));
}

#[test]
fn an_unknown_key_is_refused_wherever_it_stands_and_says_where() {
    let mut settings = Settings::default();
    let told = settings.apply_assignment("journal.siez=1").expect_err("unknown").to_string();
    assert_eq!(told, "--set: there is no setting `journal.siez`; did you mean `journal.size`?");
    let told = settings.apply_environment(variables(&[("SEALOG_JURNAL_SIZE", "1")])).expect_err("unknown").to_string();
    let expected = "SEALOG_JURNAL_SIZE: there is no setting `SEALOG_JURNAL_SIZE`; did you mean `SEALOG_JOURNAL_SIZE`?";
    assert_eq!(told, expected);
    let told = wrong_in_file("[node]\nshards = 1\n\n[jurnal]\nsize = 1\n");
    assert_eq!(told, "FILE:5: there is no setting `jurnal.size`; did you mean `journal.size`?");
    assert_eq!(wrong_in_file("listen = 1\n"), "FILE:1: there is no setting `listen`; did you mean `node.listen`?");
    assert_eq!(wrong_in_file("[a.b]\nc = 1\n"), "FILE:1: there is no setting `a.b`");
}

#[test]
fn a_value_that_is_none_is_refused_with_what_it_should_be() {
    let mut settings = Settings::default();
    let told = settings.apply_assignment("segment.age=1x").expect_err("no time").to_string();
    let expected = "it is not a time: write us, ms, s, m, h or d, such as 500ms or 10s";
    assert_eq!(told, format!("--set: `1x` cannot be `segment.age`: {expected}"));
    assert!(matches!(settings.apply_assignment("segment.age"), Err(SettingError::Shape(_))));
    assert_eq!(
        wrong_in_file("[segment]\nage = 60\n"),
        format!("FILE:2: `60` cannot be `segment.age`: {expected}"),
        "a number has no unit"
    );
    assert!(wrong_in_file("[segment]\nsize = 1.5\n").starts_with("FILE:2: `1.5` cannot be `segment.size`"));
    assert!(wrong_in_file("[segment.size]\nmax = 1\n").starts_with("FILE:1: `{..}` cannot be `segment.size`"));
    assert!(wrong_in_file("[segment\n").starts_with("FILE: TOML parse error at line 1"));
}

#[test]
fn settings_that_cannot_work_together_are_told_with_the_place_of_the_one_to_mend() {
    let wrong = |assignments: &[&str]| {
        let mut settings = Settings::default();
        for assignment in assignments {
            settings.apply_assignment(assignment).expect("each is good alone");
        }
        settings.check().expect_err("cannot work").to_string()
    };
    let told = wrong(&["journal.size=4097"]);
    assert!(told.starts_with("--set: journal.size is 4097"), "{told}");
    let told = wrong(&["node.cpus=0", "node.shards=2"]);
    assert_eq!(told, "--set: node.cpus names 1 cores, and node.shards is 2: each shard needs one of its own");
    let told = wrong(&["node.cpus=1,1", "node.shards=2"]);
    assert_eq!(told, "--set: node.cpus names core 1 twice: each shard needs one of its own");
    let told = wrong(&["node.http=127.0.0.1:7400"]);
    assert_eq!(told, "--set: node.listen and node.http are both 127.0.0.1:7400: give each a port of its own");
    assert!(Settings::default().check().is_ok());
}

#[test]
fn a_value_that_is_no_text_is_refused() {
    use std::os::unix::ffi::OsStringExt as _;
    let bytes = OsString::from_vec(vec![0xff]);
    let mut settings = Settings::default();
    let told = settings.apply_environment([("SEALOG_LOG".into(), bytes.clone())].into_iter()).expect_err("no text");
    assert_eq!(told.to_string(), "the value of SEALOG_LOG is not UTF-8");
    settings.apply_environment([(bytes, "x".into())].into_iter()).expect("nobody's");
}
