//! Every scenario goes as it says.

use std::path::Path;

use sealog_sim::script::check_file;

#[test]
fn every_scenario_goes_as_it_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("there are scenarios") {
        let path = entry.expect("a folder can be listed").path();
        match check_file(&path) {
            Ok(differences) => assert!(differences.is_empty(), "{}: {differences:#?}", path.display()),
            Err(error) => panic!("{}: {error}", path.display()),
        }
        count += 1;
    }
    assert!(count > 5, "{count} scenarios");
}
