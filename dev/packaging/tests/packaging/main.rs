//! What Helm and kustomize make of the files in `deploy/`: the objects that the same options render. What krew makes of the
//! plug-in of kubectl.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at the first thing that is not as it must be"
)]

mod chart;
mod kustomize;
mod plugin;
mod values;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;
use sluice_manifests::{InstallOptions, OptionsFile};
use sluice_packaging::files;
use sluice_testbed::artifacts;
use tempfile::TempDir;

/// `deploy/`, as it is generated.
fn deploy() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files().unwrap() {
        write(&folder.path().join(path), &text);
    }
    folder
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// What the program prints, or what it says is wrong.
fn packaging(arguments: &[&str]) -> Result<String, String> {
    static PROGRAM: OnceLock<std::path::PathBuf> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| artifacts::packaging().unwrap());
    let output = Command::new(program).args(arguments).output().unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    if output.status.success() { Ok(stdout) } else { Err(stderr) }
}

/// Objects by what names them; each once.
fn by_name(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let mut named = BTreeMap::new();
    for object in objects {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let name = format!(
            "{} {} {}/{}",
            text("/apiVersion"),
            text("/kind"),
            text("/metadata/namespace"),
            text("/metadata/name")
        );
        assert!(named.insert(name.clone(), object).is_none(), "{name} is there twice");
    }
    named
}

/// Says which object differs, and not all of them.
fn assert_same(is: Vec<Value>, expected: Vec<Value>, what: &str) {
    let (is, expected) = (by_name(is), by_name(expected));
    assert_eq!(is.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{what}");
    for (name, object) in expected {
        assert_eq!(whole(read_options(is[&name].clone())), whole(read_options(object)), "{what}: {name}");
    }
}

/// Options as they are read: a file may say what is the default.
fn read_options(mut object: Value) -> Value {
    for (_, text) in object.get_mut("data").and_then(Value::as_object_mut).into_iter().flatten() {
        let options = OptionsFile::parse(text.as_str().unwrap()).unwrap();
        *text = OptionsFile::of(&options.over(InstallOptions::default()).unwrap()).text().into();
    }
    object
}

/// 1 and 1.0 are one number in YAML.
fn whole(value: Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if float.fract() == 0.0 => Value::from(float as i64),
            _ => Value::Number(number),
        },
        Value::Array(items) => items.into_iter().map(whole).collect(),
        Value::Object(fields) => fields.into_iter().map(|(key, value)| (key, whole(value))).collect(),
        other => other,
    }
}
