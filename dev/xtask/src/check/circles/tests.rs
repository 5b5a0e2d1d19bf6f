//! Crates with planted circles.

use std::path::Path;

use super::circles;

/// Writes these files and looks for circles in the crate that begins with the first of them.
fn found(files: &[(&str, &str)]) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().expect("its folder")).expect("a folder");
        std::fs::write(file, text).expect("a file");
    }
    let found = circles(&folder.path().join(files[0].0)).expect("a crate");
    found.into_iter().map(|circle| without(folder.path(), &circle)).collect()
}

fn without(folder: &Path, text: &str) -> String {
    text.replace(&format!("{}/", folder.display()), "")
}

#[test]
fn a_circle_is_found_and_the_files_along_it_are_named() {
    let circle = found(&[
        ("lib.rs", "mod pod; mod plan; mod apart;"),
        ("pod/mod.rs", "mod facts; mod records;"),
        ("pod/facts.rs", "use super::records::{Gates, Other as Another}; pub struct Facts(Gates);"),
        ("pod/records.rs", "pub enum Gates {} fn gates() { crate::plan::plan(); }"),
        ("plan.rs", "use crate::pod; pub fn plan() -> pod::facts::Facts { todo!() }"),
        ("apart.rs", "use crate::plan::plan;"),
    ]);
    assert_eq!(
        circle,
        ["  plan.rs: plan uses pod::facts (pod::facts::Facts)\n  \
          pod/facts.rs: pod::facts uses pod::records (super::records::Gates)\n  \
          pod/records.rs: pod::records uses plan (crate::plan::plan)"]
    );
}

#[test]
fn each_knot_of_modules_is_told_of_once_by_its_shortest_circle() {
    let circles = found(&[
        ("lib.rs", "mod a; mod b; mod c; mod x; mod y;"),
        ("a.rs", "use crate::b::B; pub struct A;"),
        ("b.rs", "use crate::c::C; pub struct B;"),
        ("c.rs", "use crate::{a::A, b::B}; pub struct C;"),
        ("x.rs", "use super::y; pub struct X(y::Y);"),
        ("y.rs", "pub struct Y(Box<super::x::X>);"),
    ]);
    let [first, second] = circles.as_slice() else { panic!("two: {circles:?}") };
    assert_eq!(first, "  b.rs: b uses c (crate::c::C)\n  c.rs: c uses b (crate::b::B)");
    assert!(second.starts_with("  x.rs: x uses y (super::y)\n"), "{second}");
}

#[test]
fn a_circle_may_lead_through_what_is_exported_again_through_macros_and_through_attributes() {
    for text in [
        "use crate::B; pub struct A;",
        "use super::*; pub struct A; fn b() -> exported::B { todo!() }",
        "pub struct A; fn told() { println!(\"{}\", crate::b::told()); }",
        "#[derive(Deserialize)] pub struct A { #[serde(with = \"crate::b::read\")] b: u8 }",
        "pub struct A; impl From<<A as crate::b::Named>::Name> for A {}",
        "pub struct A; fn made() { Vec::<crate::b::B>::new(); }",
    ] {
        let circles = found(&[
            ("lib.rs", "mod a; mod b; mod exported { pub use crate::b::B; } pub use a::*; pub use b::B;"),
            ("a.rs", text),
            ("b.rs", "pub struct B(Box<crate::A>);"),
        ]);
        assert_eq!(circles.len(), 1, "{text}: {circles:?}");
    }
}

#[test]
fn outer_and_inner_modules_make_none() {
    let none = found(&[
        ("lib.rs", "mod outer; pub const MOST: usize = 1;"),
        ("outer.rs", "mod inner; use inner::Inner; pub struct Outer(Inner);"),
        ("outer/inner.rs", "use super::Outer; use crate::MOST; pub struct Inner(Box<Outer>);"),
    ]);
    assert_eq!(none, Vec::<String>::new());
}

#[test]
fn tests_visibility_other_crates_and_comments_make_none() {
    for text in [
        "#[cfg(test)] mod tests;",
        "#[cfg(test)] mod tests { use crate::b::B; }",
        "#[cfg(all(test, unix))] use crate::b::B; pub struct A;",
        "#[cfg(test)] fn helper<T, U>() -> crate::b::B { crate::b::B }",
        "pub(in crate::b) struct A;",
        "// use crate::b::B;\n/// See [`crate::b::B`].\npub struct A;",
        "pub const A: &str = \"crate::b::B\";",
        "use ::b::B; use other::b::B as C;",
        "use crate as root; pub struct A;",
    ] {
        let files = [("lib.rs", "mod a; mod b;"), ("a.rs", text), ("b.rs", "use crate::a::A; pub struct B;")];
        assert_eq!(found(&files), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn conditions_that_hold_without_tests_leave_nothing_out() {
    for condition in ["not(test)", "any(test, unix)", "unix", "feature = \"test\""] {
        let text = format!("#[cfg({condition})] use crate::b::B; pub struct A;");
        let files =
            [("lib.rs", "mod a; mod b;"), ("a.rs", &*text), ("b.rs", "use crate::a::A; pub struct B;")];
        assert_eq!(found(&files).len(), 1, "{condition}");
    }
}

#[test]
fn this_workspace_has_none() {
    super::check().expect("no circles");
}
